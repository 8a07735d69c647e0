"""mask-to-spans: of a mask, the interval of columns that each row sees.

    x = dot q, k;            vis = mask i, j {...};  s = select vis, x, -inf
    m = row_max s;           p = exp2(s - b);        l = row_sum p;         y = dot p, v where vis
        ~>   span = row_span i, j {lo, hi};          s = dot q, k only span
             m = row_max s over span;  p = exp2(s - b);  l = row_sum p over span;  y = dot p, v over span

What was -inf or took no part is now unspecified, and nobody reads it. A conjunction of comparisons in
which the column stands with the coefficient -1, 0 or 1 is exactly an interval: mask, select and where go.
Otherwise (an `or`, a term that is not understood) the interval contains what is visible, and they stay
and act within it; where the left side of a product is then 0 wherever its `where` does not hold, it says so
(`zeros`). A tile by position that scores are made of (a bias) is wanted within the span alone, too.

Legal when every element of the select ends in a row maximum, or through exp(s - b) in a row sum or in the
left side of a product `where` the same mask: there -inf counts for nothing. b is never -inf (`finite`).

Not handled: a predicate that bounds no column.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import Block, Operation, Region, SSAValue, Use

from flashgen.analysis.linear import Linear
from flashgen.analysis.predicate import Bound, Extreme, Interval, period, visible_columns
from flashgen.ir.compute import DotOp, RowMaxOp, RowReduction, RowSumOp, SelectOp
from flashgen.ir.construct import add, named
from flashgen.ir.regions import MaskOp, RowSpanOp, YieldOp
from flashgen.ir.types import NEG_INF, element_of, index, shape_of
from flashgen.passes.arithmetic import choose, emit_all, emit_bound
from flashgen.passes.base import TilePass
from flashgen.passes.edit import insert_before, remove_dead, shared_index, swap
from flashgen.passes.patterns import (
    ELEMENTWISE,
    is_above,
    is_finite_guard,
    masks_of,
    read_rounded,
    splat,
    unbroadcast,
    unrounded,
)

EXPONENTIALS = (math.ExpOp, math.Exp2Op)


@dataclass
class Masked:
    """A mask, what it says, and all that acts on what it lets through."""

    mask: MaskOp
    interval: Interval
    selects: list[SelectOp] = field(default_factory=list)
    reductions: list[RowReduction] = field(default_factory=list)
    over: list[DotOp] = field(default_factory=list)
    """Products that contract over masked columns."""
    conjunctions: list[arith.AndIOp] = field(default_factory=list)
    """What holds where the mask and something else do."""
    only: list[DotOp] = field(default_factory=list)
    """Products whose columns nobody else reads."""
    beside: list[MaskOp] = field(default_factory=list)
    """Tiles by position that nobody else reads."""

    @property
    def place(self) -> Operation:
        """Where the span has to stand."""
        place: Operation = self.mask
        for op in (*self.only, *self.beside):
            if op.is_before_in_block(place):
                place = op
        return place

    @property
    def kept(self) -> list[MaskOp]:
        """The masks that are still wanted, in part."""
        return [*self.beside, *([] if self.interval.exact else [self.mask])]


@dataclass(frozen=True)
class Matched:
    """The masks, and the products whose left side is 0 wherever their `where` does not hold."""

    masks: list[Masked]
    zeros: list[DotOp]


@dataclass(frozen=True)
class MaskToSpansPass(TilePass[Matched]):
    name = "mask-to-spans"

    def match(self, module: ModuleOp) -> Matched:
        masks = masks_of(module)
        if not masks:
            self.refuse(module, "there is no mask")
        dots = [op for op in module.walk() if isinstance(op, DotOp)]
        return Matched([self.masked(mask) for mask in masks], [dot for dot in dots if weighs_nothing(dot)])

    def masked(self, mask: MaskOp) -> Masked:
        found = Masked(mask, visible_columns(mask))
        if not found.interval.bounded:
            self.refuse(mask, "its predicate bounds no column")
        self.follow(mask.result, found)
        for select in found.selects:
            self.follow_select(select, found)
        self.find_private(found)
        for op in (*found.reductions, *found.over, *found.only, *found.kept):
            if op.over is not None:
                self.refuse(op, "has a span already")
        used = captured(found.interval)
        known = [mask.row, mask.col, *(v if (n := period(v, mask)) is None else n for v in used)]
        if not all(v is mask.body.block.args[0] or is_above(v, found.place) for v in known):
            self.refuse(mask, "its bounds are not known yet at the product that makes the scores")
        return found

    def follow(self, mask: SSAValue, found: Masked) -> None:
        for use in mask.uses:
            op = use.operation
            if isinstance(op, SelectOp) and use.index == 0:
                found.selects.append(op)
            elif isinstance(op, DotOp):
                found.over.append(op)
            elif isinstance(op, arith.AndIOp):
                found.conjunctions.append(op)
                self.follow(op.result, found)
            else:
                self.refuse(op, "uses the mask otherwise than to select or in a product's where")

    def find_private(self, found: Masked) -> None:
        """The products and masks that the masked scores are made of, elementwise, and nothing else."""
        inner: set[Operation] = {*found.selects, *found.conjunctions}
        block = found.mask.parent
        assert block is not None
        for op in reversed(list(block.ops)):
            users = {use.operation for v in op.results for use in v.uses}
            if not users or not users <= inner or op in (*found.over, found.mask):
                continue
            if isinstance(op, ELEMENTWISE):
                inner.add(op)
            elif isinstance(op, DotOp) and op.only is None:
                found.only.insert(0, op)
            elif isinstance(op, MaskOp) and covers(op, found.mask):
                found.beside.insert(0, op)

    def follow_select(self, select: SelectOp, found: Masked) -> None:
        if splat(select.rhs) != NEG_INF:
            self.refuse(select, "selects something else than -inf where the mask does not hold")
        for use in select.result.uses:
            op = use.operation
            if isinstance(op, RowMaxOp):
                found.reductions.append(op)
            elif isinstance(op, arith.SubfOp) and is_finite_guard(unbroadcast(op.rhs)):
                for weights in op.result.uses:
                    self.follow_weights(weights, found)
            else:
                self.refuse(op, "reads masked scores otherwise than for a maximum or a difference from one")

    def follow_weights(self, use: Use, found: Masked) -> None:
        if not isinstance(use.operation, EXPONENTIALS):
            self.refuse(use.operation, "reads differences of masked scores, which are not neutral")
        for reader in read_rounded(use.operation.result):
            op = reader.operation
            if isinstance(op, RowSumOp):
                found.reductions.append(op)
            elif not (isinstance(op, DotOp) and reader.index == 0 and op in found.over):
                self.refuse(op, "reads masked weights otherwise than by rows")

    def rewrite(self, module: ModuleOp, match: Matched) -> None:
        for dot in match.zeros:
            dot.properties["zeros"] = UnitAttr()
        for found in match.masks:
            made = span_of(found)
            insert_before(found.place, made)
            span = made.result
            for op in found.reductions:
                swap(op, narrowed(op, span))
            exact, visible = found.interval.exact, found.mask.result
            for op in found.conjunctions if exact else ():  # vis & w  ~>  w
                if visible in op.operands:
                    op.result.replace_all_uses_with(op.rhs if op.lhs is visible else op.lhs)
            for dot in found.over:
                swap(dot, dot.but(over=span, where=None if exact and dot.where is visible else dot.where))
            for dot in found.only:
                swap(dot, dot.but(only=span))
            for select in found.selects:
                if exact and select.cond is visible:
                    select.lhs.name_hint = select.result.name_hint or select.lhs.name_hint
                    select.result.replace_all_uses_with(select.lhs)
            for op in found.kept:
                body, element = op.detach_region(op.body), element_of(op.result)
                swap(op, MaskOp(op.row, op.col, body, shape_of(op.result), element, span))
        remove_dead(module)


def weighs_nothing(dot: DotOp) -> bool:
    """Whether the left side is exp(s - b), where s is -inf wherever the product's `where` does not hold."""
    weights = unrounded(dot.lhs).owner
    gap = weights.operands[0].owner if isinstance(weights, EXPONENTIALS) else None
    if dot.where is None or not isinstance(gap, arith.SubfOp) or not is_finite_guard(unbroadcast(gap.rhs)):
        return False
    select = gap.lhs.owner
    return isinstance(select, SelectOp) and select.cond is dot.where and splat(select.rhs) == NEG_INF


