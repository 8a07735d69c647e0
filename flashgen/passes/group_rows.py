"""group-rows: the heads of a group as more rows of one head, so that a tile of keys serves them all.

    for g { for r in [0, group) { h = g * group + r; for i in [0, Nq) { load q[b, h, i]; mask i, j; ... } } }
        ~>   rows = group * Nq;  q_rows = group_rows q[Hkv, rows]
             for g { for i in [0, rows) { load q_rows[b, g, i]; mask i, j; ... } }

A row's number n stands for query n mod Nq of head n div Nq of the group. Arrays that the loop over r
allocates for Nq queries get room for all rows. In a mask, `row < Nq` becomes `row < rows`; elsewhere its row
is n mod Nq, the query, and h is g * group + n div Nq. K and V, which no head of the group has to itself, are
loaded once for all of them.

Legal when h = g * group + r is used for nothing but masks, and the head of loads and stores whose row is the
position of a loop over all queries, in steps of the tile's rows; when that position is used for nothing else
but masks, and the arrays of each head; when all of these arrays' accesses are of this form; and when each row
of what is computed depends on its own row alone, a mask's too. r runs to Hq floordiv Hkv, where Hkv is the
number of heads, known at run time only, of an argument: every call's Hq is a multiple of that. The arrays of
all heads are known in front of all loops, sequences of them in front of those in which a sequence stays the
same; how many heads and rows they have, at run time only. It works before and after the loops are
interchanged and state is kept, not behind spans.

Not handled: loops over queries that carry values; a tile that one head has to itself, such as a bias.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import BlockArgument, Operation, SSAValue, Use

from flashgen.analysis.dependence import carried, describe, other_factor
from flashgen.analysis.extents import extent, length
from flashgen.analysis.linear import Linear, induction, inside, linear, same, step_of
from flashgen.analysis.padding import cut_dimensions, rows_meet
from flashgen.analysis.predicate import excess
from flashgen.ir.compute import DotOp, PackOp
from flashgen.ir.memory import Access, GroupRowsOp, LoadOp, extents
from flashgen.ir.provenance import claim
from flashgen.ir.regions import MaskOp, RowSpanOp
from flashgen.ir.sequences import SequenceOp
from flashgen.ir.types import shape_of
from flashgen.passes.base import TilePass
from flashgen.passes.edit import erase, insert_before, remove_dead, swap
from flashgen.passes.patterns import is_above, outermost, scalar_factor

HEAD, ROW = 1, 2
"""The dimensions of q, o and lse that are numbered anew."""


@dataclass(frozen=True)
class Group:
    """A loop over the heads of a group, and what moves with it."""

    groups: scf.ForOp
    """The loop over key heads around it."""
    heads: scf.ForOp
    top: Operation
    """The outermost loop in which arrays are the same: what is numbered anew stands in front of it."""
    numbers: list[arith.AddiOp]
    """h = g * group + r"""
    queries: list[scf.ForOp]
    """The loops over all queries."""
    arrays: list[SSAValue]
    """The arrays of all heads: q, o, lse."""
    own: dict[memref.AllocOp, int]
    """The arrays of one head: which of their dynamic sizes is Nq."""
    masks: list[MaskOp]
    in_masks: list[Use]
    """Where masks read h."""

    @property
    def length(self) -> SSAValue:
        """Nq"""
        return self.queries[0].ub

    def holds(self, array: SSAValue) -> bool:
        """Whether the rows of an array are those of one head at a time."""
        return array in self.arrays or array.owner in self.own

    def shares(self, tile: SSAValue) -> bool:
        """Whether all heads see the same tile, and its rows may differ."""
        if isinstance(tile.owner, LoadOp):
            return not self.holds(tile.owner.memref)
        return not inside(tile, self.heads) and scalar_factor(tile) is None


@dataclass(frozen=True)
class GroupRowsPass(TilePass[Group]):
    name = "group-rows"

    def match(self, module: ModuleOp) -> Group:
        found = [pair for op in module.walk() if isinstance(op, scf.ForOp) and (pair := heads_of(op))]
        if len(found) != 1:
            self.refuse(module, f"{len(found) or 'no'} loops over the heads of a group; one is wanted")
        groups, heads = found[0]
        numbers = [op for use in induction(heads).uses if isinstance(op := use.operation, arith.AddiOp)]
        top = outermost(groups, sequences(numbers))
        self.check_range(groups, heads, top)
        if what := carried(heads):
            self.refuse(heads, f"{describe(what[0])} carries a dependence from one head to another")
        group = Group(groups, heads, top, numbers, [], [], {}, [], [])
        self.find_arrays(group)
        for op in heads.walk():
            if isinstance(op, memref.AllocOp):
                self.check_own(op, group)
        for loop in group.queries:
            self.check_queries(loop, group)
        for op in heads.walk():
            self.check_rows(op, group)
        return group

    def check_range(self, groups: scf.ForOp, heads: scf.ForOp, top: Operation) -> None:
        """Both loops visit all of their range, which is known in front of all loops."""
        for loop in (groups, heads):
            if linear(loop.lb) != Linear() or step_of(loop) != 1 or loop.iter_args:
                self.refuse(loop, "a loop from 0 in steps of 1 that carries nothing is wanted")
            if not is_above(loop.ub, top):
                self.refuse(loop, "its range is not known in front of all loops")

    def find_arrays(self, group: Group) -> None:
        """The arrays that h numbers heads of, and the loops whose positions are their rows."""
        for number in group.numbers:
            for use in number.results[0].uses:
                op = use.operation
                if isinstance(op.parent_op(), MaskOp):
                    group.in_masks.append(use)
                    continue
                if not isinstance(op, Access) or index_of(use) != HEAD or len(op.indices) <= ROW:
                    self.refuse(op, "uses the number of a head otherwise than to load or store its rows")
                self.check_access(op, ROW, group)
                if op.memref not in group.arrays:
                    group.arrays.append(op.memref)
        if not group.arrays:
            self.refuse(group.heads, "no array has a head for each of its positions")
        for array in group.arrays:
            if max(shape_of(array)[HEAD : ROW + 1]) >= 0:
                self.refuse(group.heads, f"{describe(array)} has a constant number of heads or rows")
            if not counts_heads(group, array):
                self.refuse(
                    group.heads, f"its range is not known to be the heads of {describe(array)} a group"
                )
            if not is_above(array, group.top):
                self.refuse(group.heads, f"{describe(array)} is not known in front of all loops")
            for use in array.uses:
                op = use.operation
                ours = isinstance(op, Access) and op.indices[HEAD].owner in group.numbers
                if not ours and not isinstance(op, memref.DimOp):
                    self.refuse(op, f"touches {describe(array)} otherwise than by the rows of a head")

    def check_access(self, op: Access, dimension: int, group: Group) -> None:
        """A tile's rows are those of the array, from the position of a loop over all queries on."""
        position = op.indices[dimension]
        loop = position.owner.parent_op() if isinstance(position, BlockArgument) else None
        if not isinstance(loop, scf.ForOp) or position is not induction(loop):
            self.refuse(op, "its row is not the position of a loop over queries")
        if cut_dimensions(op)[:1] != range(dimension, dimension + 1):
            self.refuse(op, "its tile has no row for each query")
        if extents(op)[dimension] != step_of(loop):
            self.refuse(op, "has other rows than the loop over queries has in a step")
        if length(loop.ub) != extent(op.memref, dimension) or not group.heads.is_ancestor(loop):
            self.refuse(loop, "it does not run over the queries of one head")
        if loop not in group.queries:
            group.queries.append(loop)

    def check_queries(self, loop: scf.ForOp, group: Group) -> None:
        """Its position counts queries and nothing else."""
        if linear(loop.lb) != Linear() or loop.iter_args:
            self.refuse(loop, "a loop from 0 that carries nothing is wanted")
        if not same(loop.ub, group.length) or not is_above(loop.ub, group.top):
            self.refuse(loop, "its range is another one, or not known in front of all loops")
        if any(loop is not other and loop.is_ancestor(other) for other in group.queries):
            self.refuse(loop, "holds another loop over queries")
        for use in induction(loop).uses:
            op = use.operation
            if isinstance(op, MaskOp) and use.index == 0:
                group.masks.append(op)
            elif not isinstance(op, Access) or not cut_dimensions(op) or index_of(use) != row_of(op):
                self.refuse(op, "uses the number of a query otherwise than as a row")
            elif not group.holds(op.memref):
                self.refuse(op, f"reads or writes rows of {describe(op.memref)}, which has no heads")

    def check_rows(self, op: Operation, group: Group) -> None:
        """What is in the loop over heads works row by row, on rows that are numbered by queries."""
        if isinstance(op, RowSpanOp) or (isinstance(op, MaskOp) and op not in group.masks):
            self.refuse(op, "its rows are not numbered by a loop over queries")
        for n, v in enumerate(op.operands):
            if isinstance(v.type, TensorType) and not is_right_side(op, n) and group.shares(v):
                tile = v.owner.memref if isinstance(v.owner, LoadOp) else v
                self.refuse(op, f"reads rows of {describe(tile)}, which are the same for all heads")
        if isinstance(op, MaskOp):
            tile, first = op.result, op.row
        elif isinstance(op, LoadOp) and group.holds(op.memref):
            tile, first = op.memref, position(op)
        else:
            return
        if where := rows_meet(op.result, lambda store: position(store) is first):
            self.refuse(where, f"rows of {describe(tile)} meet here, which may be of different heads")

    def check_own(self, alloc: memref.AllocOp, group: Group) -> None:
        """Each access is to the rows from a query on, in the same dimension."""
        touching: list[Access] = []
        for use in alloc.memref.uses:
            op = use.operation
            if not isinstance(op, Access) or not cut_dimensions(op):
                self.refuse(op, f"uses {describe(alloc.memref)} otherwise than to load or store its rows")
            touching.append(op)
        rows = {row_of(op) for op in touching}
        if len(rows) != 1:
            self.refuse(alloc, "its accesses do not agree on a dimension for queries")
        (row,) = rows
        for op in touching:
            self.check_access(op, row, group)
        dynamic = [n for n, size in enumerate(alloc.memref.type.get_shape()) if size < 0]
        if row not in dynamic:
            self.refuse(alloc, "it has a constant number of rows")
        group.own[alloc] = dynamic.index(row)

    def rewrite(self, module: ModuleOp, match: Group) -> None:
        top = match.top
        rows = arith.MuliOp(match.heads.ub, match.length)
        rows.result.name_hint = "rows"
        insert_before(top, rows)
        for mask in match.masks:
            renumber_mask(mask, match.length, rows.result)
            renumber_head(mask, match)
        for array in sorted(match.arrays, key=place_of):
            self.renumber(array, rows.result, match.groups, top)
        for alloc, n in match.own.items():
            alloc.operands[n] = rows.result
        for loop in match.queries:
            loop.operands[1] = rows.result
        for op in (*match.masks, *match.own, *match.queries):
            claim(op, self.name)
        erase(*match.numbers)
        *body, _ = match.heads.body.block.ops
        insert_before(match.heads, *body)
        erase(match.heads)
        remove_dead(module)

    def renumber(self, array: SSAValue, rows: SSAValue, groups: scf.ForOp, top: Operation) -> None:
        """Touch the array through a numbering of its own."""
        grouped = GroupRowsOp(array, groups.ub, rows)
        grouped.result.name_hint = f"{array.name_hint}_rows" if array.name_hint else None
        uses = [use for use in array.uses if isinstance(use.operation, Access)]
        insert_before(top, grouped)
        for use in uses:
            op = use.operation
            op.operands[use.index] = grouped.result
            op.operands[use.index + 1 + HEAD] = induction(groups)
            claim(op, self.name)


