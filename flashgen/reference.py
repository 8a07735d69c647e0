"""What attention means, written for reading; and the one bound on what may differ from it.

Arrays are (B, H, N, D). Query head h reads key head h // (Hq / Hkv). Every kernel, every module and every
test is held to this page. It computes in float64, and what kernels compute in float64 in a wider type
(``wider``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashgen.problem import Problem

Array = NDArray[Any]
BLOCK = 256
"""Rows handled at a time: a matter of memory only."""


def visible(problem: Problem, rows: Array, nq: int, nk: int) -> Array:
    """Which of the nk keys each of these rows sees, out of nq rows; bool (rows, nk)."""
    keys = np.arange(nk)
    if problem.causal is None:
        return np.ones((len(rows), nk), bool)
    offset = nk - nq if problem.causal == "bottom-right" else 0
    return keys[None, :] <= rows[:, None] + offset


def wider(problem: Problem) -> type[np.floating]:
    """What is computed in here: a type that rounds much less than what the problem's kernels compute in.

    Beside float64 that is np.longdouble: on x86 a float of 80 bits, whose 64 bits of significand are 11 more.
    """
    return np.longdouble if problem.computed == "float64" else np.float64


def attention(problem: Problem, q: Array, k: Array, v: Array, scale: float) -> tuple[Array, Array]:
    """O (B, Hq, Nq, Dv) and lse (B, Hq, Nq), in ``wider``. A row that sees no key has O = 0 and lse = -inf.

    What lies at keys that a row does not see never reaches it, NaN and inf included.
    """
    wide = wider(problem)
    q, k, v = (x.astype(wide) for x in (q, k, v))
    (batch, hq, nq, _), (nk, dv) = q.shape, v.shape[2:]
    o, lse = np.zeros((batch, hq, nq, dv), wide), np.full((batch, hq, nq), -np.inf, wide)
    with np.errstate(all="ignore"):
        for b, h, first in np.ndindex(batch, hq, -(-nq // BLOCK)):
            g = h // (hq // k.shape[1])
            rows = np.arange(first * BLOCK, min(nq, (first + 1) * BLOCK))
            seen = visible(problem, rows, nq, nk)
            o[b, h, rows], lse[b, h, rows] = attend(q[b, h, rows], k[b, g], v[b, g], scale, seen)
    return o, lse


def attend(q: Array, k: Array, v: Array, scale: float, seen: Array) -> tuple[Array, Array]:
    """One head's O and lse for some rows; ``seen`` (rows, keys) says which keys each of them sees."""
    t = np.where(seen, scale * (q @ k.T), -np.inf)
    top = t.max(axis=1, initial=-np.inf)
    finite_top = np.where(top == -np.inf, 0, top)  # exp(-inf - 0) is the 0 that is wanted
    p = np.exp(t - finite_top[:, None])
    total = p.sum(axis=1)
    lse = finite_top + np.log(total)
    return weighted(p, v, seen) / np.where(total == 0, 1, total)[:, None], lse


def weighted(p: Array, v: Array, seen: Array) -> Array:
    """p @ v over the keys that are seen: 0 times a NaN that is not seen is nothing at all."""
    whole = np.isfinite(v).all(axis=1)
    out = p[:, whole] @ v[whole]
    for j in np.flatnonzero(~whole):
        out += np.where(seen[:, j : j + 1], p[:, j : j + 1] * v[j], 0)
    return out


@dataclass(frozen=True)
class Bound:
    """How far a result may be from the reference: one number for each head of O and of lse, (B, Hq)."""

    o: Array
    lse: Array

    def check(self, o: Array, lse: Array, want_o: Array, want_lse: Array) -> None:
        """Raise AssertionError where a result is outside, or where NaN and infinities are not the same."""
        compare("O", o, want_o, self.o[:, :, None, None])
        compare("lse", lse, want_lse, self.lse[:, :, None])

    def deviations(self, o: Array, lse: Array, want_o: Array, want_lse: Array) -> tuple[Deviation, Deviation]:
        """Of O and of lse."""
        return (
            deviation(o, want_o, self.o[:, :, None, None]),
            deviation(lse, want_lse, self.lse[:, :, None]),
        )


C = 8
"""The constant of the bound; see ``bound``."""

ROUNDOFF = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}
"""Unit roundoffs u: |fl(x) - x| <= u |x|."""

