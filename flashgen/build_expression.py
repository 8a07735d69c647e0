"""Masks and scores as operations: scalars, the regions of tile.mask, and operations on tiles.

What depends on neither row nor head is computed once, above the loops that it does not need; what is left of
a mask stands in its region. Of a score, what is made of the score itself becomes stock arithmetic on tiles,
and each largest part that depends on positions alone becomes a tile.mask.

A `not` goes down to comparisons, which have an opposite each, so that analyses see nothing but orderings,
conjunctions and disjunctions. Dividing a whole number by 0 gives 0, and leaves the number itself as rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Attribute, Block, Region, SSAValue

from flashgen.expression import Array, Expression, Scalar
from flashgen.ir.compare import CompareOp
from flashgen.ir.compute import SelectOp
from flashgen.ir.construct import (
    add,
    addf,
    both,
    compare,
    const,
    divf,
    either,
    exactly,
    fill,
    floordiv,
    larger,
    maxf,
    mul,
    mulf,
    smaller,
    sub,
    subf,
)
from flashgen.ir.memory import ElementOp
from flashgen.ir.regions import MaskOp, YieldOp
from flashgen.ir.types import NEG_INF, f32, f64, i1, index, tile
from flashgen.problem import Problem

SCORE = Expression("score")
ZERO = Expression("constant", value=0)
NQ, NK = Expression("length", value="Nq"), Expression("length", value="Nk")
ROW, KEY = Expression("position", value="q"), Expression("position", value="k")
OFFSET = Expression("sub", (NK, NQ))
CAUSAL = {
    "bottom-right": Expression("le", (KEY, Expression("add", (ROW, OFFSET)))),
    "top-left": Expression("le", (KEY, ROW)),
}
"""What `causal` stands for."""
NAMES = {OFFSET: "offset"}
"""What common numbers are called."""

Binary = Callable[[SSAValue, SSAValue], SSAValue]
WHOLE: dict[str, Binary] = {
    "add": add,
    "sub": sub,
    "mul": mul,
    "floordiv": floordiv,
    "mod": lambda a, b: sub(a, mul(floordiv(a, b), b)),
    "minimum": smaller,
    "maximum": larger,
}
REAL: dict[str, Callable[..., SSAValue]] = {
    "add": addf,
    "sub": subf,
    "mul": mulf,
    "div": divf,
    "minimum": lambda a, b: arith.MinimumfOp(a, b).result,
    "maximum": maxf,
    "abs": lambda a: math.AbsFOp(a).result,
    "exp": lambda a: math.ExpOp(a).result,
    "exp2": lambda a: math.Exp2Op(a).result,
    "log": lambda a: math.LogOp(a).result,
    "tanh": lambda a: math.TanhOp(a).result,
}
EXPONENTS: dict[Attribute, tuple[float, float]] = {f32: (-126.0, 128.0), f64: (-1022.0, 1024.0)}
"""The least of a normal number, and the first of which there is none, by the type computed in."""
ORDERINGS = {"lt": ("slt", "olt", "uge"), "le": ("sle", "ole", "ugt")}
"""For whole numbers, for floats, and where it does not hold of floats."""


@lru_cache(1024)
def places(e: Expression) -> frozenset[str]:
    """The positions that an expression depends on, and "score"."""
    leaves = {"position": lambda x: x.value, "score": lambda x: "score"}
    return frozenset(leaves[x.op](x) for x in e.walk() if x.op in leaves)


def conjuncts(e: Expression, holds: bool = True) -> Iterator[tuple[Expression, bool]]:
    """What has to hold, or not to hold, for e to hold."""
    if e.op == "not":
        yield from conjuncts(e.args[0], not holds)
    elif e.op == ("and" if holds else "or"):
        for a in e.args:
            yield from conjuncts(a, holds)
    else:
        yield e, holds


def is_number(e: Expression, x: float) -> bool:
    return e.op == "constant" and e.kind == "float" and e.value == x


def without_hiding(score: Expression) -> tuple[list[Expression], Expression]:
    """The masks that a score states as `where(mask, score, -inf)` at its root, and what is left of it."""
    masks: list[Expression] = []
    while score.op == "where" and "score" not in places(score.args[0]):
        seen, then, otherwise = score.args
        if is_number(otherwise, NEG_INF):
            masks.append(seen)
            score = then
        elif is_number(then, NEG_INF):
            masks.append(Expression("not", (seen,)))
            score = otherwise
        else:
            break
    return masks, score


def may_hide(e: Expression) -> bool:
    """Whether a score may be -inf otherwise than by overflow, given finite scores and scalars."""
    if e.op == "element" or is_number(e, NEG_INF) or is_number(e, -NEG_INF) or e.op == "log":
        return True
    if e.op == "tanh" or e.kind != "float":
        return False
    if e.op == "maximum":
        return all(map(may_hide, e.args))
    if e.op == "div" and not (e.args[1].op == "scalar" or (e.args[1].op == "constant" and e.args[1].value)):
        return True
    return any(may_hide(a) for a in e.args if a.kind == "float")


def is_linear(e: Expression) -> bool:
    """Whether analyses read a whole number as a linear form of row, column and what is known outside."""
    if places(e) <= frozenset("b") or e in (ROW, KEY):
        return True
    if e.op == "mul":
        return all(map(is_linear, e.args)) and any(a.op == "constant" for a in e.args)
    return e.op in ("add", "sub") and all(map(is_linear, e.args))


@dataclass(frozen=True)
class Traits:
    """What passes have to know of a problem's mask and score: which of them find something to do.

    asks_data: whether the mask has a term that is no ordering of linear forms, so that no loop bound says it.
    reads_score: whether the score depends on the product of query and key.
    """

    asks_data: bool
    reads_score: bool

    @classmethod
    def of(cls, problem: Problem) -> Traits:
        masks, score = stated_masks(problem)
        terms = [e for whole in masks for e, _ in conjuncts(whole)]
        linear = all(e.op in ORDERINGS and all(map(is_linear, e.args)) for e in terms)
        return cls(not linear, "score" in places(score))


def stated_masks(problem: Problem) -> tuple[list[Expression], Expression]:
    """All that says what a problem's rows see, and what its scores become."""
    causal = [CAUSAL[problem.causal]] if problem.causal else []
    mask = [problem.mask] if problem.mask is not None else []
    hidden, score = without_hiding(problem.score if problem.score is not None else SCORE)
    return [*causal, *mask, *hidden], score