def sequences(numbers: Sequence[arith.AddiOp]) -> list[SSAValue]:
    """The arrays, of those that these numbers are heads of, that are one sequence of many."""
    touching = [use.operation for number in numbers for use in number.result.uses]
    arrays = [op.memref for op in touching if isinstance(op, Access)]
    return [array for array in arrays if isinstance(array.owner, SequenceOp)]


def counts_heads(group: Group, array: SSAValue) -> bool:
    """Whether the loop over r runs to Hq floordiv Hkv; every call's Hq is a multiple of its Hkv."""
    count = group.heads.ub.owner
    if not isinstance(count, arith.FloorDivSIOp) or not same(count.rhs, group.groups.ub):
        return False
    return length(count.lhs) == extent(array, HEAD) and is_number_of_heads(count.rhs)


def place_of(array: SSAValue) -> int:
    """Of the argument that an array is, or is a sequence of; -1 of another."""
    whole = array.owner.source if isinstance(array.owner, SequenceOp) else array
    return whole.index if isinstance(whole, BlockArgument) else -1


def is_number_of_heads(v: SSAValue) -> bool:
    """Whether v is the run-time number of heads of an array that the function is given.

    No other number is known to divide Hq: of heads that it leaves over, none would be numbered anew.
    """
    op = v.owner
    if not isinstance(op, memref.DimOp) or not isinstance(op.source, BlockArgument):
        return False
    uses = [use for use in op.source.uses if isinstance(use.operation, SequenceOp)]
    lead = 1 if any(use.index == 0 for use in uses) else 0  # (H, total, ...), not (B, H, N, ...)
    shape, head = shape_of(op.source), HEAD - lead
    return len(shape) > ROW - lead and shape[head] < 0 and linear(op.index) == Linear({}, head)


