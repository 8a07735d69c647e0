"""NVIDIA GPUs from compute capability 8.0."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from flashgen.errors import InvalidArgument, TargetLimit
from flashgen.problem import Problem
from flashgen.schedule import Schedule
from flashgen.targets.base import Target, TileLayout

FLOAT = 4  # bytes


class Cuda(Target):
    """Tiles lie in shared memory; the threads of a block share the work of each tile operation."""

    name = "cuda"
    language = "cuda"
    suffix = ".cu"
    dtypes = ("float32", "float16")
    layout = TileLayout()
    threads: ClassVar[int] = 128
    """Threads in a block."""
    shared_limit: ClassVar[int] = 163 << 10
    """Bytes of shared memory that a block may ask for on sm_80 (sm_90 has 227 KiB)."""
    architectures: ClassVar[tuple[str, ...]] = ("sm_80", "sm_90")

    def fill(self, problem: Problem, schedule: Schedule) -> Schedule:
        side = 64
        while side > 1 and self.shared(problem, schedule.br or side, schedule.bc or side) > self.shared_limit:
            side //= 2
        return replace(schedule, br=schedule.br or side, bc=schedule.bc or side, panel=schedule.panel or 0)

    def check(self, problem: Problem, schedule: Schedule) -> None:
        if schedule.panel != 0:
            raise InvalidArgument("panel", schedule.panel, "target cuda reads K and V as loaded: panel 0")
        assert schedule.br is not None and schedule.bc is not None
        need = self.shared(problem, schedule.br, schedule.bc)
        if need > self.shared_limit:
            fit = self.fill(problem, replace(schedule, br=None, bc=None))
            raise TargetLimit(
                f"tiles {schedule.br} x {schedule.bc} need {need} bytes of shared memory; "
                f"target cuda allows {self.shared_limit}: {fit.br} x {fit.bc} fit"
            )

    def shared(self, problem: Problem, br: int, bc: int) -> int:
        """Bytes of the tiles that live at once: Q, O, the scores, K, V and a few values a row."""
        d, dv = problem.head_dim, problem.head_dim_v
        return FLOAT * (br * (2 * d + 2 * dv + bc + 8) + bc * (d + dv))
