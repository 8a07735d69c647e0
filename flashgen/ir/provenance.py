"""Which passes made an operation: a discardable attribute, kept by printing, parsing and cloning.

It holds the passes' names in the order in which they acted. What has none is as FlashAttention-1 was
stated. The pass driver signs what is new after a pass. A pass signs what it changes in place itself
(``claim``), and says of which operations a new one takes over the work (``inherit``).
"""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import ModuleOp, StringAttr, TensorType, UnitAttr
from xdsl.ir import Operation
from xdsl.traits import IsTerminator

from flashgen.ir.regions import MaskOp, RowSpanOp, SweepOp

ELEMENT_BY_ELEMENT = (MaskOp, RowSpanOp, SweepOp)
"""The makers of what is in their regions are their own."""

ATTRIBUTE = "made_by"
STATED = "build"
"""What a copy of an operation without passes carries, so that it is not taken for new."""
INHERITED = "made_by.inherited"
"""On a new operation that has its predecessors' passes already, until the driver adds the present one."""


def made_by(op: Operation) -> tuple[str, ...]:
    """The names of the passes that made op what it is; () of what is as stated."""
    stamp = op.attributes.get(ATTRIBUTE)
    names = stamp.data.split(", ") if isinstance(stamp, StringAttr) else []
    return tuple(name for name in names if name != STATED)


def claim(op: Operation, name: str) -> None:
    """Say that the pass of this name changed op."""
    write(op, (*made_by(op), name))


def inherit(new: Operation, olds: Iterable[Operation]) -> None:
    """Say that ``new`` does what ``olds`` did: their passes made it too."""
    write(new, (name for old in olds for name in made_by(old)))
    new.attributes[INHERITED] = UnitAttr()


def keep(copy: Operation, original: Operation) -> None:
    """Say that a copy, with all that is in it, is as its original is."""
    for mine, theirs in zip(copy.walk(), original.walk(), strict=True):
        if not made_by(theirs) and signed(theirs):
            mine.attributes[ATTRIBUTE] = StringAttr(STATED)


def write(op: Operation, names: Iterable[str]) -> None:
    unique = dict.fromkeys(names)
    op.attributes.pop(ATTRIBUTE, None)
    if unique:
        op.attributes[ATTRIBUTE] = StringAttr(", ".join(unique))


def signed(op: Operation) -> bool:
    """Whether op becomes text worth a remark: loops, memory, tiles, and numbers that have a name."""
    if op.has_trait(IsTerminator) or isinstance(op, arith.ConstantOp):
        return False
    values = (*op.operands, *op.results)
    tiles = any(isinstance(v.type, TensorType) for v in values)
    named = any(v.name_hint for v in op.results) and not isinstance(op.parent_op(), ELEMENT_BY_ELEMENT)
    return bool(op.regions) or isinstance(op, memref.AllocOp) or tiles or named


def sign(module: ModuleOp, before: set[Operation], name: str) -> None:
    """Claim for a pass what was not there before it and that nobody has claimed."""
    for op in module.walk():
        inherited = op.attributes.pop(INHERITED, None) is not None
        fresh = op not in before and ATTRIBUTE not in op.attributes
        if signed(op) and (inherited or fresh):
            claim(op, name)
