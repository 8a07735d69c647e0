"""A step of a loop over a mask's tiles: what passes that leave steps out, or their mask, have to know of it.

Legal when a step that shows nothing leaves all state as it is (analysis.neutral proves it, from the initial
values on), and the mask serves only to select and in products' `where`, for which a whole tile needs no mask.
"""

from __future__ import annotations

from xdsl.dialects import arith, scf
from xdsl.ir import Operation, SSAValue

from flashgen.analysis.dependence import strangers
from flashgen.analysis.extents import extent, length
from flashgen.analysis.linear import Linear, induction, linear
from flashgen.analysis.neutral import disturbed
from flashgen.analysis.padding import cut_dimensions, may_be_cut
from flashgen.analysis.predicate import conjuncts, excess, upper_bound
from flashgen.ir.compute import DotOp, SelectOp
from flashgen.ir.memory import LoadOp, extents
from flashgen.ir.regions import MaskOp
from flashgen.ir.types import shape_of
from flashgen.passes.base import Match, TilePass
from flashgen.passes.edit import swap
from flashgen.passes.patterns import uses_of_mask


class MaskedStepPass(TilePass[Match]):
    """A pass that is legal for these steps alone."""

    def check_step(self, mask: MaskOp) -> tuple[scf.ForOp, list[int]]:
        """The loop, and where in its body loads stand that lie within their array if the mask shows all."""
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
        return loop, [n for n, op in enumerate(body) if isinstance(op, LoadOp) and lies_within(op, mask)]


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
            forms = (excess(v, mask) for v in conjuncts(mask.predicate))
            return any(is_bound(form, position, limit) for form in forms if form is not None)
    return False


def is_bound(form: Linear, position: SSAValue, limit: object) -> bool:
    """Whether form <= 0 says that the position is below an array's extent."""
    found = upper_bound(form, position)
    return found is not None and found[1] >= 1 and length(found[0]) == limit
