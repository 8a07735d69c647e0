"""Which positions of a loop have tiles that a mask lets through: in part, or whole.

Over a tile each ordering `a * row + b * col + c <= 0` of a mask's predicate has a smallest and a largest left
side, linear in the loop's position: the smallest says whether some element is visible, the largest whether
all are. `and` intersects; `or` takes the hull of what may be visible, and of what surely is the union where
that is surely an interval. What is not understood may be visible and never surely is.

Causal masks, windows, prefixes and the tails at Nk and Nq are all of this one form.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.dialects import arith, scf
from xdsl.ir import BlockArgument, SSAValue

from flashgen.analysis.linear import Linear, induction, inside, linear, step_of
from flashgen.analysis.predicate import excess, period
from flashgen.ir.regions import MaskOp
from flashgen.ir.types import shape_of


@dataclass(frozen=True)
class Rounded:
    """start + step * (numerator / divisor), the quotient rounded down, or up."""

    start: Linear
    step: int
    numerator: Linear
    divisor: int
    up: bool


@dataclass(frozen=True)
class Choice:
    """``then`` where the condition is at most 0, else ``otherwise``."""

    condition: Linear
    then: Edge
    otherwise: Edge


@dataclass(frozen=True)
class Most:
    """The largest, or the smallest, of several."""

    largest: bool
    edges: tuple[Edge, ...]


Edge = Linear | Rounded | Choice | Most
"""An end of a range of positions, as a function of values known outside the loop."""


def largest(*edges: Edge | None) -> Edge | None:
    return most(True, edges)


def smallest(*edges: Edge | None) -> Edge | None:
    return most(False, edges)


def most(largest: bool, edges: tuple[Edge | None, ...]) -> Edge | None:
    """The largest or smallest of what is given, without what another surely exceeds; None of nothing."""
    flat: list[Edge] = []
    for edge in edges:
        if edge is not None:
            flat += edge.edges if isinstance(edge, Most) and edge.largest == largest else [edge]
    kept: list[Edge] = []
    for n, edge in enumerate(flat):
        rivals = kept + flat[n + 1 :]
        if not any(at_most(edge, r) if largest else at_most(r, edge) for r in rivals):
            kept.append(edge)
    return Most(largest, tuple(kept)) if len(kept) > 1 else next(iter(kept), None)


def at_most(a: Edge, b: Edge) -> bool:
    """Whether a <= b, whatever the symbols are."""
    if isinstance(a, Rounded) and isinstance(b, Rounded):
        alike = (a.start, a.step, a.divisor, a.up) == (b.start, b.step, b.divisor, b.up)
        return alike and at_most(a.numerator, b.numerator)
    if isinstance(a, Rounded) and isinstance(b, Linear):
        return not a.up and a.step == a.divisor and at_most(a.start.plus(a.numerator), b)
    if isinstance(a, Linear) and isinstance(b, Linear):
        difference = a.plus(b, -1)
        return not difference.terms and difference.constant <= 0
    return a == b


def evaluate(edge: Edge, symbols: Mapping[SSAValue, int]) -> int:
    """The edge's value, given those of its symbols."""
    if isinstance(edge, Linear):
        return edge.constant + sum(c * symbols[s] for s, c in edge.terms.items())
    if isinstance(edge, Rounded):
        n = evaluate(edge.numerator, symbols)
        quotient = -(-n // edge.divisor) if edge.up else n // edge.divisor
        return evaluate(edge.start, symbols) + edge.step * quotient
    if isinstance(edge, Choice):
        holds = evaluate(edge.condition, symbols) <= 0
        return evaluate(edge.then if holds else edge.otherwise, symbols)
    return (max if edge.largest else min)(evaluate(e, symbols) for e in edge.edges)


@dataclass(frozen=True)
class Range:
    """Positions [lo, hi); None is unbounded; ``empty`` is the empty set."""

    lo: Edge | None = None
    hi: Edge | None = None
    empty: bool = False

    def intersect(self, other: Range) -> Range:
        lo, hi = largest(self.lo, other.lo), smallest(self.hi, other.hi)
        return Range(lo, hi, self.empty or other.empty)

    def hull(self, other: Range) -> Range:
        """The smallest known range that contains both."""
        if self.empty or other.empty:
            return other if self.empty else self
        lo = None if self.lo is None or other.lo is None else smallest(self.lo, other.lo)
        hi = None if self.hi is None or other.hi is None else largest(self.hi, other.hi)
        return Range(lo, hi)

    def union(self, other: Range) -> Range:
        """A range that both together cover: their union where it is surely a range, else the first."""
        overlap = (self.lo is None and other.lo is None) or (self.hi is None and other.hi is None)
        return self.hull(other) if self.empty or other.empty or overlap else self


@dataclass(frozen=True)
class Classifier:
    """A mask, a loop over its tiles, and what is asked: whole tiles, or any part of one."""

    mask: MaskOp
    loop: scf.ForOp
    whole: bool

    def range(self, v: SSAValue) -> Range:
        """The positions at which v may hold somewhere in the tile (holds all over it)."""
        op = v.owner
        if isinstance(op, arith.AndIOp):
            return self.range(op.lhs).intersect(self.range(op.rhs))
        if isinstance(op, arith.OrIOp):
            a, b = self.range(op.lhs), self.range(op.rhs)
            return a.union(b) if self.whole else a.hull(b)
        form = excess(v, self.mask)
        extreme = None if form is None else self.over_tile(form)
        known = None if extreme is None else self.ordering(extreme)
        return Range(empty=self.whole) if known is None else known

    def over_tile(self, form: Linear) -> Linear | None:
        """The form's largest value (whole) or smallest over the tile, or one beyond it; None if unknown.

        A row modulo n is taken for any of 0 to n - 1, which it is if no row is negative.
        """
        for symbol, c in form.terms.items():
            if (n := period(symbol, self.mask)) is not None:
                if not surely(Linear().plus(linear(self.mask.row), -1)):
                    return None
                last = linear(n).offset(-1) if (c > 0) == self.whole else Linear()
                form = form.without(symbol)[1].plus(last, c)
        positions = zip(self.mask.body.block.args, (self.mask.row, self.mask.col), strict=True)
        for (symbol, origin), extent in zip(positions, shape_of(self.mask.result), strict=True):
            c, rest = form.without(symbol)
            last = c * (extent - 1) if (c > 0) == self.whole else 0
            form = rest.plus(linear(origin), c).offset(last)
        return form

    def ordering(self, form: Linear) -> Range | None:
        """The positions at which form <= 0; None where that is not known outside the loop."""
        if surely(form):
            return Range()
        c, rest = form.without(induction(self.loop))
        start, step = linear(self.loop.lb), step_of(self.loop)
        if step is None or step < 1 or any(inside(s, self.loop) for s in rest.terms):
            return None
        if c == 0:
            return Range(hi=Choice(rest, linear(self.loop.ub), start))
        # with iv = start + n * step:  |c| * step * n  <=  -rest - c * start, or >= rest + c * start
        numerator = rest.plus(start, c)
        if c < 0:
            return Range(lo=rounded(start, step, numerator, -c * step, up=True))
        beyond = Linear({}, c * step).plus(numerator, -1)
        return Range(hi=rounded(start, step, beyond, c * step, up=False))


def rounded(start: Linear, step: int, numerator: Linear, divisor: int, up: bool) -> Edge:
    if divisor == 1:
        return start.plus(numerator, step)
    if divisor == step and all(n % step == 0 for n in (*start.terms.values(), start.constant)):
        start, numerator = Linear(), numerator.plus(start)  # whole steps may be rounded too
    return Rounded(start, step, numerator, divisor, up)


def surely(form: Linear) -> bool:
    """Whether form <= 0 follows from the ranges of the loops whose positions it is made of."""
    tops = [form]
    for symbol, c in form.terms.items():
        loop = symbol.owner.parent_op() if isinstance(symbol, BlockArgument) else None
        if isinstance(loop, scf.ForOp) and induction(loop) is symbol:
            farthest = [end.offset(-1) for end in ends(loop.ub)] if c > 0 else [linear(loop.lb)]
            tops = [top.plus(Linear({symbol: c}), -1).plus(last, c) for top in tops for last in farthest]
    return any(not top.terms and top.constant <= 0 for top in tops)


def ends(v: SSAValue) -> list[Linear]:
    """What v is at most: itself, and each of those that it is the smallest of."""
    sides = v.owner.operands if isinstance(v.owner, arith.MinSIOp) else ()
    return [linear(v), *(end for side in sides for end in ends(side))]


def classify(mask: MaskOp, loop: scf.ForOp, whole: bool) -> Range:
    """The positions of a loop at which all of the mask's tile is visible, or may be some of it."""
    return Classifier(mask, loop, whole).range(mask.predicate)


@dataclass(frozen=True)
class Part:
    """Positions [lo, hi) of a loop, and whether the mask cuts tiles there."""

    lo: Edge
    hi: Edge
    masked: bool


def parts(mask: MaskOp, loop: scf.ForOp) -> list[Part]:
    """Consecutive parts of a loop that together visit every tile with a visible element.

    Masked, whole, masked; the first is left out where nothing bounds the whole tiles from below, the whole
    part and what follows it where no tile is surely whole. Any part may turn out empty at run time.
    """
    some, full = classify(mask, loop, whole=False), classify(mask, loop, whole=True)
    lo, hi = largest(linear(loop.lb), some.lo), smallest(linear(loop.ub), some.hi)
    assert lo is not None and hi is not None
    if full.empty:
        return [Part(lo, hi, True)]
    first = lo if full.lo is None else smallest(largest(lo, full.lo), hi)
    last = largest(first, smallest(full.hi, hi))
    assert first is not None and last is not None
    middle = [Part(first, last, False), Part(last, hi, True)]
    return middle if full.lo is None else [Part(lo, first, True), *middle]
