"""What single operations mean in the interpreter; its own checks can fail."""

from __future__ import annotations

import numpy as np
import pytest

from flashgen.build import build
from flashgen.interpret import Violation, interpret
from flashgen.ir.dialect import parse
from flashgen.problem import Problem

X = np.arange(1.0, 25.0).reshape(4, 6)
NAN = np.nan


def evaluate(body: str, shape: tuple[int, ...], params: str = "", *args, dtype: type = np.float64):
    """What ``%y``, a tile of this shape, is; %x and more are arrays that the body may load from."""
    sizes, spots = "x".join(map(str, shape)), ", ".join(["%c0"] * len(shape))
    text = f"""
    func.func @f(%x: memref<4x6xf32>, %o: memref<{sizes}xf32>{", " if params else ""}{params}) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c2 = arith.constant 2 : index
      %t = tile.load %x[%c0, %c0] : memref<4x6xf32> -> tensor<4x6xf32>
      {body}
      tile.store %y, %o[{spots}] : tensor<{sizes}xf32>, memref<{sizes}xf32>
      func.return
    }}"""
    out = np.full(shape, 99.0, dtype)
    counts = interpret(parse(text), X.astype(dtype), out, *args, dtype=dtype)
    return out, counts


TWICE = "%y = arith.addf %t, %t : tensor<4x6xf32>"
SPAN = """%span = tile.row_span %c0, %c1 {
^bb0(%row: index):
  %hi = arith.addi %row, %c2 : index
  tile.yield %row, %hi : index, index
} of 6 : index : tensor<4x2xindex>
"""
INSIDE = np.array([[c in range(max(r - 1, 0), r + 1) for c in range(6)] for r in range(4)])
"""Row r sees columns [r, r + 2) of those that start at column 1: [r - 1, r + 1) of the tile."""


def test_a_load_pads_with_zero_and_a_store_is_clipped():
    got, _ = evaluate("%y = tile.load %x[%c2, %c0] : memref<4x6xf32> -> tensor<4x6xf32>", (4, 6))
    np.testing.assert_array_equal(got, np.concatenate([X[2:], np.zeros((2, 6))]))
    store = f"tile.store %t, %z[%c2, %c0] : tensor<4x6xf32>, memref<4x6xf32>\n{TWICE}"
    z = np.zeros((4, 6))
    evaluate(store, (4, 6), "%z: memref<4x6xf32>", z)
    np.testing.assert_array_equal(z, np.concatenate([np.zeros((2, 6)), X[:2]]))


def test_a_tile_wholly_outside_is_zero():
    got, _ = evaluate(
        "%y = tile.load %x[%n, %c0] : memref<4x6xf32> -> tensor<4x6xf32>", (4, 6), "%n: index", 9
    )
    np.testing.assert_array_equal(got, 0)


@pytest.mark.parametrize(("at", "ok"), [(0, True), (1, False), (4, False)])
def test_in_bounds_is_checked(at, ok):
    body = "%y = tile.load %x[%n, %c0] in_bounds : memref<4x6xf32> -> tensor<4x6xf32>"
    if ok:
        evaluate(body, (4, 6), "%n: index", at)
    else:
        with pytest.raises(Violation, match="in_bounds does not hold"):
            evaluate(body, (4, 6), "%n: index", at)


@pytest.mark.parametrize(("index", "message"), [(-1, "outside"), (4, "outside")])
def test_a_leading_index_lies_inside(index, message):
    with pytest.raises(Violation, match=message):
        evaluate("%y = tile.load %x[%n, %c0] : memref<4x6xf32> -> tensor<6xf32>", (6,), "%n: index", index)


def test_a_tile_does_not_start_before_its_array():
    with pytest.raises(Violation, match="before the array"):
        evaluate("%y = tile.load %x[%n, %c0] : memref<4x6xf32> -> tensor<4x6xf32>", (4, 6), "%n: index", -1)


def test_a_workspace_holds_nan_at_first():
    got, _ = evaluate(
        "%w = memref.alloc() : memref<4x6xf32>\n"
        "%y = tile.load %w[%c0, %c0] : memref<4x6xf32> -> tensor<4x6xf32>",
        (4, 6),
    )
    assert np.isnan(got).all()


def test_storage_in_half_precision_rounds():
    half = np.zeros((4, 6), np.float16)
    evaluate(
        f"tile.store %t, %h[%c0, %c0] : tensor<4x6xf32>, memref<4x6xf16>\n{TWICE}",
        (4, 6),
        "%h: memref<4x6xf16>",
        half,
    )
    np.testing.assert_array_equal(half, X.astype(np.float16))
    third = np.full((4, 6), 1 / 3, np.float16)
    got, _ = evaluate(
        "%y = tile.load %h[%c0, %c0] : memref<4x6xf16> -> tensor<4x6xf32>",
        (4, 6),
        "%h: memref<4x6xf16>",
        third,
    )
    np.testing.assert_array_equal(got, third.astype(np.float64))


