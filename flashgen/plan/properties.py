"""What the plan asks of a single operation: what it says of itself, and how often a region does it."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import BlockArgument, Operation
from xdsl.traits import IsTerminator

from flashgen.ir.compare import PREDICATES, CompareOp
from flashgen.ir.compute import HoldOp, ReplaceOp
from flashgen.ir.regions import MaskOp, RowSpanOp, SweepOp
from flashgen.plan.model import Operand
from flashgen.plan.storage import element_name

EACH = (MaskOp, RowSpanOp, SweepOp)
"""Operations whose region is done for each row, or each element."""


def level_of(op: Operation) -> int:
    """Of an operation in a mask's region: 0 if it needs neither row nor column, 1 the row alone, else 2."""
    block = op.parent
    assert block is not None
    if op.has_trait(IsTerminator):
        return 2
    levels = [0]
    for v in op.operands:
        if isinstance(v, BlockArgument) and v.owner is block:
            levels.append(v.index + 1)
        elif isinstance(v.owner, Operation) and v.owner.parent is block:
            levels.append(level_of(v.owner))
    return max(levels)


def crosses(op: Operation) -> bool:
    """Whether op is done less often than what reads it in a region, which is done for each row or element."""
    readers = [use.operation for use in op.results[0].uses]
    if any(isinstance(r.parent_op(), EACH) and r.parent is not op.parent for r in readers):
        return True
    return isinstance(op.parent_op(), MaskOp) and any(level_of(r) != level_of(op) for r in readers)


def attributes(op: Operation) -> dict[str, object]:
    """What an operation says of itself in its properties: plain values, and numbers as constants."""
    match op:
        case arith.CmpiOp() | arith.CmpfOp():
            return {"predicate": op.predicate.value.data}
        case CompareOp():
            return {"predicate": PREDICATES[op.predicate.data]}
        case ReplaceOp():
            return {"from_": number(op.from_), "to": number(op.to)}
        case HoldOp():
            return {"by": number(op.by)}
    return {}


def number(x: FloatAttr) -> Operand:
    """A number that an operation states, as a constant of its type."""
    value = x.value.data
    return Operand("constant", str(value), (), element_name(x.type), value=value)
