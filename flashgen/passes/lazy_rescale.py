"""lazy-rescale: keep l * O, divide once behind the key loop, and take one exponential a score.

    p = exp(s - finite(mt));  beta = exp(mt - top);  lo = l * alpha          (top = finite(max(m, mt)))
    l' = lo + beta * row_sum p;  O' = (lo * O + beta * (p @ v)) / nonzero(l')
    behind the loop: load O
  ~>
    p = exp(s - top)
    l' = l * alpha + row_sum p;  X' = alpha * X + p @ v
    behind the loop: load X / nonzero(load l)

FlashAttention-2's first tweak (Dao 2023, section 3.1).
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import arith, math, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint

from flashgen.analysis.dependence import strangers
from flashgen.analysis.linear import inside, same
from flashgen.analysis.padding import cut_alike
from flashgen.analysis.state import (
    Cell,
    cells,
    correspondence,
    initial_store,
    is_after,
    others,
    outside,
    updating_loop,
)
from flashgen.ir.compute import DotOp, ReplaceOp, RowMaxOp, RowSumOp
from flashgen.ir.construct import divf, named, nonzero, rows
from flashgen.ir.memory import LoadOp
from flashgen.ir.provenance import claim
from flashgen.ir.types import COMPUTED, element_of
from flashgen.passes.base import TilePass
from flashgen.passes.edit import insert_after, remove_dead
from flashgen.passes.patterns import guards, is_finite_guard, only_use, splat, unbroadcast


@dataclass(frozen=True)
class Later:
    """A load of O behind the loop, and the address of its row sums there."""

    load: LoadOp
    total: list[SSAValue]


@dataclass(frozen=True)
class Place:
    """Where O and l are kept, and where O is wanted back."""

    divide: arith.DivfOp
    acc: Cell
    total: Cell
    later: list[Later]


@dataclass(frozen=True)
class Update:
    """The new contributions, by the names of the module's docstring."""

    kept: arith.MulfOp
    """lo * O"""
    alpha: SSAValue
    fresh: SSAValue
    """beta * (p @ v)"""
    fresh_sum: SSAValue
    """beta * row_sum p"""
    dot: DotOp
    row_sum: RowSumOp
    exponent: arith.SubfOp
    """s - finite(mt)"""
    top: SSAValue


