"""fold-scale: scalar factors of a dot's result move to its left operand, where that is loaded.

    q = load;  x = dot q, k;  y = x * scale * c
        ~>   q = load;  qs = q * (scale * c);  y = dot qs, k

The product of the scalars goes above all loops in which they do not change. A row of q is multiplied
once for as long as it is kept, a row of scores no more.

Legal because a product is linear in its left side; the dot must not add to an accumulator, and the
factors must be known where the left side is loaded. The sign of a factor does not matter.

Not handled: a left side that is not loaded as it is; factors of the result that several values share.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from flashgen.ir.compute import DotOp
from flashgen.ir.memory import LoadOp
from flashgen.passes.base import TilePass
from flashgen.passes.edit import erase, insert_after, insert_before, remove_dead, scaled
from flashgen.passes.patterns import is_above, only_use, outermost, scalar_factor


@dataclass(frozen=True)
class Scaled:
    """A dot, the multiplications of its result in order, and their scalars."""

    dot: DotOp
    products: tuple[arith.MulfOp, ...]
    factors: tuple[SSAValue, ...]


@dataclass(frozen=True)
class FoldScalePass(TilePass[list[Scaled]]):
    name = "fold-scale"

    def match(self, module: ModuleOp) -> list[Scaled]:
        found = [s for op in module.walk() if isinstance(op, DotOp) and (s := factors_of(op)) is not None]
        if not found:
            self.refuse(module, "no dot's result is multiplied by a scalar")
        for s in found:
            load = s.dot.lhs.owner
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
    place = outermost(load, s.factors)
    factor = s.factors[0]
    for other in s.factors[1:]:
        product = arith.MulfOp(factor, other)
        insert_before(place, product)
        factor = product.result
    if len(s.factors) > 1:
        factor.name_hint = "factor"
    wide, result = scaled(s.dot.lhs, factor)
    result.result.name_hint = f"{load.result.name_hint}s" if load.result.name_hint else None
    insert_after(load, wide, result)
    return result.result
