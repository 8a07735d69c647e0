"""Which tiles of a mask are skipped, full or mixed, from the ranges that its parts have over a tile.

The predicate is evaluated once for all tiles, on intervals: a position ranges over the rows or the keys of a
tile, an element of an array from the least to the greatest of those that the tile reads, a bool is true for
certain, possibly, or not at all. What is found is right and may be less than is there: a tile that is called
mixed can be full, since an interval forgets where its bounds came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashgen.evaluate import NUMPY
from flashgen.expression import LEAST, MOST, Array, Expression, Scalar

SKIPPED, MIXED, FULL = 0, 1, 2
"""No element of the tile is visible; maybe some; all are."""


@dataclass(frozen=True)
class Range:
    """Least and greatest values, arrays over tiles that broadcast with each other.

    An index has Python's whole numbers (object arrays), so that none overflows; a bool is False below True.
    nan: whether a float may be NaN besides.
    """

    lo: Any
    hi: Any
    nan: Any = False


def classify(
    mask: Expression,
    lengths: tuple[int, int],
    tiles: tuple[int, int],
    values: Mapping[str, Any] | None = None,
    head: tuple[int, int] = (0, 0),
) -> NDArray[np.int8]:
    """SKIPPED, MIXED or FULL for each tile of queries and of keys: (tiles of Nq, tiles of Nk).

    lengths: (Nq, Nk). tiles: (br, bc). values: the arrays and numbers of the mask's inputs, by name.
    head: the sequence and the query head, (b, h).
    """
    (nq, nk), (br, bc) = lengths, tiles
    rows, keys = steps(nq, br)[:, None], steps(nk, bc)[None, :]
    at = {
        "b": point(head[0]),
        "h": point(head[1]),
        "q": Range(rows, np.minimum(rows + (br - 1), nq - 1)),
        "k": Range(keys, np.minimum(keys + (bc - 1), nk - 1)),
        "Nq": point(nq),
        "Nk": point(nk),
    }
    seen = over(mask, at, values or {})
    shape = (rows.size, keys.size)
    certain, possible = (np.broadcast_to(x, shape).astype(bool) for x in (seen.lo, seen.hi))
    return np.where(certain, FULL, np.where(possible, MIXED, SKIPPED)).astype(np.int8)


def steps(length: int, tile: int) -> NDArray[Any]:
    """The first position of each tile."""
    return np.array([*range(0, length, tile)], object)


def point(value: Any) -> Range:
    """The range of one bool or whole number."""
    array = np.asarray(value) if isinstance(value, bool) else np.asarray(int(value), object)
    return Range(array, array)


def over(e: Expression, at: Mapping[str, Range], values: Mapping[str, Any]) -> Range:
    """The range of an expression over each tile."""
    if e.op in ("position", "length"):
        return at[str(e.value)]
    if e.op in ("constant", "scalar"):
        value: Any = values[e.value.name] if isinstance(e.value, Scalar) else e.value
        return floats(np.float64(value), np.float64(value)) if e.kind == "float" else point(value)
    args = [over(a, at, values) for a in e.args]
    if isinstance(e.value, Array):
        return elements(np.asarray(values[e.value.name]), args, e.kind)
    if e.kind == "bool":
        return of_bools(e, args)
    if e.op == "where":
        return chosen(args, e.kind)
    return of_floats(e.op, args) if e.kind == "float" else of_indices(e.op, args)


def chosen(args: Sequence[Range], kind: str) -> Range:
    """where: of one side for certain, or of both."""
    condition, a, b = args
    both = Range(np.minimum(a.lo, b.lo), np.maximum(a.hi, b.hi), a.nan | b.nan)
    yes, no = condition.lo, np.logical_not(condition.hi)

    def pick(x: Any, y: Any, z: Any) -> Any:
        return np.where(yes, x, np.where(no, y, z))

    found = Range(*(pick(*three) for three in ((a.lo, b.lo, both.lo), (a.hi, b.hi, both.hi))))
    return Range(found.lo, found.hi, pick(a.nan, b.nan, both.nan)) if kind == "float" else found


def of_bools(e: Expression, args: Sequence[Range]) -> Range:
    """Bools of bools, and comparisons. A comparison with NaN is false, but for !=."""
    x, y = args[0], args[-1]
    if e.op == "not":
        return Range(np.logical_not(x.hi), np.logical_not(x.lo))
    if e.op in ("and", "or"):
        return Range(NUMPY[e.op](x.lo, y.lo), NUMPY[e.op](x.hi, y.hi))
    if e.op == "where":
        return chosen([Range(*map(boolean, (a.lo, a.hi))) for a in args], e.kind)
    nan = np.logical_or(x.nan, y.nan)
    if e.op == "lt":
        return Range(boolean(x.hi < y.lo) & ~nan, boolean(x.lo < y.hi))
    if e.op == "le":
        return Range(boolean(x.hi <= y.lo) & ~nan, boolean(x.lo <= y.hi))
    overlap = boolean(x.lo <= y.hi) & boolean(y.lo <= x.hi)
    same = boolean(x.lo == x.hi) & boolean(y.lo == y.hi) & boolean(x.lo == y.lo) & ~nan
    return Range(same, overlap) if e.op == "eq" else Range(~overlap, ~same)


def boolean(x: Any) -> Any:
    """What a comparison of object arrays gives, as bools."""
    return np.asarray(x, bool)


def of_indices(op: str, args: Sequence[Range]) -> Range:
    """Whole numbers; where they may leave 64 bits, any number, since kernels wrap there."""
    x, y = args[0], args[-1]
    match op:
        case "add":
            lo, hi = x.lo + y.lo, x.hi + y.hi
        case "sub":
            lo, hi = x.lo - y.hi, x.hi - y.lo
        case "mul":
            lo, hi = corners(np.multiply, x, y)
        case "floordiv" | "mod":
            lo, hi = divided(op, x, y)
        case "abs":
            lo, hi = magnitude(x)
        case _:
            lo, hi = NUMPY[op](x.lo, y.lo), NUMPY[op](x.hi, y.hi)
    fits = boolean(lo >= LEAST) & boolean(hi <= MOST)
    return Range(np.where(fits, lo, LEAST), np.where(fits, hi, MOST))


def magnitude(x: Range) -> tuple[Any, Any]:
    ends = np.abs(x.lo), np.abs(x.hi)
    crosses = boolean(x.lo <= 0) & boolean(x.hi >= 0)
    return np.where(crosses, ends[0] * 0, np.minimum(*ends)), np.maximum(*ends)


def corners(function: Any, x: Range, y: Range) -> tuple[Any, Any]:
    """The ends of what is monotone in each argument: they are at ends of both."""
    found = [function(a, b) for a in (x.lo, x.hi) for b in (y.lo, y.hi)]
    return np.minimum.reduce(np.broadcast_arrays(*found)), np.maximum.reduce(np.broadcast_arrays(*found))


def divided(op: str, x: Range, y: Range) -> tuple[Any, Any]:
    """x // y or x % y; of a divisor that may be 0, any number that it may give."""
    zero = boolean(y.lo <= 0) & boolean(y.hi >= 0)
    safe = Range(np.where(zero, 1, y.lo), np.where(zero, 1, y.hi))
    lo, hi = corners(np.floor_divide, x, safe)
    if op == "floordiv":
        most = np.maximum(*np.broadcast_arrays(*(np.maximum(np.abs(x.lo), np.abs(x.hi)), np.abs(y.lo) * 0)))
        return np.where(zero, -most, lo), np.where(zero, most, hi)
    # within one multiple of one divisor the remainder grows with x; else it is anything up to the divisor
    steady = boolean(lo == hi) & boolean(y.lo == y.hi) & ~zero
    least, most = np.minimum(y.lo + 1, 0), np.maximum(y.hi - 1, 0)
    return (
        np.where(steady, x.lo - lo * safe.lo, least),
        np.where(steady, x.hi - lo * safe.lo, most),
    )


