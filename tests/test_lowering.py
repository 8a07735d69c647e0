"""What the lowering passes leave a module's meaning: every pass, every order, hostile sizes and values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from flashgen.build import build
from flashgen.errors import IllegalPass
from flashgen.ir.construct import both, compare, const, sub
from flashgen.ir.regions import MaskOp
from flashgen.ir.types import i1
from flashgen.passes.pipeline import derivation, lowering, pipeline, run
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.reference import softmax
from flashgen.schedule import ORDERS, Schedule
from tests.modules import COMBINATIONS, call, check, final, stages
from tests.strategies import Inputs, make_inputs

BR, BC, D, DV = 4, 6, 3, 5
SIZES = [(0, 7), (7, 0), (1, 1), (3, 13), (4, 6), (5, 7), (9, 2), (13, 11)]
"""Queries and keys: zero, one, exactly a tile, one more and one less, primes, more of either."""
PANELS = (0, 4, 16)
KEEP_BITS = {"nan-in-sum", "pack", "mask-to-spans", "fuse-sweeps", "parallel-loops"}
"""Passes that change no rounding; base-2, fold-scale and accumulate compute the same value another way."""

every_mask = pytest.mark.parametrize("causal", ALIGNMENTS)
every_schedule = pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(s, id=s.name)
        for order, lazy, skip in COMBINATIONS
        for s in [Schedule(order, BR, BC, lazy, skip, 4, False, False, split_keys=0)]
    ],
)


def make(problem: Problem, nq: int, nk: int, scale: float = 0.7) -> Inputs:
    """Four query heads over two key heads; the maximum moves from tile to tile."""
    x = make_inputs(problem, "plain", (1, 4, 2, nq, nk), scale)
    return replace(x, q=3 * x.q, k=3 * x.k)


def lowered(problem: Problem, schedule: Schedule) -> list[tuple[str, ModuleOp]]:
    """The module as the derivation left it, and as each lowering pass did."""
    return list(stages(problem, schedule).items())[len(derivation(schedule)) : -1]


def float32_bits(module: ModuleOp, problem: Problem, x: Inputs, shuffle: int | None = None) -> np.ndarray:
    """O and lse, computed in float32, to the bit."""
    o, lse, _ = call(module, problem, x, np.float32, shuffle)
    return np.concatenate([o.ravel(), lse.ravel()]).view(np.uint32)


@every_mask
@every_schedule
def test_every_pass_keeps_the_meaning(schedule: Schedule, causal: str | None) -> None:
    problem = Problem(D, DV, causal=causal)
    for name, module in lowered(problem, schedule):
        for nq, nk in ((5, 7), (9, 2), (13, 11)):
            try:
                check(module, problem, make(problem, nq, nk))
            except AssertionError as e:
                raise AssertionError(f"after {name}, {nq} queries, {nk} keys: {e}") from e


@every_mask
@every_schedule
@pytest.mark.parametrize("panel", PANELS)
def test_hostile_sizes(schedule: Schedule, causal: str | None, panel: int) -> None:
    problem = Problem(D, DV, causal=causal)
    module = final(problem, replace(schedule, panel=panel))
    for nq, nk in SIZES:
        check(module, problem, make(problem, nq, nk))


@every_schedule
@pytest.mark.parametrize("scale", [0.0, -1.0, 30.0])
def test_any_scale(schedule: Schedule, scale: float) -> None:
    """Both signs, none, and one for which a key takes all."""
    problem = Problem(D, DV, causal="bottom-right")
    check(final(problem, schedule), problem, make(problem, 9, 13, scale))


def poisoned(problem: Problem, case: str, nq: int, nk: int) -> Inputs:
    x = make(problem, nq, nk)
    q, k, v = (array.astype(np.float64) for array in (x.q, x.k, x.v))
    if case == "a query":
        q[0, 1, nq // 2, 0] = np.nan
    elif case == "the last key":  # hidden from all rows but the last under a causal mask
        k[0, :, nk - 1, 0] = np.nan
    elif case == "a key that scores infinity":
        k[0, 0, nk // 2] = np.inf
    elif case == "an element of a value":
        v[0, 0, nk // 2, 1] = np.nan
    elif case == "infinite values":
        v[0, 0, nk // 2] = np.inf
        v[0, 1, nk - 1] = -np.inf
    elif case == "all of a tile of keys":
        k[0, :, :BC] = np.nan
    return replace(x, q=q, k=k, v=v)


@every_mask
@every_schedule
@pytest.mark.parametrize(
    "case",
    [
        "a query",
        "the last key",
        "a key that scores infinity",
        "an element of a value",
        "infinite values",
        "all of a tile of keys",
    ],
)
def test_nan_goes_where_it_is_seen_and_nowhere_else(
    schedule: Schedule, causal: str | None, case: str
) -> None:
    problem = Problem(D, DV, causal=causal)
    for nq, nk in ((9, 13), (13, 9)):
        check(final(problem, schedule), problem, poisoned(problem, case, nq, nk))


@pytest.mark.parametrize("lazy", [False, True])
@every_mask
def test_bits_depend_on_tiles_and_rescaling_alone(lazy: bool, causal: str | None) -> None:
    """Order, skipping and panels change no bit of a float32 result."""
    problem = Problem(D, DV, causal=causal)
    x = make(problem, 13, 23)
    first, *others = (
        float32_bits(
            final(problem, Schedule(order, BR, BC, lazy, skip, panel, False, False, split_keys=0)), problem, x
        )
        for order, skip, panel in product(ORDERS, (False, True), PANELS)
    )
    for other in others:
        np.testing.assert_array_equal(other, first)


@every_mask
@every_schedule
def test_passes_that_keep_every_bit(schedule: Schedule, causal: str | None) -> None:
    problem = Problem(D, DV, causal=causal)
    x = make(problem, 13, 11)
    bits = {name: float32_bits(module, problem, x) for name, module in lowered(problem, schedule)}
    names = list(bits)
    for before, name in pairwise(names):
        if name in KEEP_BITS:
            np.testing.assert_array_equal(bits[name], bits[before], err_msg=name)
    assert set(names[1:]) >= KEEP_BITS


@every_schedule
def test_parallel_iterations_run_in_any_order(schedule: Schedule) -> None:
    problem = Problem(D, DV, causal="bottom-right")
    x, module = make(problem, 13, 11), final(problem, schedule)
    for seed in range(3):
        shuffled = float32_bits(module, problem, x, shuffle=seed)
        np.testing.assert_array_equal(shuffled, float32_bits(module, problem, x))


@every_schedule
def test_one_key_gives_its_value(schedule: Schedule) -> None:
    """To the bit, also in float32: the exponential is exactly 1 at the maximum."""
    problem = Problem(D, DV)
    x = make(problem, 5, 1)
    o, _, _ = call(final(problem, schedule), problem, x, np.float32)
    for h in range(4):
        np.testing.assert_array_equal(o[0, h], np.broadcast_to(x.v[0, h // 2], o[0, h].shape))


@every_schedule
def test_names_are_cosmetic(schedule: Schedule) -> None:
    """No pass looks at what a value is called."""

    def nameless(module: ModuleOp) -> ModuleOp:
        for op in module.walk():
            values = [*op.results, *(arg for r in op.regions for block in r.blocks for arg in block.args)]
            for v in values:
                v.name_hint = None
        return module

    problem = Problem(D, DV, causal="bottom-right")
    (_, start), *_, (_, end) = lowered(problem, schedule)
    bare = nameless(start.clone())
    run(bare, lowering(schedule, problem))
    assert str(nameless(bare)) == str(nameless(end.clone()))


@settings(max_examples=30)
@given(loops=st.sampled_from(ORDERS), lazy=st.booleans(), order=st.permutations(range(12)))
def test_in_any_order_a_pass_is_right_or_refuses(loops: str, lazy: bool, order: list[int]) -> None:
    """The canonical order is the one in which none refuses."""
    problem = Problem(D, DV, causal="bottom-right")
    module = build(problem, BR, BC)
    run(module, derivation(Schedule(loops, lazy_rescale=lazy)))
    choice = Schedule("q-outer", BR, BC, True, True, 4, True, False, 8.0, 2 * BC, fetch_ahead=True)
    passes = lowering(choice, problem)
    for n in order:
        with suppress(IllegalPass):
            run(module, [passes[n]])
    for kind in ("plain", "nan_k", "nan_v"):
        check(module, problem, make_inputs(problem, kind, (1, 2, 1, 9, 13), 0.7))


def with_mask(problem: Problem, change: Callable[[SSAValue, SSAValue, SSAValue], SSAValue]) -> ModuleOp:
    """FlashAttention-1 with another predicate, made from the row, the column and the old predicate."""
    module = build(problem, BR, BC)
    (mask,) = (op for op in module.walk() if isinstance(op, MaskOp))
    last = mask.body.block.last_op
    assert last is not None
    with ImplicitBuilder(Builder(InsertPoint.before(last))):
        last.operands[0] = change(*mask.body.block.args, mask.predicate)
    return module


def prefix(row: SSAValue, col: SSAValue, inside: SSAValue) -> SSAValue:
    """Inside, or one of the first 3 keys."""
    assert isinstance(inside.owner, arith.AndIOp)
    first = arith.OrIOp(compare(col, "slt", const(3)), inside.owner.rhs, i1).result
    return both(inside.owner.lhs, first)


def window(row: SSAValue, col: SSAValue, inside: SSAValue) -> SSAValue:
    """Inside, and at most 4 keys back."""
    return both(inside, compare(sub(row, col), "sle", const(4)))


def all_but_one(row: SSAValue, col: SSAValue, inside: SSAValue) -> SSAValue:
    """Inside, and not the key at the row's own position: an interval with a hole."""
    return both(inside, compare(col, "ne", row))


