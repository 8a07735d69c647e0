"""The reference against the definition, term by term; and the bound, which has to fail what is wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flashgen.problem import ALIGNMENTS, Problem
from flashgen.reference import BLOCK, attention, bound, visible
from tests.strategies import make_inputs


def by_hand(problem: Problem, q, k, v, scale: float):
    """O and lse of one row after the other, with nothing vectorised."""
    (batch, hq, nq, _), (hkv, nk, dv) = q.shape, (k.shape[1], k.shape[2], v.shape[3])
    o, lse = np.zeros((batch, hq, nq, dv)), np.full((batch, hq, nq), -math.inf)
    offset = {"bottom-right": nk - nq, "top-left": 0, None: nk}[problem.causal]
    for b, h, i in np.ndindex(batch, hq, nq):
        g = h // (hq // hkv)
        keys = [j for j in range(nk) if j <= i + offset]
        t = {j: scale * math.fsum(q[b, h, i, d] * k[b, g, j, d] for d in range(q.shape[3])) for j in keys}
        if not keys:
            continue
        top = max(t.values())
        lse[b, h, i] = top + math.log(math.fsum(math.exp(x - top) for x in t.values()))
        for d in range(dv):
            o[b, h, i, d] = math.fsum(math.exp(t[j] - lse[b, h, i]) * v[b, g, j, d] for j in keys)
    return o, lse


@pytest.mark.parametrize("causal", ALIGNMENTS)
@pytest.mark.parametrize(("nq", "nk"), [(5, 7), (7, 5), (1, 1), (4, 0), (0, 4)])
def test_the_definition(nq, nk, causal):
    problem = Problem(3, 2, causal=causal)
    x = make_inputs(problem, "plain", (2, 4, 2, nq, nk), 0.7)
    q, k, v = (a.astype(np.float64) for a in (x.q, x.k, x.v))
    for got, want in zip(attention(problem, q, k, v, 0.7), by_hand(problem, q, k, v, 0.7), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-13, atol=1e-13)


def test_blocks_of_rows_join():
    """More rows than are handled at a time."""
    problem = Problem(2, causal="bottom-right")
    x = make_inputs(problem, "plain", (1, 1, 1, 2 * BLOCK + 3, 9), 0.5)
    o, lse = attention(problem, x.q, x.k, x.v, 0.5)
    half = attention(Problem(2), x.q[:, :, -1:], x.k, x.v, 0.5)
    np.testing.assert_allclose(o[:, :, -1:], half[0], rtol=1e-14)
    np.testing.assert_allclose(lse[:, :, -1:], half[1], rtol=1e-14)
    assert (lse[0, 0, : 2 * BLOCK + 3 - 9] == -np.inf).all()
    assert (o[0, 0, : 2 * BLOCK + 3 - 9] == 0).all()


def test_what_a_row_does_not_see_never_reaches_it():
    problem = Problem(2, causal="top-left")
    x = make_inputs(problem, "plain", (1, 1, 1, 4, 6), 0.5)
    o, lse = attention(problem, x.q, x.k, x.v, 0.5)
    x.k[:, :, 2:], x.v[:, :, 2:] = np.nan, np.inf
    o2, lse2 = attention(problem, x.q, x.k, x.v, 0.5)
    np.testing.assert_array_equal(o2[:, :, :2], o[:, :, :2])
    np.testing.assert_array_equal(lse2[:, :, :2], lse[:, :, :2])
    assert np.isnan(o2[:, :, 2:]).all()
    assert np.isnan(lse2[:, :, 2:]).all()


def test_a_nan_in_a_visible_value_stays_in_its_column():
    x = make_inputs(Problem(2, 3), "plain", (1, 1, 1, 2, 4), 0.5)
    x.v[0, 0, 1, 2] = np.nan
    o, lse = attention(Problem(2, 3), x.q, x.k, x.v, 0.5)
    assert np.isnan(o[..., 2]).all()
    assert np.isfinite(o[..., :2]).all()
    assert np.isfinite(lse).all()


@pytest.mark.parametrize("alignment", ["bottom-right", "top-left"])
def test_visible(alignment):
    seen = visible(Problem(1, causal=alignment), np.array([0, 1]), 2, 5).sum(axis=1)
    assert seen.tolist() == ([4, 5] if alignment == "bottom-right" else [1, 2])


PROBLEM = Problem(8, causal="bottom-right")
X = make_inputs(PROBLEM, "plain", (1, 2, 1, 16, 16), 0.35)
WANT, LSE = attention(PROBLEM, X.q, X.k, X.v, 0.35)


def test_the_bound_lets_the_reference_pass():
    bound(PROBLEM, X.q, X.k, X.v, 0.35).check(WANT.astype(np.float32), LSE.astype(np.float32), WANT, LSE)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda o, lse: o.__setitem__((0, 1, 3, 2), o[0, 1, 3, 2] + 1e-4), r"O\[0, 1, 3, 2\] is"),
        (lambda o, lse: o.__setitem__((0, 0, 0, 0), np.nan), r"O\[0, 0, 0, 0\] is .*nan"),
        (lambda o, lse: o.__setitem__((0, 0, 0, 0), np.inf), r"O\[0, 0, 0, 0\] is .*inf"),
        (lambda o, lse: lse.__setitem__((0, 1, 5), lse[0, 1, 5] + 1e-4), r"lse\[0, 1, 5\] is"),
        (lambda o, lse: lse.__setitem__((0, 1, 5), -np.inf), r"lse\[0, 1, 5\] is .*-inf"),
    ],
)
def test_the_bound_finds_what_is_wrong(spoil, message):
    o, lse = WANT.copy(), LSE.copy()
    spoil(o, lse)
    with pytest.raises(AssertionError, match=message):
        bound(PROBLEM, X.q, X.k, X.v, 0.35).check(o, lse, WANT, LSE)


def test_the_bound_wants_nan_and_infinities_where_they_belong():
    o, lse = WANT.copy(), LSE.copy()
    o[0, 0, 0, 0], lse[0, 0, 0] = np.nan, -np.inf
    limit = bound(PROBLEM, X.q, X.k, X.v, 0.35)
    limit.check(o, lse, o, lse)
    with pytest.raises(AssertionError, match="O"):
        limit.check(WANT, lse, o, lse)
    with pytest.raises(AssertionError, match="lse"):
        limit.check(o, LSE, o, lse)
    with pytest.raises(AssertionError, match="shape"):
        limit.check(o[:, :1], lse, o, lse)


def test_the_bound_is_near_what_float32_does():
    """Within two orders of magnitude of a float32 evaluation: a fault of 1e-4 cannot hide in it."""
    q, k, v = X.q, X.k, X.v
    t = np.float32(0.35) * (q @ k.transpose(0, 1, 3, 2))
    t = np.where(visible(PROBLEM, np.arange(16), 16, 16), t, -np.inf).astype(np.float32)
    p = np.exp(t - t.max(axis=-1, keepdims=True))
    o = (p / p.sum(axis=-1, keepdims=True)) @ v
    limit = bound(PROBLEM, q, k, v, 0.35)
    error = np.abs(o - WANT).max(axis=(2, 3))
    assert (error < limit.o).all()
    assert (limit.o < 1e-4).all()


def test_the_bound_grows_with_coarser_types_and_with_scores():
    def of(**changes):
        return float(
            bound(**({"problem": PROBLEM, "q": X.q, "k": X.k, "v": X.v, "scale": 0.35} | changes)).o[0, 0]
        )

    assert of(computed="float64") < of() < of(problem=Problem(8, dtype="float16", causal="bottom-right"))
    assert of() < of(scale=-3.5)
    hidden = X.v.copy()
    hidden[:, :, 15] = np.nan
    assert np.isfinite(of(v=hidden))
