"""Index values as linear forms, and who touches what.

A linear form is a sum of coefficient * symbol plus a constant, where a symbol is any SSA value that is
not itself an addition, a subtraction or a multiplication by a constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import BlockArgument, Operation, SSAValue

from flashgen.ir.memory import Access, LoadOp, StoreOp

Substitution = Mapping[SSAValue, SSAValue]


@dataclass(frozen=True)
class Linear:
    """sum of terms[symbol] * symbol, plus constant; no coefficient is 0."""

    terms: Mapping[SSAValue, int] = field(default_factory=dict)
    constant: int = 0

    def __hash__(self) -> int:
        return hash((frozenset(self.terms.items()), self.constant))

    def plus(self, other: Linear, factor: int = 1) -> Linear:
        """self + factor * other."""
        terms = dict(self.terms)
        for symbol, c in other.terms.items():
            terms[symbol] = terms.get(symbol, 0) + factor * c
        nonzero = {symbol: c for symbol, c in terms.items() if c}
        return Linear(nonzero, self.constant + factor * other.constant)

    def offset(self, n: int) -> Linear:
        """self + n."""
        return Linear(self.terms, self.constant + n)

    def without(self, symbol: SSAValue) -> tuple[int, Linear]:
        """The symbol's coefficient, and the rest."""
        rest = dict(self.terms)
        return rest.pop(symbol, 0), Linear(rest, self.constant)


def linear(v: SSAValue, substitution: Substitution | None = None, within: Operation | None = None) -> Linear:
    """The linear form of an index value; symbols are replaced as the substitution says.

    within: an operation with regions; what is defined outside them is a symbol (or a constant) as it is.
    """
    op = v.owner
    if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
        return Linear({}, op.value.value.data)
    known = within is not None and not inside(v, within)
    if not known and isinstance(op, arith.AddiOp | arith.SubiOp | arith.MuliOp):
        a, b = (linear(x, substitution, within) for x in (op.lhs, op.rhs))
        if not isinstance(op, arith.MuliOp):
            return a.plus(b, 1 if isinstance(op, arith.AddiOp) else -1)
        if not a.terms or not b.terms:
            factor, form = (a, b) if not a.terms else (b, a)
            return Linear().plus(form, factor.constant)
    return Linear({(substitution or {}).get(v, v): 1})


def same(a: SSAValue, b: SSAValue, substitution: Substitution | None = None) -> bool:
    """Whether two index values are surely equal."""
    return linear(a, substitution) == linear(b, substitution)


def same_address(a: Access, b: Access, substitution: Substitution | None = None) -> bool:
    """Whether two accesses surely start at the same element of the same array."""
    return a.memref is b.memref and all(
        same(x, y, substitution) for x, y in zip(a.indices, b.indices, strict=True)
    )


def induction(loop: scf.ForOp) -> BlockArgument:
    """The loop's induction variable."""
    return loop.body.block.args[0]


def step_of(loop: scf.ForOp) -> int | None:
    """The loop's step where it is a constant."""
    form = linear(loop.step)
    return None if form.terms else form.constant


def accesses(root: Operation) -> Iterator[Access]:
    """Every load and store below root, in textual order."""
    return (op for op in root.walk() if isinstance(op, LoadOp | StoreOp))


def stored(root: Operation) -> set[SSAValue]:
    """The arrays that something below root stores to."""
    return {op.memref for op in accesses(root) if isinstance(op, StoreOp)}


def inside(v: SSAValue, op: Operation) -> bool:
    """Whether v is defined within op's regions (induction variables and carried values included)."""
    holder = v.owner.parent_op()
    return holder is not None and op.is_ancestor(holder)
