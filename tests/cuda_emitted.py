"""Emitted CUDA kernels that can be called: on the CPU, their text unchanged, with every access checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

from flashgen import emission
from flashgen.plan.launch import LaunchPlan, Sizes
from flashgen.problem import Problem
from flashgen.reference import attention, bound
from flashgen.schedule import ORDERS, Schedule
from flashgen.targets.cuda import Cuda
from tests.cuda_on_cpu.runner import CudaOnCpu, Report
from tests.strategies import STORAGE, Inputs

TARGET = Cuda()
CACHE = Path(__file__).parent.parent / ".pytest_cache" / "kernels"
COMBINATIONS = tuple(product(ORDERS, (True, False), (True, False)))
"""Order, lazy rescale, causal skip."""


@dataclass
class Emitted:
    """One emitted kernel."""

    problem: Problem
    schedule: Schedule
    source: str
    launch: LaunchPlan
    _compiled: dict[str, CudaOnCpu] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return emission.variant(self.problem, self.schedule, TARGET)

    def call(
        self, x: Inputs, source: str | None = None, number: int = 0, seed: int = 0
    ) -> tuple[np.ndarray, np.ndarray, Report]:
        """O and lse, which hold NaN before, as the workspace does, and what was seen. No launch of no block.

        source: what runs instead of the kernel's own text; there, lse_tensor.stride[3] is ``number``.
        """
        (batch, hq, nq, _), (hkv, nk), dv = x.q.shape, x.k.shape[1:3], x.v.shape[3]
        sizes = Sizes(batch, hq, hkv, nq, nk)
        o, lse = (
            np.full((batch, hq, nq, *rest), np.nan, dtype)
            for rest, dtype in (((dv,), STORAGE[self.problem.dtype]), ((), np.float32))
        )
        numbered = as_strided(lse, (*lse.shape, 1), (*lse.strides, 4 * number)) if number else lse
        workspace = np.full(self.launch.workspace_elements(sizes), np.nan, np.float32)
        blocks, text = self.launch.blocks(sizes), source or self.source
        if not blocks:
            return o, lse, Report(0, 0, 0, 0, "")
        kernel = self._compiled.setdefault(text, CudaOnCpu(text, self.name))
        arguments = (x.q, x.k, x.v, o, numbered, x.scale, workspace if workspace.size else None)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLASHGEN_CACHE_DIR", str(CACHE))
            report = kernel.launch(
                blocks, self.launch.threads, arguments, self.launch.shared_bytes, seed=seed
            )
        return o, lse, report

    def check(self, x: Inputs, seed: int = 0) -> None:
        """It equals the reference, and nothing is wrong on the way."""
        o, lse, report = self.call(x, seed=seed)
        want, limit = (
            attention(self.problem, x.q, x.k, x.v, x.scale),
            bound(self.problem, x.q, x.k, x.v, x.scale),
        )
        try:
            assert report.clean, report.message
            limit.check(o, lse, *want)
        except AssertionError as wrong:
            raise AssertionError(f"{self.name} with {x}: {wrong}") from None


@cache
def emitted(problem: Problem, schedule: Schedule) -> Emitted:
    """The kernel with the target's tiles where the schedule leaves them open."""
    schedule = TARGET.complete(problem, schedule)
    kernel = emission.emit(problem, schedule, TARGET)
    assert kernel.launch is not None
    return Emitted(problem, schedule, kernel.source, kernel.launch)


def strided(x: Inputs, lay: Callable[[np.ndarray], np.ndarray]) -> Inputs:
    """The same values in other places."""
    return Inputs(x.kind, lay(x.q), lay(x.k), lay(x.v), x.scale)
