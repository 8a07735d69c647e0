"""Sequences of different lengths: tile.sequence and tile.pages, of all of them the array of one.

Both give a batch of one, (1, H, N, ...), in which a row's number counts from the sequence's start and whose
bound is the sequence's own length. So what is said of (B, H, N, ...) holds of each sequence: what lies beyond
its bound, another sequence's rows or the rest of a page, is never touched.

    for b { k_b = tile.sequence k, starts[b]; Nk = dim k_b, 2; for j in [0, Nk) { load k_b[0, g, j, 0] } }
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import memref
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, MemRefType, StridedLayoutAttr
from xdsl.ir import Block, Operation, SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, result_def, traits_def
from xdsl.traits import Pure

from flashgen.ir.types import check, element_of, i32, shape_of


@irdl_op_definition
class SequenceOp(IRDLOperation):
    """`%q_b = tile.sequence %q, %starts[%b] : memref<?x?x8xf32>, memref<?xi32> -> memref<1x?x?x8xf32>`: of an
    array (H, total, ...), in which sequences lie one behind the other, sequence b as (1, H, N, ...).

    It has the rows from starts[b] up to starts[b + 1]: nothing but these may be touched, and of different
    sequences they are different rows, since a caller's starts never fall and end within the array. Nothing is
    copied; the source is touched in no other way, but that another sequence of it may be fetched, and nobody
    stores the starts.
    """

    name = "tile.sequence"
    source = operand_def(MemRefType)
    starts = operand_def(MemRefType)
    number = operand_def(IndexType)
    result = result_def(MemRefType)
    traits = traits_def(Pure())
    assembly_format = (
        "$source `,` $starts `[` $number `]` attr-dict `:` type($source) `,` type($starts) `->` type($result)"
    )

    def __init__(self, source: SSAValue, starts: SSAValue, number: SSAValue):
        shape = (1, *shape_of(source))
        super().__init__(operands=[source, starts, number], result_types=[one_of(source, shape)])

    def verify_(self) -> None:
        shape = shape_of(self.source)
        rows = len(shape) >= 2 and shape[1] < 0
        check(rows, f"{self.name}: an array of (H, total, ...) wanted, its total known at run time")
        check_result(self, (1, *shape))
        check_table(self, self.starts, 1)


@irdl_op_definition
class PagesOp(IRDLOperation):
    """`%k_b = tile.pages %k, %table, %lengths[%b] : memref<?x?x?x8xf32>, memref<?x?xi32>, memref<?xi32>
        -> memref<1x?x?x8xf32>`: of an array (pages, H, slots, ...) the sequence b, as (1, H, N, ...).

    N is lengths[b]; row n lies in page table[b, n div slots], slot n mod slots. Pages may stand in any order
    and belong to several sequences, so that nobody may store here. Nothing is copied; the source is touched
    in no other way, but that another sequence of it may be fetched, and nobody stores the table and the
    lengths.
    """

    name = "tile.pages"
    source = operand_def(MemRefType)
    table = operand_def(MemRefType)
    lengths = operand_def(MemRefType)
    number = operand_def(IndexType)
    result = result_def(MemRefType)
    traits = traits_def(Pure())
    assembly_format = (
        "$source `,` $table `,` $lengths `[` $number `]` attr-dict `:` type($source) `,` type($table) `,`"
        " type($lengths) `->` type($result)"
    )

    def __init__(self, source: SSAValue, table: SSAValue, lengths: SSAValue, number: SSAValue):
        shape = (1, *shape_of(source)[1:])
        super().__init__(operands=[source, table, lengths, number], result_types=[one_of(source, shape)])

    def verify_(self) -> None:
        shape = shape_of(self.source)
        slots = len(shape) >= 3 and shape[0] < 0 and shape[2] < 0
        check(slots, f"{self.name}: an array of (pages, H, slots, ...) wanted, both known at run time")
        check_result(self, (1, *shape[1:]))
        check_table(self, self.table, 2)
        check_table(self, self.lengths, 1)


def one_of(source: SSAValue, shape: Sequence[int]) -> MemRefType:
    """The type of one sequence of an array, of that shape."""
    assert isinstance(source.type, MemRefType)
    sizes = [DYNAMIC_INDEX if n < 0 else n for n in shape]
    if not isinstance(source.type.layout, StridedLayoutAttr):
        return MemRefType(element_of(source), sizes)
    return MemRefType(element_of(source), sizes, StridedLayoutAttr([None] * len(sizes), 0))


def check_result(op: SequenceOp | PagesOp, shape: Sequence[int]) -> None:
    """The result is of that shape and typed as the array, which is an argument that nothing else touches.

    A sequence that is fetched, and nothing else, is not touched by that.
    """
    same = shape_of(op.result) == tuple(shape) and element_of(op.result) == element_of(op.source)
    check(same, f"{op.name}: the result is a batch of one, typed as the array")
    check(isinstance(op.source.owner, Block), f"{op.name}: its array is no argument")
    others = [use.operation for use in op.source.uses if use.operation is not op]
    alone = fetched(op) or all(isinstance(other, memref.DimOp) or fetched(other) for other in others)
    check(alone, f"{op.name}: its array is touched in another way too")


def fetched(op: Operation) -> bool:
    """Whether it is a sequence that has no use but to be fetched."""
    users = {use.operation.name for use in op.results[0].uses} if op.results else set()
    # by its name: flashgen.ir.memory, which has the operation, imports this file
    return isinstance(op, SequenceOp | PagesOp) and users == {"tile.fetch"}


def check_table(op: SequenceOp | PagesOp, table: SSAValue, rank: int) -> None:
    """Numbers that the caller gives, of that many dimensions, which nothing but these operations reads."""
    given = isinstance(table.owner, Block) and len(shape_of(table)) == rank and element_of(table) == i32
    check(given, f"{op.name}: starts, tables and lengths are arguments of type i32, of rank {rank}")
    read = all(isinstance(use.operation, memref.DimOp | SequenceOp | PagesOp) for use in table.uses)
    check(read, f"{op.name}: its starts, table or lengths are touched in another way too")
