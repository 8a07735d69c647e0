"""Emitted CUDA kernels with masks and scores, on the CPU: right, and without a race."""

from __future__ import annotations

import numpy as np
import pytest

from flashgen import emission
from flashgen.plan.launch import Sizes
from flashgen.reference import attention, bound
from flashgen.schedule import Schedule
from flashgen.targets.cuda import Cuda
from tests.cuda_emitted import CACHE
from tests.cuda_on_cpu.build import TENSOR
from tests.cuda_on_cpu.runner import ATTENTION, CudaOnCpu
from tests.mods import PROBLEMS, random_inputs, what_is_read

NUMBERS = {"index": "long long", "float": "float"}


@pytest.mark.parametrize("schedule", [Schedule("q-outer", 16, 8), Schedule("kv-outer", 8, 16, False)])
@pytest.mark.parametrize(
    "name", ["document, causal", "chosen", "bias and sink", "softcap", "log n", "numbers alone"]
)
def test_kernels_equal_the_definition(name: str, schedule: Schedule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHGEN_CACHE_DIR", str(CACHE))
    problem, rng = PROBLEMS[name], np.random.default_rng(3)
    x = random_inputs(problem, rng, (1, 2, 1, 18, 21))
    x.v[0, 0, 10, 1] = np.nan
    inputs = what_is_read(rng, x)
    emitted = emission.emit(problem, schedule, Cuda())
    launch = emitted.launch
    assert launch is not None
    numbers = [NUMBERS[s.kind] for s in problem.scalars]
    signature = (*ATTENTION[:5], *[f"const {TENSOR}"] * len(problem.arrays), "float", *numbers, "float *")
    o, lse = np.full((1, 2, 18, 5), np.nan, np.float32), np.full((1, 2, 18), np.nan, np.float32)
    sizes = Sizes(1, 2, 1, 18, 21)
    workspace = np.full(launch.workspace_elements(sizes), np.nan, np.float32)
    arrays = [inputs[a.name] for a in problem.arrays]
    args = (x.q, x.k, x.v, o, lse, *arrays, x.scale, *(inputs[s.name] for s in problem.scalars), workspace)
    kernel = CudaOnCpu(emitted.source, emitted.name, signature)
    report = kernel.launch(launch.blocks(sizes), launch.threads, args, launch.shared_bytes)
    assert report.clean, report.message
    want = attention(problem, x.q, x.k, x.v, x.scale, inputs)
    bound(problem, x.q, x.k, x.v, x.scale, values=inputs).check(o, lse, *want)
