"""Each lowering pass says where it is not legal, and leaves the module as it was."""

from __future__ import annotations

import re

import pytest

from flashgen.errors import IllegalPass, InvalidArgument
from flashgen.ir.dialect import context, parse
from flashgen.passes.accumulate import AccumulatePass
from flashgen.passes.base import TilePass
from flashgen.passes.base_2 import Base2Pass
from flashgen.passes.fold_scale import FoldScalePass
from flashgen.passes.fuse_sweeps import FuseSweepsPass
from flashgen.passes.mask_to_spans import MaskToSpansPass
from flashgen.passes.nan_in_sum import NanInSumPass
from flashgen.passes.pack import PackPass
from flashgen.passes.parallel_loops import ParallelLoopsPass

BROADCASTS = """
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c4 = arith.constant 4 : index
    %neg_inf = arith.constant 0xff800000 : f32
    %zero = arith.constant 0.0 : f32
    %hidden = tile.broadcast %neg_inf : f32 -> tensor<4x6xf32>
    %none = tile.broadcast %neg_inf : f32 -> tensor<4xf32>
    %nothing = tile.broadcast %zero : f32 -> tensor<4xf32>
    %zeros = tile.broadcast %zero : f32 -> tensor<4x6xf32>
"""
SELECT = (
    "%s = tile.select %vis, %x, %hidden : tensor<4x6xi1>, tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>"
)
MAX = "%mt = tile.row_max %s : tensor<4x6xf32> -> tensor<4xf32>"
WEIGHTS = """
    %guard = tile.replace %mt, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
    %wide = tile.broadcast %guard : tensor<4xf32> -> tensor<4x6xf32>
    %d = arith.subf %s, %wide : tensor<4x6xf32>
    %p = math.exp %d : tensor<4x6xf32>
    %lt = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
"""
MASK = """
    %vis = tile.mask %c0, %c0 {
    ^bb0(%row: index, %col: index):
      %below = arith.cmpi sle, %col, %row : index
      tile.yield %below : i1
    } : tensor<4x6xi1>
"""


def function(body: str, *args: str) -> str:
    """A module of one function over these arguments; constants and constant tiles are there."""
    return f"func.func @f({', '.join(args)}) {{ {BROADCASTS} {body} func.return }}"


def refused(p: TilePass, text: str, message: str, error: type[Exception] = IllegalPass) -> None:
    """The pass refuses with this message, and the module is as before."""
    module = parse(text)
    before = str(module)
    with pytest.raises(error, match=re.escape(message)):
        p.apply(context(), module)
    assert str(module) == before


X = "%x: tensor<4x6xf32>"
VIS = "%vis: tensor<4x6xi1>"
ROW = "%r: tensor<4xf32>"
OUT = "%out: memref<?xf32>"
TILE_OUT = "%t: memref<?x6xf32>"


def scores(body: str) -> str:
    """Masked scores %s and their maximum %mt, then the body."""
    return function(f"{SELECT} {MAX} {body}", X, VIS, ROW, OUT, TILE_OUT, "%sink: f32", "%n: index")


def carried(start: str, last: str, body: str = "") -> str:
    """A loop that carries a maximum from ``start`` and yields ``last``."""
    return scores(f"""
      {body}
      %end = scf.for %j = %c0 to %n step %c4 iter_args(%m = {start}) -> (tensor<4xf32>) {{
        %top = arith.maximumf %m, %mt : tensor<4xf32>
        %top_old = arith.maximumf %m, %m : tensor<4xf32>
        scf.yield {last} : tensor<4xf32>
      }}
    """)


WORKSPACE = "%work = memref.alloc(%n) : memref<?xf32>"
STORE_MAX = "tile.store %mt, %work[%c0] : tensor<4xf32>, memref<?xf32>"

