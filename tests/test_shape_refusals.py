"""Spans, sweeps, accumulators and parallel loops: their passes say where they are not legal."""

from __future__ import annotations

import pytest

from flashgen.ir.dialect import parse
from flashgen.ir.regions import SweepOp
from flashgen.passes.accumulate import AccumulatePass
from flashgen.passes.base import TilePass
from flashgen.passes.fuse_sweeps import FuseSweepsPass
from flashgen.passes.mask_to_spans import MaskToSpansPass
from flashgen.passes.parallel_loops import ParallelLoopsPass
from flashgen.passes.pipeline import run
from tests.snippets import MASK, MAX, ROW, SELECT, TILE_OUT, WEIGHTS, X, function, refused, scores


def masked(body: str, mask: str = MASK, select: str = SELECT) -> str:
    """Scores made by a product, a causal mask, the select; then the body."""
    return function(
        f"""
        %x = tile.dot %a, %b transpose : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>
        {mask} {select} {body}
        """,
        "%a: tensor<4x8xf32>",
        "%b: tensor<6x8xf32>",
        "%v: tensor<6x8xf32>",
        "%t: memref<?x6xf32>",
        "%n: index",
        "%span: tensor<4x2xindex>",
    )


WEIGHTED = (
    "%y = tile.dot %p, %v where %vis : tensor<4x6xi1> : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>"
)

MASK_TO_SPANS = {
    "nothing to do": (scores(""), "builtin.module: there is no mask"),
    "a bias by position": (
        function(
            """%bias = tile.mask %c0, %c0 {
            ^bb0(%row: index, %col: index):
              tile.yield %zero : f32
            } : tensor<4x6xf32>"""
        ),
        "builtin.module: there is no mask",
    ),
    "no bound": (
        masked(MAX, MASK.replace("sle, %col, %row", "ne, %col, %row")),
        "tile.mask: its predicate bounds no column",
    ),
    "a bound of another arithmetic": (
        masked(
            MAX,
            MASK.replace(
                "%below = arith.cmpi sle, %col, %row",
                "%half = arith.floordivsi %row, %c4 : index %below = arith.cmpi sle, %col, %half",
            ),
        ),
        "tile.mask: its predicate bounds no column",
    ),
    "every second column": (
        masked(
            MAX,
            MASK.replace(
                "%below = arith.cmpi sle, %col, %row",
                "%double = arith.addi %col, %col : index %below = arith.cmpi sle, %double, %row",
            ),
        ),
        "tile.mask: its predicate bounds no column",
    ),
    "a mask for something else": (
        masked(f"{MAX} %not = tile.broadcast %vis : tensor<4x6xi1> -> tensor<4x6xi1>"),
        "tile.broadcast: uses the mask otherwise",
    ),
    "a mask that is selected": (
        masked(
            f"""{MAX}
            %same = tile.select %vis, %vis, %vis
              : tensor<4x6xi1>, tensor<4x6xi1>, tensor<4x6xi1> -> tensor<4x6xi1>
            """
        ),
        "tile.select: uses the mask otherwise",
    ),
    "another neutral element": (
        masked(MAX, select=SELECT.replace("%hidden", "%zeros")),
        "tile.select: selects something else than -inf",
    ),
    "the sum of scores": (
        masked("%sum = tile.row_sum %s : tensor<4x6xf32> -> tensor<4xf32>"),
        "tile.row_sum: reads masked scores otherwise",
    ),
    "scores that are stored": (
        masked("tile.store %s, %t[%c0, %c0] : tensor<4x6xf32>, memref<?x6xf32>"),
        "tile.store: reads masked scores otherwise",
    ),
    "a difference from what may be -inf": (
        masked(f"{MAX} {WEIGHTS.replace('broadcast %guard', 'broadcast %mt')}"),
        "arith.subf: reads masked scores otherwise",
    ),
    "scores that are subtracted": (
        masked(f"{MAX} {WEIGHTS.replace('%s, %wide', '%wide, %s')}"),
        "arith.subf: reads masked scores otherwise",
    ),
    "no exponential": (
        masked(f"{MAX} {WEIGHTS.replace('math.exp %d', 'math.tanh %d')}"),
        "math.tanh: reads differences of masked scores",
    ),
    "weights that are stored": (
        masked(f"{MAX} {WEIGHTS} tile.store %p, %t[%c0, %c0] : tensor<4x6xf32>, memref<?x6xf32>"),
        "tile.store: reads masked weights otherwise",
    ),
    "a product without the mask": (
        masked(f"{MAX} {WEIGHTS} {WEIGHTED.replace(' where %vis : tensor<4x6xi1>', '')}"),
        "tile.dot: reads masked weights otherwise",
    ),
    "weights as a right side": (
        masked(
            f"""{MAX} {WEIGHTS}
            %y = tile.dot %s2, %p transpose where %vis : tensor<4x6xi1> : tensor<4x6xf32>, tensor<4x6xf32>
              -> tensor<4x4xf32>""".replace("%s2", "%zeros")
        ),
        "tile.dot: reads masked weights otherwise",
    ),
    "a span already": (
        masked(MAX.replace("row_max %s", "row_max %s over %span : tensor<4x2xindex>")),
        "tile.row_max: has a span already",
    ),
    "a product with a span already": (
        masked(f"{MAX} {WEIGHTS} {WEIGHTED.replace('xi1>', 'xi1> over %span : tensor<4x2xindex>')}"),
        "tile.dot: has a span already",
    ),
    "a bound that comes after the scores": (
        masked(MAX, "%m = arith.muli %n, %n : index" + MASK.replace("%col, %row", "%col, %m")),
        "tile.mask: its bounds are not known yet",
    ),
    "a position that comes after the scores": (
        masked(MAX, "%m = arith.muli %n, %n : index" + MASK.replace("%c0, %c0", "%c0, %m")),
        "tile.mask: its bounds are not known yet",
    ),
}

