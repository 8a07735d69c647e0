"""Arrays as the interpreter touches them: tiles within their bounds, single elements, rows numbered anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


class Violation(AssertionError):
    """A module says of itself what is not so, or touches what is not there."""


def window(array: Array, indices: Sequence[int], shape: Sequence[int]) -> tuple[Any, Any]:
    """Where a tile at these indices lies in an array, and which part of the tile that is."""
    lead = len(indices) - len(shape)
    if any(not 0 <= i < n for i, n in zip(indices[:lead], array.shape, strict=False)):
        raise Violation(f"index {tuple(map(int, indices))} lies outside an array of shape {array.shape}")
    if any(i < 0 for i in indices[lead:]):
        raise Violation(f"a tile starts at {tuple(map(int, indices))}, before the array does")
    bounds = zip(indices[lead:], shape, array.shape[lead:], strict=True)
    inside = [max(0, min(n, size - i)) for i, n, size in bounds]
    there = tuple(slice(i, i + n) for i, n in zip(indices[lead:], inside, strict=True))
    return (*indices[:lead], *there), tuple(slice(0, n) for n in inside)


class GroupedRows:
    """An array (B, Hq, Nq, ...) as (B, heads, rows, ...): see tile.group_rows."""

    def __init__(self, source: Array, heads: int, rows: int):
        if heads * rows != source.shape[1] * source.shape[2]:
            raise Violation(f"{heads} groups of {rows} rows are not all rows of shape {source.shape}")
        self._source, self.shape = source, (source.shape[0], heads, rows, *source.shape[3:])

    def _place(self, index: tuple[Any, ...]) -> tuple[Any, ...]:
        """Where the elements lie in the source; at least the first two of the indices are numbers."""
        b, g, rows, *others = index
        n, length = np.arange(self.shape[2])[rows], max(self._source.shape[2], 1)
        return b, g * (self.shape[2] // length) + n // length, n % length, *others

    def __getitem__(self, index: tuple[Any, ...]) -> Array:
        return self._source[self._place(index)]

    def __setitem__(self, index: tuple[Any, ...], values: Array) -> None:
        self._source[self._place(index)] = values
