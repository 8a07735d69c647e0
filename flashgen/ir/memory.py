"""Between memory and tiles: tile.load and tile.store.

Positions count elements, not tiles. The tile covers the trailing dimensions of the array from that
position on. What lies beyond the array's bound is never touched: it reads as 0 and is not written.

An array is an argument of the function or an allocation. There are no views and no choices between arrays:
different values are different memory, and every analysis may rely on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from xdsl.dialects import func, memref
from xdsl.dialects.builtin import IndexType, MemRefType, TensorType, UnitAttr
from xdsl.ir import Block, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_prop_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.traits import MemoryReadEffect, MemoryWriteEffect

from flashgen.ir.types import NARROW, check, f32, shape_of


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

    @property
    def memref(self) -> SSAValue:
        """The array."""
        return self.target

    @property
    def tile(self) -> SSAValue:
        """What is written."""
        return self.value


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
    """Whether v is an argument of a function or the result of an allocation."""
    owner = v.owner
    if isinstance(owner, Block):
        function = owner.parent_op()
        return isinstance(function, func.FuncOp) and function.body.blocks.first is owner
    return isinstance(owner, memref.AllocOp)


def extents(op: Access) -> tuple[int, ...]:
    """How many elements the access covers in each dimension of the array."""
    lead = len(op.indices) - len(shape_of(op.tile))
    return (1,) * lead + shape_of(op.tile)
