"""What a mask's predicate gives over a tile: whether it holds everywhere, and whether it may hold somewhere.

Each whole number of the region becomes the least and the greatest that it can be, each truth value whether it
must hold and whether it may: interval arithmetic, which keeps nothing of how two numbers hang together, and
errs on the side of a tile that is mixed. Elements of arrays come as the extremes of a box of indices. This is
done in one of two arithmetics: that of operations, which computes it in a kernel (passes/skip_tiles.py), and
that of numbers, for whoever wants to know what a kernel will visit (keys.py).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from flashgen.analysis.linear import inside
from flashgen.analysis.predicate import conjuncts, excess, upper_bound
from flashgen.ir.memory import ElementOp
from flashgen.ir.regions import MaskOp
from flashgen.ir.types import i1, index, shape_of

T = TypeVar("T")
EQ, NE, SLT, SLE, SGT, SGE = range(6)
"""arith.cmpi's encoding."""


class Arithmetic(ABC, Generic[T]):
    """Whole numbers and truth values of one kind."""

    @abstractmethod
    def outside(self, v: SSAValue) -> T:
        """What a value from outside the mask is."""

    @abstractmethod
    def constant(self, n: int) -> T: ...

    @abstractmethod
    def do(self, kind: type[Operation], a: T, b: T) -> T:
        """An operation of arith on two numbers or truth values."""

    @abstractmethod
    def compare(self, a: T, ordering: str, b: T) -> T: ...

    @abstractmethod
    def negate(self, a: T) -> T: ...

    @abstractmethod
    def choose(self, c: T, a: T, b: T) -> T: ...

    def named(self, name: str, x: T) -> T:
        """The number, by that name where numbers have names."""
        return x

    @abstractmethod
    def extremes(self, array: SSAValue, first: Sequence[T], last: Sequence[T]) -> tuple[T, T]: ...


@dataclass(frozen=True)
class Between(Generic[T]):
    """A whole number from lo to hi."""

    lo: T
    hi: T

    @property
    def point(self) -> bool:
        return self.lo is self.hi


@dataclass(frozen=True)
class Holds(Generic[T]):
    """Whether something holds all over a tile (None: not known), and whether it may somewhere (None: yes)."""

    must: T | None = None
    may: T | None = None


