"""Products of bfloat16 in the interpreter: what they mean, what they leave as it is, who may ask for them.

What the pass does to a text is in tests/filecheck/narrow-products/; tests/test_pair_kernels.py has kernels.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from ml_dtypes import bfloat16

from flashgen import FA2, targets
from flashgen.errors import FlashgenError, ParseFailure
from flashgen.interpret import interpret
from flashgen.ir.dialect import parse
from flashgen.passes.pipeline import lower
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.reference import ROUNDOFF, C, bound
from flashgen.schedule import ORDERS, Schedule
from tests.modules import call, check, final, stages
from tests.strategies import KINDS, Inputs, make_inputs

BR, BC, D, DV = 4, 5, 3, 5
"""Contractions of odd length in both products."""
SIZES = [(5, 7), (9, 2), (13, 11), (1, 1), (0, 3), (3, 0)]
WIDE = Schedule("q-outer", BR, BC, True, True, 4, False, False, split_keys=0)
NARROW = replace(WIDE, products="bfloat16")
VARIANTS = {
    "eager": replace(NARROW, lazy_rescale=False),
    "fa1": replace(NARROW, order="kv-outer", lazy_rescale=False, causal_skip=False),
    "hoisted": replace(NARROW, hoist_packs=True),
    "grouped": replace(NARROW, group_rows=True),
    "held": replace(NARROW, rescale_threshold=8.0),
    "split": replace(NARROW, hoist_packs=True, split_keys=2 * BC),
    "one panel": replace(NARROW, panel=16),
}
ALIKE = [replace(NARROW, order=o, causal_skip=skip) for o, skip in product(ORDERS, (False, True))]


def problem(causal: str | None = "bottom-right") -> Problem:
    return Problem(D, DV, "bfloat16", causal)


def make(kind: str, nq: int, nk: int, causal: str | None = "bottom-right") -> Inputs:
    return make_inputs(problem(causal), kind, (1, 4, 2, nq, nk), 0.7, seed=3)


EACH_ONCE = [(name, ALIGNMENTS[n % len(ALIGNMENTS)]) for n, name in enumerate(VARIANTS)]


@pytest.mark.parametrize(("name", "causal"), dict.fromkeys([*EACH_ONCE, *product(("hoisted",), ALIGNMENTS)]))
def test_every_stage_is_attention(name: str, causal: str | None) -> None:
    """In float64; the last one in float32, too, which is what kernels compute in."""
    found = stages(problem(causal), VARIANTS[name])
    runs = [*product(found, SIZES[:3], [np.float64]), *product(["final"], SIZES, [np.float32, np.float64])]
    for stage, (nq, nk), dtype in runs:
        try:
            check(found[stage], problem(causal), make("plain", nq, nk, causal), dtype, "bfloat16")
        except AssertionError as e:
            raise AssertionError(f"after {stage}, {nq} queries, {nk} keys, {dtype.__name__}: {e}") from e


@pytest.mark.parametrize("kind", KINDS)
def test_order_and_skip_change_no_bit(kind: str) -> None:
    """And no key that a row does not see changes anything, NaN included."""
    x, results = make(kind, 13, 11), set()
    for schedule in ALIKE:
        module = final(problem(), schedule)
        check(module, problem(), x, np.float32, "bfloat16")
        o, lse, _ = call(module, problem(), x, np.float32)
        results.add((np.nan_to_num(o.astype(np.float32), nan=7e7).tobytes(), lse.tobytes()))
    assert len(results) == 1


def test_one_visible_key_gives_its_value_to_the_bit() -> None:
    x = make("plain", 1, 1)
    for schedule, size in product(ALIKE, (1.0, 2.0**-20, 2.0**12)):
        y = replace(x, q=(x.q.astype(np.float32) * size).astype(bfloat16))
        o, _, _ = call(final(problem(), schedule), problem(), y, np.float32)
        np.testing.assert_array_equal(o, np.repeat(x.v, 2, axis=1))


def test_lse_is_as_without() -> None:
    """The sum of the weights is that before they are rounded: in float64 lse does not differ, but O does."""
    x = make("plain", 13, 11)
    (o, lse, _), (other, same, _) = (call(final(problem(), s), problem(), x) for s in (WIDE, NARROW))
    np.testing.assert_allclose(lse, same, rtol=1e-13)
    assert (o != other).any()


def test_the_bound_knows_what_weights_are_rounded_to() -> None:
    x = make("plain", 13, 11)
    wide, narrow = (
        bound(problem(), x.q, x.k, x.v, 0.7, products=products) for products in ("float32", "bfloat16")
    )
    largest = np.abs(x.v.astype(np.float64)).max(axis=(2, 3)).repeat(2, axis=1)
    more = C * (ROUNDOFF["bfloat16"] - ROUNDOFF["float32"]) * largest
    np.testing.assert_allclose(narrow.o - wide.o, more, rtol=1e-12)
    np.testing.assert_array_equal(narrow.lse, wide.lse)


DOT = """
func.func @f(%a: memref<1x{k}xbf16>, %b: memref<{k}x1xbf16>, %o: memref<1x1xf32>) {{
  %c0 = arith.constant 0 : index
  %x = tile.load %a[%c0, %c0] : memref<1x{k}xbf16> -> tensor<1x{k}xbf16>
  %y = tile.load %b[%c0, %c0] : memref<{k}x1xbf16> -> tensor<{k}x1xbf16>
  %p = tile.pack %y : tensor<{k}x1xbf16> -> tensor<1x{pairs}x4x2xbf16>
  %z = tile.dot %x, %p : tensor<1x{k}xbf16>, tensor<1x{pairs}x4x2xbf16> -> tensor<1x1xf32>
  tile.store %z, %o[%c0, %c0] : tensor<1x1xf32>, memref<1x1xf32>
  func.return
}}
"""


def dot(a: list[float], b: list[float]) -> float:
    out = np.full((1, 1), np.nan, np.float32)
    x, y = (np.array(values, np.float32).astype(bfloat16) for values in (a, b))
    module = parse(DOT.format(k=len(a), pairs=-(-len(a) // 2)))
    interpret(module, x[None], y[:, None], out, dtype=np.float32)
    return float(out[0, 0])


def test_the_second_of_a_pair_is_added_first() -> None:
    """2^24 + 1 is 2^24, so that the order shows; an odd end adds nothing."""
    assert dot([1.0, 2.0**24], [1.0, 1.0]) == 2.0**24
    assert dot([-(2.0**24), 2.0**24, 1.0], [1.0, 1.0, 1.0]) == 1.0
    assert dot([2.0**24, 1.0, 1.0], [1.0, 1.0, 1.0]) == 2.0**24  # 1 + 2^24, then 1 more
    assert dot([2.0**24, 1.0, 0.0, 1.0], [1.0, 1.0, 1.0, 1.0]) == 2.0**24
    assert dot([2.0**24, 0.0, 2.0, 1.0], [1.0, 1.0, 1.0, 1.0]) == 2.0**24 + 2


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        ([2.0**-127], [2.0**100], 0.0),  # an operand
        ([2.0**-70], [2.0**-60], 0.0),  # a product
        ([2.0**-126, 2.0**-126], [1.0, -0.75], 2.0**-126),  # a sum on the way
        ([2.0**-126], [1.0], 2.0**-126),
    ],
)
def test_what_is_subnormal_counts_as_0(a: list[float], b: list[float], want: float) -> None:
    assert dot(a, b) == want


def text(left: str, panels: str, result: str) -> str:
    return f"""
    func.func @f(%a: {left}, %b: {panels}) {{
      %z = tile.dot %a, %b : {left}, {panels} -> {result}
      func.return
    }}"""


@pytest.mark.parametrize(
    ("left", "panels", "message"),
    [
        ("tensor<4x7xf32>", "tensor<1x4x8x2xbf16>", "pairs are multiplied by what is of their type"),
        ("tensor<4x6xbf16>", "tensor<1x4x8x2xbf16>", "4x6 by 8x8 does not compose to 4x8"),
        ("tensor<4x9xbf16>", "tensor<1x4x8x2xbf16>", "4x9 by 8x8 does not compose to 4x8"),
    ],
)
def test_pairs_that_do_not_fit(left: str, panels: str, message: str) -> None:
    with pytest.raises(ParseFailure, match=message):
        parse(text(left, panels, "tensor<4x8xf32>"))


@pytest.mark.parametrize("k", [7, 8])
def test_an_odd_contraction_fills_the_last_pair_by_half(k: int) -> None:
    parse(text(f"tensor<4x{k}xbf16>", "tensor<1x4x8x2xbf16>", "tensor<4x8xf32>"))


PACK = "func.func @f(%a: tensor<5x8xbf16>) {{ %p = tile.pack %a : tensor<5x8xbf16> -> {} func.return }}"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ("tensor<2x5x4xbf16>", "pairs wanted, panel x pair x width x 2"),
        ("tensor<2x3x4x3xbf16>", "pairs wanted, panel x pair x width x 2"),
        ("tensor<2x2x4x2xbf16>", "the panels do not cover the tile"),
        ("tensor<2x5x4xf32>", "element types differ"),
    ],
)
def test_panels_that_are_no_pairs(result: str, message: str) -> None:
    parse(PACK.format("tensor<2x3x4x2xbf16>"))
    with pytest.raises(ParseFailure, match=message):
        parse(PACK.format(result))


ASKED = replace(FA2, products="bfloat16")
REFUSED = [
    ("avx512", "bfloat16", {}, "products is 'bfloat16'; target avx512 multiplies in float32"),
    ("avx2", "bfloat16", {}, "products is 'bfloat16'; target avx2 multiplies in float32"),
    ("cuda", "bfloat16", {}, "products is 'bfloat16'; target cuda multiplies in float32"),
    ("avx512bf16", "float32", {}, "dtype 'float32' would be rounded; 'float32' or the problem's dtype"),
    ("avx512bf16", "float16", {}, "dtype 'float16' would be rounded; 'float32' or the problem's dtype"),
    ("avx512bf16", "bfloat16", {"panel": 0}, "products is 'bfloat16'; it needs panels: panel above 0"),
    (
        "avx512bf16",
        "bfloat16",
        {"products": "float16"},
        "products is 'float16'; one of 'float32', 'bfloat16' is allowed",
    ),
]


@pytest.mark.parametrize(("target", "dtype", "change", "message"), REFUSED)
def test_who_may_not_ask(target: str, dtype: str, change: dict[str, object], message: str) -> None:
    with pytest.raises(FlashgenError, match=re.escape(message)):
        targets.find(target).complete(Problem(8, dtype=dtype), replace(ASKED, **change))


def test_a_module_of_float32_memory_is_refused() -> None:
    with pytest.raises(FlashgenError, match=r"narrow-products: tile\.load: its array holds f32"):
        lower(Problem(8), NARROW)


def test_short_calls_pack_too() -> None:
    """A few rows are multiplied in place, but pairs are packed."""
    target, p = targets.find("avx512bf16"), Problem(64, dtype="bfloat16")
    for schedule, panel in ((FA2, 0), (ASKED, 32)):
        assert target.complete(p, target.suit(p, schedule, 1, 4096, 4)).panel == panel