BROADCASTS_ALONE = "its operand is made of broadcasts alone, which have no columns of their own"
REPEATED = """
    %wide = tile.broadcast %r : tensor<4xf32> -> tensor<4x6xf32>
    %e = arith.subf %zeros, %wide : tensor<4x6xf32>
    %p = math.exp2 %e : tensor<4x6xf32>
    %l = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
"""
FUSE_SWEEPS = {
    "nothing to do": (function("", X), "builtin.module: no row reduction"),
    "read above the reduction": (
        scores("").replace("%mt =", "%early = tile.broadcast %s : tensor<4x6xf32> -> tensor<4x6xf32> %mt ="),
        "tile.broadcast: reads an element above the reduction",
    ),
    "read in a loop above the reduction": (
        scores("").replace(
            "%mt =",
            """scf.for %j = %c0 to %n step %c4 {
              tile.store %s, %t[%j, %c0] : tensor<4x6xf32>, memref<?x6xf32>
            } %mt =""",
        ),
        "tile.store: reads an element above the reduction",
    ),
    "a row of one number": (
        function("%l = tile.row_sum %zeros : tensor<4x6xf32> -> tensor<4xf32>"),
        f"tile.row_sum: {BROADCASTS_ALONE}",
    ),
    "a row that repeats its factor": (
        function(REPEATED, ROW),
        f"tile.row_sum: {BROADCASTS_ALONE}",
    ),
}