@dataclass(frozen=True)
class LazyRescalePass(TilePass[tuple[Place, Update]]):
    """Carry X = l * O in place of O.

    Legal when
    - O and l start as 0, so that X = l * O holds before the first step, and l' = 0 only where nothing was
      visible yet, where X' is 0 as O' was;
    - O and l lie in arrays that cut the same rows: beyond a bound both read as 0, or neither does;
    - O is read by its own update alone, and by loads behind the loop, where l still is what it was there;
    - m' = max(m, mt) with mt the row maximum of the same scores: the merged exponent is never positive;
    - O is kept in float32 or float64: l * O exceeds the range of a narrower type long before O does.
    Exact in real numbers; roundings differ, so the bits of the result do too.
    Not handled: state in loop-carried values (run it before keep-state); state that starts outside the loops
    around its update (run it before interchange or behind fuse-loops); exp2; sweeps.
    """

    name = "lazy-rescale"

    def match(self, module: ModuleOp) -> tuple[Place, Update]:
        divisions = [op for op in module.walk() if isinstance(op, arith.DivfOp)]
        found = [(op, *pair) for op in divisions if (pair := divided(op))]
        if len(found) != 1:
            count = len(found) or "no"
            self.refuse(module, f"{count} tiles in memory are divided by a row sum in memory; one is wanted")
        place = self.check_place(*found[0])
        return place, self.check_update(place)

    def check_place(self, divide: arith.DivfOp, acc: Cell, total: Cell) -> Place:
        """That X = l * O may stand where O does."""
        loop = updating_loop(acc)
        if loop is None or updating_loop(total) is not loop:
            self.refuse(divide, "no loop updates both the output and its row sum")
        for op in strangers(loop):
            self.refuse(op, "has an effect that is not understood")
        if len(acc.load.indices) != len(total.load.indices) + 1 or not same_rows(acc, total):
            self.refuse(total.load, "the row sum's rows are not the output's")
        for cell, what in ((acc, "the output"), (total, "the row sum")):
            self.check_start(cell, what, loop)
        if not (cut_alike(acc.load, total.load) and cut_alike(total.load, acc.load)):
            self.refuse(total.load, "the row sum's array may cut other rows than the output's")
        if element_of(acc.array) not in COMPUTED:
            self.refuse(acc.store, "l * O may exceed the range of the type O is kept in; float32 is wanted")
        later = [op for op in outside(acc.array, loop) if isinstance(op, LoadOp)]
        return Place(divide, acc, total, [self.locate(op, acc, total, loop) for op in later])

    def check_start(self, cell: Cell, what: str, loop: scf.ForOp) -> None:
        start = initial_store(cell, loop)
        if start is None or splat(start.value) != 0:
            self.refuse(cell.load, f"{what} is not known to start as 0")
        for op in others(cell, loop):
            self.refuse(op, f"a second access to {what} in the loop that updates it")

    def locate(self, load: LoadOp, acc: Cell, total: Cell, loop: scf.ForOp) -> Later:
        theirs = correspondence(load, acc, loop) if is_after(load, loop) else None
        if theirs is None:
            self.refuse(load, "reads the output otherwise than tile by tile behind the loop that updates it")
        address = [theirs.get(v, v) for v in total.load.indices]
        if any(inside(v, loop) for v in address):
            self.refuse(total.load, "its address is not known behind the loop; plain indices are wanted")
        return Later(load, address)

    def check_update(self, place: Place) -> Update:
        """The arithmetic, from the division upwards."""
        divide, acc, total = place.divide, place.acc, place.total
        use = only_use(acc.old)
        kept = use.operation if use else None
        decayed = cofactor(kept.results[0], acc.old) if isinstance(kept, arith.MulfOp) else None
        alpha = cofactor(decayed, total.old) if decayed else None
        if not isinstance(kept, arith.MulfOp) or decayed is None or alpha is None:
            self.refuse(acc.load, "the old output is used otherwise than as l * alpha * O")
        if only_use(acc.new) is None:
            self.refuse(divide, "the normalised output is used before the loop ends")
        fresh, fresh_sum = addend(divide.lhs, kept.result), addend(total.new, decayed)
        beta = common_factor(fresh, fresh_sum) if fresh and fresh_sum else None
        if fresh is None or fresh_sum is None or beta is None:
            self.refuse(divide, "output and row sum are not what is kept plus one factor times what is new")
        product, row_sum = cofactor(fresh, beta), cofactor(fresh_sum, beta)
        dot, total_new = self.check_new(divide, product, row_sum)
        exponent, top = self.check_exponents(dot, alpha, beta)
        return Update(kept, alpha, fresh, fresh_sum, dot, total_new, exponent, top)

    def check_new(
        self, divide: arith.DivfOp, product: SSAValue | None, row_sum: SSAValue | None
    ) -> tuple[DotOp, RowSumOp]:
        """p @ v and row_sum p, of one p that nothing else uses; and nothing else uses them."""
        dot, total = (v.owner if v else None for v in (product, row_sum))
        if not isinstance(dot, DotOp) or not isinstance(total, RowSumOp) or dot.acc or dot.over or total.over:
            self.refuse(divide, "what is new in output and row sum is not p @ v and the row sum of p")
        if users(dot.lhs) not in ([dot, total], [total, dot]):
            self.refuse(dot, "product and row sum are not of one p, or p is used elsewhere")
        if not only_use(dot.result) or not only_use(total.result):
            self.refuse(dot, "what is new is used before it is rescaled")
        return dot, total

    def check_exponents(self, dot: DotOp, alpha: SSAValue, beta: SSAValue) -> tuple[arith.SubfOp, SSAValue]:
        """p = exp(s - finite(mt)) with mt = row_max s; alpha = exp(m - top) and beta = exp(mt - top)."""
        exponent, decay, merge = (difference(v) for v in (dot.lhs, alpha, beta))
        if exponent is None or decay is None or merge is None:
            self.refuse(dot, "p, alpha and beta are not exponentials of differences")
        tile_max, top = merge.lhs, merge.rhs
        shift = unbroadcast(exponent.rhs)
        row_max = tile_max.owner
        if not isinstance(row_max, RowMaxOp) or row_max.operand is not exponent.lhs or row_max.over:
            self.refuse(merge, "beta does not rescale from the maximum of p's own scores")
        if finite_of(shift) is not tile_max or not only_use(exponent.result):
            self.refuse(exponent, "p is not relative to the maximum that beta rescales from")
        new_max = finite_of(top)
        largest = new_max.owner if new_max else None
        if not isinstance(largest, arith.MaximumfOp) or set(largest.operands) != {decay.lhs, tile_max}:
            self.refuse(merge, "is not relative to max(m, mt), so the merged exponent could be positive")
        if decay.rhs is not top:
            self.refuse(decay, "alpha and beta are not relative to the same maximum")
        return exponent, top

    def rewrite(self, module: ModuleOp, match: tuple[Place, Update]) -> None:
        place, new = match
        divide_later(place)
        self.merge_exponentials(new)
        with ImplicitBuilder(Builder(InsertPoint.before(new.kept))):
            new.kept.operands = [rows(new.alpha, place.acc.old), place.acc.old]
        claim(new.kept, self.name)
        total = place.divide.lhs
        total.name_hint = place.acc.new.name_hint
        place.divide.result.replace_all_uses_with(total)
        remove_dead(module)

    def merge_exponentials(self, new: Update) -> None:
        """beta * f(exp(s - mt))  ~>  f(exp(s - top))  for f linear: the product with v, and the row sum."""
        p = new.dot.lhs.owner
        assert isinstance(p, math.ExpOp) and isinstance(new.top.owner, Operation)
        with ImplicitBuilder(Builder(InsertPoint.after(new.top.owner))):
            new.exponent.operands[1] = rows(new.top, new.exponent.rhs)
        last = new.exponent.rhs.owner
        assert isinstance(last, Operation)
        for op in (new.exponent, p, new.row_sum, new.dot):
            if op.is_before_in_block(last):
                op.detach()
                insert_after(last, op)
            last = op
            claim(op, self.name)
        new.fresh.replace_all_uses_with(new.dot.result)
        new.fresh_sum.replace_all_uses_with(new.row_sum.result)


