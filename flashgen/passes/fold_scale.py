"""fold-scale: scalar factors of a dot's result move to its left operand, where that is loaded.

    q = load;  x = dot q, k;  y = x * scale * c
        ~>   q = load;  qs = q * (scale * c);  y = dot qs, k

The product of the scalars goes above all loops in which they do not change. A row of q is multiplied
once for as long as it is kept, a row of scores no more.

    q = load : bf16;  x = dot q, k;  y = x * scale * c   ~>   x = dot q, k;  y = x * (scale * c)

A left side that is narrower than what is computed in stays as it is, which a factor would round: the factors
become one.

Legal because a product is linear in its left side; the dot must not add to an accumulator, and the
factors must be known where the left side is loaded. The sign of a factor does not matter.

Not handled: a left side that is not loaded as it is; factors of the result that several values share.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from flashgen.ir.compute import DotOp
from flashgen.ir.memory import LoadOp
from flashgen.ir.types import NARROW, element_of
from flashgen.passes.base import TilePass
from flashgen.passes.edit import erase, insert_after, insert_before, remove_dead, scaled
from flashgen.passes.patterns import is_above, only_use, outermost, scalar_factor


@dataclass(frozen=True)
class Scaled:
    """A dot, the multiplications of its result in order, and their scalars."""

    dot: DotOp
    products: tuple[arith.MulfOp, ...]
    factors: tuple[SSAValue, ...]

    @property
    def narrow(self) -> bool:
        """Whether the left operand times a factor would be rounded to less than what is computed in."""
        return element_of(self.dot.lhs) in NARROW


@dataclass(frozen=True)
class FoldScalePass(TilePass[list[Scaled]]):
    name = "fold-scale"

    def match(self, module: ModuleOp) -> list[Scaled]:
        found = [s for op in module.walk() if isinstance(op, DotOp) and (s := factors_of(op)) is not None]
        if not found:
            self.refuse(module, "no dot's result is multiplied by a scalar")
        for s in found:
            load = s.dot.lhs.owner
            if s.narrow:
                continue
            if not isinstance(load, LoadOp):
                self.refuse(
                    s.dot, "its left operand is not loaded, so the factor would be applied again and again"
                )
            if s.dot.acc is not None:
                self.refuse(s.dot, "the factor applies to its accumulator as well")
            if not all(is_above(f, load) for f in s.factors):
                self.refuse(load, "a factor is not known yet where the left operand is loaded")
        return found

    def rewrite(self, module: ModuleOp, match: list[Scaled]) -> None:
        done: dict[tuple[SSAValue, ...], SSAValue] = {}
        for s in match:
            if s.narrow:
                scale_result(s)
                continue
            key = (s.dot.lhs, *s.factors)
            if key not in done:
                done[key] = scale_where_loaded(s)
            s.dot.operands[0] = done[key]
            s.products[-1].result.replace_all_uses_with(s.dot.result)
            erase(*reversed(s.products))
        remove_dead(module)


def factors_of(dot: DotOp) -> Scaled | None:
    """The longest chain of multiplications by scalars that starts at a dot's result."""
    products: list[arith.MulfOp] = []
    factors: list[SSAValue] = []
    value = dot.result
    while (use := only_use(value)) is not None and isinstance(product := use.operation, arith.MulfOp):
        factor = scalar_factor(product.operands[1 - use.index])
        if factor is None:
            break
        products.append(product)
        factors.append(factor)
        value = product.result
    return Scaled(dot, tuple(products), tuple(factors)) if products else None


def scale_where_loaded(s: Scaled) -> SSAValue:
    """The left operand times all factors."""
    load = s.dot.lhs.owner
    assert isinstance(load, LoadOp)
    wide, result = scaled(s.dot.lhs, one_factor(s, load))
    result.result.name_hint = f"{load.result.name_hint}s" if load.result.name_hint else None
    insert_after(load, wide, result)
    return result.result


def scale_result(s: Scaled) -> None:
    """The dot's result times all factors at once, where the last of them was."""
    last = s.products[-1]
    wide, result = scaled(s.dot.result, one_factor(s, last))
    result.result.name_hint = last.result.name_hint
    insert_before(last, wide, result)
    last.result.replace_all_uses_with(result.result)
    erase(*reversed(s.products))


def one_factor(s: Scaled, near: Operation) -> SSAValue:
    """The product of the factors, above all loops around ``near`` in which they do not change."""
    place, factor = outermost(near, s.factors), s.factors[0]
    for other in s.factors[1:]:
        product = arith.MulfOp(factor, other)
        insert_before(place, product)
        factor = product.result
    if len(s.factors) > 1:
        factor.name_hint = "factor"
    return factor