def test_where_leaves_out_what_is_not_finite():
    """0 times NaN would be NaN."""
    vis = """%vis = tile.mask %c0, %c0 {
    ^bb0(%row: index, %col: index):
      %c = arith.cmpi slt, %col, %c1 : index
      tile.yield %c : i1
    } : tensor<4x6xi1>
    """
    v = np.full((6, 2), NAN)
    v[0] = 1, 2
    body = (
        vis
        + "%v = tile.load %m[%c0, %c0] : memref<6x2xf32> -> tensor<6x2xf32>\n"
        + "%y = tile.dot %t, %v where %vis : tensor<4x6xi1>"
        + " : tensor<4x6xf32>, tensor<6x2xf32> -> tensor<4x2xf32>"
    )
    got, counts = evaluate(body, (4, 2), "%m: memref<6x2xf32>", v)
    np.testing.assert_array_equal(got, X[:, :1] * [1, 2])
    assert counts["tile.mask"] == counts["tile.dot"] == 1


def test_over_contracts_an_interval_and_only_leaves_the_rest_unspecified():
    v = np.arange(12.0).reshape(6, 2)
    load = "%v = tile.load %m[%c0, %c0] : memref<6x2xf32> -> tensor<6x2xf32>\n"
    types = "tensor<4x6xf32>, tensor<6x2xf32> -> tensor<4x2xf32>"
    body = f"%y = tile.dot %t, %v over %span : tensor<4x2xindex> : {types}"
    got, _ = evaluate(SPAN + load + body, (4, 2), "%m: memref<6x2xf32>", v)
    np.testing.assert_array_equal(got, np.where(INSIDE, X, 0) @ v)
    k = np.arange(36.0).reshape(6, 6)
    load = "%k = tile.load %m[%c0, %c0] : memref<6x6xf32> -> tensor<6x6xf32>\n"
    types = "tensor<4x6xf32>, tensor<6x6xf32> -> tensor<4x6xf32>"
    body = f"%y = tile.dot %t, %k transpose only %span : tensor<4x2xindex> : {types}"
    got, _ = evaluate(SPAN + load + body, (4, 6), "%m: memref<6x6xf32>", k)
    np.testing.assert_array_equal(got, np.where(INSIDE, X @ k.T, NAN))


@pytest.mark.parametrize("transpose", [False, True])
def test_packing_pads_the_last_panel_and_a_product_leaves_it_out(transpose):
    k = np.arange(1.0, 31.0).reshape((5, 6) if transpose else (6, 5))
    rows, cols = k.shape
    flag = " transpose" if transpose else ""
    load = f"%k = tile.load %m[%c0, %c0] : memref<{rows}x{cols}xf32> -> tensor<{rows}x{cols}xf32>\n"
    pack = f"%p = tile.pack %k{flag} : tensor<{rows}x{cols}xf32> -> tensor<3x6x2xf32>\n"
    got, _ = evaluate(load + pack.replace("%p", "%y"), (3, 6, 2), f"%m: memref<{rows}x{cols}xf32>", k)
    columns = k.T if transpose else k
    want = np.stack([columns[:, :2], columns[:, 2:4], np.pad(columns[:, 4:], ((0, 0), (0, 1)))])
    np.testing.assert_array_equal(got, want)
    dot = "%y = tile.dot %t, %p : tensor<4x6xf32>, tensor<3x6x2xf32> -> tensor<4x5xf32>"
    got, _ = evaluate(load + pack + dot, (4, 5), f"%m: memref<{rows}x{cols}xf32>", k)
    np.testing.assert_array_equal(got, X @ columns)


def test_reductions_over_a_span_and_of_nothing():
    reduced = "%y = tile.row_max %t over %span : tensor<4x2xindex> : tensor<4x6xf32> -> tensor<4xf32>"
    got, _ = evaluate(SPAN + reduced, (4,))
    np.testing.assert_array_equal(got, np.where(INSIDE, X, -np.inf).max(axis=1))
    got, _ = evaluate(SPAN + reduced.replace("row_max", "row_sum"), (4,))
    np.testing.assert_array_equal(got, np.where(INSIDE, X, 0).sum(axis=1))
    empty = SPAN.replace("tile.yield %row, %hi", "tile.yield %hi, %row")
    got, _ = evaluate(empty + reduced, (4,))
    np.testing.assert_array_equal(got, -np.inf)


def test_a_maximum_keeps_nan_unless_it_drops_it():
    a = X.copy()
    a[1, 2] = NAN
    load = "%a = tile.load %m[%c0, %c0] : memref<4x6xf32> -> tensor<4x6xf32>\n"
    reduced = "%y = tile.row_max %a : tensor<4x6xf32> -> tensor<4xf32>"
    got, _ = evaluate(load + reduced, (4,), "%m: memref<4x6xf32>", a)
    np.testing.assert_array_equal(got, [6, NAN, 18, 24])
    got, _ = evaluate(load + reduced.replace("%a :", "%a drop_nan :"), (4,), "%m: memref<4x6xf32>", a)
    np.testing.assert_array_equal(got, [6, 12, 18, 24])


