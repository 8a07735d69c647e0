"""narrow-products: products of what memory holds as bfloat16, in that type, with float32 sums.

    q = load : f32;  k = load : f32;  x = dot q, k transpose      p = exp2 d;  l = row_sum p;  y = dot p, v
        ~>   q = load : bf16;  k = load : bf16;  x = dot q, k transpose
             p = exp2 d;  l = row_sum p;  n = truncf p;  y = dot n, v

What is loaded from bfloat16 memory is exact either way. What is computed, P, is rounded where the product
reads it; its sum is that of P before. So lse, the sum's logarithm, loses nothing, and O becomes an average
whose weights sum to 1 within the roundoff of bfloat16: their errors are of either sign, and each is at most
that share of its weight. A weight of 1 is exact, so that one visible key still gives its value.

Legal where the right side of every product is a matrix loaded from bfloat16 memory, the left side is loaded
from such memory or computed, and nothing but products reads what is loaded.

Not handled: right sides that are packed (run it before pack).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from xdsl.dialects import arith
from xdsl.dialects.builtin import MemRefType, ModuleOp
from xdsl.ir import Operation, SSAValue

from flashgen.ir.compute import DotOp
from flashgen.ir.memory import LoadOp
from flashgen.ir.types import bf16, element_of, f32, shape_of, tile
from flashgen.passes.base import TilePass
from flashgen.passes.edit import insert_before, swap


@dataclass(frozen=True)
class Narrowed:
    """Loads that products alone read, and products whose left side is computed."""

    loads: list[LoadOp]
    computed: list[DotOp]


@dataclass(frozen=True)
class NarrowProductsPass(TilePass[Narrowed]):
    name = "narrow-products"

    def match(self, module: ModuleOp) -> Narrowed:
        dots = [op for op in module.walk() if isinstance(op, DotOp)]
        if not dots:
            self.refuse(module, "there is no product")
        for dot in dots:
            self.check_sides(dot)
        sides = dict.fromkeys(v.owner for dot in dots for v in (dot.lhs, dot.rhs))
        loads = [op for op in sides if isinstance(op, LoadOp)]
        for load in loads:
            self.check_load(load)
        return Narrowed(loads, [dot for dot in dots if not isinstance(dot.lhs.owner, LoadOp)])

    def check_sides(self, dot: DotOp) -> None:
        if element_of(dot.lhs) != f32 or element_of(dot.rhs) != f32:
            self.refuse(dot, "one of its sides is narrow already")
        if not isinstance(dot.rhs.owner, LoadOp) or len(shape_of(dot.rhs)) != 2:
            self.refuse(dot, "its right side is not a matrix as it was loaded")
        if not isinstance(dot.lhs.owner, Operation):
            self.refuse(dot, "its left side is neither loaded nor computed beside it")

    def check_load(self, load: LoadOp) -> None:
        held = cast(MemRefType, load.source.type).element_type
        if held != bf16:
            self.refuse(load, f"its array holds {held}, and only bf16 loses nothing by not being widened")
        if not all(isinstance(use.operation, DotOp) and use.index < 2 for use in load.result.uses):
            self.refuse(load, "is read otherwise than as a side of products")

    def rewrite(self, module: ModuleOp, match: Narrowed) -> None:
        for load in match.loads:
            narrow = tile(*shape_of(load.result), element=bf16)
            swap(load, LoadOp(load.source, load.indices, narrow, load.in_bounds is not None))
        for dot in match.computed:
            dot.operands[0] = rounded_before(dot, dot.lhs)


def rounded_before(dot: DotOp, side: SSAValue) -> SSAValue:
    """The tile, rounded to bfloat16 in front of the product that reads it."""
    narrow = arith.TruncFOp(side, tile(*shape_of(side), element=bf16))
    narrow.result.name_hint = f"{side.name_hint}_narrow" if side.name_hint else None
    insert_before(dot, narrow)
    return narrow.result
