"""Problems with masks and scores, and what they read: each meets another form of the IR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flashgen.evaluate import evaluate
from flashgen.expression import Array, Expression, Scalar
from flashgen.problem import Problem
from flashgen.reference import grid, visible
from tests.strategies import Inputs, make_inputs


def of(op: str, *args: Expression) -> Expression:
    return Expression(op, args)


def constant(x: bool | int | float) -> Expression:
    return Expression("constant", value=x)


def element(name: str, dtype: str, *at: Expression) -> Expression:
    return Expression("element", at, Array(name, len(at), dtype))


B, H, Q, K = (Expression("position", value=n) for n in "bhqk")
NQ, NK = (Expression("length", value=n) for n in ("Nq", "Nk"))
SCORE = Expression("score")
LEFT, RIGHT = (Expression("scalar", value=Scalar(n, "index")) for n in ("left", "right"))
CAP = Expression("scalar", value=Scalar("cap", "float"))
POSITION = of("add", Q, of("sub", NK, NQ))
NEVER = constant(float("-inf"))

BOTTOM_RIGHT, TOP_LEFT = of("le", K, POSITION), of("le", K, Q)
WINDOW = of("and", of("le", of("sub", POSITION, LEFT), K), of("le", K, of("add", POSITION, RIGHT)))
DOCUMENT = of("eq", element("ids", "int32", B, Q), element("ids", "int32", B, K))
PADDING = of("lt", K, element("lens", "int64", B))
BY_HEAD = of("lt", K, element("ends", "int32", H))
SHOWN = element("shown", "bool", B, H, Q, K)
BLOCKS = of(
    "or",
    of("eq", of("floordiv", Q, constant(4)), of("floordiv", K, constant(4))),
    of("eq", of("mod", K, constant(3)), constant(0)),
)
SOFTCAP = of("mul", CAP, of("tanh", of("div", SCORE, CAP)))
ALIBI = of("add", SCORE, of("mul", element("slopes", "float32", H), of("float", of("sub", K, Q))))
BIAS = of("add", SCORE, element("bias", "float32", B, Q, K))
CHOSEN = of(
    "where",
    of("and", of("lt", Q, K), of("lt", SCORE, constant(0.0))),
    of("mul", SCORE, constant(2.0)),
    of("maximum", SCORE, of("float", of("where", of("lt", SCORE, constant(0.1)), Q, K))),
)
LOG_N = of("mul", SCORE, of("log", of("float", NK)))
NUMBERS = of(
    "minimum",
    of("mul", SCORE, of("tanh", of("abs", CAP))),
    of("where", of("lt", CAP, constant(1.0)), of("maximum", CAP, constant(0.1)), of("exp2", CAP)),
)
EQUALLY = of(
    "where",
    of("eq", of("lt", SCORE, constant(0.1)), of("le", K, Q)),
    of("minimum", SCORE, constant(0.1)),
    of("div", SCORE, constant(3.0)),
)

INFINITY, BITOR = (element(name, "float32", K) for name in ("INFINITY", "bitor"))

PROBLEMS = {
    "window": Problem(8, 5, mask=WINDOW),
    "document": Problem(8, 5, mask=DOCUMENT),
    "document, causal": Problem(8, 5, causal="bottom-right", mask=DOCUMENT),
    "padding": Problem(8, 5, mask=PADDING),
    "by head": Problem(8, 5, mask=BY_HEAD),
    "boolean": Problem(8, 5, mask=SHOWN),
    "not": Problem(8, 5, mask=of("not", of("or", SHOWN, of("lt", K, Q)))),
    "blocks": Problem(8, 5, mask=BLOCKS),
    "prefix": Problem(8, 5, mask=of("or", of("lt", K, LEFT), TOP_LEFT)),
    "softcap": Problem(8, 5, score=SOFTCAP),
    "alibi": Problem(8, 5, causal="bottom-right", score=ALIBI),
    "bias and sink": Problem(8, 5, score=BIAS, sink=True),
    "sink": Problem(8, 5, causal="bottom-right", sink=True),
    "chosen": Problem(8, 5, mask=DOCUMENT, score=CHOSEN),
    "equally": Problem(8, 5, score=EQUALLY),
    "hidden by the score": Problem(8, 5, score=of("where", TOP_LEFT, of("exp2", SCORE), NEVER), sink=True),
    "hidden by its value": Problem(8, 5, score=of("where", of("lt", SCORE, constant(0.0)), SCORE, NEVER)),
    "logarithm": Problem(8, 5, score=of("log", of("abs", of("exp", SCORE)))),
    "log n": Problem(8, 5, score=LOG_N),
    "numbers alone": Problem(8, 5, score=NUMBERS),
    "names of C++": Problem(8, 5, score=of("add", of("add", SCORE, INFINITY), BITOR)),
    "no score": Problem(8, 5, score=of("float", of("sub", K, Q))),
}


def what_is_read(rng: np.random.Generator, x: Inputs) -> Mapping[str, Any]:
    """Arrays and numbers for every expression here, for inputs of these lengths."""
    (batch, heads, nq, _), nk = x.q.shape, x.k.shape[2]
    bias = rng.normal(size=(batch, nq, nk)).astype(np.float32)
    return {
        "left": 3,
        "right": 1,
        "cap": 0.7,
        "ids": np.sort(rng.integers(0, 3, (batch, max(nq, nk))), axis=1).astype(np.int32),
        "lens": rng.integers(0, nk + 1, batch),
        "ends": rng.integers(0, nk + 2, heads).astype(np.int32),
        "shown": rng.random((batch, heads, nq, nk)) < 0.3,
        "slopes": rng.normal(size=heads).astype(np.float32),
        "bias": np.where(rng.random(bias.shape) < 0.2, -np.inf, bias).astype(np.float32),
        "sink": rng.normal(size=heads).astype(np.float32),
        "INFINITY": rng.normal(size=nk).astype(np.float32),
        "bitor": rng.normal(size=nk).astype(np.float32),
    }


def hidden_keys(
    problem: Problem, q: np.ndarray, k: np.ndarray, scale: float, values: Mapping[str, Any]
) -> np.ndarray:
    """Keys that no row of a group's heads sees, by the mask or for a score of -inf: bool (B, Hkv, Nk)."""
    (batch, hq, nq, _), (hkv, nk) = q.shape, k.shape[1:3]
    rows, hidden = np.arange(nq), np.ones((batch, hkv, nk), bool)
    for b, h in np.ndindex(batch, hq):
        g = h // (hq // hkv)
        seen = visible(problem, rows, nq, nk, (b, h), values)
        if problem.score is not None:
            with np.errstate(all="ignore"):
                s = scale * (q[b, h].astype(np.float64) @ k[b, g].astype(np.float64).T)
                seen = seen & (
                    evaluate(problem.score, grid(rows, nq, nk, (b, h), score=s), values) != -np.inf
                )
        hidden[b, g] &= ~seen.any(axis=0)
    return hidden


def random_inputs(
    problem: Problem, rng: np.random.Generator, sizes: tuple[int, int, int, int, int], scale: float = 0.4
) -> Inputs:
    """Plain ones, of the next seed; sizes as of ``make_inputs``."""
    return make_inputs(problem, "plain", sizes, scale, int(rng.integers(1 << 32)))
