"""causal-skip: visit only tiles that the mask lets through, and mask only those that it cuts.

    for j in [0, Nk) { vis = mask; s = select vis, x, -inf; ...; dot p, v where vis }
  ~>
    for j in [lo, first) { ... }; for j in [first, last) { s = x; ...; dot p, v }; for j in [last, hi) { ... }

The bounds are index arithmetic that analysis.ranges reads from the mask's predicate, so that causal masks,
windows, prefixes and the tails at Nk and Nq are one case.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import SSAValue
from xdsl.rewriter import InsertPoint

from flashgen.analysis.linear import Linear, linear
from flashgen.analysis.ranges import Choice, Edge, Part, Rounded, parts
from flashgen.ir.construct import add, ceildiv, floordiv, larger, mul, smaller
from flashgen.ir.provenance import claim, keep
from flashgen.ir.regions import MaskOp
from flashgen.passes.arithmetic import choose, emit, emit_at_most_zero
from flashgen.passes.edit import insert_before, remove_dead, shared_index
from flashgen.passes.masked_step import MaskedStepPass, unmask
from flashgen.passes.patterns import masks_of


@dataclass(frozen=True)
class Split:
    """A loop, the mask in its body, the parts it becomes, and the loads of whole tiles that lie in bounds."""

    loop: scf.ForOp
    mask: MaskOp
    parts: list[Part]
    in_bounds: list[int]
    """Positions of these loads in the body."""


@dataclass(frozen=True)
class CausalSkipPass(MaskedStepPass[list[Split]]):
    """Split the inner loop over a mask's tiles.

    Legal for what passes/masked_step.py says; no bit of the result changes. A load of a whole part is marked
    `in_bounds` where the predicate contains its bound.
    Not handled: masks whose tiles no loop steps through; loops inside the loop; sweeps.
    """

    name = "causal-skip"

    def match(self, module: ModuleOp) -> list[Split]:
        masks = masks_of(module)
        if not masks:
            self.refuse(module, "there is no mask")
        splits = [self.check(mask) for mask in masks]
        if len({split.loop for split in splits}) < len(splits):
            self.refuse(masks[0], "several masks in one loop")
        return splits

    def check(self, mask: MaskOp) -> Split:
        loop, within = self.check_step(mask)
        return Split(loop, mask, parts(mask, loop), within)

    def rewrite(self, module: ModuleOp, match: list[Split]) -> None:
        for split in match:
            self.split(split)
        remove_dead(module)

    def split(self, split: Split) -> None:
        loop = split.loop
        with ImplicitBuilder(Builder(InsertPoint.before(loop))):
            edges = Edges(loop)
            headers = [(edges.emit(part.lo), edges.emit(part.hi)) for part in split.parts]
        named = zip(split.parts, headers, strict=True)
        for part, (lo, hi) in sorted(named, key=lambda each: each[0].masked):
            name(lo, "seen_from" if part.masked else "whole_from")
            name(hi, "seen_to" if part.masked else "whole_to")
        carried: list[SSAValue] = list(loop.iter_args)
        position = list(loop.body.block.ops).index(split.mask)
        for part, (lo, hi) in zip(split.parts, headers, strict=True):
            piece = loop
            if part is not split.parts[-1]:  # the last part is masked, and stays the loop that it was
                piece = loop.clone()
                keep(piece, loop)
                insert_before(loop, piece)
            piece.operands = [lo, hi, loop.step, *carried]
            carried = list(piece.results)
            claim(piece, self.name)
            if not part.masked:
                body = list(piece.body.block.ops)
                for n in split.in_bounds:
                    body[n].properties["in_bounds"] = UnitAttr()
                unmask(body[position])


@dataclass
class Edges:
    """Edges of ranges as operations in front of a loop; each is emitted once."""

    loop: scf.ForOp

    def __post_init__(self) -> None:
        self.known: dict[Edge, SSAValue] = {
            linear(self.loop.lb): self.loop.lb,
            linear(self.loop.ub): self.loop.ub,
        }

    def emit(self, edge: Edge) -> SSAValue:
        if edge not in self.known:
            self.known[edge] = self.make(edge)
        return self.known[edge]

    def make(self, edge: Edge) -> SSAValue:
        if isinstance(edge, Linear):
            return emit(edge, self.loop)
        if isinstance(edge, Rounded):
            return self.rounded(edge)
        if isinstance(edge, Choice):
            holds = emit_at_most_zero(edge.condition, self.loop)
            return choose(holds, self.emit(edge.then), self.emit(edge.otherwise))
        first, *others = (self.emit(e) for e in edge.edges)
        for other in others:
            first = larger(first, other) if edge.largest else smaller(first, other)
        return first

    def rounded(self, edge: Rounded) -> SSAValue:
        divisor = shared_index(self.loop, edge.divisor)
        quotient = (ceildiv if edge.up else floordiv)(emit(edge.numerator, self.loop), divisor)
        steps = quotient if edge.step == 1 else mul(quotient, shared_index(self.loop, edge.step))
        return steps if edge.start == Linear() else add(emit(edge.start, self.loop), steps)


def name(v: SSAValue, hint: str) -> None:
    """Name a value that has no name yet."""
    if v.name_hint is None:
        v.name_hint = hint
