"""Small modules in text, put together for the tests of single passes."""

from __future__ import annotations

import re

import pytest

from flashgen.errors import IllegalPass
from flashgen.ir.dialect import context, parse
from flashgen.passes.base import TilePass

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
X = "%x: tensor<4x6xf32>"
VIS = "%vis: tensor<4x6xi1>"
ROW = "%r: tensor<4xf32>"
OUT = "%out: memref<?xf32>"
TILE_OUT = "%t: memref<?x6xf32>"


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


def scores(body: str) -> str:
    """Masked scores %s and their maximum %mt, then the body."""
    return function(f"{SELECT} {MAX} {body}", X, VIS, ROW, OUT, TILE_OUT, "%sink: f32", "%n: index")
