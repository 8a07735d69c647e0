"""The reference with masks, scores and sinks against their definitions; and what scores do to the bound."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from flashgen import mods
from flashgen.analysis.rounding import estimate
from flashgen.bench.measure import expect, operations
from flashgen.combine import combine
from flashgen.evaluate import evaluate, step
from flashgen.expression import Array, Expression
from flashgen.notation import parse
from flashgen.problem import Problem
from flashgen.reference import ROUNDOFF, C, attention, bound, visible
from tests.expressions import INPUTS, expressions, values
from tests.strategies import make_inputs

# Expressions over grids.


class Reader:
    """An input array, read as a Python program reads it, and 0 beyond its bounds."""

    def __init__(self, array: np.ndarray, kind: str):
        self.array, self.number = array, {"bool": bool, "index": int, "float": np.float64}[kind]

    def __getitem__(self, index: Any) -> Any:
        index = index if isinstance(index, tuple) else (index,)
        inside = all(0 <= i < n for i, n in zip(index, self.array.shape, strict=True))
        return self.number(self.array[index]) if inside else self.number(0)


def by_python(e: Expression, at: dict[str, Any], given: dict[str, Any]) -> Any:
    """The value of the expression's own text."""
    names: dict[str, Any] = {
        "where": lambda c, a, b: a if c else b,
        "minimum": np.minimum,
        "maximum": np.maximum,
        "exp": np.exp,
        "exp2": np.exp2,
        "log": np.log,
        "tanh": np.tanh,
        "float": np.float64,
        "inf": np.float64(np.inf),
        "abs": abs,
    }
    for name, x in INPUTS.items():
        value = given[name]
        names[name] = (
            Reader(value, x.kind) if isinstance(x, Array) else np.float64(value) if name == "x" else value
        )
    with np.errstate(all="ignore"):
        return eval(str(e), names | at)


@given(
    st.sampled_from(("bool", "index", "float")).flatmap(lambda kind: expressions(kind, 4, score=True)),
    st.integers(0, 1000),
)
def test_evaluate_is_what_the_text_says(e: Expression, seed: int) -> None:
    """Element by element, with Python's operators, on a grid with places beyond every array."""
    given_values = values(seed)
    rng = np.random.default_rng(seed)
    nq, nk = (int(n) for n in rng.integers(1, 5, 2))
    score = rng.normal(size=(nq, nk))
    at = {"b": 1, "h": 2, "q": np.arange(nq)[:, None], "k": np.arange(nk)[None, :], "Nq": nq, "Nk": nk}
    got = np.broadcast_to(evaluate(e, at | {"score": score}, given_values), (nq, nk))
    for q, k in np.ndindex(nq, nk):
        place = at | {"q": q, "k": k, "score": score[q, k]}
        try:
            want = by_python(e, place, given_values)
        except ZeroDivisionError:
            assume(False)
        assert abs(want) < 2**62 or e.kind == "float", "no overflow at this depth"
        np.testing.assert_equal(float(got[q, k]), float(want))


def test_beyond_an_array_is_0() -> None:
    e = parse("doc[q - 1] + doc[k]", INPUTS)
    at = {"q": np.arange(3)[:, None], "k": np.array([-1, 0, 1, 2])[None, :]}
    got = evaluate(e, at, {"doc": np.array([5, 7], np.int32)})
    assert got.tolist() == [[0, 5, 7, 0], [5, 10, 12, 5], [7, 12, 14, 7]]


def test_a_divisor_of_0() -> None:
    at = {"q": np.array([3, -3]), "k": np.array([0, 0])}
    for op in ("//", "%"):
        assert evaluate(parse(f"q {op} k"), at, {}).tolist() == [0, 0]


# Attention.

B, H, NQ, NK, D = 2, 4, 5, 7, 3
BASE = make_inputs(Problem(D, 2), "plain", (B, H, 2, NQ, NK), 0.7)
RNG = np.random.default_rng(1)
BIAS = RNG.normal(size=(H, NQ, NK)).astype(np.float32)
BIAS[1, 2, 3:] = -np.inf
IDS = np.array([0, 0, 1, 1, 2, 2, 2])
SINKS = np.array([0.5, -np.inf, 3.0, -20.0])