ACCUMULATE = {
    "nothing to do": (scores(""), "builtin.module: no tile is scaled by rows"),
    "a product that others read": (
        function(
            """%d = tile.dot %a, %a : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
            %y = arith.addf %d, %d : tensor<4x4xf32>""",
            "%a: tensor<4x4xf32>",
        ),
        "builtin.module: no tile is scaled by rows",
    ),
    "an accumulator already": (
        function(
            """%d = tile.dot %a, %a acc %a : tensor<4x4xf32>
              : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
            %y = arith.addf %a, %d : tensor<4x4xf32>""",
            "%a: tensor<4x4xf32>",
        ),
        "builtin.module: no tile is scaled by rows",
    ),
    "columns that are not wanted": (
        function(
            """%d = tile.dot %a, %a only %span : tensor<4x2xindex>
              : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
            %y = arith.addf %a, %d : tensor<4x4xf32>""",
            "%a: tensor<4x4xf32>",
            "%span: tensor<4x2xindex>",
        ),
        "builtin.module: no tile is scaled by rows",
    ),
    "a sum in another block": (
        function(
            """%d = tile.dot %a, %a : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
            scf.for %j = %c0 to %c4 step %c1 {
              %y = arith.addf %a, %d : tensor<4x4xf32>
            }""",
            "%a: tensor<4x4xf32>",
        ),
        "builtin.module: no tile is scaled by rows",
    ),
    "two factors and no tile": (
        function(
            """%w = tile.broadcast %c : f32 -> tensor<4x6xf32>
            %r = tile.broadcast %row : tensor<4xf32> -> tensor<4x6xf32>
            %y = arith.mulf %r, %w : tensor<4x6xf32>""",
            "%row: tensor<4xf32>",
            "%c: f32",
        ),
        "builtin.module: no tile is scaled by rows",
    ),
    "a scalar factor": (
        function(
            "%w = tile.broadcast %c : f32 -> tensor<4x6xf32> %y = arith.mulf %x, %w : tensor<4x6xf32>",
            X,
            "%c: f32",
        ),
        "builtin.module: no tile is scaled by rows",
    ),
}


def looped(header: str, body: str) -> str:
    """One loop over a state in memory."""
    args = ("%n: index", "%a: memref<?x?xf32>", "%row: tensor<4xf32>", X)
    return function(f"scf.for {header} {{ {body} }}", *args)


STORE_SLICE = "tile.store %row, %a[%c0, %i] : tensor<4xf32>, memref<?x?xf32>"

PARALLEL_LOOPS = {
    "nothing to do": (function("", X), "builtin.module: no outermost loops"),
    "two loops": (
        function("scf.for %i = %c0 to %c4 step %c1 { } scf.for %j = %c0 to %c4 step %c1 { }"),
        "builtin.module: 2 outermost loops",
    ),
    "a start": (looped("%i = %c1 to %n step %c4", STORE_SLICE), "scf.for: does not start at 0"),
    "a step": (looped("%i = %c0 to %n step %n", STORE_SLICE), "scf.for: its step is not a constant"),
    "tiles that overlap": (
        looped("%i = %c0 to %n step %c1", STORE_SLICE),
        "scf.for: %a carries a dependence from one iteration to another",
    ),
    "a place that all write": (
        looped("%i = %c0 to %n step %c4", STORE_SLICE.replace("%c0, %i", "%c0, %c0")),
        "scf.for: %a carries a dependence",
    ),
    "a carried value": (
        function(
            """%end = scf.for %i = %c0 to %c4 step %c1 iter_args(%sum = %none) -> (tensor<4xf32>) {
              scf.yield %sum : tensor<4xf32>
            }"""
        ),
        "scf.for: %sum carries a dependence",
    ),
}

CASES = [
    (MaskToSpansPass(), MASK_TO_SPANS),
    (FuseSweepsPass(), FUSE_SWEEPS),
    (AccumulatePass(), ACCUMULATE),
    (ParallelLoopsPass(), PARALLEL_LOOPS),
]


@pytest.mark.parametrize(
    "p, text, message",
    [pytest.param(p, *case, id=f"{p.name}: {name}") for p, cases in CASES for name, case in cases.items()],
)
def test_refused(p: TilePass, text: str, message: str) -> None:
    refused(p, text, f"{p.name}: {message}")


def test_a_row_of_broadcasts_is_swept_where_its_elements_are_a_result():
    """They say how many columns there are."""
    store = "tile.store %p, %t[%c0, %c0] : tensor<4x6xf32>, memref<?x6xf32>"
    module = parse(function(REPEATED + store, ROW, TILE_OUT))
    run(module, [FuseSweepsPass()])
    (sweep,) = [op for op in module.walk() if isinstance(op, SweepOp)]
    assert sweep.shape == (4, 6)
