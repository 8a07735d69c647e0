"""What lies in a tile beyond its array's bound: 0 when it was loaded, anything once it was computed with.

A pass that puts a computed tile in a loaded tile's place changes those elements, and may do so only where
nobody can tell.
"""

from __future__ import annotations

from collections.abc import Callable

from xdsl.dialects import scf
from xdsl.ir import Operation, SSAValue, Use

from flashgen.analysis.extents import extent
from flashgen.analysis.linear import linear
from flashgen.ir.compare import CompareOp
from flashgen.ir.compute import (
    BroadcastOp,
    DotOp,
    HoldOp,
    ReplaceOp,
    RowMaxOp,
    RowSumOp,
    ScaleRowsOp,
    SelectOp,
)
from flashgen.ir.memory import Access, LoadOp, StoreOp, extents
from flashgen.ir.types import shape_of

ROW_BY_ROW = (BroadcastOp, CompareOp, ReplaceOp, HoldOp, RowMaxOp, RowSumOp, ScaleRowsOp, SelectOp)


def mixes_rows(load: LoadOp) -> Operation | None:
    """The operation by which rows beyond the array's bound would show if the load did not make them 0.

    None where each row of what follows depends on the same row alone, and stores that it reaches are cut at
    the same bound. The load itself is given where more than its rows may be cut.
    """
    if any(may_be_cut(load, n) for n in cut_dimensions(load)[1:]):
        return load
    return rows_meet(load.result, lambda store: cut_alike(load, store))


def rows_meet(tile: SSAValue, fits: Callable[[StoreOp], bool]) -> Operation | None:
    """The operation by which a row of what follows from a tile depends on another of its rows.

    None if none does. fits: whether a store puts each row where it belongs.
    """
    seen: set[SSAValue] = set()
    todo: list[SSAValue] = [tile]
    while todo:
        v = todo.pop()
        if v in seen:
            continue
        seen.add(v)
        for use in v.uses:
            found = successors(use, fits)
            if found is None:
                return use.operation
            todo += found
    return None


def successors(use: Use, fits: Callable[[StoreOp], bool]) -> list[SSAValue] | None:
    """What the used value's rows go on into; None where rows meet."""
    op = use.operation
    if isinstance(op, StoreOp):
        return [] if fits(op) else None
    if isinstance(op, DotOp):
        return [op.result] if op.operands[use.index] is not op.rhs else None
    if isinstance(op, scf.YieldOp) and isinstance(loop := op.parent_op(), scf.ForOp):
        return [loop.results[use.index], loop.body.block.args[1 + use.index]]
    if isinstance(op, scf.ForOp):
        return [op.body.block.args[1 + use.index - 3]]
    if isinstance(op, ROW_BY_ROW) or (op.dialect_name() in ("arith", "math") and not op.regions):
        return list(op.results)
    return None


def cut_dimensions(access: Access) -> range:
    """The array's dimensions that the tile extends in, and may be cut in."""
    rank = len(access.indices)
    return range(rank - len(shape_of(access.tile)), rank)


def may_be_cut(access: Access, dimension: int) -> bool:
    """Whether the tile may reach beyond the array's bound in this dimension."""
    start, size = linear(access.indices[dimension]), shape_of(access.memref)[dimension]
    return bool(start.terms) or start.constant < 0 or start.constant + extents(access)[dimension] > size


def cut_alike(a: Access, b: Access) -> bool:
    """Whether b lacks all rows that a lacks: wherever a may be cut, b starts and ends at the same position.

    Up to the row: in that dimension and in those in front of it, counted from the row outwards.
    """
    row = cut_dimensions(a)[0]
    shift = cut_dimensions(b)[0] - row
    pairs = [(n, n + shift) for n in range(row + 1) if may_be_cut(a, n)]
    return all(
        j >= 0 and linear(a.indices[i]) == linear(b.indices[j]) and extent(a.memref, i) == extent(b.memref, j)
        for i, j in pairs
    )
