"""What an expression comes to, over whole grids in NumPy: int64 for an index, float64 for a float."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashgen.expression import Array, Expression, Scalar

TYPES = {"bool": np.bool_, "index": np.int64, "float": np.float64}

NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,  # 0 where the divisor is 0, as of mod
    "mod": np.remainder,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "lt": np.less,
    "le": np.less_equal,
    "eq": np.equal,
    "ne": np.not_equal,
    "and": np.logical_and,
    "or": np.logical_or,
    "not": np.logical_not,
    "abs": np.absolute,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "tanh": np.tanh,
    "float": np.float64,
    "where": np.where,
}


def evaluate(e: Expression, at: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """The expression's value, an array that broadcasts to those in ``at``, or a number.

    at: "b", "h", "q", "k", "Nq", "Nk" and "score", numbers or arrays that broadcast with each other.
    values: the arrays and numbers of the inputs, by name. What lies beyond an array reads as 0.
    """
    return step(e, [evaluate(a, at, values) for a in e.args], at, values)


def step(e: Expression, args: Sequence[Any], at: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
    """The last operation of ``evaluate``: of what its arguments come to."""
    if e.op in NUMPY:
        with np.errstate(all="ignore"):
            return NUMPY[e.op](*args)
    if e.op == "constant":
        return TYPES[e.kind](e.value)
    if isinstance(e.value, Array):
        return read(np.asarray(values[e.value.name]), args, TYPES[e.kind])
    if isinstance(e.value, Scalar):
        return TYPES[e.kind](values[e.value.name])
    return at["score"] if e.op == "score" else np.asarray(at[str(e.value)], np.int64)


def read(array: NDArray[Any], indices: Sequence[Any], dtype: type[np.generic]) -> NDArray[Any]:
    """The elements at these places, 0 where there is none."""
    inside: Any = np.True_
    places = []
    for i, n in zip(indices, array.shape, strict=True):
        here = (i >= 0) & (i < n)
        inside = inside & here
        places.append(np.where(here, i, 0))
    if array.size == 0:
        return np.zeros(np.shape(inside), dtype)
    return np.where(inside, array[tuple(places)].astype(dtype), dtype(0))
