"""Laws that need no reference, in interpreted modules; float32 where bits are compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashgen.problem import ALIGNMENTS, Problem
from flashgen.reference import bound
from flashgen.schedule import Schedule
from tests.modules import COMBINATIONS, call, final
from tests.strategies import Inputs, make_inputs

EVERY = [
    Schedule(order, 4, 4, lazy, skip, 0, False, False, split_keys=0) for order, lazy, skip in COMBINATIONS
]
finite = st.floats(-(2.0**100), 2.0**100, width=32)
each_schedule = pytest.mark.parametrize("schedule", EVERY, ids=lambda s: s.name)


def assert_same_bits(a, b):
    for x, y in zip(a[:2], b[:2], strict=True):
        np.testing.assert_array_equal(x.view(np.uint32), y.view(np.uint32), strict=True)


@pytest.mark.parametrize("causal", ALIGNMENTS)
@pytest.mark.parametrize("kind", ["plain", "rising", "falling", "nan_v"])
@pytest.mark.parametrize("lazy", [False, True])
def test_order_and_skip_change_no_bit(lazy, kind, causal):
    problem = Problem(8, 5, causal=causal)
    x = make_inputs(problem, kind, (1, 2, 1, 13, 19), 0.7, seed=5)
    schedules = [s for s in EVERY if s.lazy_rescale == lazy]
    first, *others = (call(final(problem, s), problem, x, np.float32) for s in schedules)
    for other in others:
        assert_same_bits(first, other)


def test_a_quotient_times_its_divisor_and_divided_again_is_that_quotient():
    """Why skipping changes no bit without lazy-rescale: a step that shows nothing computes (O * l) / l."""
    rng = np.random.default_rng(0)
    y, total = rng.normal(size=1 << 20).astype(np.float32), rng.uniform(1, 4096, 1 << 20).astype(np.float32)
    o = y / total
    np.testing.assert_array_equal((o * total) / total, o)


@each_schedule
@settings(max_examples=20)
@given(value=finite, logit=finite)
def test_one_key_gives_its_value_to_the_bit(schedule, value, logit):
    problem = Problem(1)
    one = np.full((1, 1, 1, 1), value, np.float32)
    x = Inputs("one key", np.full((1, 1, 1, 1), logit, np.float32), np.ones_like(one), one, 1.0)
    o, _, _ = call(final(problem, schedule), problem, x, np.float32)
    assert o.item() == np.float32(value)


@each_schedule
@pytest.mark.parametrize("constant", [0.0, 1.0, -3.7, 1e20])
def test_constant_values_stay(schedule, constant):
    """O is an average of v."""
    problem = Problem(4, 3, causal="bottom-right")
    x = make_inputs(problem, "plain", (1, 1, 1, 9, 9), 0.5)
    o, _, _ = call(final(problem, schedule), problem, replace(x, v=np.full_like(x.v, constant)), np.float32)
    np.testing.assert_allclose(o, constant, rtol=1e-6)


@each_schedule
def test_shifting_all_logits_shifts_lse_and_nothing_else(schedule):
    problem = Problem(4, causal="bottom-right")
    x = make_inputs(problem, "plain", (1, 1, 1, 9, 9), 1.0)
    x.q[..., 0] = 1
    shifted = x.k.copy()
    shifted[..., 0] += 64  # exact in float32, as is 1 * 64
    module = final(problem, schedule)
    o, lse, _ = call(module, problem, x)
    o64, lse64, _ = call(module, problem, replace(x, k=shifted))
    limit = bound(problem, x.q, shifted, x.v, 1.0, "float32")
    limit.check(o64, lse64, o, lse + 64)


@each_schedule
def test_keys_may_come_in_any_order(schedule):
    problem = Problem(4)
    x = make_inputs(problem, "plain", (1, 2, 1, 5, 11), 0.5)
    order = np.random.default_rng(0).permutation(11)
    module = final(problem, schedule)
    o, lse, _ = call(module, problem, x)
    moved = replace(x, k=x.k[:, :, order], v=x.v[:, :, order])
    limit = bound(problem, x.q, x.k, x.v, 0.5, "float64")
    limit.check(*call(module, problem, moved)[:2], o, lse)


@each_schedule
def test_a_duplicated_key_is_a_bias_of_ln_2(schedule):
    """A head with one dimension more says it: q = (q, 1), k = (k, ln 2) where the key is there twice."""
    x = make_inputs(Problem(3), "plain", (1, 1, 1, 5, 6), 1.0)
    twice = replace(x, k=x.k[:, :, [0, 1, 1, 2, 3, 4, 5]], v=x.v[:, :, [0, 1, 1, 2, 3, 4, 5]])
    o, lse, _ = call(final(Problem(3), schedule), Problem(3), twice)
    bias = np.zeros((1, 1, 6, 1))
    bias[:, :, 1] = np.log(2)
    q = np.concatenate([x.q, np.ones((1, 1, 5, 1))], axis=-1)
    biased = Inputs("biased", q, np.concatenate([x.k, bias], axis=-1), x.v, 1.0)
    wider = Problem(4, 3)
    o2, lse2, _ = call(final(wider, schedule), wider, biased)
    bound(wider, q, biased.k, x.v, 1.0, "float64").check(o2, lse2, o, lse)


@each_schedule
@pytest.mark.parametrize("extra", [1, 3, 4, 9])
def test_appended_keys_that_no_row_sees_change_nothing(schedule, extra):
    """Top-left: row i sees keys up to i. The keys behind the last row's hold NaN and inf."""
    problem = Problem(4, causal="top-left")
    x = make_inputs(problem, "plain", (1, 2, 1, 7, 7), 0.5)
    rng = np.random.default_rng(1)
    k = np.concatenate([x.k, rng.choice([np.nan, np.inf], (1, 1, extra, 4)).astype(np.float32)], axis=2)
    v = np.concatenate([x.v, rng.choice([np.nan, -np.inf], (1, 1, extra, 4)).astype(np.float32)], axis=2)
    module = final(problem, schedule)
    hidden = replace(x, k=k, v=v)
    assert_same_bits(call(module, problem, x, np.float32), call(module, problem, hidden, np.float32))


@each_schedule
def test_a_row_does_not_see_the_rest_of_the_batch(schedule):
    problem = Problem(4, causal="bottom-right")
    x = make_inputs(problem, "plain", (3, 4, 2, 9, 9), 0.5)
    module = final(problem, schedule)
    o, lse, _ = call(module, problem, x, np.float32)
    alone = Inputs("alone", x.q[1:2, 2:3], x.k[1:2, 1:2], x.v[1:2, 1:2], 0.5)
    assert_same_bits((o[1:2, 2:3], lse[1:2, 2:3]), call(module, problem, alone, np.float32))


@each_schedule
def test_a_mask_in_another_encoding_is_the_same_mask(schedule):
    """With as many rows as keys, both alignments are one mask."""
    x = make_inputs(Problem(4), "plain", (1, 1, 1, 9, 9), 0.5)
    runs = []
    for causal in ("bottom-right", "top-left"):
        problem = Problem(4, causal=causal)
        runs.append(call(final(problem, schedule), problem, x, np.float32))
    assert_same_bits(*runs)
