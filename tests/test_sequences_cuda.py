"""Packed and paged sequences in CUDA kernels: on the CPU, with every access checked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashgen.emission import emit
from flashgen.errors import InvalidArgument
from flashgen.layouts import LAYOUTS
from flashgen.plan.launch import Sizes
from flashgen.problem import Problem
from flashgen.schedule import FA1, FA2, Schedule
from flashgen.targets.cuda import Cuda
from tests.cuda_emitted import CACHE
from tests.cuda_on_cpu.build import TENSOR
from tests.cuda_on_cpu.runner import ATTENTION, CudaOnCpu
from tests.sequences import make

TARGET = Cuda()
LENGTHS = [(5, 9), (0, 4), (3, 0), (1, 1), (9, 18)]
EVEN = [(5, 9), (5, 0), (5, 17)]


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "dense"])
@pytest.mark.parametrize("schedule", [FA2, FA1], ids=["q-outer", "kv-outer"])
def test_kernels(layout: str, schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right, and nothing is touched that is no sequence's: what lies there is NaN, outputs too."""
    monkeypatch.setenv("FLASHGEN_CACHE_DIR", str(CACHE))
    problem = Problem(5, 7, causal="bottom-right", layout=layout)
    queries = LAYOUTS[layout].queries
    if schedule is FA1 and queries == "packed":
        with pytest.raises(InvalidArgument, match="order is 'kv-outer'; target cuda has memory of one size"):
            TARGET.complete(problem, FA1)
        return
    kernel = emit(problem, replace(schedule, br=4, bc=8), TARGET)
    assert kernel.launch is not None
    x = make(problem, EVEN if queries == "dense" else LENGTHS, (4, 2), "hidden")
    sizes = Sizes(len(x.parts), 4, 2, 5, 0)
    workspace = np.full(kernel.launch.workspace_elements(sizes), np.nan, np.float32)
    tensors = (*ATTENTION[:5], *[f"const {TENSOR}"] * len(problem.arrays), *ATTENTION[5:])
    found = CudaOnCpu(kernel.source, kernel.name, tensors).launch(
        kernel.launch.blocks(sizes),
        kernel.launch.threads,
        (*x.arguments, x.scale, workspace if workspace.size else None),
        kernel.launch.shared_bytes,
    )
    assert found.clean, found.message
    x.check()
