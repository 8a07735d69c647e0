"""What attention means, written for reading; and the one bound on what may differ from it.

Arrays are (B, H, N, D). Query head h reads key head h // (Hq / Hkv). Every kernel, every module and every
test is held to this page. It computes in float64, and what kernels compute in float64 in a wider type
(``wider``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashgen.analysis.rounding import estimate
from flashgen.evaluate import evaluate
from flashgen.problem import Problem

Array = NDArray[Any]
BLOCK = 256
"""Rows handled at a time: a matter of memory only."""


def visible(
    problem: Problem,
    rows: Array,
    nq: int,
    nk: int,
    head: tuple[int, int] = (0, 0),
    values: Mapping[str, Any] | None = None,
) -> Array:
    """Which of the nk keys each of these rows sees, out of nq rows; bool (rows, nk).

    head: the sequence and the query head, (b, h). values: of the mask's inputs, by name.
    """
    keys = np.arange(nk)
    seen = np.ones((len(rows), nk), bool)
    if problem.causal is not None:
        offset = nk - nq if problem.causal == "bottom-right" else 0
        seen = keys[None, :] <= rows[:, None] + offset
    if problem.mask is not None:
        seen = seen & evaluate(problem.mask, grid(rows, nq, nk, head), values or {})
    return seen


def wider(problem: Problem) -> type[np.floating]:
    """What is computed in here: a type that rounds much less than what the problem's kernels compute in.

    Beside float64 that is np.longdouble: on x86 a float of 80 bits, whose 64 bits of significand are 11 more.
    """
    return np.longdouble if problem.computed == "float64" else np.float64


def grid(rows: Array, nq: int, nk: int, head: tuple[int, int], **more: Any) -> dict[str, Any]:
    """What an expression is about, over these rows and all keys."""
    b, h = head
    return {"b": b, "h": h, "q": rows[:, None], "k": np.arange(nk)[None, :], "Nq": nq, "Nk": nk} | more


def attention(
    problem: Problem,
    q: Array,
    k: Array,
    v: Array,
    scale: float,
    values: Mapping[str, Any] | None = None,
    first: tuple[int, int] = (0, 0),
) -> tuple[Array, Array]:
    """O (B, Hq, Nq, Dv) and lse (B, Hq, Nq), in ``wider``. A row that sees no key has O = 0 and lse = -inf,
    or the sink.

    values: the arrays and numbers that the problem's mask, score and sink read, by name.
    first: the sequence and the head that these expressions know the first ones by, where others are left out.

    What lies at keys that a row does not see never reaches it, NaN and inf included.
    """
    wide = wider(problem)
    q, k, v = (x.astype(wide) for x in (q, k, v))
    (batch, hq, nq, _), (nk, dv) = q.shape, v.shape[2:]
    o, lse = np.zeros((batch, hq, nq, dv), wide), np.full((batch, hq, nq), -np.inf, wide)
    with np.errstate(all="ignore"):
        for b, h, block in np.ndindex(batch, hq, -(-nq // BLOCK)):
            g, head = h // (hq // k.shape[1]), (first[0] + b, first[1] + h)
            rows = np.arange(block * BLOCK, min(nq, (block + 1) * BLOCK))
            seen = visible(problem, rows, nq, nk, head, values)
            t = scale * (q[b, h, rows] @ k[b, g].T)
            if problem.score is not None:
                at = grid(rows, nq, nk, head, score=t)
                t = np.broadcast_to(evaluate(problem.score, at, values or {}), t.shape)
            sink = sink_of(problem, head, values)
            o[b, h, rows], lse[b, h, rows] = softmax(t, v[b, g], seen, sink)
    return o, lse


def sink_of(problem: Problem, head: tuple[int, int], values: Mapping[str, Any] | None) -> float:
    """The logit without a value of a query head; -inf, which is none, where the problem has none."""
    return float((values or {})["sink"][head[1]]) if problem.sink else -np.inf


def softmax(t: Array, v: Array, seen: Array, sink: float = -np.inf) -> tuple[Array, Array]:
    """O and lse of rows whose logits are t, over the keys that are ``seen`` and whose t is not -inf."""
    t = np.where(seen, t, -np.inf)
    seen = t != -np.inf
    top = t.max(axis=1, initial=sink)
    finite_top = np.where(top == -np.inf, 0, top)  # exp(-inf - 0) is the 0 that is wanted
    p = np.exp(t - finite_top[:, None])
    total = p.sum(axis=1) + np.exp(sink - finite_top)
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


def bound(
    problem: Problem,
    q: Array,
    k: Array,
    v: Array,
    scale: float,
    computed: str | None = None,
    products: str = "float32",
    values: Mapping[str, Any] | None = None,
    first: tuple[int, int] = (0, 0),
) -> Bound:
    """How far a result may be from the reference; ``values`` and ``first`` as of ``attention``.

    computed: the type computed in, the problem's if not given.

    |O - reference| <= C * (u * (1 + S) + u_P + u_out) * max|v| + half the smallest number of O's storage
    |lse - reference| <= C * u * (1 + S + ln Nk)

    S = |scale| * max_ij sum_d |q_id k_jd| over the visible pairs of the head, max|v| over its visible keys;
    u, u_P, u_out: unit roundoffs of the type computed in, of the type that P is rounded to for its product
    with V (``products``, as a Schedule's), and of O's storage.

    Why: a score is a sum of D products, each rounded, then scaled; its error is a small multiple of u * S, as
    long as roundings do not conspire (D * u * S if they do) and the sums on the way are not all as large as
    S: where the first of many products is far larger than the others, each addition is rounded at its size,
    and a walk of D such steps, about sqrt(D) * u * S / 2, comes near what C allows. An error e of all scores
    changes O by at most 2 e max|v|, since O is an average of v with weights that sum to 1, and lse by at most
    e. The exponential, the sums over keys and the rescaling add a few u each, relative to max|v|; the last
    rounding adds u_out.
    The logarithm adds u * |lse|, and |lse| <= S + ln Nk. C covers the factor of 2 and the count of "a few".
    Where P is rounded for its product alone each weight is off by a share of at most u_P, so that O is off by
    u_P max|v|; lse comes from the sum of P as it was. Products of bfloat16 are exact in float32; that what is
    subnormal counts as 0 is not in the bound.

    A score expression makes t of a score s. Its error is then what takes the place of C * u * S: the error
    C * u * |scale| sum_d |q_id k_jd| of each s, carried through each operation of the expression (by at most
    the operation's Lipschitz constant over that interval, which is how |f'| <= L gives L times the error of
    s; flashgen.analysis.rounding), with C * u of each operation's result for its own rounding, and
    C * u * |t| for the multiplication by log2 e, which u * S covers where t is s; the largest of all visible
    pairs. It is infinite where a comparison in the expression may come out either way, and t jumps there. A
    sink is a logit that is read and not computed: C * u * |sink| for the multiplication, and one more term
    of the sum.
    Masks are not rounded: where they compare floats, inputs are expected to be far enough apart.
    """
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    (batch, hq, nq, _), nk = q.shape, k.shape[2]
    computed = computed or problem.computed
    u, u_p, u_out = (ROUNDOFF[max_roundoff(t, computed)] for t in (computed, products, problem.dtype))
    s, largest_v = np.zeros((batch, hq)), np.zeros((batch, hq))
    with np.errstate(all="ignore"):
        for b, h, block in np.ndindex(batch, hq, -(-nq // BLOCK)):
            g, head = h // (hq // k.shape[1]), (first[0] + b, first[1] + h)
            rows = np.arange(block * BLOCK, min(nq, (block + 1) * BLOCK))
            seen = visible(problem, rows, nq, nk, head, values)
            sizes = abs(scale) * (np.abs(q[b, h, rows]) @ np.abs(k[b, g]).T)
            if problem.score is not None:
                t = scale * (q[b, h, rows] @ k[b, g].T)
                at = grid(rows, nq, nk, head, score=t, score_error=C * u * sizes)
                made = estimate(problem.score, at, values or {}, C * u, computed)
                t, error = (np.broadcast_to(x, t.shape) for x in (made.value, made.error))
                seen = seen & (t != -np.inf)
                sizes = np.where(np.isfinite(t), error / (C * u) + np.abs(t), 0)
            else:
                sizes = np.where(np.isfinite(sizes), sizes, 0)
            s[b, h] = max(s[b, h], sizes[seen].max(initial=0))
            sizes_v = np.abs(v[b, g][seen.any(axis=0)])
            largest_v[b, h] = max(largest_v[b, h], sizes_v[np.isfinite(sizes_v)].max(initial=0))
        for b, h in np.ndindex(batch, hq):
            sink = sink_of(problem, (first[0] + b, first[1] + h), values)
            s[b, h] = max(s[b, h], abs(sink) if np.isfinite(sink) else 0)
        o = np.where(largest_v == 0, 0, C * (u * (1 + s) + u_p + u_out) * largest_v)
    return Bound(o + SMALLEST[problem.dtype], C * u * (1 + s + np.log(max(nk + problem.sink, 1))))


def max_roundoff(storage: str, computed: str) -> str:
    """The coarser of a type and the type computed in: in float64, float32 stands for float64."""
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
