"""fuse-sweeps: what is done to the elements of a row is done in one pass over it.

    s = select visible, x, -inf;  m = row_max s          ~>   s, m = sweep visible, x reduce max
    d = s - broadcast b;  p = exp2 d;  l = row_sum p     ~>   p, l = sweep s, b reduce add

For each row reduction: the elementwise operations of its block that its operand is made of, and those that
round one of them to a narrower type. A broadcast becomes the row's scalar, or a scalar of the program. What
others read too is a result of the sweep.

With ``apart`` a sweep is the reduction alone, and each operation below it goes over the whole tile by itself:
what fusing them is worth can so be measured.

Legal always: every operation is pure and per element. Other passes match the named operations, so this
one runs behind them.

Not handled: an element that something above the reduction reads; a row of nothing but broadcasts, from which
a sweep could not tell how many elements it has (both refused).
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, Region, SSAValue

from flashgen.ir.compare import CompareOp
from flashgen.ir.compute import RowMaxOp, RowReduction, RowSumOp, SelectOp
from flashgen.ir.provenance import inherit
from flashgen.ir.regions import SweepOp, YieldOp
from flashgen.ir.types import element_of, shape_of
from flashgen.passes.base import TilePass
from flashgen.passes.edit import erase, insert_before, remove_dead
from flashgen.passes.patterns import ELEMENTWISE, unbroadcast


@dataclass(frozen=True)
class Row:
    """A reduction, the elementwise operations below it in order, and those of them that others read."""

    reduction: RowReduction
    ops: tuple[Operation, ...]
    escaping: tuple[SSAValue, ...]


@dataclass(frozen=True)
class FuseSweepsPass(TilePass[list[Row]]):
    """``apart``: leave out of a sweep what its reduction does not do itself."""

    name = "fuse-sweeps"
    apart: bool = False

    def match(self, module: ModuleOp) -> list[Row]:
        rows: list[Row] = []
        taken: set[Operation] = set()
        for op in module.walk():
            if isinstance(op, RowMaxOp | RowSumOp):
                rows.append(self.row(op, taken))
                taken.update(rows[-1].ops)
        if not rows:
            self.refuse(module, "no row reduction")
        return rows

    def row(self, reduction: RowReduction, taken: set[Operation]) -> Row:
        ops = () if self.apart else with_rounding(feeding(reduction, taken))
        inner = {*ops, reduction}
        escaping = tuple(
            op.results[0] for op in ops if any(u.operation not in inner for u in op.results[0].uses)
        )
        block = reduction.parent
        assert block is not None
        for value in escaping:
            for use in value.uses:
                place = block.find_ancestor_op_in_block(use.operation)
                if use.operation not in inner and place is not None and place.is_before_in_block(reduction):
                    self.refuse(use.operation, "reads an element above the reduction that it would come from")
        read = [reduction.operand, *(v for op in ops for v in op.operands)]
        inputs = [unbroadcast(v) for v in read if v.owner not in ops]
        if not escaping and all(len(shape_of(v)) < 2 for v in inputs):
            self.refuse(
                reduction, "its operand is made of broadcasts alone, which have no columns of their own"
            )
        return Row(reduction, ops, escaping)

    def rewrite(self, module: ModuleOp, match: list[Row]) -> None:
        for row in match:
            fuse(row)
        remove_dead(module)


def feeding(reduction: RowReduction, taken: set[Operation]) -> tuple[Operation, ...]:
    """Elementwise operations of its block that the operand is made of, in order."""
    found: set[Operation] = set()
    todo = [reduction.operand.owner]
    while todo:
        op = todo.pop()
        if isinstance(op, ELEMENTWISE) and op not in found | taken:
            found.add(op)
            todo += [v.owner for v in op.operands]
    block = reduction.parent
    assert block is not None
    return tuple(op for op in block.ops if op in found)


def with_rounding(ops: tuple[Operation, ...]) -> tuple[Operation, ...]:
    """These and, behind them, what rounds their results in their block."""
    uses = [use.operation for op in ops for use in op.results[0].uses]
    found = [user for user in uses if isinstance(user, arith.TruncFOp) and user.parent is ops[0].parent]
    return (*ops, *dict.fromkeys(found))


def fuse(row: Row) -> None:
    body = Block()
    inputs: list[SSAValue] = []
    scalar: dict[SSAValue, SSAValue] = {}

    def element(v: SSAValue) -> SSAValue:
        """What the region reads for a tile."""
        if v in scalar:
            return scalar[v]
        source = unbroadcast(v)
        if not isinstance(source.type, TensorType):
            return source
        if source not in scalar:
            inputs.append(source)
            scalar[source] = body.insert_arg(element_of(source), len(body.args))
            scalar[source].name_hint = source.name_hint
        return scalar[source]

    for op in row.ops:
        new = of_elements(op, [element(v) for v in op.operands])
        body.add_op(new)
        new.results[0].name_hint = op.results[0].name_hint
        scalar[op.results[0]] = new.results[0]
    outs = [*row.escaping, row.reduction.result]
    last = element(row.reduction.operand)
    body.add_op(YieldOp(*(scalar[v] for v in row.escaping), last))
    sweep = SweepOp(
        inputs, [kind_of(row.reduction)], Region(body), [v.type for v in outs], row.reduction.over
    )
    insert_before(row.reduction, sweep)
    inherit(sweep, [*row.ops, row.reduction])
    for old, new_value in zip(outs, sweep.outs, strict=True):
        new_value.name_hint = old.name_hint
        old.replace_all_uses_with(new_value)
    erase(row.reduction, *reversed(row.ops))


def of_elements(op: Operation, operands: list[SSAValue]) -> Operation:
    """The operation on one element of each tile."""
    if isinstance(op, CompareOp):
        left, right = operands
        return arith.CmpfOp(left, right, op.predicate.data)
    kind = arith.SelectOp if isinstance(op, SelectOp) else type(op)
    result = [element_of(op.results[0])]
    return kind.create(operands=operands, result_types=result, properties=dict(op.properties))


def kind_of(reduction: RowReduction) -> str:
    if isinstance(reduction, RowMaxOp):
        return "max" if reduction.drop_nan is None else "maxnum"
    return "add"