def test_a_sweep_reduces_what_it_yields_and_leaves_the_rest_unspecified():
    sweep = """%e, %sum, %most = tile.sweep %t over %span : tensor<4x2xindex> reduce "add,max" {
    ^bb0(%a: f32):
      %d = arith.addf %a, %a : f32
      tile.yield %d, %d, %a : f32, f32, f32
    } : (tensor<4x6xf32>) -> (tensor<4x6xf32>, tensor<4xf32>, tensor<4xf32>)
    """
    got, _ = evaluate(SPAN + sweep + "%y = arith.addf %e, %e : tensor<4x6xf32>", (4, 6))
    np.testing.assert_array_equal(got, np.where(INSIDE, 4 * X, NAN))
    got, _ = evaluate(SPAN + sweep + "%y = arith.addf %sum, %most : tensor<4xf32>", (4,))
    inside = np.where(INSIDE, X, 0)
    np.testing.assert_array_equal(got, 2 * inside.sum(axis=1) + inside.max(axis=1))


def test_what_is_held_and_what_is_followed():
    """As exp2's layer has it: see test_hold in test_vector_math.py."""
    inf = np.inf
    pairs = np.array([(1, 9, 1), (1, 9.1, 9.1), (inf, 0, inf), (-inf, 3, 3), (-inf, -inf, -inf), (NAN, 3, 3)])
    held, followed, want = (np.repeat(column[None], 4, axis=0) for column in pairs.T)
    load = "%{0} = tile.load %{0}m[%c0, %c0] : memref<4x6xf32> -> tensor<4x6xf32>\n"
    body = "%y = tile.hold %a, %b, 8.0 : f32 : tensor<4x6xf32>, tensor<4x6xf32> -> tensor<4x6xf32>"
    parameters = "%am: memref<4x6xf32>, %bm: memref<4x6xf32>"
    got, _ = evaluate(load.format("a") + load.format("b") + body, (4, 6), parameters, held, followed)
    np.testing.assert_array_equal(got, want)


def test_replacement_lets_nan_pass():
    a = np.array([[0.0, -np.inf, NAN, 1, 2, 3]] * 4)
    load = "%a = tile.load %m[%c0, %c0] : memref<4x6xf32> -> tensor<4x6xf32>\n"
    body = "%y = tile.replace %a, 0xff800000 : f32, 7.0 : f32 : tensor<4x6xf32> -> tensor<4x6xf32>"
    got, _ = evaluate(load + body, (4, 6), "%m: memref<4x6xf32>", a)
    np.testing.assert_array_equal(got, np.where(a == -np.inf, 7, a))


@pytest.mark.parametrize(
    ("op", "a", "b", "want"),
    [
        ("floordivsi", 7, 2, 3),
        ("floordivsi", -7, 2, -4),
        ("floordivsi", 7, 0, 0),
        ("ceildivsi", 7, 2, 4),
        ("ceildivsi", -7, 2, -3),
        ("ceildivsi", 7, 0, 0),
        ("minsi", 3, -2, -2),
        ("maxsi", 3, -2, 3),
    ],
)
def test_index_arithmetic(op, a, b, want):
    """Seen as a column to load from, 5 further on."""
    body = f"""%n = arith.{op} %a, %b : index
    %c5 = arith.constant 5 : index
    %at = arith.addi %n, %c5 : index
    %y = tile.load %z[%at] : memref<12xf32> -> tensor<1xf32>"""
    numbers = np.arange(-5.0, 7.0)
    got, _ = evaluate(body, (1,), "%a: index, %b: index, %z: memref<12xf32>", a, b, numbers)
    assert got.item() == want


def test_float32_is_computed_in_float32():
    got, _ = evaluate("%y = arith.divf %t, %t : tensor<4x6xf32>", (4, 6), dtype=np.float32)
    assert got.dtype == np.float32
    body = "%s = tile.broadcast %f : f32 -> tensor<4x6xf32>\n%y = arith.mulf %t, %s : tensor<4x6xf32>"
    third = np.float32(1 / 3)
    got, _ = evaluate(body, (4, 6), "%f: f32", third, dtype=np.float32)
    np.testing.assert_array_equal(got, X.astype(np.float32) * third)


def test_an_operation_without_a_meaning():
    with pytest.raises(Violation, match=r"math\.sqrt has no meaning here"):
        evaluate("%y = math.sqrt %t : tensor<4x6xf32>", (4, 6))


def test_extents_of_one_name_are_equal():
    module = build(Problem(4), 4, 4)
    q, k, v = (np.zeros((1, 1, n, 4)) for n in (5, 6, 7))
    with pytest.raises(Violation, match="extent Nk of %v is 7, elsewhere 6"):
        interpret(module, q, k, v, np.zeros_like(q), np.zeros((1, 1, 5)), 1.0)
    with pytest.raises(Violation, match=r"extent 3 of %q is 3, not 4$"):
        interpret(module, q[..., :3], k, k, np.zeros_like(q), np.zeros((1, 1, 5)), 1.0)