@dataclass
class Scalars:
    """Expressions as numbers of one place: the function's top, a batch, or a region.

    inputs: the values of arrays and scalars, by name. real: the type computed in. known: what has been
        computed, by kind and expression.
    """

    inputs: Mapping[str, SSAValue]
    real: Attribute
    known: dict[tuple[str, Expression], SSAValue] = field(default_factory=dict)

    def set(self, e: Expression, value: SSAValue) -> None:
        self.known[e.kind, e] = value

    def within(self, **positions: SSAValue) -> Scalars:
        """The same where these positions are known too."""
        inner = Scalars(self.inputs, self.real, dict(self.known))
        for name, value in positions.items():
            inner.set(Expression("position", value=name), value)
        return inner

    def hoist(self, e: Expression, among: frozenset[str] = frozenset()) -> None:
        """Compute the largest parts of e that depend on no other positions."""
        if places(e) <= among:
            value = self.value(e)
            value.name_hint = value.name_hint or NAMES.get(e)
            return
        for a in e.args:
            self.hoist(a, among)

    def value(self, e: Expression) -> SSAValue:
        key = (e.kind, e)
        if key not in self.known:
            self.known[key] = self.make(e)
        return self.known[key]

    def make(self, e: Expression) -> SSAValue:  # noqa: PLR0911
        if e.op in ("scalar", "element"):
            assert isinstance(e.value, Array | Scalar)
            source = self.inputs[e.value.name]
            if e.op == "scalar":
                return source
            return ElementOp(source, [self.value(a) for a in e.args], self.real).result
        if e.kind == "bool":
            return self.condition(e)
        if e.op == "constant":
            return const(e.value) if e.kind == "index" else exactly(e.value, self.real)  # pyright: ignore
        if e.op == "where":
            return arith.SelectOp(*map(self.value, e.args)).result
        if e.op == "float":
            whole = arith.IndexCastOp(self.value(e.args[0]), i64)
            return arith.SIToFPOp(whole, self.real).result  # pyright: ignore[reportArgumentType]
        if e.op == "abs" and e.kind == "index":
            x = self.value(e.args[0])
            return larger(x, sub(self.value(ZERO), x))
        return (WHOLE if e.kind == "index" else REAL)[e.op](*map(self.value, e.args))

    def condition(self, e: Expression, holds: bool = True) -> SSAValue:
        """Whether e holds, or whether it does not."""
        if e.op == "not":
            return self.condition(e.args[0], not holds)
        if e.op in ("and", "or"):
            return (both if (e.op == "and") == holds else either)(*(self.condition(a, holds) for a in e.args))
        if e.op == "where":
            seen, a, b = e.args
            return either(
                both(self.condition(seen), self.condition(a, holds)),
                both(self.condition(seen, False), self.condition(b, holds)),
            )
        if e.op == "constant":
            return compare(self.value(ZERO), "sle" if e.value == holds else "slt", self.value(ZERO))
        if e.op == "element":
            x = self.value(e)
            return x if holds else compare(x, "eq", arith.ConstantOp(IntegerAttr(0, i1)).result)
        return self.comparison(e, holds)

    def comparison(self, e: Expression, holds: bool) -> SSAValue:
        real = e.args[0].kind == "float"
        a, b = map(self.value, e.args)
        if e.op in ORDERINGS:
            whole, ordered, opposite = ORDERINGS[e.op]
            if real:
                return arith.CmpfOp(a, b, ordered if holds else opposite).result
            if holds:
                return compare(a, whole, b)
            return compare(b, "sle" if e.op == "lt" else "slt", a)
        equal = (e.op == "eq") == holds
        if real:
            return arith.CmpfOp(a, b, "oeq" if equal else "une").result
        return compare(a, "eq" if equal else "ne", b)