def renumber_mask(mask: MaskOp, length: SSAValue, rows: SSAValue) -> None:
    """row < Nq ~> row < rows;  any other row ~> row mod Nq"""
    row = mask.body.block.args[0]
    bound = linear(row).plus(linear(length), -1).offset(1)
    bounds = [op for op in mask.body.block.ops if op.results and excess(op.results[0], mask) == bound]
    others = [use for use in row.uses if use.operation not in bounds]
    for op in bounds:
        swap(op, arith.CmpiOp(row, rows, "slt"))
    if others:
        query = arith.RemSIOp(row, length)
        query.result.name_hint = "query"
        first = mask.body.block.first_op
        assert first is not None
        insert_before(first, query)
        for use in others:
            use.operation.operands[use.index] = query.result


def renumber_head(mask: MaskOp, group: Group) -> None:
    """g * group + r ~> g * group + row div Nq"""
    uses = [use for use in group.in_masks if use.operation.parent_op() is mask]
    if not uses:
        return
    first = mask.body.block.first_op
    assert first is not None
    number, r = group.numbers[0], induction(group.heads)
    which = arith.FloorDivSIOp(mask.body.block.args[0], group.length)
    head = arith.AddiOp(number.rhs if number.lhs is r else number.lhs, which)
    head.result.name_hint = number.result.name_hint
    insert_before(first, which, head)
    for use in uses:
        use.operation.operands[use.index] = head.result


