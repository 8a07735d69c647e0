"""Between memory and tiles: tile.load and tile.store; tile.fetch, which moves no value; single elements and
their extremes; and tile.group_rows, another numbering of an array.

Positions count elements, not tiles. The tile covers the trailing dimensions of the array from that
position on. What lies beyond the array's bound is never touched: it reads as 0 and is not written.

An array is an argument of the function, an allocation, the one numbering through which such an array is
touched, or one sequence of an argument (ir/sequences.py). There are no other views and no choices between
arrays: different values that are loaded from or stored to are different memory, and so are sequences of
different numbers; every analysis may rely on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects import func, memref
from xdsl.dialects.builtin import IndexType, MemRefType, TensorType, UnitAttr, i32, i64
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect, Pure

from flashgen.ir.sequences import PagesOp, SequenceOp
from flashgen.ir.types import NARROW, check, computed_in, element_of, f32, f64, i1, index, shape_of


@irdl_op_definition
class LoadOp(IRDLOperation):
    """`%t = tile.load %k[%b, %g, %j, %c0] (in_bounds)? : memref<?x?x?x8xf32> -> tensor<4x8xf32>`

    float16 and bfloat16 storage widens to float32. `in_bounds` says that the whole tile lies within the
    array.
    """

    name = "tile.load"
    source = operand_def(MemRefType)
    indices = var_operand_def(IndexType)
    in_bounds = opt_prop_def(UnitAttr)
    result = result_def(TensorType)
    traits = traits_def(MemoryReadEffect())
    assembly_format = (
        "$source `[` $indices `]` (`in_bounds` $in_bounds^)? attr-dict `:` type($source) `->` type($result)"
    )

    def __init__(
        self, source: SSAValue, indices: Sequence[SSAValue], result: TensorType, in_bounds: bool = False
    ):
        super().__init__(
            operands=[source, indices],
            properties={"in_bounds": UnitAttr() if in_bounds else None},
            result_types=[result],
        )

    def verify_(self) -> None:
        check_access(self)

    @property
    def memref(self) -> SSAValue:
        """The array."""
        return self.source

    @property
    def tile(self) -> SSAValue:
        """What was read."""
        return self.result


@irdl_op_definition
class StoreOp(IRDLOperation):
    """`tile.store %t, %o[%b, %h, %i, %c0] : tensor<4x8xf32>, memref<?x?x?x8xf32>`

    float32 rounds to nearest even where the storage is float16 or bfloat16.
    """

    name = "tile.store"
    value = operand_def(TensorType)
    target = operand_def(MemRefType)
    indices = var_operand_def(IndexType)
    traits = traits_def(MemoryWriteEffect())
    assembly_format = "$value `,` $target `[` $indices `]` attr-dict `:` type($value) `,` type($target)"

    def __init__(self, value: SSAValue, target: SSAValue, indices: Sequence[SSAValue]):
        super().__init__(operands=[value, target, indices])

    def verify_(self) -> None:
        check_access(self)
        own = not isinstance(self.target.owner, PagesOp)
        check(own, f"{self.name}: its array is made of pages, which other sequences may have too")

    @property
    def memref(self) -> SSAValue:
        """The array."""
        return self.target

    @property
    def tile(self) -> SSAValue:
        """What is written."""
        return self.value


@irdl_op_definition
class FetchOp(IRDLOperation):
    """`tile.fetch %k[%b, %g, %i, %c0] of tensor<4x8xf32> : memref<?x?x?x8xf32>`: this tile is wanted soon,
    so that a cache may have it by then. It has no effect on any value.

    It stands before the operation beside which a lowering may do it, little by little.
    """

    name = "tile.fetch"
    source = operand_def(MemRefType)
    indices = var_operand_def(IndexType)
    tile_type = prop_def(TensorType)
    assembly_format = "$source `[` $indices `]` `of` $tile_type attr-dict `:` type($source)"

    def __init__(self, source: SSAValue, indices: Sequence[SSAValue], tile_type: TensorType):
        super().__init__(operands=[source, indices], properties={"tile_type": tile_type})

    def verify_(self) -> None:
        rank, given = len(shape_of(self.source)), len(self.indices)
        check(given == rank, f"{self.name}: {rank} indices wanted, {given} given")
        whole = is_array(self.source) and not isinstance(self.source.owner, GroupRowsOp)
        check(whole, f"{self.name}: its array is neither an argument nor an allocation")
        matrix = len(self.tile_type.get_shape()) == 2 and rank >= 2
        check(matrix, f"{self.name}: a matrix of an array of at least two dimensions wanted")


@irdl_op_definition
class GroupRowsOp(IRDLOperation):
    """`%q_rows = tile.group_rows %q[%Hkv, %rows] : memref<?x?x?x8xf32, ...>`: an array of (B, Hq, Nq, ...) as
    (B, Hkv, rows, ...), where Hkv * rows = Hq * Nq.

    The rows of all heads of a group are numbered on: with Nq the source's extent, row n of group g is row
    n mod Nq of head g * (rows / Nq) + n div Nq. Nothing is copied; the source is touched in no other way.
    """

    name = "tile.group_rows"
    source = operand_def(MemRefType)
    heads = operand_def(IndexType)
    rows = operand_def(IndexType)
    result = result_def(MemRefType)
    traits = traits_def(Pure())
    assembly_format = "$source `[` $heads `,` $rows `]` attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, heads: SSAValue, rows: SSAValue):
        super().__init__(operands=[source, heads, rows], result_types=[source.type])

    def verify_(self) -> None:
        check(self.source.type == self.result.type, f"{self.name}: the result is typed as the array")
        shape = shape_of(self.source)
        grouped = len(shape) >= 3 and shape[1] < 0 and shape[2] < 0
        check(grouped, f"{self.name}: an array of (B, Hq, Nq, ...) wanted, Hq and Nq known at run time")
        whole = is_array(self.source) and not isinstance(self.source.owner, GroupRowsOp)
        check(whole, f"{self.name}: its array is neither an argument nor an allocation")
        others = [use.operation for use in self.source.uses if use.operation is not self]
        alone = all(isinstance(op, memref.DimOp) for op in others)
        check(alone, f"{self.name}: its array is touched in another way too")


def read_as(stored: Attribute) -> Attribute:
    """What an element of an array is where it is computed with: whole numbers are indices."""
    return {i32: index, i64: index}.get(stored, computed_in(stored))  # pyright: ignore[reportArgumentType]


def check_input(op: ElementOp | ExtremesOp) -> None:
    """The array is an argument that nothing stores to, so that reading it has no place in any order."""
    argument = isinstance(op.source.owner, Block) and is_array(op.source)
    check(argument, f"{op.name}: an array that is an argument of the function wanted")
    stored = any(isinstance(use.operation, StoreOp) for use in op.source.uses)
    check(not stored, f"{op.name}: its array is stored to")


@irdl_op_definition
class ElementOp(IRDLOperation):
    """`%x = tile.element %a[%i, %j] : memref<?x?xi32, ...> -> index`

    One element of an argument that nothing stores to: i1 of i1 (a byte in memory), index of i32 and i64, f32
    or f64 of f16, bf16 and f32, f64 of f64. Beyond the array's bounds it is 0, and memory is not touched.
    """

    name = "tile.element"
    source = operand_def(MemRefType)
    indices = var_operand_def(IndexType)
    result = result_def()
    traits = traits_def(Pure())
    assembly_format = "$source `[` $indices `]` attr-dict `:` type($source) `->` type($result)"

    def __init__(self, source: SSAValue, indices: Sequence[SSAValue], real: Attribute = f32):
        """``real``: what a float is to be, where that is wider than what is stored."""
        found = read_as(element_of(source))
        super().__init__(operands=[source, indices], result_types=[real if found == f32 else found])

    def verify_(self) -> None:
        check_input(self)
        rank = len(shape_of(self.source))
        check(len(self.indices) == rank, f"{self.name}: {rank} indices wanted, {len(self.indices)} given")
        want = read_as(element_of(self.source))
        widened = want == f32 and self.result.type == f64
        fits = self.result.type == want or widened
        check(fits, f"{self.name}: {element_of(self.source)} is read as {want}")


@irdl_op_definition
class ExtremesOp(IRDLOperation):
    """`%lo, %hi = tile.extremes %a[%i, %j] to [%m, %n] : memref<?x?xi32, ...> -> index, index`

    The least and the greatest element that tile.element finds at indices from the first to the last of a box,
    both included; of i1 whether all are true, and whether any is. A box with no index gives any two.
    """

    name = "tile.extremes"
    source = operand_def(MemRefType)
    first = var_operand_def(IndexType)
    last = var_operand_def(IndexType)
    least = result_def()
    greatest = result_def()
    traits = traits_def(Pure())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$source `[` $first `]` `to` `[` $last `]` attr-dict"
        " `:` type($source) `->` type($least) `,` type($greatest)"
    )

    def __init__(self, source: SSAValue, first: Sequence[SSAValue], last: Sequence[SSAValue]):
        element = read_as(element_of(source))
        super().__init__(operands=[source, first, last], result_types=[element, element])

    def verify_(self) -> None:
        check_input(self)
        rank = len(shape_of(self.source))
        fits = len(self.first) == len(self.last) == rank
        check(fits, f"{self.name}: a box of {rank} dimensions wanted")
        want = read_as(element_of(self.source))
        whole = want in (index, i1) and self.least.type == self.greatest.type == want
        check(whole, f"{self.name}: of whole numbers or i1, and typed as tile.element's result")


Access = LoadOp | StoreOp


def check_access(op: Access) -> None:
    """The array is one of its own, and the access's rank and element types agree with it."""
    alone = f"{op.name}: its array is neither an argument nor an allocation, so it may overlap others"
    check(is_array(op.memref), alone)
    rank, want = len(shape_of(op.memref)), len(shape_of(op.tile))
    check(len(op.indices) == rank, f"{op.name}: {rank} indices wanted, {len(op.indices)} given")
    check(want <= rank, f"{op.name}: a rank-{want} tile does not fit a rank-{rank} array")
    stored = cast(MemRefType, op.memref.type).element_type
    held = cast(TensorType, op.tile.type).element_type
    converts = stored in NARROW and held == f32
    check(stored == held or converts, f"{op.name}: {stored} in memory does not convert to {held} in a tile")


def is_array(v: SSAValue) -> bool:
    """Whether v is an argument of a function, the result of an allocation, a sequence, or numbered anew."""
    owner = v.owner
    if isinstance(owner, Block):
        function = owner.parent_op()
        return isinstance(function, func.FuncOp) and function.body.blocks.first is owner
    return isinstance(owner, memref.AllocOp | GroupRowsOp | SequenceOp | PagesOp)


def extents(op: Access) -> tuple[int, ...]:
    """How many elements the access covers in each dimension of the array."""
    lead = len(op.indices) - len(shape_of(op.tile))
    return (1,) * lead + shape_of(op.tile)
