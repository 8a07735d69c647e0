"""flashgen.merge: what it must be whatever the arrays, and what it refuses."""

from __future__ import annotations

import itertools
import re
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import flashgen
from flashgen.errors import InvalidArgument
from flashgen.problem import Problem
from flashgen.reference import attention

SHAPE = (2, 3, 5, 4)
STORED = (np.float32, np.float16, bfloat16, np.float64)
each_type = pytest.mark.parametrize("dtype", STORED, ids=lambda t: np.dtype(t).name)


def partial(seed: int, dtype: Any = np.float32, lse: Any = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """A result over keys of its own; some of its rows saw none."""
    rng = np.random.default_rng(seed)
    o, row = rng.standard_normal(SHAPE), 20 * rng.standard_normal(SHAPE[:3])
    none = rng.random(SHAPE[:3]) < 0.2
    o[none], row[none] = 0, -np.inf
    assert none.any() and not none.all()
    return o.astype(dtype), row.astype(lse)


def same_bits(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return all(x.dtype == y.dtype and x.tobytes() == y.tobytes() for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("causal", [None, "bottom-right"])
@pytest.mark.parametrize("parts", [2, 3])
def test_parts_of_the_keys_make_the_whole(causal: str | None, parts: int) -> None:
    """Parts that end before a row's first visible key, too: they are empty rows."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((2, 3, 12, 8)).astype(np.float32) for _ in range(3))
    problem = Problem(8, causal=causal)
    found: list[np.ndarray] = []
    for keys in np.array_split(np.arange(12), parts):
        first, end = int(keys[0]), int(keys[-1]) + 1
        # A causal part is the same problem over the keys up to its end, without those before its start.
        hidden = np.full((2, 3, 12, first), -np.inf)
        scores = np.concatenate([hidden, 0.25 * q.astype(float) @ k[:, :, first:end].swapaxes(2, 3)], axis=3)
        if causal:
            scores = np.where(np.arange(end) <= np.arange(12)[:, None], scores, -np.inf)
        top = scores.max(axis=3, keepdims=True)
        weights = np.where(np.isinf(scores), 0, np.exp(scores - np.where(np.isinf(top), 0, top)))
        total = weights.sum(axis=3, keepdims=True)
        o = weights @ v[:, :, :end] / np.where(total, total, 1)
        with np.errstate(divide="ignore"):
            found += [o, (np.where(np.isinf(top), 0, top) + np.log(total))[..., 0]]
    o, lse = flashgen.merge(*found)
    want_o, want_lse = attention(problem, q, k, v, 0.25)
    np.testing.assert_allclose(o, want_o, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(lse, want_lse, rtol=1e-12, atol=1e-13)


@each_type
def test_commutes_to_the_bit(dtype: Any) -> None:
    """NaNs of different bits, infinities and zeros of both signs included."""
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1.5, -2.0], np.float32)
    pairs = np.array(list(itertools.product(special, special, special, special)), np.float32)
    one = pairs[:, :1].astype(dtype), pairs[:, 1]
    other = pairs[:, 2:3].astype(dtype), pairs[:, 3]
    assert same_bits(flashgen.merge(*one, *other), flashgen.merge(*other, *one))
    one, other = partial(2, dtype), partial(3, dtype)
    assert same_bits(flashgen.merge(*one, *other), flashgen.merge(*other, *one))


@each_type
def test_what_saw_no_key_changes_nothing(dtype: Any) -> None:
    o, lse = partial(4, dtype)
    o[0, 0, 0], lse[0, 0, 0] = -0.0, -0.0
    o[0, 0, 1], lse[0, 0, 1] = np.inf, 1e30
    neutral = np.zeros(SHAPE, dtype), np.full(SHAPE[:3], -np.inf, np.float32)
    assert same_bits(flashgen.merge(o, lse, *neutral), (o, lse))
    assert same_bits(flashgen.merge(*neutral, o, lse), (o, lse))
    assert same_bits(flashgen.merge(*neutral, *neutral), neutral)
    assert same_bits(flashgen.merge(*neutral, o, lse, *neutral, *neutral), (o, lse))


def test_associates_to_rounding() -> None:
    a, b, c = (partial(seed, np.float64, np.float64) for seed in (5, 6, 7))
    left = flashgen.merge(*flashgen.merge(*a, *b), *c)
    right = flashgen.merge(*a, *flashgen.merge(*b, *c))
    for x, y, z in zip(left, right, flashgen.merge(*a, *b, *c), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-13)
        np.testing.assert_array_equal(x, z)


def test_far_apart_and_far_out() -> None:
    """No exponential overflows, and none is lost: F03's sizes."""
    ones = np.ones((4, 1), np.float32)
    lse1 = np.array([6e4, -6e4, 1e30, 5], np.float32)
    lse2 = np.array([6e4, -6e4 - 1, -1e30, 5 - 200], np.float32)
    o, lse = flashgen.merge(ones, lse1, 3 * ones, lse2)
    np.testing.assert_allclose(o[:, 0], [2, 1.5378828, 1, 1], rtol=1e-6)
    np.testing.assert_allclose(lse, [6e4 + np.log(2), -6e4 + 0.31326169, 1e30, 5], rtol=1e-7)


def test_nan_spreads_to_its_row_and_column_alone() -> None:
    o, lse = partial(8)
    lse[0, 0, :3] = 0.5
    o[0, 0, 0, 1] = lse[0, 0, 1] = np.nan
    other = np.ones(SHAPE, np.float32), np.zeros(SHAPE[:3], np.float32)
    got, got_lse = flashgen.merge(o, lse, *other)
    want = np.zeros(SHAPE, bool)
    want[0, 0, 0, 1] = want[0, 0, 1] = True
    np.testing.assert_array_equal(np.isnan(got), want)
    np.testing.assert_array_equal(np.isnan(got_lse), np.isnan(lse))
    hidden = np.full(SHAPE, np.nan, np.float32), np.full(SHAPE[:3], -np.inf, np.float32)
    assert np.isnan(flashgen.merge(*other, *hidden)[0]).all()


def test_layout_and_strides() -> None:
    a, b = partial(9), partial(10)
    want_o, want_lse = flashgen.merge(*a, *b)
    turned = [np.ascontiguousarray(o.swapaxes(1, 2)) for o in (a[0], b[0])]
    o, lse = flashgen.merge(turned[0], a[1], turned[1], b[1], layout="BNHD")
    assert same_bits((np.ascontiguousarray(o.swapaxes(1, 2)), lse), (want_o, want_lse))
    back = [x[..., ::-1].copy()[..., ::-1] for x in (*a, *b)]
    assert same_bits(flashgen.merge(*back), (want_o, want_lse))


@pytest.mark.parametrize("zero", range(4))
def test_any_size_may_be_zero(zero: int) -> None:
    shape = tuple(0 if n == zero else size for n, size in enumerate(SHAPE))
    o, lse = flashgen.merge(*[np.zeros(shape, np.float32), np.zeros(shape[:3], np.float32)] * 2)
    assert (o.shape, lse.shape) == (shape, shape[:3])


OUT, LSE = np.zeros(SHAPE, np.float32), np.zeros(SHAPE[:3], np.float32)
REFUSED = [
    ((OUT.tolist(), LSE, OUT, LSE), "o1 is of type list"),
    ((OUT.astype(int), LSE, OUT, LSE), "o1.dtype is '<i8'; native float32 or float16 or bfloat16 or float64"),
    ((OUT, LSE.astype(np.float16), OUT, LSE), "lse1.dtype is '<f2'; native float32 or float64 is allowed"),
    ((OUT, LSE, OUT.astype(np.float16), LSE), "o2.dtype is '<f2'; native float32 is allowed"),
    ((OUT, LSE, OUT, LSE.astype(np.float64)), "lse2.dtype is '<f8'; native float32 is allowed"),
    ((OUT, LSE, OUT[:1], LSE), "o2.shape is (1, 3, 5, 4); (2, 3, 5, 4) is allowed, as o1 has it"),
    ((OUT, LSE[:1], OUT, LSE), "lse1.shape is (1, 3, 5); (2, 3, 5) is allowed: one for each row of o1"),
    ((OUT, LSE, OUT, LSE, OUT), "more is 1 arrays; pairs are allowed"),
    ((OUT, LSE, OUT, LSE, OUT, LSE[0]), "lse3.shape is (3, 5)"),
    ((OUT[0, 0, 0, 0], LSE, OUT, LSE), "o1.shape is (); (..., N, Dv) is allowed"),
]


@pytest.mark.parametrize(("arrays", "message"), REFUSED, ids=[message[:30] for _, message in REFUSED])
def test_refused(arrays: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        flashgen.merge(*arrays)


def test_layout_refused() -> None:
    with pytest.raises(InvalidArgument, match="layout is 'HBND'; one of 'BHND', 'BNHD' is allowed"):
        flashgen.merge(OUT, LSE, OUT, LSE, layout="HBND")
    with pytest.raises(InvalidArgument, match=r"o1\.shape is \(3, 5, 4\); \(B, N, H, D\) is allowed"):
        flashgen.merge(OUT[0], LSE[0], OUT[0], LSE[0], layout="BNHD")
