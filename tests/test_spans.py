"""mask-to-spans on any predicate: what a row's maximum, sum and product see is what the mask shows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashgen.errors import IllegalPass
from flashgen.interpret import interpret
from flashgen.ir.dialect import context, parse, verify
from flashgen.passes.mask_to_spans import MaskToSpansPass

FUNCTION = """
func.func @f(%q: tensor<4x3xf32>, %k: tensor<6x3xf32>, %v: tensor<6x2xf32>, %i: index, %j: index, %N: index,
             %ms: memref<?xf32>, %ls: memref<?xf32>, %ys: memref<?x2xf32>) {{
  %c0 = arith.constant 0 : index
  {constants}
  %neg_inf = arith.constant 0xff800000 : f32
  %hidden = tile.broadcast %neg_inf : f32 -> tensor<4x6xf32>
  %x = tile.dot %q, %k transpose : tensor<4x3xf32>, tensor<6x3xf32> -> tensor<4x6xf32>
  %vis = tile.mask %i, %j {{
  ^bb0(%row: index, %col: index):
    {predicate}
  }} : tensor<4x6xi1>
  %s = tile.select %vis, %x, %hidden : tensor<4x6xi1>, tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>
  %m = tile.row_max %s : tensor<4x6xf32> -> tensor<4xf32>
  %top = tile.replace %m, 0xff800000 : f32, 0.0 : f32 : tensor<4xf32> -> tensor<4xf32>
  %wide = tile.broadcast %top : tensor<4xf32> -> tensor<4x6xf32>
  %d = arith.subf %s, %wide : tensor<4x6xf32>
  %p = math.exp2 %d : tensor<4x6xf32>
  %l = tile.row_sum %p : tensor<4x6xf32> -> tensor<4xf32>
  %y = tile.dot %p, %v where %vis : tensor<4x6xi1> : tensor<4x6xf32>, tensor<6x2xf32> -> tensor<4x2xf32>
  tile.store %m, %ms[%c0] : tensor<4xf32>, memref<?xf32>
  tile.store %l, %ls[%c0] : tensor<4xf32>, memref<?xf32>
  tile.store %y, %ys[%c0, %c0] : tensor<4x2xf32>, memref<?x2xf32>
  func.return
}}
"""
COEFFICIENTS = range(-2, 3)
CONSTANTS = range(-5, 9)

ORDERINGS = ("slt", "sle", "sgt", "sge")

orderings = st.tuples(
    st.sampled_from([*ORDERINGS, *ORDERINGS, "eq", "ne"]),
    st.sampled_from(COEFFICIENTS),
    st.sampled_from([-1, 1, -1, 1, *COEFFICIENTS]),
    st.sampled_from(COEFFICIENTS),
    st.sampled_from(CONSTANTS),
)
"""(kind, a, b, c, d): a * row + b * col + c * N against d."""
formulas = st.recursive(
    orderings, lambda inner: st.tuples(st.sampled_from(["andi", "ori"]), inner, inner), max_leaves=5
)


class Text:
    """A formula as the text of a mask's region."""

    def __init__(self, formula: tuple):
        self.lines: list[str] = []
        value = self.formula(formula)
        self.lines.append(f"tile.yield {value} : i1")

    def add(self, operation: str) -> str:
        self.lines.append(f"%v{len(self.lines)} = {operation}")
        return f"%v{len(self.lines) - 1}"

    def formula(self, f: tuple) -> str:
        if f[0] in ("andi", "ori"):
            a, b = self.formula(f[1]), self.formula(f[2])
            return self.add(f"arith.{f[0]} {a}, {b} : i1")
        kind, row, col, n, constant = f
        left = self.add(f"arith.muli %row, {name(row)} : index")
        for c, symbol in ((col, "%col"), (n, "%N")):
            product = self.add(f"arith.muli {name(c)}, {symbol} : index")
            left = self.add(f"arith.addi {left}, {product} : index")
        return self.add(f"arith.cmpi {kind}, {left}, {name(constant)} : index")


def name(n: int) -> str:
    return f"%m{-n}" if n < 0 else f"%p{n}"


def is_interval(f: tuple) -> bool:
    """Whether it is a conjunction of orderings in which the column stands alone."""
    if f[0] == "andi":
        return is_interval(f[1]) and is_interval(f[2])
    return f[0] not in ("ori", "eq", "ne") and abs(f[2]) <= 1


@given(
    formula=formulas, i=st.integers(0, 9), j=st.integers(0, 9), n=st.integers(0, 12), seed=st.integers(0, 9)
)
def test_any_predicate(formula: tuple, i: int, j: int, n: int, seed: int) -> None:
    check(formula, i, j, n, seed)


@pytest.mark.parametrize("kind", ORDERINGS)
@pytest.mark.parametrize("col", [-1, 0, 1])
@pytest.mark.parametrize("row", [-1, 0, 1])
def test_each_ordering(kind: str, row: int, col: int) -> None:
    """Below, at and above the place where it turns: 2 queries in, 3 keys in."""
    for constant in (-3, -2, 0, 1, 3, 5):
        check((kind, row, col, 0, constant), 2, 3, 0, 0)


@pytest.mark.parametrize("kind", ["andi", "ori"])
def test_a_condition_on_the_row_beside_one_on_the_column(kind: str) -> None:
    for first, last in ((3, 4), (0, 8), (8, 0)):
        check((kind, ("slt", 1, 0, 0, first), ("slt", 0, 1, 0, last)), 0, 0, 0, 0)
        check((kind, ("sgt", 0, 1, 0, first), ("slt", 1, 0, 0, last)), 0, 0, 0, 0)


@pytest.mark.parametrize("kind", ["andi", "ori"])
@pytest.mark.parametrize("side", ["slt", "sgt"])
def test_two_bounds_on_one_side(kind: str, side: str) -> None:
    for a, b in ((1, 4), (4, 1)):
        check((kind, (side, 0, 1, 0, a), (side, 0, 1, 0, b)), 0, 0, 0, 0)


def check(formula: tuple, i: int, j: int, n: int, seed: int) -> None:
    """Results before and after the pass are equal; the mask is gone where the predicate is an interval."""
    constants = "\n".join(f"{name(c)} = arith.constant {c} : index" for c in {*COEFFICIENTS, *CONSTANTS})
    module = parse(FUNCTION.format(constants=constants, predicate="\n".join(Text(formula).lines)))
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(shape) for shape in ((4, 3), (6, 3), (6, 2))]

    def results() -> list[np.ndarray]:
        outs = [np.full(shape, np.nan) for shape in ((4,), (4,), (4, 2))]
        interpret(module, *arrays, i, j, n, *outs)
        return outs

    want = results()
    try:
        MaskToSpansPass().apply(context(), module)
    except IllegalPass as e:
        assert "bounds no column" in str(e)
        return
    verify(module)
    assert ("tile.mask" in str(module)) == (not is_interval(formula))
    for got, before in zip(results(), want, strict=True):
        np.testing.assert_array_equal(got, before)
