"""Linear forms and bounds, back into operations: each function appends at the implicit builder."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.ir import Operation, SSAValue

from flashgen.analysis.linear import Linear
from flashgen.analysis.predicate import Bound
from flashgen.ir.construct import add, both, compare, larger, mul, smaller, sub
from flashgen.passes.edit import shared_index


def emit(form: Linear, near: Operation) -> SSAValue:
    """The form's value, without a term that is 0; constants are shared at the top of near's function."""
    terms = sorted(form.terms.items(), key=lambda term: term[1] < 0)
    constant = form.constant
    if not terms or terms[0][1] < 0:  # nothing positive to start from: constant - symbol ...
        total, constant = shared_index(near, constant), 0
    else:
        (symbol, c), *terms = terms
        total = times(symbol, c, near)
    for symbol, c in terms:
        total = add(total, times(symbol, c, near)) if c > 0 else sub(total, times(symbol, -c, near))
    return add(total, shared_index(near, constant)) if constant else total


def times(symbol: SSAValue, c: int, near: Operation) -> SSAValue:
    return symbol if c == 1 else mul(symbol, shared_index(near, c))


def emit_bound(bound: Bound, near: Operation) -> SSAValue:
    """A form's value, or the largest or smallest of several."""
    if isinstance(bound, Linear):
        return emit(bound, near)
    first, *others = (emit_bound(b, near) for b in bound.bounds)
    for other in others:
        first = larger(first, other) if bound.largest else smaller(first, other)
    return first


def emit_at_most_zero(form: Linear, near: Operation) -> SSAValue:
    """i1: form <= 0, as an ordering of its positive against its negative part."""
    left = Linear({s: c for s, c in form.terms.items() if c > 0})
    right = Linear({s: -c for s, c in form.terms.items() if c < 0})
    if form.constant == 1:
        return compare(emit(left, near), "slt", emit(right, near))
    if form.constant > 0:
        left = left.offset(form.constant)
    else:
        right = right.offset(-form.constant)
    return compare(emit(left, near), "sle", emit(right, near))


def emit_all(forms: tuple[Linear, ...], near: Operation) -> SSAValue:
    """i1: every form is at most 0; there is at least one."""
    first, *others = (emit_at_most_zero(form, near) for form in forms)
    for other in others:
        first = both(first, other)
    return first


def choose(condition: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
    """a where the condition holds, else b."""
    return arith.SelectOp(condition, a, b).result