@dataclass
class Intervals(Generic[T]):
    """The evaluation of one mask's region over rows and columns between two each."""

    mask: MaskOp
    arithmetic: Arithmetic[T]
    rows: Between[T]
    cols: Between[T]
    known: dict[SSAValue, Between[T] | Holds[T] | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        row, col = self.mask.body.block.args
        self.known |= {row: self.rows, col: self.cols}

    def holds(self, v: SSAValue) -> Holds[T]:
        """Of a truth value."""
        found = self.of(v)
        return found if isinstance(found, Holds) else Holds()

    def of(self, v: SSAValue) -> Between[T] | Holds[T] | None:
        """What a value can be; None where nothing is known of it."""
        if v not in self.known:
            self.known[v] = self.evaluate(v)
        return self.known[v]

    def evaluate(self, v: SSAValue) -> Between[T] | Holds[T] | None:  # noqa: PLR0911
        if not inside(v, self.mask):
            if v.type not in (index, i1):
                return None
            x = self.arithmetic.outside(v)
            return Between(x, x) if v.type == index else Holds(x, x)
        op = v.owner
        assert isinstance(op, Operation)
        if isinstance(op, arith.AndIOp | arith.OrIOp):
            return self.connected(op)
        if isinstance(op, arith.CmpiOp):
            return self.compared(op)
        if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr) and v.type == index:
            n = self.arithmetic.constant(op.value.value.data)
            return Between(n, n)
        parts = [self.of(x) for x in op.operands if x.type == index]
        between = [x for x in parts if isinstance(x, Between)]
        if len(between) < len(parts):
            return None
        if isinstance(op, ElementOp):
            return self.element(op, between)
        rule = RULES.get(type(op)) if v.type == index else None
        return rule(self, *between) if rule is not None else None

    def connected(self, op: arith.AndIOp | arith.OrIOp) -> Holds[T]:
        a, b = self.holds(op.lhs), self.holds(op.rhs)

        def each(x: T | None, y: T | None, decided: bool) -> T | None:
            """decided: whether what is not known decides; else the other one does."""
            if x is None or y is None:
                return None if decided else (x if y is None else y)
            return self.arithmetic.do(type(op), x, y)

        conjunction = isinstance(op, arith.AndIOp)
        return Holds(each(a.must, b.must, conjunction), each(a.may, b.may, not conjunction))

    def compared(self, op: arith.CmpiOp) -> Holds[T]:
        kind = op.predicate.value.data
        if op.lhs.type == i1:
            return self.opposite(op) if kind == EQ and is_false(op.rhs) else Holds()
        a, b = self.of(op.lhs), self.of(op.rhs)
        if not isinstance(a, Between) or not isinstance(b, Between):
            return Holds()
        if kind in (SGT, SGE):
            a, b, kind = b, a, kind - 2
        at, do = self.arithmetic, self.arithmetic.do
        if kind in (SLT, SLE):
            ordering = "slt" if kind == SLT else "sle"
            return Holds(at.compare(a.hi, ordering, b.lo), at.compare(a.lo, ordering, b.hi))
        if kind == EQ:
            meet = do(arith.AndIOp, at.compare(a.lo, "sle", b.hi), at.compare(b.lo, "sle", a.hi))
            return Holds(do(arith.AndIOp, at.compare(b.hi, "sle", a.lo), at.compare(a.hi, "sle", b.lo)), meet)
        apart = do(arith.OrIOp, at.compare(a.hi, "slt", b.lo), at.compare(b.hi, "slt", a.lo))
        return Holds(apart, do(arith.OrIOp, at.compare(a.lo, "slt", b.hi), at.compare(b.lo, "slt", a.hi)))

    def opposite(self, op: arith.CmpiOp) -> Holds[T]:
        x = self.holds(op.lhs)
        must, may = (None if side is None else self.arithmetic.negate(side) for side in (x.may, x.must))
        return Holds(must, may)

    def element(self, op: ElementOp, at: list[Between[T]]) -> Between[T] | Holds[T] | None:
        if op.result.type not in (index, i1):
            return None
        least, greatest = self.arithmetic.extremes(op.source, [x.lo for x in at], [x.hi for x in at])
        return Between(least, greatest) if op.result.type == index else Holds(least, greatest)

    def over(self, kind: type[Operation], *pairs: tuple[T, T]) -> Between[T]:
        """From the least to the greatest of some results."""
        results = [self.arithmetic.do(kind, a, b) for a, b in pairs]
        lo = hi = results[0]
        for x in results[1:]:
            lo = self.arithmetic.do(arith.MinSIOp, lo, x)
            hi = self.arithmetic.do(arith.MaxSIOp, hi, x)
        return Between(lo, hi)

    def add(self, a: Between[T], b: Between[T]) -> Between[T]:
        do = self.arithmetic.do
        return Between(do(arith.AddiOp, a.lo, b.lo), do(arith.AddiOp, a.hi, b.hi))

    def sub(self, a: Between[T], b: Between[T]) -> Between[T]:
        do = self.arithmetic.do
        return Between(do(arith.SubiOp, a.lo, b.hi), do(arith.SubiOp, a.hi, b.lo))

    def mul(self, a: Between[T], b: Between[T]) -> Between[T]:
        firsts, seconds = ([x.lo] if x.point else [x.lo, x.hi] for x in (a, b))
        return self.over(arith.MuliOp, *((x, y) for x in firsts for y in seconds))

    def floordiv(self, a: Between[T], b: Between[T]) -> Between[T] | None:
        """By one number, whatever its sign; 0 where that is 0."""
        return self.over(arith.FloorDivSIOp, (a.lo, b.lo), (a.hi, b.lo)) if b.point else None

    def remainder(self, a: Between[T], b: Between[T]) -> Between[T] | None:
        """Of a row, which is not negative, by one number: all that there is, if it begins anew within."""
        if not b.point:
            return None
        at, do = self.arithmetic, self.arithmetic.do
        ends = [do(arith.FloorDivSIOp, x, b.lo) for x in (a.lo, a.hi)]
        once = at.compare(ends[0], "eq", ends[1])
        last = do(arith.SubiOp, b.lo, at.constant(1))
        lo, hi = (do(arith.RemSIOp, x, b.lo) for x in (a.lo, a.hi))
        return Between(at.choose(once, lo, at.constant(0)), at.choose(once, hi, last))

    def hull(self, a: Between[T], b: Between[T]) -> Between[T]:
        do = self.arithmetic.do
        return Between(do(arith.MinSIOp, a.lo, b.lo), do(arith.MaxSIOp, a.hi, b.hi))

    def smaller(self, a: Between[T], b: Between[T]) -> Between[T]:
        do = self.arithmetic.do
        return Between(do(arith.MinSIOp, a.lo, b.lo), do(arith.MinSIOp, a.hi, b.hi))

    def larger(self, a: Between[T], b: Between[T]) -> Between[T]:
        do = self.arithmetic.do
        return Between(do(arith.MaxSIOp, a.lo, b.lo), do(arith.MaxSIOp, a.hi, b.hi))


