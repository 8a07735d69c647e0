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
from xdsl.ir import SSAValue

from flashgen.ir.compute import DotOp, ScaleRowsOp
from flashgen.passes.base import TilePass
from flashgen.passes.edit import erase, remove_dead, swap
from flashgen.passes.patterns import only_use, row_factor, unbroadcast


@dataclass(frozen=True)
class Update:
    """Sums that become a dot's accumulator, and products that become a scaling of rows."""

    sums: tuple[tuple[arith.AddfOp, DotOp, SSAValue], ...]
    """The sum, the dot, and what it is added to."""
    products: tuple[tuple[arith.MulfOp, SSAValue, SSAValue], ...]
    """The product, the tile, and one factor a row."""


@dataclass(frozen=True)
class AccumulatePass(TilePass[Update]):
    name = "accumulate"

    def match(self, module: ModuleOp) -> Update:
        ops = list(module.walk())
        sums = [s for op in ops if isinstance(op, arith.AddfOp) and (s := sum_with_dot(op)) is not None]
        products = [p for op in ops if isinstance(op, arith.MulfOp) and (p := row_product(op)) is not None]
        if not sums and not products:
            self.refuse(module, "no tile is scaled by rows, and no product is added to one")
        return Update(tuple(sums), tuple(products))

    def rewrite(self, module: ModuleOp, match: Update) -> None:
        for total, dot, start in match.sums:
            swap(total, dot.but(acc=start))
            erase(dot)
        for product, tile, factor in match.products:
            swap(product, ScaleRowsOp(tile, factor))
        remove_dead(module)


def sum_with_dot(total: arith.AddfOp) -> tuple[arith.AddfOp, DotOp, SSAValue] | None:
    for value, start in ((total.rhs, total.lhs), (total.lhs, total.rhs)):
        dot = value.owner
        if not isinstance(dot, DotOp) or dot.parent is not total.parent or only_use(value) is None:
            continue
        if dot.acc is None and dot.only is None:
            return total, dot, start
    return None


def row_product(product: arith.MulfOp) -> tuple[arith.MulfOp, SSAValue, SSAValue] | None:
    for wide, tile in ((product.lhs, product.rhs), (product.rhs, product.lhs)):
        factor = row_factor(wide)
        if factor is not None and unbroadcast(tile) is tile:
            return product, tile, factor
    return None