def covers(op: MaskOp, mask: MaskOp) -> bool:
    """Whether op is of the same rows and columns as a mask."""
    return op.operands[:2] == mask.operands[:2] and shape_of(op.result) == shape_of(mask.result)


def captured(interval: Interval) -> list[SSAValue]:
    """The values that an interval's bounds are made of."""

    def forms(bound: Bound | None) -> list[Linear]:
        if isinstance(bound, Extreme):
            return [form for b in bound.bounds for form in forms(b)]
        return [] if bound is None else [bound]

    every = [*forms(interval.lo), *forms(interval.hi), *interval.guards]
    return [symbol for form in every for symbol in form.terms]


def span_of(found: Masked) -> RowSpanOp:
    """The interval as an operation; a side without a bound ends where the tile does."""
    mask, interval = found.mask, found.interval
    rows, cols = shape_of(mask.result)
    body = Block(arg_types=[index])
    body.args[0].name_hint = "row"
    with ImplicitBuilder(body):
        lo = mask.col if interval.lo is None else named("lo", emit_bound(interval.lo, mask))
        end = interval.hi
        hi = add(mask.col, shared_index(mask, cols)) if end is None else emit_bound(end, mask)
        if interval.guards:
            hi = choose(emit_all(interval.guards, mask), hi, lo)
        YieldOp(lo, hi)
    for v in dict.fromkeys(captured(interval)):
        if period(v, mask) is not None:
            keep_within(body, v)
    mask.body.block.args[0].replace_uses_with_if(body.args[0], lambda use: use.operation.parent is body)
    span = RowSpanOp(mask.row, mask.col, Region(body), (rows, cols))
    span.result.name_hint = "span"
    return span


def keep_within(body: Block, v: SSAValue) -> None:
    """A copy of what makes v, for the uses in this body."""
    assert isinstance(v.owner, Operation) and body.first_op is not None
    copy = v.owner.clone()
    body.insert_op_before(copy, body.first_op)
    v.replace_uses_with_if(copy.results[0], lambda use: use.operation.parent is body)


def narrowed(op: RowReduction, span: SSAValue) -> RowReduction:
    """A copy that looks at a span alone."""
    if isinstance(op, RowMaxOp):
        return RowMaxOp(op.operand, span, op.drop_nan is not None)
    return RowSumOp(op.operand, span)
