"""Which extents of arrays are surely equal.

A function's arguments may say so by a name for each of their dimensions,

    func.func @attention(%q: memref<...> {tile.extents = ["B", "Hq", "Nq", "D"]}, ...)

which the caller has to honour: extents of one name are equal. A workspace has the extents that it was
allocated with, an array whose rows are grouped those that it was given. A sequence has a length of its own,
in all arrays in which the same starts, or the same lengths, tell the sequences apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects import func, memref
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, StringAttr
from xdsl.ir import BlockArgument, SSAValue

from flashgen.analysis.linear import Linear, linear
from flashgen.ir.memory import GroupRowsOp
from flashgen.ir.sequences import PagesOp, SequenceOp
from flashgen.ir.types import shape_of

ATTRIBUTE = "tile.extents"
ROW = 2
"""The dimension of a sequence, (1, H, N, ...), that counts its rows."""

Extent = Linear | str | tuple[SSAValue, int | Linear]
"""A length: a linear form (a number, an allocation's size), a name, what is only known as itself (an array's
dimension), or that of a sequence (the array that says where it starts, or its length, and its number)."""


def name_extents(function: func.FuncOp, names: Sequence[Sequence[str]]) -> None:
    """Name the dimensions of the function's arguments; () for one that is no array."""
    attributes = [{ATTRIBUTE: ArrayAttr([StringAttr(n) for n in own])} if own else {} for own in names]
    function.properties["arg_attrs"] = ArrayAttr([DictionaryAttr(a) for a in attributes])


def names_of(array: SSAValue) -> list[str] | None:
    """The names of a function argument's dimensions, if it has any."""
    if not isinstance(array, BlockArgument):
        return None
    function = array.owner.parent_op()
    if not isinstance(function, func.FuncOp) or function.arg_attrs is None:
        return None
    names = function.arg_attrs.data[array.index].data.get(ATTRIBUTE)
    return [cast(StringAttr, n).data for n in names] if isinstance(names, ArrayAttr) else None


def extent(array: SSAValue, dimension: int) -> Extent:
    """The length of an array's dimension; equal results are equal lengths."""
    static = shape_of(array)[dimension]
    if static >= 0:
        return Linear({}, static)
    if isinstance(array.owner, memref.AllocOp):
        position = sum(n < 0 for n in shape_of(array)[:dimension])
        return length(array.owner.dynamic_sizes[position])
    if isinstance(array.owner, GroupRowsOp):
        known = {1: array.owner.heads, 2: array.owner.rows}
        return length(known[dimension]) if dimension in known else extent(array.owner.source, dimension)
    if isinstance(array.owner, SequenceOp | PagesOp):
        return extent_of_sequence(array.owner, dimension)
    names = names_of(array)
    return names[dimension] if names else (array, dimension)


def extent_of_sequence(op: SequenceOp | PagesOp, dimension: int) -> Extent:
    """As ``extent``: its rows are counted by dimension 2, the others are those of the whole array."""
    if dimension == ROW:
        return op.starts if isinstance(op, SequenceOp) else op.lengths, linear(op.number)
    return extent(op.source, dimension - 1 if isinstance(op, SequenceOp) else dimension)


def length(v: SSAValue) -> Extent:
    """The length that an index value is; as `extent` says it where v is an array's dimension."""
    op = v.owner
    if isinstance(op, memref.DimOp):
        which = linear(op.index)
        if not which.terms:
            return extent(op.source, which.constant)
    return linear(v)
