"""pack: the right sides of products as panels, the layout in which a product reads them.

    k = load;  s = dot q, k transpose             v = load;  y = dot p, v
        ~>   k = load;  kp = pack k transpose;  s = dot q, kp      vp = pack v;  y = dot p, vp

A panel holds ``panel`` columns of the right side for every step of the contraction, so a product reads
it from front to back, and K's needs no transposition any more. A width that is not a multiple of
``panel`` is padded with columns of 0, which the product leaves out of its result.

Legal for what is loaded and read by nothing but products, as their right side, transposed in all of them
or in none. Packing stands behind its load; moving it above loops is another pass's.

Not handled: a right side that is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from flashgen.errors import check_positive
from flashgen.ir.compute import DotOp, PackOp
from flashgen.ir.memory import LoadOp
from flashgen.ir.types import shape_of
from flashgen.passes.base import TilePass
from flashgen.passes.edit import insert_after, swap


@dataclass(frozen=True)
class Packed:
    """A load and the products that read it."""

    load: LoadOp
    dots: tuple[DotOp, ...]
    transpose: bool


@dataclass(frozen=True)
class PackPass(TilePass[list[Packed]]):
    """``panel``: columns of a panel, at least 1."""

    name = "pack"
    panel: int

    def match(self, module: ModuleOp) -> list[Packed]:
        check_positive("panel", self.panel)
        dots = [op for op in module.walk() if isinstance(op, DotOp) and len(shape_of(op.rhs)) == 2]
        loads = dict.fromkeys(dot.rhs.owner for dot in dots)
        found = [self.packed(load) for load in loads if isinstance(load, LoadOp)]
        if not found:
            self.refuse(module, "no product's right side is loaded as a matrix")
        return found

    def packed(self, load: LoadOp) -> Packed:
        uses = list(load.result.uses)
        dots = [use.operation for use in uses if isinstance(use.operation, DotOp) and use.index == 1]
        if len(dots) < len(uses):
            self.refuse(load, "is read otherwise than as the right side of products")
        transpositions = {dot.transpose is not None for dot in dots}
        if len(transpositions) > 1:
            self.refuse(load, "is transposed in one product and not in another")
        return Packed(load, tuple(dots), transpositions.pop())

    def rewrite(self, module: ModuleOp, match: list[Packed]) -> None:
        for found in match:
            pack = PackOp(found.load.result, self.panel, found.transpose)
            if hint := found.load.result.name_hint:
                pack.result.name_hint = f"{hint}_panels"
            insert_after(found.load, pack)
            for dot in found.dots:
                swap(dot, dot.but(rhs=pack.result, transpose=False))
