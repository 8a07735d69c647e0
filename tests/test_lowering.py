"""What the lowering passes leave a module's meaning: every pass, every order, hostile sizes and values."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from flashgen.build import build
from flashgen.interpret import interpret
from flashgen.ir.construct import both, compare, const, sub
from flashgen.ir.dialect import parse
from flashgen.ir.regions import MaskOp
from flashgen.ir.types import i1
from flashgen.passes.pipeline import derivation, lower, lowering, pipeline, run
from flashgen.problem import Problem
from flashgen.reference import attend, attention, bound
from flashgen.schedule import Schedule

BR, BC, D, DV = 4, 6, 3, 5
HEADS = (1, 4, 2)
"""Batch, query heads, key heads."""
SIZES = [(0, 7), (7, 0), (1, 1), (3, 13), (4, 6), (5, 7), (9, 2), (13, 11)]
"""Queries and keys: zero, one, exactly a tile, one more and one less, primes, more of either."""
MASKS = (None, "bottom-right", "top-left")
PANELS = (0, 4, 16)
KEEP_BITS = {"nan-in-sum", "pack", "mask-to-spans", "fuse-sweeps", "parallel-loops"}
"""Passes that change no rounding; base-2, fold-scale and accumulate compute the same value another way."""

every_problem = pytest.mark.parametrize("causal", MASKS)
every_schedule = pytest.mark.parametrize(
    "schedule",
    [
        pytest.param(s, id=s.name)
        for order, lazy, skip in product(("kv-outer", "q-outer"), (False, True), (False, True))
        for s in [Schedule(order, BR, BC, lazy, skip, 4)]
    ],
)


def but(schedule: Schedule, **changes: Any) -> Schedule:
    """The schedule with some fields changed."""
    return Schedule(**(vars(schedule) | changes))


@cache
def stages(problem: Problem, schedule: Schedule) -> list[tuple[str, ModuleOp]]:
    """The module after the derivation, and after each lowering pass."""
    seen: list[tuple[str, ModuleOp]] = []
    lower(problem, schedule, after=lambda name, module: seen.append((name, module.clone())))
    return seen[len(derivation(schedule)) :]


@cache
def final(problem: Problem, schedule: Schedule) -> ModuleOp:
    return lower(problem, schedule)


def tensors(nq: int, nk: int, seed: int = 0, dtype: type = np.float64, d: int = D, dv: int = DV) -> list[Any]:
    """q, k and v, with scores large enough to move the maximum from tile to tile."""
    rng = np.random.default_rng(seed)
    batch, hq, hkv = HEADS
    shapes = [(batch, hq, nq, d), (batch, hkv, nk, d), (batch, hkv, nk, dv)]
    return [3 * rng.standard_normal(shape).astype(np.float32).astype(dtype) for shape in shapes]


def call(module: ModuleOp, q: Any, k: Any, v: Any, scale: float = 0.7, **how: Any) -> tuple[Any, Any]:
    """O and lse of a module; both were full of NaN."""
    o = np.full((*q.shape[:3], v.shape[3]), np.nan, q.dtype)
    lse = np.full(q.shape[:3], np.nan, np.float64 if q.dtype == np.float64 else np.float32)
    interpret(module, q, k, v, o, lse, lse.dtype.type(scale), dtype=lse.dtype.type, **how)
    return o, lse


def check(module: ModuleOp, problem: Problem, q: Any, k: Any, v: Any, scale: float = 0.7) -> None:
    """The module computes attention, in float64 as well as that can be."""
    allowed = bound(problem, q, k, v, scale, computed="float64")
    allowed.check(*call(module, q, k, v, scale), *attention(problem, q, k, v, scale))


def bits(x: Any) -> Any:
    return x.view(np.uint32)


@every_problem
@every_schedule
def test_every_pass_keeps_the_meaning(schedule: Schedule, causal: str | None) -> None:
    problem = Problem(D, DV, causal=causal)
    for name, module in stages(problem, schedule):
        for nq, nk in ((5, 7), (9, 2), (13, 11)):
            try:
                check(module, problem, *tensors(nq, nk))
            except AssertionError as e:
                raise AssertionError(f"after {name}, {nq} queries, {nk} keys: {e}") from e


@every_problem
@every_schedule
@pytest.mark.parametrize("panel", PANELS)
def test_hostile_sizes(schedule: Schedule, causal: str | None, panel: int) -> None:
    problem = Problem(D, DV, causal=causal)
    module = final(problem, but(schedule, panel=panel))
    for nq, nk in SIZES:
        check(module, problem, *tensors(nq, nk))


@every_schedule
@pytest.mark.parametrize("scale", [0.0, -1.0, 30.0])
def test_any_scale(schedule: Schedule, scale: float) -> None:
    """Both signs, none, and one for which a key takes all."""
    problem = Problem(D, DV, causal="bottom-right")
    check(final(problem, schedule), problem, *tensors(9, 13), scale)


@every_schedule
@pytest.mark.parametrize("offset", [200.0, 6e4, 1e30])
def test_large_scores(schedule: Schedule, offset: float) -> None:
    """Only differences of scores count, however large they are."""
    problem = Problem(1, 1)
    q, k = np.ones((1, 1, 5, 1)), offset + np.arange(13.0).reshape(1, 1, 13, 1)
    check(final(problem, schedule), problem, q, k, np.arange(13.0).reshape(1, 1, 13, 1), 1.0)


def poisoned(case: str, nq: int, nk: int) -> list[Any]:
    q, k, v = tensors(nq, nk)
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
    return [q, k, v]


@every_problem
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
        check(final(problem, schedule), problem, *poisoned(case, nq, nk))


@every_schedule
def test_keys_that_no_row_sees_may_hold_anything(schedule: Schedule) -> None:
    problem = Problem(D, DV, causal="top-left")
    q, k, v = tensors(5, 13)
    clean = call(final(problem, schedule), q, k, v)
    k[:, :, 5:], v[:, :, 5:] = np.nan, np.inf
    for got, want in zip(call(final(problem, schedule), q, k, v), clean, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("lazy", [False, True])
@every_problem
def test_bits_depend_on_tiles_and_rescaling_alone(lazy: bool, causal: str | None) -> None:
    """Order, panels and, where it is exact to rescale by 1, skipping change no bit of a float32 result.

    FlashAttention-1 normalises in every step, and (l * O) / l rounds: there a skipped tile shows.
    """
    problem = Problem(D, DV, causal=causal)
    q, k, v = tensors(13, 23, dtype=np.float32)
    results: dict[bool, list[Any]] = {}
    for order, skip, panel in product(("kv-outer", "q-outer"), (False, True), PANELS):
        module = final(problem, Schedule(order, BR, BC, lazy, skip, panel))
        results.setdefault(skip and not lazy, []).append(call(module, q, k, v))
    for first, *others in results.values():
        for other in others:
            for got, want in zip(other, first, strict=True):
                np.testing.assert_array_equal(bits(got), bits(want))


@every_problem
@every_schedule
def test_passes_that_keep_every_bit(schedule: Schedule, causal: str | None) -> None:
    problem = Problem(D, DV, causal=causal)
    arrays = tensors(13, 11, dtype=np.float32)
    before: tuple[Any, Any] | None = None
    kept = set()
    for name, module in stages(problem, schedule):
        result = call(module, *arrays)
        if name in KEEP_BITS:
            assert before is not None
            kept.add(name)
            for got, want in zip(result, before, strict=True):
                np.testing.assert_array_equal(bits(got), bits(want), err_msg=name)
        before = result
    assert kept == KEEP_BITS


@every_schedule
def test_parallel_iterations_run_in_any_order(schedule: Schedule) -> None:
    problem = Problem(D, DV, causal="bottom-right")
    arrays = tensors(13, 11, dtype=np.float32)
    want = call(final(problem, schedule), *arrays)
    for seed in range(3):
        got = call(final(problem, schedule), *arrays, shuffle=np.random.default_rng(seed))
        for x, y in zip(got, want, strict=True):
            np.testing.assert_array_equal(bits(x), bits(y))


@every_schedule
def test_float16_storage(schedule: Schedule) -> None:
    problem = Problem(D, DV, "float16", "bottom-right")
    q, k, v = (x.astype(np.float16) for x in tensors(9, 13))
    allowed = bound(problem, q, k, v, 0.7)
    allowed.check(*call(final(problem, schedule), q, k, v), *attention(problem, q, k, v, 0.7))


@every_schedule
def test_one_key_gives_its_value(schedule: Schedule) -> None:
    """To the bit, also in float32: the exponential is exactly 1 at the maximum."""
    q, k, v = tensors(5, 1, dtype=np.float32)
    o, _ = call(final(Problem(D, DV), schedule), q, k, v)
    for h in range(HEADS[1]):
        np.testing.assert_array_equal(o[0, h], np.broadcast_to(v[0, h // 2], o[0, h].shape))


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
    (_, start), *_, (_, end) = stages(problem, schedule)
    bare = nameless(start.clone())
    for p in lowering(schedule):
        run(bare, [p])
    assert str(nameless(bare)) == str(nameless(end.clone()))


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
    run(module, pipeline(schedule))
    left = [op.name for op in module.walk() if op.name in ("tile.mask", "tile.select")]
    assert bool(left) == (change is not window)
    for nq, nk in ((9, 13), (13, 11)):
        q, k, v = tensors(nq, nk)
        k[:, :, nq:], v[:, :, nq:] = np.nan, np.nan
        row, col = np.arange(nq)[:, None], np.arange(nk)[None]
        seen = {
            prefix: (col <= row) | (col < 3),
            window: (col <= row) & (row - col <= 4),
            all_but_one: (col < row),
        }[change]
        o, lse = call(module, q, k, v)
        for h in range(HEADS[1]):
            with np.errstate(all="ignore"):
                want_o, want_lse = attend(q[0, h], k[0, h // 2], v[0, h // 2], 0.7, seen)
            np.testing.assert_allclose(o[0, h], want_o, rtol=1e-12, atol=1e-12)
            np.testing.assert_allclose(lse[0, h], want_lse, rtol=1e-12, atol=1e-12)


@given(
    schedule=st.builds(
        Schedule,
        order=st.sampled_from(("kv-outer", "q-outer")),
        br=st.integers(1, 7),
        bc=st.integers(1, 7),
        lazy_rescale=st.booleans(),
        causal_skip=st.booleans(),
        panel=st.integers(0, 9),
    ),
    causal=st.sampled_from(MASKS),
    d=st.integers(1, 4),
    dv=st.integers(1, 9),
    nq=st.integers(0, 12),
    nk=st.integers(0, 12),
    seed=st.integers(0, 9),
)
def test_any_problem_and_schedule(
    schedule: Schedule, causal: str | None, d: int, dv: int, nq: int, nk: int, seed: int
) -> None:
    """The final module, printed and read again, is attention."""
    problem = Problem(d, dv, causal=causal)
    module = lower(problem, schedule)
    again = parse(str(module))
    assert str(again) == str(module)
    check(again, problem, *tensors(nq, nk, seed, d=d, dv=dv))
    assert len(pipeline(schedule)) == len(derivation(schedule)) + len(lowering(schedule))
