"""State in memory: what a loop reads, updates and writes back at one place, and what it holds at first.

    for i0 { store x, a[i0] }
    for j { for i { old = load a[i]; ...; store new, a[i] } }
    for i1 { load a[i1] }

Of the cell (load, store), `j` is the loop that updates it: its address does not change with j. The store in
front and the load behind touch what the cell touches, since the loops around them run over the same range.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import arith, memref, scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, BlockArgument, Operation, SSAValue

from flashgen.analysis.extents import extent, length
from flashgen.analysis.linear import Linear, accesses, induction, inside, linear, same, same_address, step_of
from flashgen.ir.compute import BroadcastOp
from flashgen.ir.memory import Access, LoadOp, StoreOp, extents
from flashgen.ir.types import shape_of


@dataclass(frozen=True)
class Cell:
    """A tile that a block loads and, later, stores at the same address."""

    load: LoadOp
    store: StoreOp

    @property
    def array(self) -> SSAValue:
        return self.load.memref

    @property
    def old(self) -> SSAValue[TensorType]:
        return self.load.result

    @property
    def new(self) -> SSAValue:
        return self.store.value


def cells(block: Block) -> Iterator[Cell]:
    """The tiles that a block updates in place."""
    loads = [op for op in block.ops if isinstance(op, LoadOp)]
    for store in block.ops:
        if isinstance(store, StoreOp):
            for load in loads:
                updates = same_address(load, store) and load.result.type == store.value.type
                if updates and load.is_before_in_block(store):
                    yield Cell(load, store)


def updating_loop(cell: Cell) -> scf.ForOp | None:
    """The innermost loop around the cell that its address does not change with."""
    loop = cell.load.parent_op()
    while isinstance(loop, scf.ForOp):
        if not any(induction(loop) in linear(v).terms for v in cell.load.indices):
            moves = any(inside(v, loop) and not is_induction(v) for v in symbols(cell.load))
            return None if moves else loop
        loop = loop.parent_op()
    return None


def symbols(access: Access) -> set[SSAValue]:
    """What an address is made of."""
    return {symbol for v in access.indices for symbol in linear(v).terms}


def is_induction(v: SSAValue) -> bool:
    return (
        isinstance(v.owner, Block)
        and isinstance(loop := v.owner.parent_op(), scf.ForOp)
        and induction(loop) is v
    )


def loops_between(op: Operation, block: Block | None) -> list[scf.ForOp] | None:
    """The loops around op inside a block, from the outermost; None where something else is around it."""
    loops: list[scf.ForOp] = []
    while op.parent is not block:
        up = op.parent_op()
        if not isinstance(up, scf.ForOp):
            return None
        loops.insert(0, up)
        op = up
    return loops


def correspondence(other: Access, cell: Cell, loop: scf.ForOp) -> dict[SSAValue, SSAValue] | None:
    """Read ``other``, which stands beside the updating loop, as an access to just what the cell touches.

    Returns what stands there for the induction variables around the cell; None if it touches anything else.
    """
    theirs = loops_between(other, loop.parent)
    ours = loops_between(cell.load, loop.body.block)
    if theirs is None or ours is None or len(ours) != len(theirs):
        return None
    for a, b in zip(ours, theirs, strict=True):
        if not all(same(x, y) for x, y in zip(a.operands[:3], b.operands[:3], strict=True)):
            return None
    pairs: list[tuple[SSAValue, SSAValue]] = [
        (induction(a), induction(b)) for a, b in zip(ours, theirs, strict=True)
    ]
    to_theirs, to_ours = dict(pairs), {b: a for a, b in pairs}
    fits = same_address(other, cell.load, to_ours) and other.tile.type == cell.old.type
    return to_theirs if fits else None


def outside(array: SSAValue, loop: scf.ForOp) -> list[Access]:
    """The accesses to an array that are not in the loop, in no order."""
    users = [use.operation for use in array.uses]
    return [op for op in users if isinstance(op, Access) and not loop.is_ancestor(op)]


def is_after(op: Operation, loop: scf.ForOp) -> bool:
    """Whether op stands behind the loop, in its block or within a loop there."""
    assert loop.parent is not None
    place = loop.parent.find_ancestor_op_in_block(op)
    return place is not None and loop.is_before_in_block(place)


def initial_store(cell: Cell, loop: scf.ForOp) -> StoreOp | None:
    """The store that wrote what the cell holds when the loop begins; None where that is not known.

    Known when the array is a workspace, nothing but loads and stores uses it, and a single store stands
    outside the loop: in front of it, at what the cell touches, or of one number all over the array.
    """
    if not isinstance(cell.array.owner, memref.AllocOp):
        return None
    if not all(isinstance(use.operation, Access) for use in cell.array.uses):
        return None
    stores = [op for op in outside(cell.array, loop) if isinstance(op, StoreOp)]
    if len(stores) != 1 or is_after(stores[0], loop):
        return None
    known = correspondence(stores[0], cell, loop) is not None or fills(stores[0], loop)
    return stores[0] if known else None


def fills(store: StoreOp, loop: scf.ForOp) -> bool:
    """Whether a store, in loops beside another, puts one number everywhere in its array."""
    value = store.value.owner
    if not isinstance(value, BroadcastOp) or not isinstance(value.operand.owner, arith.ConstantOp):
        return False
    around = loops_between(store, loop.parent)
    moving = {induction(up): up for up in around or ()}
    for n, (position, size) in enumerate(zip(store.indices, extents(store), strict=True)):
        up = moving.pop(position, None) if isinstance(position, BlockArgument) else None
        if up is None and (linear(position) != Linear() or shape_of(store.memref)[n] != size):
            return False
        if up is not None:
            whole = linear(up.lb) == Linear() and length(up.ub) == extent(store.memref, n)
            if not whole or step_of(up) != size:
                return False
    return around is not None and not moving


def others(cell: Cell, loop: scf.ForOp) -> list[Access]:
    """Accesses in the loop to the cell's array that are not the cell's own."""
    return [a for a in accesses(loop) if a.memref is cell.array and a not in (cell.load, cell.store)]
