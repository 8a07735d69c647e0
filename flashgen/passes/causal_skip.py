"""causal-skip: visit only tiles that the mask lets through, and mask only those that it cuts.

    for j in [0, Nk) { vis = mask; s = select vis, x, -inf; ...; dot p, v where vis }
  ~>
    for j in [lo, first) { ... }; for j in [first, last) { s = x; ...; dot p, v }; for j in [last, hi) { ... }

The bounds are index arithmetic that analysis.ranges reads from the mask's predicate, so that causal masks,
windows, prefixes and the tails at Nk and Nq are one case.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint

from flashgen.analysis.dependence import strangers
from flashgen.analysis.extents import extent, length
from flashgen.analysis.linear import Linear, induction, linear
from flashgen.analysis.neutral import disturbed
from flashgen.analysis.padding import cut_dimensions, may_be_cut
from flashgen.analysis.predicate import excess
from flashgen.analysis.ranges import Choice, Edge, Part, Rounded, parts
from flashgen.ir.compute import DotOp, SelectOp
from flashgen.ir.construct import add, ceildiv, floordiv, larger, mul, smaller
from flashgen.ir.memory import LoadOp, extents
from flashgen.ir.provenance import claim, keep
from flashgen.ir.regions import MaskOp
from flashgen.ir.types import shape_of
from flashgen.passes.arithmetic import choose, emit, emit_at_most_zero
from flashgen.passes.base import TilePass
from flashgen.passes.edit import insert_before, remove_dead, shared_index, swap
from flashgen.passes.patterns import masks_of, uses_of_mask


@dataclass(frozen=True)
class Split:
    """A loop, the mask in its body, the parts it becomes, and the loads of whole tiles that lie in bounds."""

    loop: scf.ForOp
    mask: MaskOp
    parts: list[Part]
    in_bounds: list[int]
    """Positions of these loads in the body."""


@dataclass(frozen=True)
class CausalSkipPass(TilePass[list[Split]]):
    """Split the inner loop over a mask's tiles.

    Legal when a step that shows nothing leaves all state as it is (analysis.neutral proves it, from the
    initial values on), and the mask serves only to select and in products' `where`, for which a whole tile
    needs no mask. A load of a whole part is marked `in_bounds` where the predicate contains its bound.
    No bit of the result changes.
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
        loop = mask.parent_op()
        if not isinstance(loop, scf.ForOp) or not any(
            induction(loop) in linear(v).terms for v in (mask.row, mask.col)
        ):
            self.refuse(mask, "the loop around it does not step through its tiles")
        for op in loop.body.block.ops:
            if isinstance(op, scf.ForOp):
                self.refuse(op, "a loop inside the loop to split")
        for op in strangers(loop):
            self.refuse(op, "has an effect that is not understood")
        for use in uses_of_mask(mask.result):
            op = use.operation
            if not isinstance(op, DotOp) and not (isinstance(op, SelectOp) and use.index == 0):
                self.refuse(op, "uses the mask otherwise than to select or in a product's where")
        if (found := disturbed(loop, mask)) is not None:
            self.refuse(*found)
        body = list(loop.body.block.ops)
        within = [n for n, op in enumerate(body) if isinstance(op, LoadOp) and lies_within(op, mask)]
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


def unmask(mask: Operation) -> None:
    """All is visible: select vis, a, b  ~>  a;  dot p, v where vis  ~>  dot p, v;  vis & w  ~>  w."""
    (visible,) = mask.results
    for use in list(visible.uses):
        op = use.operation
        if isinstance(op, SelectOp):
            op.result.replace_all_uses_with(op.lhs)
        elif isinstance(op, DotOp):
            swap(op, op.but(where=None))
        elif isinstance(op, arith.AndIOp):
            op.result.replace_all_uses_with(op.rhs if op.lhs is visible else op.lhs)


def lies_within(load: LoadOp, mask: MaskOp) -> bool:
    """Whether a tile that the mask shows whole lies within the array, in every dimension it extends in."""
    return all(not may_be_cut(load, n) or bounded(load, n, mask) for n in cut_dimensions(load))


def bounded(load: LoadOp, dimension: int, mask: MaskOp) -> bool:
    """Whether the predicate says that the tile's positions in a dimension are below the array's extent."""
    limit = extent(load.memref, dimension)
    tile = zip(mask.body.block.args, (mask.row, mask.col), shape_of(mask.result), strict=True)
    for position, origin, size in tile:
        start = linear(load.indices[dimension])
        if start == linear(origin) and extents(load)[dimension] <= size:
            return any(is_bound(form, position, limit) for form in conjuncts(mask.predicate, mask))
    return False


def is_bound(form: Linear, position: SSAValue, limit: object) -> bool:
    """Whether form <= 0 says that the position is below an array's extent."""
    c, rest = form.without(position)
    if c != 1 or rest.constant < 1 or list(rest.terms.values()) != [-1]:
        return False
    return length(next(iter(rest.terms))) == limit


def conjuncts(v: SSAValue, mask: MaskOp) -> Iterator[Linear]:
    """The orderings that hold wherever v does."""
    if isinstance(v.owner, arith.AndIOp):
        yield from conjuncts(v.owner.lhs, mask)
        yield from conjuncts(v.owner.rhs, mask)
    elif (form := excess(v, mask)) is not None:
        yield form
