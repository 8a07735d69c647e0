"""accumulate: state that is scaled by rows and added to is updated in place.

    y = x * broadcast f;  d = dot p, v;  z = y + d
        ~>   y = scale_rows x, f;  z = dot p, v acc y

Each half stands alone. In FlashAttention-1's own form the product is scaled as well, so it cannot start
from the state: both are scaled by rows and the sum remains.

Legal when nothing else reads the dot's result and all of its columns are wanted.

Not handled: a dot in another block than the sum.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp

from flashgen.ir.compute import DotOp, ScaleRowsOp
from flashgen.ir.provenance import inherit
from flashgen.passes.base import TilePass
from flashgen.passes.edit import erase, remove_dead, swap
from flashgen.passes.patterns import only_use, row_factor, unbroadcast


@dataclass(frozen=True)
class Update:
    """Sums and products, each with the number of the operand that goes into another operation."""

    sums: list[tuple[arith.AddfOp, int]]
    """That operand is a dot's result, which becomes the sum."""
    products: list[tuple[arith.MulfOp, int]]
    """That operand repeats one factor a row."""


@dataclass(frozen=True)
class AccumulatePass(TilePass[Update]):
    name = "accumulate"

    def match(self, module: ModuleOp) -> Update:
        ops = list(module.walk())
        sums = [(op, n) for op in ops if isinstance(op, arith.AddfOp) and (n := dot_in(op)) is not None]
        products = [(op, n) for op in ops if isinstance(op, arith.MulfOp) and (n := rows_in(op)) is not None]
        if not sums and not products:
            self.refuse(module, "no tile is scaled by rows, and no product is added to one")
        return Update(sums, products)

    def rewrite(self, module: ModuleOp, match: Update) -> None:
        for total, n in match.sums:
            dot = total.operands[n].owner
            assert isinstance(dot, DotOp)
            onto = dot.but(acc=total.operands[1 - n])
            swap(total, onto)
            inherit(onto, [onto, dot])
            erase(dot)
        for product, n in match.products:
            factor = row_factor(product.operands[n])
            assert factor is not None
            swap(product, ScaleRowsOp(product.operands[1 - n], factor))
        remove_dead(module)


def dot_in(total: arith.AddfOp) -> int | None:
    """Which operand is a dot's result that may start from the other operand."""
    for n in (1, 0):
        dot = total.operands[n].owner
        if not isinstance(dot, DotOp) or dot.parent is not total.parent or only_use(dot.result) is None:
            continue
        if dot.acc is None and dot.only is None:
            return n
    return None


def rows_in(product: arith.MulfOp) -> int | None:
    """Which operand repeats one factor a row, the other being a tile."""
    for n in (0, 1):
        tile = product.operands[1 - n]
        if row_factor(product.operands[n]) is not None and unbroadcast(tile) is tile:
            return n
    return None