BASE_2 = {
    "nothing to do": (function("", X), "builtin.module: no row maximum"),
    "the caller sees a score": (
        scores("tile.store %mt, %out[%c0] : tensor<4xf32>, memref<?xf32>"),
        "tile.store: the caller would see scores",
    ),
    "a sink is carried": (
        carried("%first", "%top", "%first = tile.broadcast %sink : f32 -> tensor<4xf32>"),
        "scf.for: what meets a score here is not one, nor -inf",
    ),
    "a carried maximum starts at 0": (carried("%nothing", "%top"), "scf.for: what meets a score here"),
    "a carried maximum is replaced": (carried("%mt", "%r"), "scf.yield: what meets a score here"),
    "a sink is stored first": (
        scores(f"""
          %first = tile.broadcast %sink : f32 -> tensor<4xf32>
          {WORKSPACE} {STORE_MAX}
          tile.store %first, %work[%c0] : tensor<4xf32>, memref<?xf32>
        """),
        "tile.store: what meets a score here",
    ),
    "an array of scores is copied": (
        scores(f"""{WORKSPACE} {STORE_MAX}
          "memref.copy"(%work, %out) : (memref<?xf32>, memref<?xf32>) -> ()
        """),
        "memref.copy: reads an array of scores",
    ),
    "a score is summed": (
        scores("%sum = tile.row_sum %s : tensor<4x6xf32> -> tensor<4xf32>"),
        "tile.row_sum: reads a score otherwise",
    ),
    "a score is added to something": (
        scores("%sum = arith.addf %mt, %r : tensor<4xf32>"),
        "arith.addf: reads a score otherwise",
    ),
    "a maximum with something else": (
        scores("%top = arith.maximumf %mt, %r : tensor<4xf32>"),
        "arith.maximumf: what meets a score here",
    ),
    "a difference from something else": (
        scores("%d = arith.subf %mt, %r : tensor<4xf32>"),
        "arith.subf: what meets a score here",
    ),
    "a guard that is not 0": (
        scores("%g = tile.replace %mt, 0xff800000 : f32, 1.0 : f32 : tensor<4xf32> -> tensor<4xf32>"),
        "tile.replace: reads a score otherwise",
    ),
    "another exponential": (
        scores("%e = math.exp %r : tensor<4xf32>"),
        "math.exp: its exponent is not made of scores",
    ),
    "masked by another value": (
        scores(SELECT.replace("%s =", "%other =").replace("%x", "%s").replace("%hidden", "%zeros")),
        "tile.select: what meets a score here",
    ),
    "scores of scores": (
        scores("""
          %wide = tile.broadcast %mt : tensor<4xf32> -> tensor<4x6xf32>
          %d = arith.subf %s, %wide : tensor<4x6xf32>
          %again = tile.row_max %d : tensor<4x6xf32> -> tensor<4xf32>
        """),
        "arith.subf: scores that are made of other scores",
    ),
}

LOAD_Q = "%q = tile.load %t[%c0, %c0] : memref<?x6xf32> -> tensor<4x6xf32>"
DOT = "%y = tile.dot %q, %x transpose : tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x4xf32>"
SCALED = """
    %factor = tile.broadcast %sink : f32 -> tensor<4x4xf32>
    %z = arith.mulf %y, %factor : tensor<4x4xf32>
"""

FOLD_SCALE = {
    "nothing to do": (scores(f"{LOAD_Q} {DOT}"), "builtin.module: no dot's result is multiplied"),
    "a factor a row": (
        scores(f"{LOAD_Q} {DOT} {SCALED.replace('%sink : f32', '%r : tensor<4xf32>')}"),
        "builtin.module: no dot's result is multiplied",
    ),
    "a result that others read": (
        scores(f"""{LOAD_Q} {DOT} {SCALED}
          %other = tile.row_sum %y : tensor<4x4xf32> -> tensor<4xf32>
        """),
        "builtin.module: no dot's result is multiplied",
    ),
    "a computed left side": (
        scores(f"{DOT.replace('%q', '%s')} {SCALED}"),
        "tile.dot: its left operand is not loaded",
    ),
    "an accumulator": (
        scores(f"""{LOAD_Q}
          %start = tile.broadcast %zero : f32 -> tensor<4x4xf32>
          {DOT.replace(" : ", " acc %start : tensor<4x4xf32> : ", 1)} {SCALED}
        """),
        "tile.dot: the factor applies to its accumulator as well",
    ),
    "a factor that comes later": (
        scores(f"{LOAD_Q} {DOT} %twice = arith.addf %sink, %sink : f32 {SCALED.replace('%sink', '%twice')}"),
        "tile.load: a factor is not known yet",
    ),
}


def summed(total: str, weights: str = WEIGHTS, start: str = "%nothing") -> str:
    """A loop that carries a row sum and yields ``total``."""
    return function(
        f"""
        %end = scf.for %j = %c0 to %n step %c4 iter_args(%l = {start}) -> (tensor<4xf32>) {{
          {SELECT} {MAX} {weights}
          %both = arith.addf %l, %lt : tensor<4xf32>
          scf.yield {total} : tensor<4xf32>
        }}
        """,
        X,
        VIS,
        ROW,
        TILE_OUT,
        "%n: index",
        "%span: tensor<4x2xindex>",
    )