def divide_later(place: Place) -> None:
    """load O  ~>  load X / nonzero(load l), behind the loop."""
    for later in place.later:
        x = later.load.result
        uses = list(x.uses)
        with ImplicitBuilder(Builder(InsertPoint.after(later.load))):
            total = LoadOp(place.total.array, later.total, place.total.old.type).result
            divisor = named("divisor", nonzero(total))
            out = divf(x, rows(divisor, x))
        out.name_hint = x.name_hint
        for use in uses:
            use.operation.operands[use.index] = out


def divided(divide: arith.DivfOp) -> tuple[Cell, Cell] | None:
    """The cell that the quotient goes to, and that of the row sum that it is divided by."""
    guard = unbroadcast(divide.rhs)
    divisor = guard.owner.operand if isinstance(guard.owner, ReplaceOp) and guards(guard, 0.0, 1.0) else None
    if divisor is None or divide.parent is None:
        return None
    known = list(cells(divide.parent))
    acc = next((c for c in known if c.new is divide.result), None)
    total = next((c for c in known if c.new is divisor), None)
    return (acc, total) if acc and total else None


def same_rows(acc: Cell, total: Cell) -> bool:
    return all(same(x, y) for x, y in zip(acc.load.indices[:-1], total.load.indices, strict=True))


def partner(kind: type[Operation], result: SSAValue, v: SSAValue) -> SSAValue | None:
    """The other operand of a commutative operation, broadcasts looked through."""
    if not isinstance(result.owner, kind):
        return None
    a, b = result.owner.operands
    if v in (a, unbroadcast(a)):
        return unbroadcast(b)
    return unbroadcast(a) if v in (b, unbroadcast(b)) else None


def cofactor(product: SSAValue, factor: SSAValue) -> SSAValue | None:
    """a, where product = a * factor."""
    return partner(arith.MulfOp, product, factor)


def addend(total: SSAValue, term: SSAValue) -> SSAValue | None:
    """a, where total = a + term."""
    return partner(arith.AddfOp, total, term)


def common_factor(a: SSAValue, b: SSAValue) -> SSAValue | None:
    """What multiplies both."""
    factors = [
        [unbroadcast(v) for v in x.owner.operands] for x in (a, b) if isinstance(x.owner, arith.MulfOp)
    ]
    return next((v for v in factors[0] if v in factors[1]), None) if len(factors) == 2 else None


def users(v: SSAValue) -> list[Operation]:
    return [use.operation for use in v.uses]


def finite_of(v: SSAValue) -> SSAValue | None:
    """m, where v is m with 0 in place of -inf."""
    return v.owner.operand if isinstance(v.owner, ReplaceOp) and is_finite_guard(v) else None


def difference(v: SSAValue) -> arith.SubfOp | None:
    """The subtraction that v is the exponential of."""
    inner = v.owner.operands[0].owner if isinstance(v.owner, math.ExpOp) else None
    return inner if isinstance(inner, arith.SubfOp) else None