def by_hand(score: Any, mask: Any, sinks: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """O and lse of one row after the other, of functions of plain numbers."""
    q, k, v = (x.astype(np.float64) for x in (BASE.q, BASE.k, BASE.v))
    o, lse = np.zeros((B, H, NQ, 2)), np.full((B, H, NQ), -math.inf)
    for b, h, i in np.ndindex(B, H, NQ):
        logits = {}
        for j in range(NK):
            s = 0.7 * math.fsum(q[b, h, i, d] * k[b, h // 2, j, d] for d in range(D))
            t = score(s, b, h, i, j)
            if mask(b, h, i, j) and t != -math.inf:
                logits[j] = t
        terms = [*logits.values(), *([sinks[h]] if sinks is not None and sinks[h] > -math.inf else [])]
        if not terms:
            continue
        lse[b, h, i] = max(terms) + math.log(math.fsum(math.exp(t - max(terms)) for t in terms))
        for d in range(2):
            o[b, h, i, d] = math.fsum(
                math.exp(t - lse[b, h, i]) * v[b, h // 2, j, d] for j, t in logits.items()
            )
    return o, lse


def plain(s, *_):
    return s


def everything(*_):
    return True


CASES = {
    "mask": ({"mask_mod": mods.document(IDS[:NQ], IDS)}, plain, lambda b, h, i, j: IDS[i] == IDS[j]),
    "window": ({"window": (1, 0)}, plain, lambda b, h, i, j: i + 1 <= j <= i + 2),
    "nothing is seen": ({"mask_mod": mods.or_masks()}, plain, lambda b, h, i, j: False),
    "softcap": ({"softcap": 0.5}, lambda s, *_: 0.5 * math.tanh(s / 0.5), everything),
    "bias": ({"attn_mask": BIAS}, lambda s, b, h, i, j: s + float(BIAS[h, i, j]), everything),
    "heads": (
        {"score_mod": lambda s, b, h, q, k: s * (h + 1) - b * k},
        lambda s, b, h, i, j: s * (h + 1) - b * j,
        everything,
    ),
    "log": (
        {"score_mod": lambda s, b, h, q, k: np.log(np.maximum(s, 0.0))},
        lambda s, *_: math.log(s) if s > 0 else -math.inf,
        everything,
    ),
}


@pytest.mark.parametrize("sinks", [None, SINKS])
@pytest.mark.parametrize(("options", "score", "mask"), CASES.values(), ids=CASES)
def test_the_definition(options, score, mask, sinks) -> None:
    made = combine((B, H, NQ, NK), sinks=sinks, **options)
    got = attention(made.problem(D, 2), BASE.q, BASE.k, BASE.v, 0.7, made.values)
    for a, b in zip(got, by_hand(score, mask, sinks), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_causal_and_mask_together() -> None:
    made = combine((B, H, NQ, NK), is_causal=True, mask_mod=lambda b, h, q, k: k > 0)
    want = by_hand(plain, lambda b, h, i, j: 0 < j <= i + NK - NQ, None)
    got = attention(made.problem(D, 2), BASE.q, BASE.k, BASE.v, 0.7, made.values)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-12, atol=1e-12)


def test_a_sink_is_a_key_with_no_value() -> None:
    """A further key whose logit is the sink and whose value is 0."""
    q, k, v = BASE.q[:, :, :1], BASE.k, BASE.v
    made = combine((B, H, 1, NK), sinks=np.full(H, 0.25))
    o, lse = attention(made.problem(D, 2), q, k, v, 0.7, made.values)
    more = combine((B, H, 1, NK + 1), score_mod=lambda s, b, h, q, k: mods.where(k == NK, 0.25, s))
    k, v = (np.concatenate([x, np.zeros_like(x[:, :, :1])], axis=2) for x in (k, v))
    for a, b in zip((o, lse), attention(more.problem(D, 2), q, k, v, 0.7), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-14)


def test_an_empty_row_with_a_sink() -> None:
    made = combine((B, H, NQ, NK), mask_mod=lambda b, h, q, k: q > 0, sinks=SINKS)
    o, lse = attention(made.problem(D, 2), BASE.q, BASE.k, BASE.v, 0.7, made.values)
    assert (o[:, :, 0] == 0).all()
    np.testing.assert_array_equal(lse[:, :, 0], np.tile(SINKS, (B, 1)))


def one_head(score: Any = None, mask: Any = None, nk: int = 2, v: Any = (3.0, 5.0), **more: Any):
    """O and lse of one row whose scores are all 0."""
    made = combine((1, 1, 1, nk), score_mod=score, mask_mod=mask, **more)
    v = np.array(v).reshape(1, 1, nk, 1)
    o, lse = attention(made.problem(1), np.zeros((1, 1, 1, 1)), np.ones((1, 1, nk, 1)), v, 1.0, made.values)
    return o.item(), lse.item()


def test_nan_reaches_a_row_only_where_it_is_visible() -> None:
    nan, inf = math.nan, math.inf
    bias = np.array([0.0, nan], np.float32)
    assert all(map(math.isnan, one_head(attn_mask=bias)))
    assert one_head(attn_mask=bias, mask=lambda b, h, q, k: k < 1) == (3.0, 0.0)
    assert one_head(attn_mask=np.array([0.0, -inf], np.float32), v=(3.0, nan)) == (3.0, 0.0)
    assert one_head(attn_mask=np.array([0.0, -inf], np.float32), v=(3.0, inf)) == (3.0, 0.0)
    assert one_head(attn_mask=np.array([-inf, -inf], np.float32), v=(nan, inf)) == (0.0, -inf)
    o, lse = one_head(v=(3.0, nan))
    assert math.isnan(o) and lse == math.log(2)
    assert all(map(math.isnan, one_head(sinks=np.array([nan]))))


def test_a_head_alone_knows_which_it_is() -> None:
    """As the benchmark and `flashgen run` ask, one head after the other."""
    made = combine((B, H, NQ, NK), alibi=True, mask_mod=lambda b, h, q, k: k <= q + h - b, sinks=SINKS)
    problem = made.problem(D, 2)
    got = expect(problem, BASE.q, BASE.k, BASE.v, 0.7, values=made.values)
    o, lse = attention(problem, BASE.q, BASE.k, BASE.v, 0.7, made.values)
    limit = bound(problem, BASE.q, BASE.k, BASE.v, 0.7, values=made.values)
    for a, b in ((got.o, o), (got.lse, lse), (got.bound.o, limit.o), (got.bound.lse, limit.lse)):
        np.testing.assert_array_equal(a, b)
    pairs = sum(k <= q + h - b for b, h, q, k in np.ndindex(B, H, NQ, NK))
    assert operations(problem, BASE.q, BASE.k, BASE.v, made.values) == 2 * pairs * (D + 2)


# The bound.


def in_float32(e: Expression, at: dict[str, Any], given: dict[str, Any]) -> Any:
    """As a kernel computes it: every float rounded to float32."""
    args = [in_float32(a, at, given) for a in e.args]
    value = step(e, args, at, given)
    if e.kind == "float":
        with np.errstate(all="ignore"):
            value = np.asarray(value).astype(np.float32)
    return value


UNIT = C * ROUNDOFF["float32"]


@given(expressions("float", 4, score=True), st.integers(0, 10_000))
def test_errors_are_carried_through_every_operation(e: Expression, seed: int) -> None:
    """A score that is off by its error, and float32 at every step, stay within the estimate."""
    given_values, rng = values(seed), np.random.default_rng(seed)
    score = rng.normal(size=(4, 5)) * 10.0 ** rng.integers(-3, 3)
    error = UNIT * np.abs(score)
    at = {"b": 1, "h": 0, "q": np.arange(4)[:, None], "k": np.arange(5)[None, :], "Nq": 4, "Nk": 5}
    exact = estimate(e, at | {"score": score, "score_error": error}, given_values, UNIT, "float32")
    off = score + error * rng.uniform(-0.9, 0.9, score.shape)
    got = in_float32(e, at | {"score": off}, given_values)
    with np.errstate(all="ignore"):
        apart = np.abs(np.asarray(got, np.float64) - exact.value)
    finite = np.isfinite(got) & np.isfinite(exact.value)
    assert (
        (apart <= exact.error)[finite].all()
        if np.shape(finite)
        else not finite or (apart <= exact.error).all()
    )


def test_estimates() -> None:
    def error(text: str, score: float, off: float) -> float:
        at = {"score": np.array(score), "score_error": np.array(off), "q": np.array(3)}
        return float(estimate(parse(text, INPUTS), at, {"x": 2.0}, 0.0, "float64").error)

    assert error("score", 3.0, 0.1) == 0.1
    assert error("score + score", 3.0, 0.1) == 0.2
    assert error("score * x", 3.0, 0.1) == pytest.approx(0.2)
    assert error("tanh(score)", 3.0, 0.1) == 0.1
    assert error("score / x", 3.0, 0.1) == pytest.approx(0.05)
    assert error("x / score", 0.05, 0.1) == math.inf
    assert error("exp(score)", 1.0, 0.1) == pytest.approx(math.exp(1.1) - math.e)
    assert error("log(score)", 1.0, 0.1) == pytest.approx(-math.log(0.9))
    assert error("log(score)", 0.05, 0.1) == math.inf
    assert error("where(score < 3, score, x)", 2.0, 0.1) == 0.1
    assert error("where(score < 3, score, x)", 2.95, 0.1) == pytest.approx(1.05)
    assert error("where(score < 3, score, -inf)", 2.95, 0.1) == math.inf
    assert error("where(q < 3, score, -inf)", 2.95, 0.1) == 0.0
    assert error("minimum(score, x)", 9.0, 0.1) == 0.1


SCORED = combine(
    (1, 2, 16, 16), is_causal=True, softcap=2.0, alibi=True, sinks=np.array([0.5, -1.0], np.float32)
)
PROBLEM = SCORED.problem(8)
X = make_inputs(Problem(8), "plain", (1, 2, 1, 16, 16), 0.35)
WANT = attention(PROBLEM, X.q, X.k, X.v, 0.35, SCORED.values)
LIMIT = bound(PROBLEM, X.q, X.k, X.v, 0.35, values=SCORED.values)


def test_the_bound_lets_float32_pass_and_finds_a_small_fault() -> None:
    t = np.float32(0.35) * (X.q @ X.k.transpose(0, 1, 3, 2))
    b, h, q, k = np.ogrid[:1, :2, :16, :16]
    at = {"b": b, "h": h, "q": q, "k": k, "Nq": 16, "Nk": 16, "score": t}
    assert PROBLEM.score is not None
    t = in_float32(PROBLEM.score, at, dict(SCORED.values))
    t = np.where(visible(PROBLEM, np.arange(16), 16, 16), t, np.float32(-np.inf))
    sink = SCORED.values["sink"][None, :, None, None]
    top = np.maximum(t.max(axis=-1, keepdims=True), sink)
    p = np.exp(t - top)
    total = p.sum(axis=-1, keepdims=True) + np.exp(sink - top)
    o, lse = (p / total) @ X.v, (top + np.log(total))[..., 0]
    LIMIT.check(o, lse, *WANT)
    assert (LIMIT.o < 1e-4).all()
    o[0, 1, 3, 2] += 1e-4
    with pytest.raises(AssertionError, match=r"O\[0, 1, 3, 2\] is"):
        LIMIT.check(o, lse, *WANT)


def test_a_score_that_shrinks_errors_narrows_the_bound_and_one_that_stretches_widens_it() -> None:
    def of(score_mod: Any) -> float:
        made = combine((1, 2, 16, 16), score_mod=score_mod)
        return float(bound(made.problem(8), X.q, X.k, X.v, 0.35, values=made.values).o[0, 0])

    plain = float(bound(Problem(8), X.q, X.k, X.v, 0.35).o[0, 0])
    assert of(lambda s, *_: s / 8) < plain < of(lambda s, *_: s * 8)
    assert of(lambda s, b, h, q, k: mods.where(s < 0, s, s + 100.0)) > plain
    assert of(lambda s, b, h, q, k: s + 1000.0) > plain


def test_the_bound_of_heads_that_see_nothing() -> None:
    """Also where a score jumps at a rounding: nothing times nothing is nothing."""
    made = combine(
        (1, 2, 16, 16), mask_mod=mods.or_masks(), score_mod=lambda s, *_: mods.where(s < 0, s, -np.inf)
    )
    limit = bound(made.problem(8), X.q, X.k, X.v, 0.35, values=made.values)
    assert np.isfinite(limit.o).all() and (limit.o < 1e-30).all()
