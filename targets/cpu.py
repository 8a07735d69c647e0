"""Processors with 256-bit and with 512-bit vectors."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from flashgen.errors import InvalidArgument, TargetLimit
from flashgen.plan.layout import TileLayout, round_up
from flashgen.plan.model import KernelPlan
from flashgen.problem import Problem
from flashgen.schedule import Schedule
from flashgen.targets.base import MANY_KEYS, MANY_QUERIES, ROW_STEPS, SHORT_KEYS, SHORT_QUERIES, Target

BYTES = {"float32": 4, "float64": 8}
"""Of one number, by the type computed in."""
FUNCTIONS = {"math_exp", "math_tanh", "math_absf", "arith_minimumf"}
MASKS = {"tile_mask", "tile_compare", "arith_cmpf"} | FUNCTIONS
OPERATORS = {"arith_addf", "arith_subf", "arith_mulf", "arith_divf", "arith_cmpi", "arith_index_cast"} | {
    "math_exp",
    "math_exp2",
    "math_log",
    "math_tanh",
}
"""Operations on single numbers that the language has, or its library."""
LAYERS = {
    "group_rows.hpp": {"tile_group_rows"},
    "sequence.hpp": {"tile_sequence"},
    "transpose.hpp": {"tile_pack", "tile_pack_pairs", "tile_pages"},
    "pages.hpp": {"tile_pages"},
    "pack.hpp": {"tile_pack"},
    "masks.hpp": MASKS,
    "functions.hpp": FUNCTIONS,
    "elements.hpp": {"tile_element", "tile_extremes"},
    "dot.hpp": {"tile_dot", "tile_dot_where", "tile_dot_pairs", "tile_dot_pairs_where"},
    "taken.hpp": {"tile_dot_where", "tile_dot_pairs", "tile_dot_pairs_where"},
    "dot_where.hpp": {"tile_dot_where"},
    "dot_in_place.hpp": {"tile_dot_in_place", "tile_dot_in_place_where"},
    "dot_in_place_where.hpp": {"tile_dot_in_place_where"},
}
"""Files that a kernel has only with one of these operations, in order."""
DOUBLE = {n: n.replace(".", "_double.") for n in ("storage.hpp", "transpose.hpp", "functions.hpp")}
"""What stands for a file where doubles are computed with."""

IN_PLACE_TILES = 16, 256
"""Br and Bc for products in place: rows that use what is read of K and V while it is in the first-level
cache, and so many columns that what is done once a tile counts for little."""
LONG_ROWS = 128
"""Queries of a tile where K and V of a head leave the second-level cache and come from afar for each tile: 3
percent less time than with 64, for 8192 keys of D 128."""
LEAST_COLUMNS, MOST_COLUMNS = 64, 512
"""Of a tile that a target chooses. What is done once a step counts for little at 512."""
PART = 1024
"""Keys of a part: reading them takes a thread longer than it takes to start one, and 32 threads find work in
32768 keys."""


class Cpu(Target):
    """What both have in common: a micro-kernel of ``micro`` rows and columns for operands packed in panels,
    and products that read K and V in place."""

    language = "cpp"
    suffix = ".cpp"
    dtypes: ClassVar = {
        "float32": (),
        "float16": ("float16.hpp", "narrow.hpp"),
        "bfloat16": ("bfloat16.hpp", "narrow.hpp"),
        "float64": (),
    }
    lanes: ClassVar[int]
    """float32 values in one vector; of float64 it has half as many."""
    unroll: ClassVar[int] = 4
    """Vectors that a sweep takes at a time; a tile's rows are padded to them."""
    micro: ClassVar[tuple[int, int]]
    """Rows and columns of a register block of the matrix products in float32, half the columns in float64.
    Its accumulators, the vectors of one operand's row and one of the other's fit the vector registers."""
    max_threads: ClassVar[int] = 1024
    """Threads that a kernel can be told to use."""
    tile_rows: ClassVar[int] = 64
    """Queries of a tile; see ``tiles``. A product has smaller register blocks for what ``micro`` leaves."""
    second_level: ClassVar[int] = 512 << 10
    """Bytes of a second-level cache that scores and panels may take; the processors measured have 1 MiB."""
    vectors: ClassVar[dict[str, tuple[str, ...]]]
    """The files of the language's folder that have its operations on vectors, by the type computed in."""
    vector_masks: ClassVar[dict[str, str]]
    """The file that has those on masks of a vector's lanes."""
    scale_rows: ClassVar[str] = "scale_rows.hpp"
    """The file that has the product of rows with a factor each."""
    flags: ClassVar[tuple[str, ...]]
    """Compiler flags that choose the instruction set."""
    features: ClassVar[tuple[str, ...]]
    """What those flags let the compiler use, by the names of Linux's /proc/cpuinfo."""
    scratch_limit: ClassVar[int] = 64 << 20
    """Bytes of tile buffers that one thread may hold."""

    def lanes_of(self, problem: Problem) -> int:
        """Numbers in one vector, of the type computed in."""
        return self.lanes * BYTES["float32"] // BYTES[problem.computed]

    def micro_of(self, problem: Problem) -> tuple[int, int]:
        """Rows and columns of a register block, in the type computed in."""
        return self.micro[0], self.micro[1] * BYTES["float32"] // BYTES[problem.computed]

    def layout(self, problem: Problem) -> TileLayout:
        return TileLayout(rows=self.micro[0], cols=self.unroll * self.lanes_of(problem), in_place=True)

    def layers(self, problem: Problem, kernel: KernelPlan) -> tuple[str, ...]:
        computed, operations = problem.computed, kernel.operations
        masks = (self.vector_masks[computed],) if MASKS & operations else ()
        vectors = (*self.vectors[computed], *masks)
        stored = dict.fromkeys(n for t in problem.stored for n in self.dtypes[t])
        single = ("storage_single.hpp",) if computed == "float64" and "float32" in problem.stored else ()
        storage = (*stored, *vectors, "math.hpp", "storage.hpp", *single, "tiles.hpp")
        some = (name for name, wanted in LAYERS.items() if wanted & operations)
        scalars = ("scalars.hpp",) if kernel.numbers - OPERATORS else ()
        names = (*storage, self.scale_rows, *scalars, *some, "sweep.hpp", "memory.hpp", "threads.hpp")
        return names if computed == "float32" else tuple(DOUBLE.get(n, n) for n in names)

    def fill(self, problem: Problem, schedule: Schedule) -> Schedule:
        panel = self.micro_of(problem)[1] if schedule.panel is None else schedule.panel
        rows, cols = self.tiles(problem, schedule.br) if panel else IN_PLACE_TILES
        hoist = bool(panel) and schedule.order == "q-outer"
        return replace(
            schedule,
            br=schedule.br or rows,
            bc=schedule.bc or columns_of(schedule.split_keys, cols),
            panel=panel,
            hoist_packs=hoist if schedule.hoist_packs is None else schedule.hoist_packs,
            group_rows=bool(schedule.group_rows),
            split_keys=schedule.split_keys or 0,
            fetch_ahead=bool(schedule.fetch_ahead),
        )

    def suit(self, problem: Problem, schedule: Schedule, query_len: int, key_len: int, rows: int) -> Schedule:
        """Operations go over whole tiles, so a short call wants a small one; few rows go without packing.

        Packing costs a key as much as it takes to multiply it with 16 to 32 rows in place, where a product
        takes 1.2 to 2 times as long as on panels (measured for D of 64 and 128). Up to 16 rows, the queries
        of a group are one tile: K and V are then read once, and nothing else takes as long. That tile is all
        there is to do for a group, so threads share its keys where there are many; for any number of heads,
        so that a row's bits do not depend on it. Long calls get the rows that LONG_ROWS speaks of. With few
        keys K, V and Q of a head are fetched while the one before is computed: 15 to 20 percent less time for
        128 keys of D 64, no less for 512, and 2 percent more for 2048 (avx2, one thread).
        """
        cols = next((round_up(n, self.micro_of(problem)[1]) for n in SHORT_KEYS if key_len <= n), None)
        bc = schedule.bc or (cols if not schedule.split_keys else None)
        few = next((n for n in ROW_STEPS if rows <= n), None)
        narrow = schedule.products != "float32"
        packs = schedule.panel or schedule.hoist_packs or schedule.fetch_ahead or narrow
        if few and not packs and schedule.group_rows is not False and (schedule.br or 0) <= ROW_STEPS[-1]:
            br, parts = schedule.br or few, schedule.split_keys
            can_split = schedule.order == "q-outer" and schedule.lazy_rescale
            if parts is None and can_split and key_len > MANY_KEYS:
                parts = round_up(PART, bc or IN_PLACE_TILES[1])
            return replace(schedule, br=br, bc=bc, panel=0, group_rows=True, split_keys=parts)
        queries = next((n for n in SHORT_QUERIES if query_len <= n), None)
        if (
            query_len > MANY_QUERIES
            and key_len > MANY_KEYS
            and schedule.order == "q-outer"
            and schedule.panel != 0
        ):
            queries = LONG_ROWS
        ahead, hoists = schedule.fetch_ahead, schedule.order == "q-outer" and schedule.panel != 0
        if ahead is None and cols and hoists and schedule.hoist_packs is not False:
            ahead = True
        return replace(schedule, br=schedule.br or queries, bc=bc, fetch_ahead=ahead)

    def tiles(self, problem: Problem, br: int | None = None) -> tuple[int, int]:
        """Br, unless it is stated, and Bc for products on panels.

        A step streams its panels of K and V past register blocks; from one query tile to the next the scores
        and the larger of the two panels stay in the second-level cache, and Bc is as large as that allows. 64
        rows use what they read of a panel often enough, leave many tiles for threads, and are cut little by a
        causal mask. Of the peak (avx512, one thread), with 64 rows and with 182: 2048 keys of D 64 0.80 and
        0.80, causal 0.755 and 0.737, 128 keys 0.57 and 0.47; 2048 of D 128, causal, 0.785 and 0.776.
        """
        rows, d = br or self.tile_rows, max(problem.head_dim, problem.head_dim_v)
        bc, size = MOST_COLUMNS, BYTES[problem.computed]
        while bc > LEAST_COLUMNS and size * bc * (rows + d) > self.second_level:
            bc //= 2
        return rows, bc

    def check(self, problem: Problem, schedule: Schedule) -> None:
        width = self.micro_of(problem)[1]
        if schedule.panel not in (0, width):
            what = "" if problem.computed == "float32" else f" of {problem.computed}"
            allowed = f"target {self.name} packs panels of {width} columns{what}, or with 0 none"
            raise InvalidArgument("panel", schedule.panel, allowed)
        assert schedule.br is not None and schedule.bc is not None
        if (need := self.scratch(problem, schedule)) > self.scratch_limit:
            br, bc, most = schedule.br, schedule.bc, self.scratch_limit
            while self.scratch(problem, near := replace(schedule, br=br, bc=bc)) > most and max(br, bc) > 1:
                br, bc = (br // 2, bc) if br >= bc else (br, bc // 2)
            nearest = f"{br} x {bc} fit"
            if self.scratch(problem, near) > most:
                dims = f"head_dim {problem.head_dim} and head_dim_v {problem.head_dim_v}"
                nearest = f"{dims} are too large for any tile"
            raise TargetLimit(
                f"tiles {schedule.br} x {schedule.bc} need {need} bytes of scratch memory a thread; "
                f"target {self.name} allows {self.scratch_limit}: {nearest}"
            )

    def scratch(self, problem: Problem, schedule: Schedule) -> int:
        """Bytes of the tiles that live at once: Q, scaled Q, O, the scores; K and V where a step packs."""
        br, bc, d, dv = schedule.br or 0, schedule.bc or 0, problem.head_dim, problem.head_dim_v
        packed = bc * (d + dv) if schedule.panel and not schedule.hoist_packs else 0
        return BYTES[problem.computed] * (br * (2 * d + 2 * dv + 2 * bc) + packed)


def columns_of(part: int | None, cols: int) -> int:
    """``cols``; or, where keys come in parts, columns of which a part is a multiple, up to that if possible.

    Raises InvalidArgument where all of them would be slivers.
    """
    if not part:
        return cols
    for most in (cols, MOST_COLUMNS):
        found = next(n for n in range(min(most, part), 0, -1) if part % n == 0)
        if found >= LEAST_COLUMNS or found == part:
            return found
    allowed = (
        f"a multiple of some number from {LEAST_COLUMNS} to {MOST_COLUMNS} is allowed, or with bc one of bc"
    )
    raise InvalidArgument("split_keys", part, allowed)


class Avx2(Cpu):
    """x86-64 with AVX2 and FMA (x86-64-v3): 16 registers of 8 floats."""

    name = "avx2"
    lanes = 8
    micro = (6, 16)
    vectors: ClassVar = {"float32": ("avx2.hpp",), "float64": ("avx2_double.hpp", "exp2_double.hpp")}
    vector_masks: ClassVar = {"float32": "avx2_masks.hpp", "float64": "avx2_double_masks.hpp"}
    flags = ("-march=x86-64-v3",)
    features = ("avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "abm", "movbe")


class Avx512(Cpu):
    """x86-64 with AVX-512 F, BW, CD, DQ and VL (x86-64-v4): 32 registers of 16 floats."""

    name = "avx512"
    lanes = 16
    micro = (14, 32)
    vectors: ClassVar = {"float32": ("avx512.hpp",), "float64": ("avx512_double.hpp", "exp2_double.hpp")}
    vector_masks: ClassVar = {"float32": "avx512_masks.hpp", "float64": "avx512_double_masks.hpp"}
    flags = ("-march=x86-64-v4", "-mprefer-vector-width=512")
    features = (*Avx2.features, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")
