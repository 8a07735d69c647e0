"""Does a step whose tile shows nothing leave all state as it is?

The body of a loop is evaluated with symbols for numbers: a value is a constant (the same everywhere in a
tile), the old value of a piece of state, or a term over these. With every element of the mask hidden, scores
are -inf, and the rules below are to reduce each new value to the old one.

The rules rest on a joint invariant: while the row maximum m is -inf (no key seen yet), l and O are 0; and
while l is 0, so is O. It has to hold at the start, which initial values show, and to be kept by a step,
which a second evaluation shows: with the invariant's values as the old ones and scores of -inf (m' is -inf
in no other case, being max(m, ...)), the new ones are those values again; and rows that l's array lacks, so
that they read as 0, O's has to lack, too. NaN and +inf are left out: a row whose m is one of them has a NaN
in l and O for good.
"""

from __future__ import annotations

import math as numbers
from collections.abc import Callable
from dataclasses import dataclass, field

from xdsl.dialects import arith, math, scf
from xdsl.dialects.builtin import FloatAttr
from xdsl.ir import Operation, SSAValue

from flashgen.analysis.linear import accesses
from flashgen.analysis.padding import cut_alike
from flashgen.analysis.state import cells, initial_store, updating_loop
from flashgen.ir.compute import BroadcastOp, DotOp, HoldOp, ReplaceOp, RowMaxOp, RowSumOp, SelectOp
from flashgen.ir.memory import LoadOp, StoreOp
from flashgen.ir.regions import MaskOp
from flashgen.ir.types import NEG_INF


@dataclass(frozen=True)
class Fill:
    """The same number everywhere; 0 of a mask is: hidden."""

    number: float


@dataclass(frozen=True)
class Old:
    """What a piece of state held when the step began."""

    which: SSAValue


@dataclass(frozen=True)
class Term:
    """A function of other values, or, without arguments, a value that nothing is known of."""

    name: object
    args: tuple[Value, ...] = ()


Value = Fill | Old | Term
HIDDEN = Fill(0.0)


@dataclass(frozen=True)
class State:
    """A value that a step receives and passes on, carried or in memory; and its first value, if known."""

    old: SSAValue
    new: SSAValue
    start: SSAValue | None

    @property
    def rises(self) -> bool:
        """Whether it is max(old, ...), or that once it is far enough ahead, and so never falls."""
        top = self.new.owner
        if isinstance(top, HoldOp) and top.held is self.old:
            top = top.followed.owner
        return isinstance(top, arith.MaximumfOp) and self.old in top.operands


def states(loop: scf.ForOp) -> list[State]:
    """All state of a loop: carried values, and tiles in memory that its body updates in place."""
    last = loop.body.block.last_op
    assert last is not None
    carried = zip(loop.body.block.args[1:], last.operands, loop.iter_args, strict=True)
    found = [State(old, new, start) for old, new, start in carried]
    for cell in cells(loop.body.block):
        outer = updating_loop(cell)
        store = initial_store(cell, outer) if outer else None
        found.append(State(cell.old, cell.new, store.value if store else None))
    return found


def constant(v: SSAValue | None) -> float | None:
    """The number that v is filled with."""
    op = v.owner if v is not None else None
    if isinstance(op, BroadcastOp):
        return constant(op.operand)
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, FloatAttr):
        return op.value.value.data
    return None


def disturbed(loop: scf.ForOp, mask: MaskOp) -> tuple[Operation, str] | None:
    """What changes in a step that shows nothing: the operation, and what is wrong with it; else None."""
    own = states(loop)
    updates = [cell.store for cell in cells(loop.body.block)]
    for op in accesses(loop):
        if isinstance(op, StoreOp) and op not in updates:
            return op, "is stored even where a tile shows nothing"
    order = list(loop.body.block.ops)
    own.sort(key=lambda s: order.index(o) if (o := owner(s.new)) in order else 0)  # name the first cause
    hidden = Step(own, mask)
    hidden.run(loop, {state.old: Old(state.old) for state in own})
    for state in own:
        if hidden.values.get(state.new) != Old(state.old):
            return owner(state.new), "is changed by a tile that shows nothing, or is not known not to be"
    return kept(loop, own, mask, hidden.assumed)


