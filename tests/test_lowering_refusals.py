"""base-2, fold-scale, nan-in-sum and pack say where they are not legal, and change nothing there."""

from __future__ import annotations

import pytest

from flashgen.errors import InvalidArgument
from flashgen.passes.base import TilePass
from flashgen.passes.base_2 import Base2Pass
from flashgen.passes.fold_scale import FoldScalePass
from flashgen.passes.nan_in_sum import NanInSumPass
from flashgen.passes.pack import PackPass
from tests.snippets import MAX, ROW, SELECT, TILE_OUT, VIS, WEIGHTS, X, function, refused, scores


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
    "a maximum that passes over NaN comes between": (
        summed(
            "%largest",
            f"""{WEIGHTS}
            %sum = arith.addf %l, %lt : tensor<4xf32>
            %sums = tile.broadcast %sum : tensor<4xf32> -> tensor<4x6xf32>
            %largest = tile.row_max %sums drop_nan : tensor<4x6xf32> -> tensor<4xf32>
            """,
        ),
        "tile.row_max: the row sum of its weights reaches no state",
    ),
    "a sum that wanders from state to state": (
        function(
            f"""
            %a, %b = scf.for %j = %c0 to %n step %c4
                iter_args(%a_old = %nothing, %b_old = %nothing) -> (tensor<4xf32>, tensor<4xf32>) {{
              {SELECT} {MAX} {WEIGHTS}
              scf.yield %b_old, %lt : tensor<4xf32>, tensor<4xf32>
            }}
            """,
            X,
            VIS,
            "%n: index",
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

CASES = [
    (Base2Pass(), BASE_2),
    (FoldScalePass(), FOLD_SCALE),
    (NanInSumPass(), NAN_IN_SUM),
    (PackPass(4), PACK),
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
