"""One sequence of many, in NumPy: what tile.sequence and tile.pages give to touch."""

from __future__ import annotations

from typing import Any

import numpy as np

from flashgen.interpret_arrays import Array, Violation


def sequence(source: Array, starts: Array, number: int) -> Array:
    """Sequence ``number`` of an array (H, total, ...), as (1, H, N, ...): see tile.sequence."""
    first, end = map(int, starts[number : number + 2])
    if not 0 <= first <= end <= source.shape[1]:
        raise Violation(f"sequence {number} has rows {first} to {end} of an array of {source.shape[1]}")
    return source[None, :, first:end]


class PagedRows:
    """An array (pages, H, slots, ...) as the rows of one sequence, (1, H, N, ...): see tile.pages."""

    def __init__(self, source: Array, table: Array, length: int):
        pages, heads, slots, *others = source.shape
        count = -(-length // max(slots, 1))
        used = table[:count]
        if length < 0 or count > len(table) or ((used < 0) | (used >= pages)).any() or (length and not slots):
            raise Violation(f"a sequence of {length} rows in pages {table} of shape {source.shape}")
        self._source, self._pages, self.shape = source, used, (1, heads, length, *others)

    def __getitem__(self, index: tuple[Any, ...]) -> Array:
        """The second of the indices is a number."""
        _, head, rows, *others = index
        n, slots = np.arange(self.shape[2])[rows], max(self._source.shape[2], 1)
        return self._source[(self._pages[n // slots], head, n % slots, *others)]