def kept(
    loop: scf.ForOp, own: list[State], mask: MaskOp, assumed: set[tuple[SSAValue, SSAValue]]
) -> tuple[Operation, str] | None:
    """What breaks the assumed invariant: of each pair (c, x), that x is 0 while c is what it started as."""
    if not assumed:
        return None
    values: dict[SSAValue, Value] = {s.old: Old(s.old) for s in own}
    involved = {v for pair in assumed for v in pair}
    for state in own:
        if state.old in involved:
            start = constant(state.start)
            assert start is not None
            values[state.old] = Fill(start)
            if start == NEG_INF and not state.rises:
                return owner(state.new), "is not max(m, ...), so it may fall back to -inf"
    step = Step(own, mask, hidden=False)
    step.run(loop, values)
    for state in own:
        if state.old in involved and step.values[state.new] != values[state.old]:
            return owner(state.new), "does not stay as it started while no key has been seen"
    return None


def owner(v: SSAValue) -> Operation:
    op = v.owner
    if isinstance(op, Operation):
        return op
    up = op.parent_op()
    assert up is not None
    return up


@dataclass
class Step:
    """One evaluation of a loop's body: with nothing visible, or with visible scores of -inf.

    hidden: which of the two. With visible scores 0 times a value is taken for 0: where the value is NaN or
        infinite the row becomes NaN for good.
    assumed: the pairs (m or l, x) of the invariant that a rule relied on.
    """

    states: list[State]
    mask: MaskOp
    hidden: bool = True
    values: dict[SSAValue, Value] = field(default_factory=dict)
    assumed: set[tuple[SSAValue, SSAValue]] = field(default_factory=set)

    def run(self, loop: scf.ForOp, old: dict[SSAValue, Value]) -> None:
        self.values = dict(old)
        for op in loop.body.block.ops:
            if len(op.results) == 1 and op.results[0] not in self.values:
                self.values[op.results[0]] = self.evaluate(op)

    def value(self, v: SSAValue) -> Value:
        number = constant(v)  # wherever it stands
        return self.values.get(v, Term(v)) if number is None else Fill(number)

    def evaluate(self, op: Operation) -> Value:
        unknown = Term(op.results[0])
        args = [self.value(v) for v in op.operands]
        if op is self.mask and self.hidden:
            return HIDDEN
        if isinstance(op, DotOp):
            return self.product(op, unknown)
        rule = RULES.get(type(op))
        found = rule(self, op, *args) if rule else None
        return unknown if found is None else found

    def product(self, op: DotOp, unknown: Value) -> Value:
        nothing = op.where is not None and self.value(op.where) == HIDDEN
        zero = self.value(op.lhs) == Fill(0.0) and not self.hidden
        if not nothing and not zero:
            return unknown
        return Fill(0.0) if op.acc is None else self.value(op.acc)

    def starts_at(self, v: SSAValue) -> float | None:
        return next((constant(s.start) for s in self.states if s.old is v), None)

    def stays_finite(self, m: Value) -> bool:
        """Whether m starts above -inf and never falls."""
        if not isinstance(m, Old):
            return False
        start = self.starts_at(m.which)
        return (
            start is not None and start > NEG_INF and any(s.old is m.which and s.rises for s in self.states)
        )

    def implies_zero(self, cause: Value, x: Value) -> bool:
        """Whether the invariant says: cause at its first value (m = -inf, l = 0) implies x = 0."""
        if not isinstance(cause, Old) or not isinstance(x, Old):
            return False
        first = self.starts_at(cause.which)
        if first not in (NEG_INF, 0.0) or self.starts_at(x.which) != 0.0:
            return False
        if first == 0.0 and not cut_with(cause.which, x.which):
            return False
        self.assumed.add((cause.which, x.which))
        return True


def cut_with(cause: SSAValue, x: SSAValue) -> bool:
    """Whether x is 0, too, in the rows in which the other reads as 0 because its array has no more."""
    if not isinstance(cause.owner, LoadOp):
        return True
    return isinstance(x.owner, LoadOp) and cut_alike(cause.owner, x.owner)


Rule = Callable[..., Value | None]


def numeric(f: Callable[..., float]) -> Rule:
    """Constants are computed with."""

    def rule(step: Step, op: Operation, *args: Value) -> Value | None:
        if not all(isinstance(a, Fill) for a in args):
            return None
        try:
            result = f(*(a.number for a in args if isinstance(a, Fill)))
        except OverflowError:
            return None
        return None if numbers.isnan(result) else Fill(result)

    return rule


def conjunction(step: Step, op: Operation, a: Value, b: Value) -> Value | None:
    return HIDDEN if HIDDEN in (a, b) else None


