"""skip-tiles: leave out tiles that a mask of data surely hides, and the mask of tiles that it surely shows.

    for j { vis = mask i, j { ids[row] == ids[col] }; s = select vis, x, -inf; ...; dot p, v where vis }
  ~>
    for j {
      may, must = ...  (extremes ids[i to i + Br - 1], ids[j to j + Bc - 1])
      if may { if must { s = x; ...; dot p, v } else { vis = mask i, j { ... }; ... } }
    }

What analysis.ranges cannot read from a predicate (elements of arrays, quotients, `or`) cannot become the
bounds of a loop. So each tile is asked before anything else is done for it: analysis.intervals says how, and
its questions stand above all loops in which the answers are the same. What a loop carries goes through a tile
that is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import scf
from xdsl.dialects.builtin import IntegerAttr, ModuleOp, UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue

from flashgen.analysis.intervals import Arithmetic, Holds, classes
from flashgen.ir.construct import compare
from flashgen.ir.memory import ExtremesOp
from flashgen.ir.provenance import claim, keep
from flashgen.ir.regions import MaskOp
from flashgen.ir.types import i1
from flashgen.passes.arithmetic import choose
from flashgen.passes.edit import insert_before, remove_dead, shared_constant, shared_index
from flashgen.passes.masked_step import MaskedStepPass, unmask
from flashgen.passes.patterns import masks_of, outermost


@dataclass(frozen=True)
class Step:
    """A loop, the mask in its body, and the loads of a whole tile that lie in bounds, by position there."""

    loop: scf.ForOp
    mask: MaskOp
    in_bounds: list[int]


@dataclass(frozen=True)
class SkipTilesPass(MaskedStepPass[list[Step]]):
    """Legal for what passes/masked_step.py says; no bit of the result changes.

    A tile of whose predicate nothing can be bounded stays as it is.
    Not handled: masks whose tiles no loop steps through; loops inside the loop; sweeps.
    """

    name = "skip-tiles"

    def match(self, module: ModuleOp) -> list[Step]:
        masks = masks_of(module)
        if not masks:
            self.refuse(module, "there is no mask")
        steps = [Step(loop, mask, within) for mask in masks for loop, within in [self.check_step(mask)]]
        if len({step.loop for step in steps}) < len(steps):
            self.refuse(masks[0], "several masks in one loop")
        return steps

    def rewrite(self, module: ModuleOp, match: list[Step]) -> None:
        for step in match:
            self.ask(step)
        remove_dead(module)

    def ask(self, step: Step) -> None:
        loop = step.loop
        first = loop.body.block.first_op
        assert first is not None
        asked = Block()
        with ImplicitBuilder(asked):
            mask = step.mask
            holds = classes(mask, Operations(loop), mask.row, mask.col)
        if holds.may is None:
            return
        for v, name in ((holds.may, "may_show"), (holds.must, "shows_all")):
            if v is not None:
                v.name_hint = name
        *body, last = loop.body.block.ops
        position = body.index(mask)
        for op in list(asked.ops):
            insert_before(first, op)
            if (place := outermost(op, op.operands)) is not op:
                insert_before(place, op)
        self.branch(step, holds, body, position, last)

    def branch(
        self, step: Step, holds: Holds[SSAValue], body: list[Operation], position: int, last: Operation
    ) -> None:
        """The body, for tiles that may be seen."""
        carried, made = list(step.loop.body.block.args[1:]), list(last.operands)
        types = [v.type for v in carried]
        copies = copied(body, made) if holds.must is not None else None
        seen = moved(body, made)
        if copies is not None and holds.must is not None:
            ops = list(copies.ops)
            for n in step.in_bounds:
                ops[n].properties["in_bounds"] = UnitAttr()
            unmask(ops[position])
            either = scf.IfOp(holds.must, types, Region(copies), Region(seen))
            seen = Block([either, scf.YieldOp(*either.results)])
            name_results(either, made)
        skipped = Region(Block([scf.YieldOp(*carried)])) if carried else Region()
        assert holds.may is not None
        shown = scf.IfOp(holds.may, types, Region(seen), skipped)
        insert_before(last, shown)
        name_results(shown, made)
        last.operands = list(shown.results)
        claim(step.loop, self.name)


def name_results(op: scf.IfOp, like: Sequence[SSAValue]) -> None:
    for result, v in zip(op.results, like, strict=True):
        result.name_hint = v.name_hint


def moved(body: list[Operation], made: list[SSAValue]) -> Block:
    """The operations in a block of their own, which passes on what they made."""
    block = Block()
    for op in body:
        op.detach()
        block.add_op(op)
    block.add_op(scf.YieldOp(*made))
    return block


def copied(body: list[Operation], made: list[SSAValue]) -> Block:
    """Copies of the operations in a block of their own."""
    block, values = Block(), dict[SSAValue, SSAValue]()
    for op in body:
        copy = op.clone(values)
        keep(copy, op)
        block.add_op(copy)
    block.add_op(scf.YieldOp(*(values.get(v, v) for v in made)))
    return block


@dataclass(frozen=True)
class Operations(Arithmetic[SSAValue]):
    """Numbers that a kernel computes; each function appends at the implicit builder."""

    near: Operation

    def outside(self, v: SSAValue) -> SSAValue:
        return v

    def constant(self, n: int) -> SSAValue:
        return shared_index(self.near, n)

    def do(self, kind: type[Operation], a: SSAValue, b: SSAValue) -> SSAValue:
        return kind(a, b, result_type=a.type).results[0]  # pyright: ignore[reportCallIssue]

    def compare(self, a: SSAValue, ordering: str, b: SSAValue) -> SSAValue:
        return compare(a, ordering, b)

    def named(self, name: str, x: SSAValue) -> SSAValue:
        x.name_hint = name
        return x

    def negate(self, a: SSAValue) -> SSAValue:
        return compare(a, "eq", shared_constant(self.near, IntegerAttr(0, i1)))

    def choose(self, c: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
        return choose(c, a, b)

    def extremes(
        self, array: SSAValue, first: Sequence[SSAValue], last: Sequence[SSAValue]
    ) -> tuple[SSAValue, SSAValue]:
        op = ExtremesOp(array, first, last)
        for v, name in zip(op.results, ("least", "greatest"), strict=True):
            v.name_hint = f"{array.name_hint}_{name}"
        return op.least, op.greatest
