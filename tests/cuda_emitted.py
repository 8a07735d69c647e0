"""Emitted CUDA kernels that can be called: on the CPU, their text unchanged, with every access checked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from tests.cuda_on_cpu.build import TENSOR
from tests.cuda_on_cpu.runner import ATTENTION, CudaOnCpu, Report
from tests.strategies import STORAGE, Inputs

TARGET = Cuda()
CACHE = Path(__file__).parent.parent / ".pytest_cache" / "kernels"
NUMBERS = {"index": "long long", "float": "float"}
COMBINATIONS = tuple(product(ORDERS, (True, False), (True, False)))
"""Order, lazy rescale, causal skip."""


@dataclass
class Emitted:
    """One emitted kernel."""

    problem: Problem
    schedule: Schedule
    source: str
    launch: LaunchPlan

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
        report = self.run(sizes, (x.q, x.k, x.v, o, numbered), (x.scale,), source, seed)
        return o, lse, report

    def run(
        self,
        sizes: Sizes,
        tensors: Sequence[np.ndarray],
        numbers: Sequence[float],
        source: str | None = None,
        seed: int = 0,
    ) -> Report:
        """A launch, and what was seen; of no block there is none. The workspace holds NaN before.

        tensors, numbers: in the order of the kernel's arguments. source: as of ``call``.
        """
        workspace = np.full(self.launch.workspace_elements(sizes), np.nan, np.float32)
        arrays = [f"const {TENSOR}"] * len(self.problem.arrays)
        kinds = [NUMBERS[s.kind] for s in self.problem.scalars]
        signature = (*ATTENTION[:5], *arrays, "float", *kinds, "float *")
        arguments = (*tensors, *numbers, workspace if workspace.size else None)
        blocks = self.launch.blocks(sizes)
        if not blocks:
            return Report(0, 0, 0, 0, "")
        kernel = compiled(source or self.source, self.name, signature)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("FLASHGEN_CACHE_DIR", str(CACHE))
            return kernel.launch(blocks, self.launch.threads, arguments, self.launch.shared_bytes, seed=seed)

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
def compiled(source: str, name: str, signature: tuple[str, ...]) -> CudaOnCpu:
    return CudaOnCpu(source, name, signature)


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
