"""fuse-loops: neighbouring loops over the same range become one.

for i { a }; for i { b }  ~>  for i { a; b }
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation
from xdsl.traits import is_side_effect_free

from flashgen.analysis.dependence import confined, describe, ordered_stores, strangers, touching
from flashgen.analysis.linear import induction, same
from flashgen.ir.provenance import claim, inherit
from flashgen.passes.base import TilePass
from flashgen.passes.edit import erase, insert_before


@dataclass(frozen=True)
class Run:
    """Loops to become one, and the operations between them that go in front."""

    loops: list[scf.ForOp]
    between: list[Operation]


@dataclass(frozen=True)
class FuseLoopsPass(TilePass[list[Run]]):
    """Fuse every run of neighbouring loops over equal ranges; what is pure between them moves in front.

    Legal when an array that one of them stores and another touches is touched by both in the slice that one
    iteration owns (distance 0): then iteration i of the second reads nothing that a later iteration of the
    first writes.
    Not handled: loops that carry values; a shift of one range against the other.
    """

    name = "fuse-loops"

    def match(self, module: ModuleOp) -> list[Run]:
        runs = [
            run for op in module.walk() for region in op.regions for b in region.blocks for run in runs_of(b)
        ]
        if not runs:
            self.refuse(module, "no two neighbouring loops run over the same range")
        for run in runs:
            for first, second in combinations(run.loops, 2):
                self.check(first, second)
        return runs

    def check(self, first: scf.ForOp, second: scf.ForOp) -> None:
        for loop in (first, second):
            for op in strangers(loop):
                self.refuse(op, "has an effect whose order must not change")
        for array in dict.fromkeys((*ordered_stores(first), *ordered_stores(second))):
            groups = [(a, loop) for loop in (first, second) for a in touching(loop, array)]
            shared = {loop for _, loop in groups} == {first, second}
            if shared and not confined(groups):
                reason = f"{describe(array)} is not touched in slices that one iteration owns"
                self.refuse(touching(second, array)[0], reason)

    def rewrite(self, module: ModuleOp, match: list[Run]) -> None:
        for run in match:
            target, *others = run.loops
            insert_before(target, *run.between)
            inherit(target, run.loops)
            for loop in others:
                merge(target, loop)
            claim(target, self.name)


def merge(target: scf.ForOp, loop: scf.ForOp) -> None:
    """Append a loop's body to another's."""
    *body, last = loop.body.block.ops
    erase(last)
    induction(loop).replace_all_uses_with(induction(target))
    end = target.body.block.last_op
    assert end is not None
    insert_before(end, *body)
    erase(loop)


def runs_of(block: Block) -> Iterator[Run]:
    """The longest runs of loops over the same range with nothing but movable operations between them."""
    loops: list[scf.ForOp] = []
    between: list[Operation] = []
    waiting: list[Operation] = []
    for op in block.ops:
        if isinstance(op, scf.ForOp) and loops and same_range(loops[0], op):
            loops.append(op)
            between += waiting
            waiting = []
        elif loops and movable(op):
            waiting.append(op)
        else:
            if len(loops) > 1:
                yield Run(loops, between)
            loops, between, waiting = ([op] if isinstance(op, scf.ForOp) else []), [], []
    if len(loops) > 1:
        yield Run(loops, between)


def movable(op: Operation) -> bool:
    """Whether op may move in front of loops: they give it no operand, having no results."""
    return is_side_effect_free(op) or isinstance(op, memref.AllocOp)


def same_range(a: scf.ForOp, b: scf.ForOp) -> bool:
    """Whether two loops surely run over the same positions, and carry no values."""
    headers = zip(a.operands[:3], b.operands[:3], strict=True)
    return not a.iter_args and not b.iter_args and all(same(x, y) for x, y in headers)