@pytest.mark.parametrize("change", [prefix, window, all_but_one])
@every_schedule
def test_other_masks(schedule: Schedule, change: Callable[..., SSAValue]) -> None:
    """A predicate that is no interval keeps its mask, and works within a span."""
    problem = Problem(D, DV, causal="top-left")
    module = with_mask(problem, change)
    run(module, pipeline(schedule, problem))
    left = [op.name for op in module.walk() if op.name in ("tile.mask", "tile.select")]
    assert bool(left) == (change is not window)
    for nq, nk in ((9, 13), (13, 11)):
        x = make(problem, nq, nk)
        x.k[:, :, nq:], x.v[:, :, nq:] = np.nan, np.nan
        row, col = np.arange(nq)[:, None], np.arange(nk)[None]
        seen = {
            prefix: (col <= row) | (col < 3),
            window: (col <= row) & (row - col <= 4),
            all_but_one: (col < row),
        }[change]
        o, lse, _ = call(module, problem, x)
        for h in range(4):
            q, k, v = (array.astype(np.float64) for array in (x.q[0, h], x.k[0, h // 2], x.v[0, h // 2]))
            with np.errstate(all="ignore"):
                want_o, want_lse = softmax(x.scale * (q @ k.T), v, seen)
            np.testing.assert_allclose(o[0, h], want_o, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(lse[0, h], want_lse, rtol=1e-12, atol=1e-12)