def of_floats(op: str, args: Sequence[Range]) -> Range:
    """Floats; wherever an infinity or a NaN takes part, any number, and NaN."""
    x, y = args[0], args[-1]
    with np.errstate(all="ignore"):
        match op:
            case "float":
                lo, hi = (np.asarray(end, np.float64) for end in (x.lo, x.hi))
            case "add":
                lo, hi = x.lo + y.lo, x.hi + y.hi
            case "sub":
                lo, hi = x.lo - y.hi, x.hi - y.lo
            case "mul":
                lo, hi = corners(np.multiply, x, y)
            case "div":
                zero = (y.lo <= 0) & (y.hi >= 0)
                lo, hi = (np.where(zero, np.nan, end) for end in corners(np.divide, x, y))
            case "abs":
                lo, hi = magnitude(x)
            case "minimum" | "maximum":
                lo, hi = NUMPY[op](x.lo, y.lo), NUMPY[op](x.hi, y.hi)
            case _:
                # functions of a library need not be monotone in their last bits
                lo, hi = (NUMPY[op](end) for end in (x.lo, x.hi))
                lo, hi = lo - 1e-12 * np.abs(lo), hi + 1e-12 * np.abs(hi)
    return floats(lo, hi, np.logical_or(x.nan, y.nan))


def floats(lo: Any, hi: Any, nan: Any = False) -> Range:
    """A range of floats, of which nothing is known where it is not finite."""
    finite = np.isfinite(lo) & np.isfinite(hi) & np.logical_not(nan)
    return Range(np.where(finite, lo, -np.inf), np.where(finite, hi, np.inf), ~finite)


def elements(array: NDArray[Any], indices: Sequence[Range], kind: str) -> Range:
    """The least and the greatest element in each box of positions; 0 where a box reaches beyond the array."""
    ends = np.broadcast_arrays(*(end for i in indices for end in (i.lo, i.hi)), np.zeros((1, 1)))[:-1]
    lo, hi = (np.empty(ends[0].shape if ends else (1, 1), object) for _ in range(2))
    found: dict[tuple[int, ...], tuple[Any, Any]] = {}
    for place in np.ndindex(lo.shape):
        box = tuple(int(end[place]) for end in ends)
        if box not in found:
            found[box] = extremes(array, list(zip(box[::2], box[1::2], strict=True)), kind)
        lo[place], hi[place] = found[box]
    if kind == "float":
        return floats(lo.astype(np.float64), hi.astype(np.float64))
    return Range(lo.astype(bool), hi.astype(bool)) if kind == "bool" else Range(lo, hi)


def extremes(array: NDArray[Any], box: Sequence[tuple[int, int]], kind: str) -> tuple[Any, Any]:
    """The least and the greatest element between these ends, both included."""
    number = {"bool": bool, "index": int, "float": float}[kind]
    part = array[tuple(slice(max(lo, 0), max(hi + 1, 0)) for lo, hi in box)]
    beyond = any(lo < 0 or hi >= n for (lo, hi), n in zip(box, array.shape, strict=True))
    if part.size == 0:
        return number(0), number(0)
    least, most = number(part.min()), number(part.max())
    return (min(least, number(0)), max(most, number(0))) if beyond else (least, most)
