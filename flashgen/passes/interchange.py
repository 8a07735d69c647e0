"""interchange: swap the two loops of a perfect nest.

    for j { for i { body } }  ~>  for i { for j { body } }

For attention this is `--order q-outer`: the state of a query tile is then used by all iterations of the
inner loop, and `keep-state` can keep it on chip.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp

from flashgen.analysis.dependence import describe, distances, strangers, touching
from flashgen.analysis.linear import induction, inside
from flashgen.ir.provenance import claim
from flashgen.passes.base import TilePass

Pair = tuple[scf.ForOp, scf.ForOp]


@dataclass(frozen=True)
class InterchangePass(TilePass[Pair]):
    """Swap the innermost pair of loops of which one holds the other and nothing else.

    Legal when the inner bounds do not depend on the outer loop, neither carries values, and each array stored
    in the nest has dependences carried by one of the loops alone: a distance (+, 0) becomes (0, +) and stays
    forward, (+, -) would turn backward. The forward pass's state has (+, 0): each query tile owns its slice.
    Not handled: nests of which only some dependences are known; triangular bounds; more than one such nest.
    """

    name = "interchange"

    def match(self, module: ModuleOp) -> Pair:
        nests = list(innermost_nests(module))
        if len(nests) != 1:
            self.refuse(module, f"{len(nests) or 'no'} pairs of one loop in another found; one is wanted")
        self.check(*nests[0])
        return nests[0]

    def check(self, outer: scf.ForOp, inner: scf.ForOp) -> None:
        if outer.iter_args or inner.iter_args:
            self.refuse(inner, "the nest carries values from iteration to iteration")
        if outer.body.block.first_op is not inner or inner.next_op is not outer.body.block.last_op:
            self.refuse(outer, "the nest is not perfect; sink-loads first")
        if any(inside(v, outer) for v in (inner.lb, inner.ub, inner.step)):
            self.refuse(inner, "its bounds depend on the outer loop")
        for op in strangers(outer):
            self.refuse(op, "has an effect whose order must not change")
        for array, vector in distances(outer, inner).items():
            if vector == ("*", "*"):
                reason = f"{describe(array)} carries a dependence across iterations of both loops"
                self.refuse(touching(inner, array)[0], reason)

    def rewrite(self, module: ModuleOp, match: Pair) -> None:
        """The operations stay where they are; their headers and induction variables change places."""
        outer, inner = match
        for n in range(3):
            outer.operands[n], inner.operands[n] = inner.operands[n], outer.operands[n]
        a, b = induction(outer), induction(inner)
        uses = list(a.uses)
        b.replace_all_uses_with(a)
        for use in uses:
            use.operation.operands[use.index] = b
        a.name_hint, b.name_hint = b.name_hint, a.name_hint
        claim(outer, self.name)
        claim(inner, self.name)


def innermost_nests(module: ModuleOp) -> Iterator[Pair]:
    """Loops that hold no loop, each with the loop around it, where that holds no other."""
    for outer in module.walk():
        if isinstance(outer, scf.ForOp):
            loops = [op for op in outer.body.block.ops if isinstance(op, scf.ForOp)]
            if len(loops) == 1 and not any(isinstance(op, scf.ForOp) for op in loops[0].body.block.ops):
                yield outer, loops[0]