def select(step: Step, op: Operation, visible: Value, a: Value, b: Value) -> Value | None:
    """What is selected where nothing is visible; and -inf where the scores are that, too."""
    return b if visible == HIDDEN or (not step.hidden and b == Fill(NEG_INF)) else None


def replace(step: Step, op: ReplaceOp, x: Value) -> Value | None:
    from_, to = op.from_.value.data, op.to.value.data
    if isinstance(x, Fill):
        return Fill(to) if x.number == from_ else x
    return Term(("replace", from_, to), (x,))


def add(step: Step, op: Operation, a: Value, b: Value) -> Value | None:
    """x + 0 is x."""
    if Fill(0.0) in (a, b):
        return b if a == Fill(0.0) else a
    return numeric(lambda x, y: x + y)(step, op, a, b)


def subtract(step: Step, op: Operation, a: Value, b: Value) -> Value | None:
    """-inf - finite(m) is -inf; m - finite(m) is -inf or 0, for the exponential's rule."""
    if isinstance(b, Term) and b.name == FINITE:
        if a == Fill(NEG_INF):
            return a
        return Term("gap", b.args) if b.args == (a,) else None
    return numeric(lambda x, y: x - y)(step, op, a, b)


def exponential(base: float) -> Rule:
    def rule(step: Step, op: Operation, x: Value) -> Value | None:
        if isinstance(x, Term) and x.name == "gap":
            return Term("seen", x.args)
        return numeric(lambda y: numbers.exp(y * numbers.log(base)))(step, op, x)

    return rule


def multiply(step: Step, op: Operation, a: Value, b: Value) -> Value | None:
    """x * (1 if m > -inf else 0) is x, where m = -inf implies x = 0."""
    for x, factor in ((a, b), (b, a)):
        if isinstance(factor, Term) and factor.name == "seen":
            (m,) = factor.args
            if step.stays_finite(m) or step.implies_zero(m, x):
                return x
    known = numeric(lambda x, y: x * y)(step, op, a, b)
    return known or Term("product", (a, b))


def divide(step: Step, op: Operation, a: Value, b: Value) -> Value | None:
    """l * x / nonzero(l) is x, where l = 0 implies x = 0.

    To the bit: x is itself a quotient y / l (or 0), and then rounding x * l and the quotient gives x again.
    """
    if isinstance(b, Term) and b.name == NONZERO and isinstance(a, Term) and a.name == "product":
        (total,) = b.args
        for factor, x in (a.args, a.args[::-1]):
            if factor == total and step.implies_zero(total, x):
                return x
    return numeric(lambda x, y: x / y if y else numbers.nan)(step, op, a, b)


def maximum(step: Step, op: Operation, a: Value, b: Value) -> Value | None:
    if Fill(NEG_INF) in (a, b):
        return b if a == Fill(NEG_INF) else a
    return numeric(max)(step, op, a, b)


def hold(step: Step, op: HoldOp, held: Value, followed: Value) -> Value | None:
    if held == followed:
        return held
    return numeric(lambda a, b: a if b - a <= op.by.value.data else b)(step, op, held, followed)


def same(step: Step, op: Operation, x: Value) -> Value | None:
    return x


def rounded(step: Step, op: Operation, x: Value) -> Value | None:
    """0 and infinities are numbers of every type."""
    return x if isinstance(x, Fill) and (x.number == 0 or numbers.isinf(x.number)) else None


def row_sum(step: Step, op: RowSumOp, x: Value) -> Value | None:
    return x if x == Fill(0.0) else None


def row_max(step: Step, op: RowMaxOp, x: Value) -> Value | None:
    return x if isinstance(x, Fill) else None


FINITE, NONZERO = ("replace", NEG_INF, 0.0), ("replace", 0.0, 1.0)
RULES: dict[type[Operation], Rule] = {
    arith.AndIOp: conjunction,
    SelectOp: select,
    ReplaceOp: replace,
    HoldOp: hold,
    BroadcastOp: same,
    arith.AddfOp: add,
    arith.SubfOp: subtract,
    arith.MulfOp: multiply,
    arith.DivfOp: divide,
    arith.MaximumfOp: maximum,
    arith.TruncFOp: rounded,
    math.ExpOp: exponential(numbers.e),
    math.Exp2Op: exponential(2.0),
    RowSumOp: row_sum,
    RowMaxOp: row_max,
}
