"""keep-state: what stays at one address during a loop stays on chip.

    store x, a[i]; for j { old = load a[i]; ...; store new, a[i] }; y = load a[i]
  ~>
    r = for j iter_args(old = x) { ...; yield new }; (y is r)

Four steps: promote (a load and a store at an address that the loop does not change become a carried value),
hoist (a load alone moves in front), forward (a load of what was just stored is that), and drop (stores that
are overwritten, workspaces that are never loaded). Loads that move in front of a loop are no longer marked
`in_bounds`.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, SSAValue

from flashgen.analysis.dependence import describe, is_stranger, strangers
from flashgen.analysis.linear import accesses, inside, same_address, stored
from flashgen.analysis.padding import mixes_rows
from flashgen.analysis.state import Cell, cells
from flashgen.ir.memory import LoadOp, StoreOp
from flashgen.ir.provenance import claim, inherit
from flashgen.ir.types import element_of
from flashgen.passes.base import TilePass
from flashgen.passes.edit import erase, insert_before, remove_dead


@dataclass(frozen=True)
class Kept:
    """A loop, the tiles it may carry, and the loads that it may leave to the block around it."""

    loop: scf.ForOp
    cells: list[Cell]
    invariant: list[LoadOp]


@dataclass(frozen=True)
class KeepStatePass(TilePass[list[Kept]]):
    """Turn state in memory into loop-carried values, where the loop does not move it.

    Legal when the load comes first and both are the loop's only accesses to the array; the array holds the
    tile's element type (a narrower one would round it); and no row looks at another: a round trip through
    memory drops what lies beyond the array's bound and reads 0 there, a carried tile keeps it. Rows beyond
    the bound may hold anything as long as nothing mixes rows, and nothing writes them (see analysis.padding).
    Not handled: state whose address moves with the loop, as in the kv-outer order.
    """

    name = "keep-state"

    def match(self, module: ModuleOp) -> list[Kept]:
        loops = [op for op in module.walk() if isinstance(op, scf.ForOp)]
        found = [kept for loop in loops if (kept := self.check(loop)).cells]
        if not found:
            self.refuse(module, "no loop loads and stores a tile at an address that it does not change")
        return found

    def check(self, loop: scf.ForOp) -> Kept:
        body, written = loop.body.block, stored(loop)
        loads = [op for op in body.ops if isinstance(op, LoadOp) and stays(op, loop)]
        alone = [op for op in loads if op.memref not in written]
        state = [cell for cell in cells(body) if cell.load in loads]
        if state:
            for op in strangers(loop):
                self.refuse(op, "has an effect that is not understood")
        for cell in state:
            self.check_cell(cell, loop)
        return Kept(loop, state, alone)

    def check_cell(self, cell: Cell, loop: scf.ForOp) -> None:
        name = describe(cell.array)
        for op in accesses(loop):
            if op.memref is cell.array and op not in (cell.load, cell.store):
                self.refuse(op, f"a second access to {name} in the loop")
        if element_of(cell.array) != element_of(cell.old):
            self.refuse(cell.store, f"{name} rounds what it stores; a carried value would not")
        loads = [u.operation for u in cell.array.uses if isinstance(u.operation, LoadOp)]
        for load in loads:
            if (op := mixes_rows(load)) is not None:
                self.refuse(
                    op, f"reads rows of {name} that may lie beyond its bound, and a carried tile keeps those"
                )

    def rewrite(self, module: ModuleOp, match: list[Kept]) -> None:
        for kept in match:
            arrays = {cell.array for cell in kept.cells}
            block = kept.loop.parent
            assert block is not None
            insert_before(kept.loop, *kept.invariant)
            for load in (*kept.invariant, *(cell.load for cell in kept.cells)):
                # in bounds in every iteration; in front of the loop it runs where there is none
                load.properties.pop("in_bounds", None)
            loop = promote(kept.loop, kept.cells)
            claim(loop, self.name)
            forward(block, arrays)
        drop_unread(module)
        remove_dead(module)


def stays(load: LoadOp, loop: scf.ForOp) -> bool:
    """Whether the loop changes neither the array nor the address of a load."""
    return not inside(load.memref, loop) and not any(inside(v, loop) for v in load.indices)


def promote(loop: scf.ForOp, state: list[Cell]) -> scf.ForOp:
    """The loop with its state carried; loads in front of it and stores behind it take care of the memory."""
    body = loop.body.block
    for cell in state:
        insert_before(loop, cell.load)
        argument = body.insert_arg(cell.old.type, len(body.args))
        argument.name_hint = name = cell.array.name_hint
        cell.old.replace_uses_with_if(argument, lambda use: loop.is_ancestor(use.operation))
        cell.old.name_hint = f"{name}_start" if name else None
    last = body.last_op
    assert isinstance(last, scf.YieldOp)
    insert_before(last, scf.YieldOp(*last.operands, *(cell.new for cell in state)))
    erase(last)
    start = [*loop.iter_args, *(cell.old for cell in state)]
    new = scf.ForOp(loop.lb, loop.ub, loop.step, start, loop.detach_region(loop.body))
    insert_before(loop, new)
    inherit(new, [loop])
    for before, after in zip(loop.results, new.results, strict=False):
        before.replace_all_uses_with(after)
    for cell, result in zip(state, new.results[len(loop.results) :], strict=True):
        result.name_hint = cell.new.name_hint
        insert_before(loop, cell.store)
        cell.store.operands[0] = result
    erase(loop)
    return new


def forward(block: Block, arrays: set[SSAValue]) -> None:
    """A load of what was just stored is what was stored; a store before another to the same place goes.

    Nothing is known of memory behind an operation whose effects are not understood: it may read or write it.
    """
    known: dict[SSAValue, StoreOp] = {}
    for op in list(block.ops):
        if isinstance(op, StoreOp) and op.memref in arrays:
            before = known.get(op.memref)
            if before is not None and same_address(before, op) and before.value.type == op.value.type:
                erase(before)
            known[op.memref] = op
        elif isinstance(op, LoadOp) and op.memref in arrays:
            before = known.get(op.memref)
            if before is not None and same_address(before, op) and before.value.type == op.result.type:
                op.result.replace_all_uses_with(before.value)
                erase(op)
            else:
                known.pop(op.memref, None)
        elif is_stranger(op) or any(strangers(op)):
            known.clear()
        else:
            for a in accesses(op):
                known.pop(a.memref, None)


def drop_unread(module: ModuleOp) -> None:
    """Remove workspaces that are only stored to."""
    for op in list(module.walk()):
        if isinstance(op, memref.AllocOp):
            users = [use.operation for use in op.memref.uses]
            if users and all(isinstance(user, StoreOp) for user in users):
                erase(*users, op)
