"""A product whose right side is packed: what it may leave out, what it means, how it is copied."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from flashgen.errors import ParseFailure
from flashgen.interpret import interpret
from flashgen.ir.compute import DotOp, PackOp
from flashgen.ir.dialect import parse
from flashgen.ir.types import shape_of, tile

TEXT = """
func.func @f(%p: tensor<4x6xf32>, %v: tensor<{panels}xf32>, %o: memref<?x{cols}xf32>) {{
  %c0 = arith.constant 0 : index
  %y = tile.dot %p, %v{how} : tensor<4x6xf32>, tensor<{panels}xf32> -> tensor<4x{cols}xf32>
  tile.store %y, %o[%c0, %c0] : tensor<4x{cols}xf32>, memref<?x{cols}xf32>
  func.return
}}
"""


def module(panels: str, cols: int, how: str = "") -> ModuleOp:
    return parse(TEXT.format(panels=panels, cols=cols, how=how))


@pytest.mark.parametrize("cols", [5, 6, 7, 8])
def test_padding_of_the_last_panel_is_left_out(cols: int) -> None:
    rng = np.random.default_rng(cols)
    p, panels = rng.standard_normal((4, 6)), rng.standard_normal((2, 6, 4))
    panels[1, :, cols - 4 :] = np.nan
    out = np.full((4, cols), np.nan)
    interpret(module("2x6x4", cols), p, panels, out)
    want = p @ np.concatenate(list(panels), axis=1)[:, :cols]
    np.testing.assert_allclose(out, want, rtol=1e-12)


@pytest.mark.parametrize("cols", [1, 4, 9])
def test_a_whole_panel_may_not_be_left_out(cols: int) -> None:
    with pytest.raises(ParseFailure, match=f"4x6 by 6x8 does not compose to 4x{cols}"):
        module("2x6x4", cols)


def test_a_matrix_is_never_left_out_in_part() -> None:
    with pytest.raises(ParseFailure, match="4x6 by 6x8 does not compose to 4x7"):
        module("6x8", 7)


def test_panels_are_not_transposed() -> None:
    with pytest.raises(ParseFailure, match="not transposed"):
        module("2x6x4", 8, " transpose")


def test_the_contraction_agrees() -> None:
    with pytest.raises(ParseFailure, match="4x6 by 5x8 does not compose"):
        module("2x5x4", 8)


@pytest.mark.parametrize("side", ["tensor<4x6xf32>", "tensor<6x5xf32>"])
def test_a_mask_is_no_side_of_a_product(side: str) -> None:
    text = TEXT.format(panels="6x5", cols=5, how="")
    with pytest.raises(ParseFailure, match="tiles of float32, float64, float16 or bfloat16 wanted"):
        parse(text.replace(side, side.replace("f32", "i1")))


def test_constructor_and_copies() -> None:
    block = module("2x6x4", 7).regions[0].block
    (dot,) = (op for op in block.walk() if isinstance(op, DotOp))
    made = DotOp(dot.lhs, dot.rhs, cols=5)
    made.verify()
    assert shape_of(made.result) == (4, 5)
    assert shape_of(DotOp(dot.lhs, dot.rhs).result) == (4, 8)
    assert shape_of(dot.but(where=None).result) == (4, 7)
    assert shape_of(dot.but(cols=6).result) == (4, 6)
    with pytest.raises(VerifyException, match="does not compose to 4x4"):
        DotOp(dot.lhs, dot.rhs, cols=4).verify()


@pytest.mark.parametrize("transpose", [False, True])
def test_packing_covers_the_tile(transpose: bool) -> None:
    """p[a, n, x] is column width * a + x of the tile, or its row where transposed; 0 beyond the last."""
    block = module("6x8", 8).regions[0].block
    (dot,) = (op for op in block.walk() if isinstance(op, DotOp))
    pack = PackOp(dot.rhs, 5, transpose)
    pack.verify()
    assert pack.result.type == (tile(2, 8, 5) if transpose else tile(2, 6, 5))
