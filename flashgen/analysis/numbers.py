"""What operations on whole numbers, and reads of single elements, come to in NumPy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

ORDERINGS = (np.equal, np.not_equal, np.less, np.less_equal, np.greater, np.greater_equal)
"""By arith.cmpi's encoding."""


def quotient(a: Any, b: Any) -> Any:
    """Rounded towards minus infinity; 0 where b is 0."""
    return np.where(np.equal(b, 0), 0, np.floor_divide(a, np.where(np.equal(b, 0), 1, b)))[()]


def lookup(array: NDArray[Any], indices: Sequence[Any]) -> NDArray[Any]:
    """The elements at positions, which may be arrays; 0 beyond the array's bounds."""
    at = np.broadcast_arrays(*indices)
    inside = np.logical_and.reduce([(i >= 0) & (i < n) for i, n in zip(at, array.shape, strict=True)])
    if not array.size:
        return np.zeros(inside.shape, array.dtype)
    clipped = tuple(np.clip(i, 0, n - 1) for i, n in zip(at, array.shape, strict=True))
    return np.where(inside, array[clipped], array.dtype.type(0))
