"""Random expressions, and values for what they read."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from flashgen.expression import LENGTHS, OPERATIONS, POSITIONS, Array, Expression, Scalar
from tests.mods import constant

INPUTS = {
    x.name: x
    for x in (
        Array("doc", 1, "int32"),
        Array("layout", 2, "bool"),
        Array("bias", 2, "float32"),
        Array("table", 3, "float16"),
        Scalar("n", "index"),
        Scalar("x", "float"),
    )
}


def leaves(kind: str, score: bool) -> list[st.SearchStrategy[Expression]]:
    scalars = [
        Expression("scalar", value=x) for x in INPUTS.values() if isinstance(x, Scalar) and x.kind == kind
    ]
    found: list[st.SearchStrategy[Expression]] = [st.sampled_from(scalars)] if scalars else []
    if kind == "bool":
        return [st.booleans().map(constant)]
    if kind == "index":
        places = [Expression("position", value=x) for x in POSITIONS]
        places += [Expression("length", value=x) for x in LENGTHS]
        return [*found, st.sampled_from(places), st.integers(-3, 9).map(constant)]
    floats = (
        st.sampled_from((0.0, -0.0, 1.0, -1.5, 0.1, 1e-5, 1e30, np.inf, -np.inf)).map(float).map(constant)
    )
    return [*found, floats, *([st.just(Expression("score"))] if score else [])]


@st.composite
def expressions(draw: Any, kind: str, depth: int = 3, score: bool = False) -> Expression:
    """Of this kind, over INPUTS; with the score, if that is asked for."""
    makers = leaves(kind, score)
    if depth > 0:
        arrays = [x for x in INPUTS.values() if isinstance(x, Array) and x.kind == kind]
        if arrays:
            makers.append(st.sampled_from(arrays).flatmap(lambda a: elements(a, depth, score)))
        names = [
            op
            for op, (_, kinds, result) in OPERATIONS.items()
            if result == kind or (not result and kind in kinds)
        ]
        makers += [st.sampled_from(names).flatmap(lambda op: operations(op, kind, depth, score))] * 2
    return draw(st.one_of(makers))


@st.composite
def elements(draw: Any, array: Array, depth: int, score: bool) -> Expression:
    indices = tuple(draw(expressions("index", depth - 1, score)) for _ in range(array.rank))
    return Expression("element", indices, array)


@st.composite
def operations(draw: Any, op: str, kind: str, depth: int, score: bool) -> Expression:
    count, kinds, result = OPERATIONS[op]
    of = draw(st.sampled_from(kinds)) if result else kind
    parts = [of] * count
    if op == "where":
        parts[0] = "bool"
    return Expression(op, tuple(draw(expressions(part, depth - 1, score)) for part in parts))


def values(seed: int, largest: int = 8) -> dict[str, Any]:
    """Arrays of random sizes, 0 among them, and numbers, for INPUTS."""
    rng = np.random.default_rng(seed)
    found: dict[str, Any] = {"n": int(rng.integers(-2, 6)), "x": float(rng.normal())}
    for name, array in INPUTS.items():
        if isinstance(array, Array):
            shape = tuple(rng.integers(0 if rng.random() < 0.1 else 1, largest, array.rank))
            found[name] = (4 * rng.normal(size=shape)).astype(array.dtype)
    return found
