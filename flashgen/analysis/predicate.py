"""What a mask's predicate says of the columns of a row.

The predicate is read as a formula: `and`, `or` and orderings of linear forms. What is not one of these is
not understood, and taken as possibly true.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from flashgen.analysis.linear import Linear, inside, linear
from flashgen.ir.regions import MaskOp

SLT, SLE, SGT, SGE = 2, 3, 4, 5
"""arith.cmpi's encoding of signed orderings."""


def excess(v: SSAValue, mask: MaskOp) -> Linear | None:
    """A form over the mask's row, its column, values from outside and the row modulo one of these, that is at
    most 0 exactly where v holds.

    None if v is not an ordering of such forms.
    """
    op = v.owner
    if not isinstance(op, arith.CmpiOp) or (kind := op.predicate.value.data) not in (SLT, SLE, SGT, SGE):
        return None
    small, large = (op.lhs, op.rhs) if kind in (SLT, SLE) else (op.rhs, op.lhs)
    form = linear(small, within=mask).plus(linear(large, within=mask), -1).offset(kind in (SLT, SGT))
    args = mask.body.block.args
    known = all(s in args or not inside(s, mask) or period(s, mask) is not None for s in form.terms)
    return form if known else None


def conjuncts(v: SSAValue) -> Iterator[SSAValue]:
    """What has to hold for v to hold."""
    if isinstance(v.owner, arith.AndIOp):
        yield from conjuncts(v.owner.lhs)
        yield from conjuncts(v.owner.rhs)
    else:
        yield v


def upper_bound(form: Linear, position: SSAValue) -> tuple[SSAValue, int] | None:
    """(n, distance) where form <= 0 says position + distance <= n, and nothing else; None of other forms."""
    c, rest = form.without(position)
    return (next(iter(rest.terms)), rest.constant) if c == 1 and [*rest.terms.values()] == [-1] else None


def period(v: SSAValue, mask: MaskOp) -> SSAValue | None:
    """n where v is the mask's row modulo n, and n comes from outside: it begins anew every n rows."""
    op = v.owner
    if not isinstance(op, arith.RemSIOp) or op.lhs is not mask.body.block.args[0] or inside(op.rhs, mask):
        return None
    return op.rhs


@dataclass(frozen=True)
class Extreme:
    """The largest or the smallest of several bounds."""

    largest: bool
    bounds: tuple[Bound, ...]


Bound = Linear | Extreme


@dataclass(frozen=True)
class Interval:
    """Columns [lo, hi) of a row, for which every form of ``guards`` is at most 0; None is unbounded.

    exact: whether these are the visible columns; else they contain them.
    """

    lo: Bound | None = None
    hi: Bound | None = None
    guards: tuple[Linear, ...] = ()
    exact: bool = True

    @property
    def bounded(self) -> bool:
        """Whether it excludes anything."""
        return self.lo is not None or self.hi is not None or bool(self.guards)

    def intersect(self, other: Interval) -> Interval:
        lo = extreme(True, [b for b in (self.lo, other.lo) if b is not None])
        hi = extreme(False, [b for b in (self.hi, other.hi) if b is not None])
        return Interval(lo, hi, self.guards + other.guards, self.exact and other.exact)

    def hull(self, other: Interval) -> Interval:
        """The smallest known interval that contains both."""
        lo = None if self.lo is None or other.lo is None else extreme(False, [self.lo, other.lo])
        hi = None if self.hi is None or other.hi is None else extreme(True, [self.hi, other.hi])
        return Interval(lo, hi, (), exact=False)


UNKNOWN = Interval(exact=False)


def extreme(largest: bool, bounds: list[Bound]) -> Bound | None:
    """The largest or smallest bound, each stated once; None of none."""
    flat: list[Bound] = []
    for b in bounds:
        flat += b.bounds if isinstance(b, Extreme) and b.largest == largest else [b]
    different = tuple(dict.fromkeys(flat))
    return Extreme(largest, different) if len(different) > 1 else next(iter(different), None)


def visible_columns(mask: MaskOp) -> Interval:
    """The columns that a row sees, as bounds over what `excess` knows but the column."""
    return columns(mask.predicate, mask)


def columns(v: SSAValue, mask: MaskOp) -> Interval:
    """The columns for which v holds."""
    op = v.owner
    if isinstance(op, arith.AndIOp):
        return columns(op.lhs, mask).intersect(columns(op.rhs, mask))
    if isinstance(op, arith.OrIOp):
        return columns(op.lhs, mask).hull(columns(op.rhs, mask))
    form = excess(v, mask)
    if form is None:
        return UNKNOWN
    coefficient, rest = form.without(mask.body.block.args[1])
    known = {
        0: Interval(guards=(form,)),
        1: Interval(hi=Linear({}, 1).plus(rest, -1)),  # col + rest <= 0
        -1: Interval(lo=rest),  # rest <= col
    }
    return known.get(coefficient, UNKNOWN)