@dataclass
class Tiles:
    """Expressions as tiles, of the rows from i and the keys from j on. score: the tile of scores so far."""

    scope: Scalars
    i: SSAValue
    j: SSAValue
    shape: tuple[int, int]
    score: SSAValue
    known: dict[tuple[str, Expression], SSAValue] = field(default_factory=dict)

    @property
    def real(self) -> Attribute:
        """The type computed in."""
        return self.scope.real

    def value(self, e: Expression) -> SSAValue:
        key = (e.kind, e)
        if key not in self.known:
            self.known[key] = self.make(e)
        return self.known[key]

    def make(self, e: Expression) -> SSAValue:  # noqa: PLR0911
        if "score" not in places(e):
            return self.positional(e)
        if e.op == "score":
            return self.score
        if e.kind == "bool":
            return self.condition(e)
        if any(a.kind == "index" for a in e.args):
            return self.value(chosen_outside(e))
        if e.op == "where":
            seen, a, b = map(self.value, e.args)
            return SelectOp(seen, a, b).result
        if e.op == "exp2":
            return self.power(self.value(e.args[0]))
        return REAL[e.op](*map(self.value, e.args))

    def power(self, x: SSAValue) -> SSAValue:
        """2^x, exact at integers. Kernels' own exp2 knows the exponents of normal numbers alone."""
        least, beyond = EXPONENTS[self.real]
        low, high, zero, inf = (
            fill(exactly(n, self.real), tile(*self.shape, element=self.real))
            for n in (least, beyond, 0.0, -NEG_INF)
        )
        normal = SelectOp(CompareOp("ole", high, x).result, inf, REAL["exp2"](x)).result
        return SelectOp(CompareOp("olt", x, low).result, zero, normal).result

    def positional(self, e: Expression) -> SSAValue:
        """A part that depends on positions alone."""
        if e.kind == "float" and (e.kind, e) in self.scope.known:
            return fill(self.scope.value(e), tile(*self.shape, element=self.real))
        element = i1 if e.kind == "bool" else self.real
        return mask(self.i, self.j, self.shape, element, lambda row, col: inner(self.scope, e, row, col))

    def condition(self, e: Expression, holds: bool = True) -> SSAValue:
        """Where e holds, or where it does not."""
        if "score" not in places(e):
            return self.value(e) if holds else self.value(Expression("not", (e,)))
        if e.op == "not":
            return self.condition(e.args[0], not holds)
        if e.op in ("and", "or"):
            return (both if (e.op == "and") == holds else either)(*(self.condition(a, holds) for a in e.args))
        if e.op == "where" or (e.op in ("eq", "ne") and e.args[0].kind == "bool"):
            a, b = e.args[-2:]
            seen, b_holds = (e.args[0], holds) if e.op == "where" else (a, (e.op == "eq") == holds)
            first = self.condition(b if e.op != "where" else a, b_holds)
            second = self.condition(b, b_holds if e.op == "where" else not b_holds)
            return either(both(self.condition(seen), first), both(self.condition(seen, False), second))
        if any(a.kind == "index" for a in e.args):
            return self.condition(chosen_outside(e), holds)
        if e.op in ORDERINGS:
            predicate = ORDERINGS[e.op][1 if holds else 2]
        else:
            predicate = "oeq" if (e.op == "eq") == holds else "une"
        return CompareOp(predicate, *map(self.value, e.args)).result


def inner(scope: Scalars, e: Expression, row: SSAValue, col: SSAValue) -> SSAValue:
    return scope.within(q=row, k=col).value(e)


def chosen_outside(e: Expression) -> Expression:
    """f(where(c, a, b)) ~> where(c, f(a), f(b)), where a whole number depends on a score."""
    n, arg = next((n, a) for n, a in enumerate(e.args) if a.kind == "index" and "score" in places(a))
    seen, a, b = (arg if arg.op == "where" else chosen_outside(arg)).args
    sides = (Expression(e.op, (*e.args[:n], x, *e.args[n + 1 :]), e.value) for x in (a, b))
    return Expression("where", (seen, *sides))


def mask(
    i: SSAValue,
    j: SSAValue,
    shape: tuple[int, ...],
    element: object,
    body: Callable[[SSAValue, SSAValue], SSAValue],
) -> SSAValue:
    """A tile.mask whose region is built by a function of row and column."""
    block = Block(arg_types=[index, index])
    row, col = block.args
    row.name_hint, col.name_hint = "row", "col"
    op = MaskOp(i, j, Region(block), shape, element)  # pyright: ignore[reportArgumentType]
    with ImplicitBuilder(block):
        YieldOp(body(row, col))
    return op.result
