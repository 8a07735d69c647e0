"""What every rewrite does: swap an operation for another, drop what nobody reads, share a constant."""

from __future__ import annotations

from xdsl.dialects import arith, func
from xdsl.dialects.builtin import Float64Type, FloatAttr, IntegerAttr, ModuleOp, TensorType, f64
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.transforms.dead_code_elimination import dce

from flashgen.ir.compute import BroadcastOp
from flashgen.ir.provenance import inherit
from flashgen.ir.types import index


def erase(*ops: Operation) -> None:
    """Remove operations that nothing reads, users before what they use."""
    for op in ops:
        op.detach()
        op.erase()


def insert_before(place: Operation, *ops: Operation) -> None:
    """Put new operations, or move old ones, in front of another."""
    block = place.parent
    assert block is not None
    for op in ops:
        if op.parent is not None:
            op.detach()
        block.insert_op_before(op, place)


def insert_after(place: Operation, *ops: Operation) -> None:
    """Put new operations behind another, in the given order."""
    block = place.parent
    assert block is not None
    for op in reversed(ops):
        block.insert_op_after(op, place)


def insert_at_first_use(v: SSAValue, *ops: Operation) -> None:
    """Put new operations in the block that defines v, in front of all that reads it."""
    block = v.owner if isinstance(v.owner, Block) else v.owner.parent
    assert block is not None
    readers = {block.find_ancestor_op_in_block(use.operation) for use in v.uses}
    insert_before(next(op for op in block.ops if op in readers), *ops)


def swap(old: Operation, new: Operation) -> None:
    """Put ``new`` where ``old`` is: its results take over the names and the uses, it the old one's makers."""
    insert_before(old, new)
    inherit(new, [old])
    for before, after in zip(old.results, new.results, strict=True):
        after.name_hint = before.name_hint
        before.replace_all_uses_with(after)
    erase(old)


def scaled(v: SSAValue, factor: SSAValue) -> tuple[BroadcastOp, arith.MulfOp]:
    """The operations that multiply a tile by a scalar, or by one value a row; not inserted yet."""
    assert isinstance(v.type, TensorType)
    wide = BroadcastOp(factor, v.type)
    return wide, arith.MulfOp(v, wide.result)


def remove_dead(module: ModuleOp) -> None:
    """Remove what is pure and that nobody reads."""
    dce(module)


def shared_index(near: Operation, n: int) -> SSAValue:
    """The index constant n at the top of the function around ``near``; made where there is none."""
    return shared_constant(near, IntegerAttr(n, index))


def rounded(near: Operation, x: float, element: Attribute, name: str) -> SSAValue:
    """x as a scalar of a float type at the top of the function, stated in float64 and rounded at most once.

    An attribute of type f32 would round at once, also where the interpreter computes in float64.
    """
    exact = shared_constant(near, FloatAttr[Float64Type](x, f64))
    if element == f64:
        exact.name_hint = name
        return exact
    narrow = arith.TruncFOp(exact, element)
    narrow.result.name_hint = name
    insert_before(first_below(near, arith.ConstantOp, arith.TruncFOp), narrow)
    return narrow.result


def shared_constant(near: Operation, value: IntegerAttr | FloatAttr) -> SSAValue:
    """As shared_index, for any constant."""
    place = first_below(near, arith.ConstantOp)
    op = place.prev_op
    while op is not None:
        assert isinstance(op, arith.ConstantOp)
        if op.value == value:
            return op.result
        op = op.prev_op
    new = arith.ConstantOp(value)
    insert_before(place, new)
    return new.result


def first_below(near: Operation, *kinds: type[Operation]) -> Operation:
    """The first operation of near's function that is of none of these kinds."""
    return next(op for op in function_of(near).body.block.ops if not isinstance(op, kinds))


def function_of(op: Operation) -> func.FuncOp:
    """The function that op is in."""
    up: Operation | None = op
    while up is not None and not isinstance(up, func.FuncOp):
        up = up.parent_op()
    assert up is not None
    return up
