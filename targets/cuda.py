"""NVIDIA GPUs from compute capability 8.0."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from flashgen.errors import InvalidArgument, TargetLimit
from flashgen.layouts import LAYOUTS
from flashgen.plan.model import KernelPlan
from flashgen.problem import Problem
from flashgen.schedule import Schedule
from flashgen.targets.base import Target, TileLayout

FLOAT, INDEX, ALIGNMENT = 4, 8, 64  # bytes
COMMON = {
    "arith_addf",
    "arith_subf",
    "arith_mulf",
    "arith_divf",
    "arith_cmpi",
    "arith_index_cast",
    "copy",
} | {
    "arith_maximumf",
    "math_exp",
    "math_exp2",
    "math_log",
    "math_tanh",
    "tile_replace",
    "tile_hold",
}
"""Operations on numbers that the language has, its library, or threads.cuh."""
LAYERS = {
    "sequence.cuh": {"tile_sequence"},
    "pages.cuh": {"tile_pages"},
    "elements.cuh": {"tile_element", "tile_extremes"},
    "masks.cuh": {"tile_mask", "tile_dot_where"},
}
"""Files that a kernel has only with one of these operations, in order."""
NONE: dict[str, tuple[object, str]] = {
    "panel": (0, "reads K and V as loaded"),
    "hoist_packs": (False, "reads K and V as loaded"),
    "group_rows": (False, "has blocks for each head"),
    "fetch_ahead": (False, "has blocks that run while others wait for memory"),
    "split_keys": (0, "has one block for all keys of a row"),
}
"""What a schedule cannot ask of it: the only value that a field may have, and why."""


class Cuda(Target):
    """Tiles lie in shared memory; the threads of a block share the work of each tile operation."""

    name = "cuda"
    language = "cuda"
    suffix = ".cu"
    dtypes: ClassVar = {"float32": (), "float16": ("float16.cuh",), "bfloat16": ("bfloat16.cuh",)}
    block_threads = 128
    architectures: ClassVar[tuple[str, ...]] = ("sm_80", "sm_90")
    shared_limit: ClassVar[int] = 163 << 10
    """Bytes of shared memory that a block may have on sm_80; sm_90 has 227 KiB, sm_86 and sm_89 have 99."""
    shared_default: ClassVar[int] = 99 << 10
    """What tiles that the target chooses may take: they run on every GPU from sm_80 on."""
    side: ClassVar[int] = 64
    """Rows and columns of a tile of scores where there is room: 32 elements of it for each thread."""

    def layout(self, problem: Problem) -> TileLayout:
        return TileLayout(odd=True)

    def layers(self, problem: Problem, kernel: KernelPlan) -> tuple[str, ...]:
        operations, numbers = kernel.operations, kernel.numbers | kernel.elements
        some = (name for name, wanted in LAYERS.items() if wanted & operations)
        scalars = ("scalars.cuh",) if numbers - COMMON else ()
        stored = dict.fromkeys(name for dtype in problem.stored for name in self.dtypes[dtype])
        return (*stored, "threads.cuh", "tiles.cuh", "dot.cuh", *scalars, *some)

    def fill(self, problem: Problem, schedule: Schedule) -> Schedule:
        """Open tile sizes are halved until the tiles fit, columns before rows."""
        for field, (none, why) in NONE.items():
            if value := getattr(schedule, field):
                raise InvalidArgument(field, value, f"target cuda {why}: {field} {none}")
        if schedule.order == "kv-outer" and LAYOUTS[problem.layout].queries == "packed":
            allowed = (
                "target cuda has memory of one size for each block: with packed queries 'q-outer' is allowed"
            )
            raise InvalidArgument("order", repr(schedule.order), allowed)
        br, bc = schedule.br or self.side, schedule.bc or self.side
        while self.shared(problem, schedule, br, bc) > self.shared_default:
            halve_bc = schedule.bc is None and bc > 1 and (bc >= br or schedule.br is not None)
            if not halve_bc and (schedule.br is not None or br == 1):
                break
            br, bc = (br, bc // 2) if halve_bc else (br // 2, bc)
        return replace(
            schedule,
            br=br,
            bc=bc,
            panel=0,
            hoist_packs=False,
            group_rows=False,
            split_keys=0,
            fetch_ahead=False,
        )

    def check(self, problem: Problem, schedule: Schedule) -> None:
        assert schedule.br is not None and schedule.bc is not None
        need = self.shared(problem, schedule, schedule.br, schedule.bc)
        if need > self.shared_limit:
            raise TargetLimit(
                f"tiles {schedule.br} x {schedule.bc} need {need} bytes of shared memory; "
                f"target cuda allows {self.shared_limit}: {self._nearest(problem, schedule)}"
            )

    def _nearest(self, problem: Problem, schedule: Schedule) -> str:
        """What fits, as the end of a message: fewer rows, or fewer columns, or the target's own choice."""
        br, bc = schedule.br or 1, schedule.bc or 1

        def most(given: int, shared: Callable[[int], int]) -> int:
            return bisect_right(range(1, given), self.shared_limit, key=shared)

        fewer_rows = most(br, lambda n: self.shared(problem, schedule, n, bc))
        fewer_columns = most(bc, lambda n: self.shared(problem, schedule, br, n))
        near = [(fewer_rows, bc)] * (fewer_rows > 0) + [(br, fewer_columns)] * (fewer_columns > 0)
        if not near:
            own = self.fill(problem, replace(schedule, br=None, bc=None))
            near = [(own.br or 1, own.bc or 1)]
        if self.shared(problem, schedule, *near[0]) > self.shared_limit:
            return (
                f"head_dim {problem.head_dim} and head_dim_v {problem.head_dim_v} are too large for any tile"
            )
        return " or ".join(f"{r} x {c}" for r, c in near) + " fit"

    def shared(self, problem: Problem, schedule: Schedule, br: int, bc: int) -> int:
        """An upper bound on the bytes of the tiles that live at once, less than 64 above their sum.

        Q, O, K, V, the scores, five values a row and the spans; without lazy_rescale the product of a step
        beside O, in q-outer order also O scaled, and a sixth value a row. Values of the same size may share
        memory, so it can be less.
        """
        d, dv, s = (n | 1 for n in (problem.head_dim, problem.head_dim_v, bc))
        tiles = [br * d, br * dv, bc * d, bc * dv, br * s] + [br] * 5 + [br * 2 * INDEX // FLOAT]
        if not schedule.lazy_rescale:
            tiles += [br * dv] * (2 if schedule.order == "q-outer" else 1) + [br]
        return sum(-(-FLOAT * n // ALIGNMENT) * ALIGNMENT for n in tiles)
