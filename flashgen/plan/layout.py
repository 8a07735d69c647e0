"""How tiles lie in scratch memory: what a target says and the plan does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class TileLayout:
    """How the plan lays a tile out in scratch memory: both extents are rounded up to these multiples.

    What lies in the padding is never specified; an operation may write it and must not let it through.
    """

    rows: int = 1
    cols: int = 1
    odd: bool = False
    """Whether rows are an odd number of elements apart: then those of a column lie in different banks."""
    in_place: bool = False
    """Whether products read a right side that was loaded where it lies in memory, without a copy."""


def round_up(n: int, to: int) -> int:
    """The least multiple of ``to`` that is not below n."""
    return -(-n // to) * to
