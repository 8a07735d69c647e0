"""What a value is: looked at by the passes' matches, whatever it is called and wherever it stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.dialects import arith, math, scf
from xdsl.dialects.builtin import FloatAttr, ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue, Use

from flashgen.ir.compare import CompareOp
from flashgen.ir.compute import BroadcastOp, DotOp, ReplaceOp, SelectOp
from flashgen.ir.regions import MaskOp
from flashgen.ir.types import NEG_INF, element_of, i1

ELEMENTWISE = (
    arith.AddfOp,
    arith.SubfOp,
    arith.MulfOp,
    arith.DivfOp,
    arith.MaximumfOp,
    arith.MinimumfOp,
    arith.AndIOp,
    arith.OrIOp,
    math.AbsFOp,
    math.ExpOp,
    math.Exp2Op,
    math.LogOp,
    math.TanhOp,
    CompareOp,
    SelectOp,
)
"""What scores and weights are made of, element by element."""


def unbroadcast(v: SSAValue) -> SSAValue:
    """What a tile repeats; v itself where it is not a broadcast."""
    return v.owner.operand if isinstance(v.owner, BroadcastOp) else v


def splat(v: SSAValue) -> float | None:
    """The constant that v is, or that v is filled with."""
    op = unbroadcast(v).owner
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr):
        return op.value.value.data
    return None


def scalar_factor(v: SSAValue) -> SSAValue | None:
    """The scalar that the tile v is filled with."""
    inner = unbroadcast(v)
    return None if inner is v or isinstance(inner.type, TensorType) else inner


def row_factor(v: SSAValue) -> SSAValue | None:
    """The tile of one value a row that v repeats along the rows."""
    inner = unbroadcast(v)
    return None if inner is v or not isinstance(inner.type, TensorType) else inner


def unrounded(v: SSAValue) -> SSAValue:
    """What a tile was before it was rounded to a narrower type; v itself where it was not."""
    op = v.owner
    return op.input if isinstance(op, arith.TruncFOp) and isinstance(v.type, TensorType) else v


def read_rounded(v: SSAValue) -> Iterator[Use]:
    """The uses of a tile, and in place of its rounding to a narrower type the uses of that."""
    for use in v.uses:
        narrow = use.operation.results[0] if isinstance(use.operation, arith.TruncFOp) else v
        yield from [use] if narrow is v else narrow.uses


def guards(v: SSAValue, from_: float, to: float) -> bool:
    """Whether v is a replacement of one value by another: `finite` is (-inf, 0), `nonzero` is (0, 1)."""
    op = v.owner
    return isinstance(op, ReplaceOp) and (op.from_.value.data, op.to.value.data) == (from_, to)


def is_finite_guard(v: SSAValue) -> bool:
    """Whether v is 0 where -inf was: what may be subtracted from a score that is -inf."""
    return guards(v, NEG_INF, 0.0)


def only_use(v: SSAValue) -> Use | None:
    """The one use of v; None where there are none or several."""
    uses = list(v.uses)
    return uses[0] if len(uses) == 1 else None


def is_above(v: SSAValue, op: Operation) -> bool:
    """Whether v may be read at op: it is defined before op, in a block around it."""
    block = v.owner if isinstance(v.owner, Block) else v.owner.parent
    assert block is not None
    place = block.find_ancestor_op_in_block(op)
    if place is None:
        return False
    return isinstance(v.owner, Block) or (v.owner is not place and v.owner.is_before_in_block(place))


def outermost(op: Operation, values: Sequence[SSAValue]) -> Operation:
    """The outermost of op and the loops around it above which all values are known."""
    place = op
    while isinstance(up := place.parent_op(), scf.ForOp | scf.ParallelOp):
        if not all(is_above(v, up) for v in values):
            break
        place = up
    return place


def outermost_loops(module: ModuleOp) -> list[scf.ForOp]:
    """The loops that no other loop holds."""
    loops = [op for op in module.walk() if isinstance(op, scf.ForOp)]
    return [op for op in loops if not any(other is not op and other.is_ancestor(op) for other in loops)]


def masks_of(module: ModuleOp) -> list[MaskOp]:
    """The masks that say what is visible: those that a product's `where` is made of; all, if none is.

    Others choose between scores.
    """
    masks = [op for op in module.walk() if isinstance(op, MaskOp) and element_of(op.result) == i1]
    where = [m for m in masks if any(isinstance(u.operation, DotOp) for u in uses_of_mask(m.result))]
    return where or masks


def uses_of_mask(v: SSAValue) -> Iterator[Use]:
    """Uses of a mask, and of its conjunctions: what is invisible in it is invisible there."""
    for use in v.uses:
        if isinstance(use.operation, arith.AndIOp):
            yield from uses_of_mask(use.operation.result)
        else:
            yield use
