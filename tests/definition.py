"""Attention with a mask, a score and a sink, in float64, straight from the definition: a second source.

Expressions are evaluated as they stand, for all positions of a call at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flashgen.expression import Array, Expression, Scalar
from flashgen.problem import Problem

BINARY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "abs": np.abs,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "tanh": np.tanh,
    "where": np.where,
}


def evaluate(e: Expression, leaves: Mapping[str, Any], inputs: Mapping[str, Any]) -> Any:  # noqa: PLR0911
    """The value of an expression. leaves: positions, lengths and "score", as arrays that broadcast."""
    if isinstance(e.value, Scalar):
        return inputs[e.value.name]
    args = [evaluate(a, leaves, inputs) for a in e.args]
    match e.op:
        case "constant":
            return e.value
        case "score":
            return leaves["score"]
        case "position" | "length":
            return leaves[str(e.value)]
        case "element":
            assert isinstance(e.value, Array)
            return element(inputs[e.value.name], args)
        case "floordiv":
            return divided(*args)
        case "mod":
            return args[0] - divided(*args) * args[1]
        case "float":
            return np.asarray(args[0]).astype(np.float64)
    return BINARY[e.op](*args)


def divided(a: Any, b: Any) -> Any:
    return np.where(np.equal(b, 0), 0, np.floor_divide(a, np.where(np.equal(b, 0), 1, b)))


def element(array: np.ndarray, at: list[Any]) -> np.ndarray:
    """0 beyond the array's bounds."""
    padded = np.pad(array, 1)  # an edge of zeros for what lies outside
    places = tuple(np.clip(np.asarray(i) + 1, 0, n + 1) for i, n in zip(at, array.shape, strict=True))
    found = padded[places]
    return (
        found
        if found.dtype.kind == "b"
        else found.astype(np.float64 if found.dtype.kind not in "iu" else int)
    )


def scores(
    problem: Problem,
    q: np.ndarray,
    k: np.ndarray,
    scale: float,
    inputs: Mapping[str, Any],
) -> tuple[np.ndarray, np.ndarray]:
    """t (B, Hq, Nq, Nk), and which keys each row sees."""
    (batch, hq, nq, _), nk = q.shape, k.shape[2]
    k = np.repeat(k, hq // max(k.shape[1], 1), axis=1)
    leaves: dict[str, Any] = {
        "b": np.arange(batch).reshape(-1, 1, 1, 1),
        "h": np.arange(hq).reshape(-1, 1, 1),
        "q": np.arange(nq).reshape(-1, 1),
        "k": np.arange(nk),
        "Nq": nq,
        "Nk": nk,
    }
    with np.errstate(all="ignore"):
        t = leaves["score"] = scale * (q.astype(np.float64) @ k.astype(np.float64).swapaxes(2, 3))
        if problem.score is not None:
            t = np.broadcast_to(evaluate(problem.score, leaves, inputs), t.shape)
        seen = np.ones(t.shape, bool)
        if problem.causal:
            seen &= leaves["k"] <= leaves["q"] + (nk - nq if problem.causal == "bottom-right" else 0)
        if problem.mask is not None:
            seen &= evaluate(problem.mask, leaves, inputs)
    return np.where(seen, t, -np.inf), seen & (t != -np.inf)


def attention(
    problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, inputs: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray]:
    """O and lse, float64, by the definition."""
    t, seen = scores(problem, q, k, scale, inputs)
    v = np.repeat(v.astype(np.float64), q.shape[1] // max(k.shape[1], 1), axis=1)
    sink = inputs["sink"].astype(np.float64)[:, None] if problem.sink else np.full((1, 1), -np.inf)
    with np.errstate(all="ignore"):
        top = np.maximum(np.max(np.where(seen, t, -np.inf), axis=3, initial=-np.inf), sink)
        finite = np.where(top == -np.inf, 0, top)
        p = np.where(seen, np.exp(t - finite[..., None]), 0)
        total = p.sum(axis=3) + np.exp(sink - finite)
        o = np.zeros((*t.shape[:3], v.shape[3]))
        for j in range(t.shape[3]):  # what a row does not see adds nothing, whatever it is
            o += np.where(seen[..., j : j + 1], p[..., j : j + 1] * v[:, :, j : j + 1], 0)
        return o / np.where(total == 0, 1, total)[..., None], finite + np.log(total)
