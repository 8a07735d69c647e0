"""Which pass made an operation: a discardable attribute, kept by printing, parsing and cloning.

The pass driver stamps what is new after a pass; a pass that changes an operation's meaning in place, or
clones one into something else, claims it. What carries no stamp was built with FlashAttention-1.
"""

from __future__ import annotations

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType
from xdsl.ir import Operation
from xdsl.traits import IsTerminator

ATTRIBUTE = "made_by"
BUILD = "build"


def made_by(op: Operation) -> str:
    """The name of the pass that made op; "build" if none did."""
    stamp = op.attributes.get(ATTRIBUTE)
    return stamp.data if isinstance(stamp, StringAttr) else BUILD


def claim(op: Operation, name: str) -> None:
    """Say that the pass of this name made op what it is now."""
    op.attributes[ATTRIBUTE] = StringAttr(name)


def visible(op: Operation) -> bool:
    """Whether op becomes a statement worth a remark: loops, memory, and what is done to tiles."""
    if op.has_trait(IsTerminator) or isinstance(op, arith.ConstantOp):
        return False
    values = (*op.operands, *op.results)
    return (
        bool(op.regions)
        or isinstance(op, memref.AllocOp)
        or any(isinstance(v.type, TensorType) for v in values)
    )


def stamp(module: ModuleOp, before: set[Operation], name: str) -> None:
    """Claim for a pass every operation that was not there before it and that nobody has claimed."""
    for op in module.walk():
        if op not in before and ATTRIBUTE not in op.attributes and visible(op):
            claim(op, name)