SMALLEST = {"bfloat16": 2.0**-134, "float16": 2.0**-25, "float32": 2.0**-150, "float64": 2.0**-1074}
"""Half the smallest subnormal number: what rounding loses below the normal range. Of float64 all of it, since
half of it is no float64."""


def bound(problem: Problem, q: Array, k: Array, v: Array, scale: float, computed: str | None = None) -> Bound:
    """How far a result may be from the reference. computed: the type computed in, the problem's if not given.

    |O - reference| <= C * (u * (1 + S) + u_P + u_out) * max|v| + half the smallest number of O's storage
    |lse - reference| <= C * u * (1 + S + ln Nk)

    S = |scale| * max_ij sum_d |q_id k_jd| over the visible pairs of the head, max|v| over its visible keys;
    u, u_P, u_out: unit roundoffs of the type computed in, of the type P is rounded to (the same here), and of
    O's storage.

    Why: a score is a sum of D products, each rounded, then scaled; its error is a small multiple of u * S, as
    long as roundings do not conspire (D * u * S if they do). An error e of all scores changes O by at most
    2 e max|v|, since O is an average of v with weights that sum to 1, and lse by at most e. The exponential,
    the sums over keys and the rescaling add a few u each, relative to max|v|; the last rounding adds u_out.
    The logarithm adds u * |lse|, and |lse| <= S + ln Nk. C covers the factor of 2 and the count of "a few".
    """
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    (batch, hq, nq, _), nk = q.shape, k.shape[2]
    largest_t, largest_v = np.zeros((batch, hq)), np.zeros((batch, hq))
    with np.errstate(all="ignore"):
        for b, h, first in np.ndindex(batch, hq, -(-nq // BLOCK)):
            g = h // (hq // k.shape[1])
            rows = np.arange(first * BLOCK, min(nq, (first + 1) * BLOCK))
            seen = visible(problem, rows, nq, nk)
            products = np.where(seen, np.abs(q[b, h, rows]) @ np.abs(k[b, g]).T, 0)
            values = np.abs(v[b, g][seen.any(axis=0)])
            largest_t[b, h] = max(largest_t[b, h], products[np.isfinite(products)].max(initial=0))
            largest_v[b, h] = max(largest_v[b, h], values[np.isfinite(values)].max(initial=0))
    s = abs(scale) * largest_t
    computed = computed or problem.computed
    u, u_out = ROUNDOFF[computed], ROUNDOFF[max_roundoff(problem.dtype, computed)]
    tiny = SMALLEST[problem.dtype]
    return Bound(C * (u * (1 + s) + u + u_out) * largest_v + tiny, C * u * (1 + s + np.log(max(nk, 1))))


def max_roundoff(storage: str, computed: str) -> str:
    """The coarser of O's storage and the type computed in: in float64, float32 storage stands for float64."""
    return computed if storage == "float32" else storage


@dataclass(frozen=True)
class Deviation:
    """How far a result is from the reference.

    error: the largest difference; infinite where one is NaN, or infinite, and the other is not.
    share: the largest difference as a share of what the bound allows there; right up to 1.
    """

    error: float
    share: float


EXACT = Deviation(0.0, 0.0)


def difference(got: Array, want: Array) -> Array:
    """|got - want|, as wide as want: 0 where both are NaN or the same infinity, inf where only one is."""
    got = got.astype(np.float64)
    with np.errstate(invalid="ignore"):
        apart = np.abs(got - want)
    same = (got == want) | (np.isnan(got) & np.isnan(want))
    return np.where(same, 0.0, np.where(np.isnan(apart), np.inf, apart))


def deviation(got: Array, want: Array, allowed: Array) -> Deviation:
    """``allowed`` is broadcast to the results, and above 0."""
    if got.size == 0:
        return EXACT
    apart = difference(got, want)
    return Deviation(float(apart.max()), float((apart / allowed).max()))


def compare(what: str, got: Array, want: Array, allowed: Array) -> None:
    """Every element within ``allowed``; NaN and infinities in the same places."""
    if got.shape != want.shape:
        raise AssertionError(f"{what} has shape {got.shape}, not {want.shape}")
    wrong = ~(difference(got, want) <= allowed)
    if wrong.any():
        at = tuple(map(int, np.argwhere(wrong)[0]))
        limit = np.broadcast_to(allowed, want.shape)[at]
        raise AssertionError(
            f"{what}{list(at)} is {got[at]!r}, should be {want[at]!r} within {limit:.3g};"
            f" {int(wrong.sum())} of {wrong.size} elements are wrong"
        )