NAN_IN_SUM = {
    "nothing to do": (function("", X), "builtin.module: no row maximum lets NaN win"),
    "done already": (
        summed("%both").replace("tile.row_max %s", "tile.row_max %s drop_nan"),
        "builtin.module: no row maximum lets NaN win",
    ),
    "no sum": (scores(""), "tile.row_max: no row sum of exponentials sees the same scores"),
    "a sum of other scores": (
        summed("%both", WEIGHTS.replace("subf %s", "subf %x")),
        "tile.row_max: no row sum of exponentials sees the same scores",
    ),
    "the scores are subtracted": (
        summed("%both", WEIGHTS.replace("subf %s, %wide", "subf %wide, %s")),
        "tile.row_max: no row sum of exponentials sees the same scores",
    ),
    "no exponential": (
        summed("%both", WEIGHTS.replace("math.exp %d", "math.tanh %d")),
        "tile.row_max: no row sum of exponentials sees the same scores",
    ),
    "a sum over fewer elements": (
        summed("%both", WEIGHTS.replace("row_sum %p", "row_sum %p over %span : tensor<4x2xindex>")),
        "tile.row_max: no row sum of exponentials sees the same scores",
    ),
    "the sum goes nowhere": (
        function(f"{SELECT} {MAX} {WEIGHTS}", X, VIS),
        "tile.row_max: the row sum of its weights reaches no state",
    ),
    "the sum is forgotten by the next iteration": (
        summed("%lt"),
        "tile.row_max: the row sum of its weights reaches no state",
    ),
    "a maximum of sums": (
        summed("%sel").replace(
            "%both = arith.addf %l, %lt : tensor<4xf32>",
            """%cut = tile.replace %lt, 1.0 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
               %wide_lt = tile.broadcast %lt : tensor<4xf32> -> tensor<4x6xf32>
               %sel = tile.row_max %wide_lt drop_nan : tensor<4x6xf32> -> tensor<4xf32>""",
        ),
        "tile.row_max: the row sum of its weights reaches no state",
    ),
    "memory that is overwritten": (
        function(
            f"""%work = memref.alloc(%n) : memref<?xf32>
            scf.for %j = %c0 to %n step %c4 {{
              {SELECT} {MAX} {WEIGHTS}
              tile.store %lt, %work[%c0] : tensor<4xf32>, memref<?xf32>
            }}""",
            X,
            VIS,
            "%n: index",
        ),
        "tile.row_max: the row sum of its weights reaches no state",
    ),
    "a sum at another address": (
        function(
            f"""%work = memref.alloc(%n) : memref<?xf32>
            scf.for %j = %c0 to %n step %c4 {{
              {SELECT} {MAX} {WEIGHTS}
              %l = tile.load %work[%c0] : memref<?xf32> -> tensor<4xf32>
              %both = arith.addf %l, %lt : tensor<4xf32>
              tile.store %both, %work[%j] : tensor<4xf32>, memref<?xf32>
            }}""",
            X,
            VIS,
            "%n: index",
        ),
        "tile.row_max: the row sum of its weights reaches no state",
    ),
}

PACK = {
    "nothing to do": (
        scores("%y = tile.dot %s, %x transpose : tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x4xf32>"),
        "builtin.module: no product's right side is loaded",
    ),
    "read by something else": (
        scores(f"""{LOAD_Q}
          %y = tile.dot %s, %q transpose : tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x4xf32>
          %sum = tile.row_sum %q : tensor<4x6xf32> -> tensor<4xf32>
        """),
        "tile.load: is read otherwise than as the right side of products",
    ),
    "both sides of a product": (
        scores(
            f"{LOAD_Q} %y = tile.dot %q, %q transpose : tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x4xf32>"
        ),
        "tile.load: is read otherwise than as the right side of products",
    ),
    "transposed in one of two products": (
        function(
            """%k = tile.load %t[%c0, %c0] : memref<?x4xf32> -> tensor<4x4xf32>
            %y = tile.dot %a, %k transpose : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
            %z = tile.dot %a, %k : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>""",
            "%a: tensor<4x4xf32>",
            "%t: memref<?x4xf32>",
        ),
        "tile.load: is transposed in one product and not in another",
    ),
}


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
    (Base2Pass(), BASE_2),
    (FoldScalePass(), FOLD_SCALE),
    (NanInSumPass(), NAN_IN_SUM),
    (PackPass(4), PACK),
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


@pytest.mark.parametrize("panel", [0, -1, True])
def test_a_panel_has_columns(panel: int) -> None:
    refused(PackPass(panel), scores(""), f"panel is {panel!r}", InvalidArgument)