RULES = {
    arith.AddiOp: Intervals.add,
    arith.SubiOp: Intervals.sub,
    arith.MuliOp: Intervals.mul,
    arith.FloorDivSIOp: Intervals.floordiv,
    arith.RemSIOp: Intervals.remainder,
    arith.MinSIOp: Intervals.smaller,
    arith.MaxSIOp: Intervals.larger,
    arith.SelectOp: Intervals.hull,
}


def is_false(v: SSAValue) -> bool:
    op = v.owner
    return isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr) and op.value.value.data == 0


def bound_of(v: SSAValue, mask: MaskOp) -> tuple[SSAValue, SSAValue] | None:
    """(position, n) where v says that the row, or the column, is less than n, which comes from outside."""
    form = excess(v, mask)
    if form is None:
        return None
    for position in mask.body.block.args:
        limit, distance = upper_bound(form, position) or (None, 0)
        if limit is not None and distance == 1:
            return None if inside(limit, mask) else (position, limit)
    return None


def classes(mask: MaskOp, at: Arithmetic[T], row: T, col: T) -> Holds[T]:
    """Whether a mask shows all of its tile from a row and a column on, and whether it may show any of it.

    Rows and columns that it cuts off at its ends are left out of what it may show.
    """
    limits = {id(v): bound_of(v, mask) for v in conjuncts(mask.predicate)}
    sides: list[Between[T]] = []
    must: list[T | None] = []
    origins = zip(mask.body.block.args, ("row", "col"), (row, col), shape_of(mask.result), strict=True)
    for position, name, first, extent in origins:
        end = at.named(f"{name}_end", at.do(arith.AddiOp, first, at.constant(extent)))
        for limit in (found[1] for found in limits.values() if found and found[0] is position):
            must.append(at.compare(end, "sle", at.outside(limit)))
            end = at.do(arith.MinSIOp, end, at.outside(limit))
        last = at.named(f"last_{name}", at.do(arith.SubiOp, end, at.constant(1)))
        sides.append(Between(first, last))
    inner, may = Intervals[T](mask, at, sides[0], sides[1]), list[T]()
    for v in conjuncts(mask.predicate):
        if limits[id(v)] is None:
            holds = inner.holds(v)
            must.append(holds.must)
            may += [] if holds.may is None else [holds.may]
    known = [x for x in must if x is not None]
    return Holds(all_of(at, known) if len(known) == len(must) else None, all_of(at, may))


def all_of(at: Arithmetic[T], values: list[T]) -> T | None:
    """The conjunction; None of nothing."""
    if not values:
        return None
    first, *others = values
    for other in others:
        first = at.do(arith.AndIOp, first, other)
    return first