def is_right_side(op: Operation, n: int) -> bool:
    """Whether an operand is the right side of a product, or becomes it."""
    return (isinstance(op, DotOp) and n == 1) or isinstance(op, PackOp)


def position(op: Access) -> SSAValue:
    """The row of the array at which the tile begins."""
    return op.indices[row_of(op)]


def index_of(use: Use) -> int:
    """Which index of a load or store an operand is; negative of another operand."""
    op = use.operation
    assert isinstance(op, Access)
    return use.index - (len(op.operands) - len(op.indices))


def row_of(op: Access) -> int:
    """The array's dimension in which the tile has its rows."""
    return cut_dimensions(op)[0]


def heads_of(loop: scf.ForOp) -> tuple[scf.ForOp, scf.ForOp] | None:
    """The loop over g and the loop over r, where r is used for nothing but g * group + r."""
    around = [groups_of(use.operation, loop) for use in induction(loop).uses]
    first = around[0] if around else None
    return (first, loop) if first is not None and all(up is first for up in around) else None


def groups_of(number: Operation, heads: scf.ForOp) -> scf.ForOp | None:
    """The loop over g, of g * group + r."""
    if not isinstance(number, arith.AddiOp):
        return None
    first = number.rhs if number.lhs is induction(heads) else number.lhs
    up = heads.parent_op()
    while isinstance(up, scf.ForOp):
        group = other_factor(first, induction(up))
        if group is not None and same(group, heads.ub):
            return up
        up = up.parent_op()
    return None
