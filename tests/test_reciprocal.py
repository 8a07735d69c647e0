"""reciprocal: one division a row, of what is 0 or at least 1; and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import arith

from flashgen.build import build
from flashgen.ir.compute import ReplaceOp, RowSumOp
from flashgen.ir.dialect import parse
from flashgen.ir.types import shape_of
from flashgen.passes.patterns import guards, splat, unbroadcast
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.schedule import MAX_THRESHOLD, ORDERS, Schedule
from tests.head import carried, refused
from tests.modules import final, stages
from tests.strategies import make_inputs

D, DV, BR, BC = 3, 5, 4, 6


def schedule(order: str, threshold: float = 0.0, parts: int = 0) -> Schedule:
    return Schedule(order, BR, BC, True, True, 4, True, False, threshold, parts, False)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("causal", ALIGNMENTS)
def test_a_row_is_divided_once(order: str, causal: str | None) -> None:
    for parts in (0, 2 * BC) if order == "q-outer" else (0,):
        module = final(Problem(D, DV, causal=causal), schedule(order, parts=parts))
        divisions = [op for op in module.walk() if isinstance(op, arith.DivfOp)]
        assert [(shape_of(op.result), splat(op.lhs)) for op in divisions] == [((BR,), 1.0)]
        assert guards(unbroadcast(divisions[0].rhs), 0.0, 1.0)


def largest_and_least(module, problem: Problem, x, monkeypatch: pytest.MonkeyPatch) -> tuple[float, float]:
    """Of what is divided by, in an interpreted run in float32."""
    from flashgen import interpret
    from tests.modules import call

    seen: list[np.ndarray] = []

    def spy(frame, op: ReplaceOp, value):
        found = interpret.replace(frame, op, value)
        if guards(op.result, 0.0, 1.0):
            seen.append(found)
        return found

    monkeypatch.setitem(interpret.MEANINGS, ReplaceOp, spy)
    call(module, problem, x, np.float32)
    every = np.concatenate(seen)
    return float(np.nanmax(every)), float(np.nanmin(every))


def divisors(module, problem: Problem, monkeypatch: pytest.MonkeyPatch, negative: bool = False) -> list:
    """Pairs of the largest and the least, for scores of several kinds and sizes, or for those of one sign."""
    found = []
    for kind in ("plain", "rising", "falling", "farthest"):
        for size in (1e-3, 1.0, 40.0):
            x = make_inputs(problem, kind, (1, 4, 2, 13, 31), 0.7, seed=3)
            x.k[...] *= np.float32(size)
            if negative:
                x.q[...], x.k[...] = np.abs(x.q), -np.abs(x.k)
            with monkeypatch.context() as patch:
                found.append(largest_and_least(module, problem, x, patch))
    return found


@pytest.mark.parametrize("threshold", [0.0, 0.5, 8.0, float(MAX_THRESHOLD)])
@pytest.mark.parametrize("parts", [0, 2 * BC])
def test_what_is_divided_by_is_at_least_1(threshold: float, parts: int, monkeypatch) -> None:
    """And far from where its reciprocal is subnormal, whatever reference is held."""
    problem = Problem(D, DV, causal="top-left")
    module = final(problem, schedule("q-outer", threshold, parts))
    found = divisors(module, problem, monkeypatch)
    for most, least in found:
        assert least == 1  # of the first row, which sees one key; no other has less
        assert most <= 31 * 2.0**threshold
    if threshold == MAX_THRESHOLD:  # a reference is held that a smaller threshold would have let go
        assert max(most for most, _ in found) > 31 * 2.0**8


def test_what_is_divided_by_may_be_below_1_where_a_maximum_starts_higher(monkeypatch) -> None:
    """The counterpart: what the pass refuses such a start for is found by what measures it here."""
    problem = Problem(D, DV, causal="top-left")
    start = "%m_start = tile.broadcast %neg_inf"
    text = str(final(problem, schedule("q-outer")))
    assert text.count(start) == 1
    module = parse(text.replace(start, "%m_start = tile.broadcast %zero"))
    assert min(least for _, least in divisors(module, problem, monkeypatch, negative=True)) < 0.99


NOTHING = "builtin.module: nothing is divided by the sum of a softmax's row"
DIVISORS = """  %divisor = tile.replace %l, 0.0 : f32, 1.0 : f32 : tensor<4xf32> -> tensor<4xf32>
  %divisors = tile.broadcast %divisor : tensor<4xf32> -> tensor<4x8xf32>
"""
L0 = "  %l0 = tile.broadcast %zero : f32 -> tensor<4xf32>"
QUOTIENT = "%out = arith.divf %acc, %divisors : tensor<4x8xf32>"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            (L0, L0.replace("%zero", "%ln2")),
            "scf.for: its state does not start as that of no keys, so l may be below 1",
        ),
        (
            ("%m0 = tile.broadcast %neg_inf", "%m0 = tile.broadcast %zero"),
            "scf.for: its state does not start",
        ),
        (
            ("%l_tile = tile.row_sum %p :", "%l_tile = tile.row_sum %p over %span : tensor<4x2xindex> :"),
            "tile.row_sum: may look at a part of a row",
        ),
        (
            (QUOTIENT, "%out = arith.mulf %acc, %divisors : tensor<4x8xf32>"),
            "tile.replace: reads the state otherwise than for acc / l and m + ln l",
        ),
        (
            (
                f"  {QUOTIENT}\n  tile.store %out, %o[%c0, %c0] : tensor<4x8xf32>, memref<4x8xf32>\n",
                "",
            ),
            NOTHING,
        ),
    ],
    ids=["a sum that starts elsewhere", "a maximum that does", "a part of a row", "a product", "no quotient"],
)
def test_refusals(change: tuple[str, str], message: str) -> None:
    text = carried(change)
    if "%span" in text:
        text = text.replace("%n: index)", "%n: index, %span: tensor<4x2xindex>)")
    if message == NOTHING:
        text = text.replace(DIVISORS, "")
    refused("reciprocal", text, message)


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ("lazy-rescale", "arith.subf: is no exponent of base 2: run base-2 before"),
        ("base-2", "arith.subf: rescales what is new, too: run lazy-rescale before"),
        (
            "lazy-rescale,base-2,reciprocal",
            NOTHING,
        ),
    ],
)
def test_refused_out_of_order(passes: str, message: str) -> None:
    refused(f"{passes},reciprocal", str(build(Problem(8, causal="top-left"), 4, 4)), message)


def test_others_know_the_product_for_a_quotient() -> None:
    """The passes behind it that ask what becomes of a softmax's state."""
    modules = stages(Problem(D, DV), schedule("q-outer", parts=2 * BC))
    names = list(modules)
    assert names.index("reciprocal") < names.index("split-keys")
    assert any(isinstance(op, RowSumOp) for op in modules["split-keys"].walk())
