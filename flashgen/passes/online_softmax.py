"""The step of online softmax: what passes that change its reference have to know of it.

    m' = max(m, row_max s);  p = exp2(s - finite(m'));  alpha = exp2(m - finite(m'))
    l' = l * alpha + row_sum p;  acc' = acc * alpha + dot p, v

and behind the loop O = acc / nonzero(l), or acc * (1 / nonzero(l)), and lse = finite(m) * ln 2 + ln l. Both
are the same for any reference m in place of the maximum, if only
- the weights are exp2(s - m') and go into the row sum and the product with V alone;
- what was there before, and nothing else, is multiplied by exp2(m - m');
- a step reads the state for these alone, and what it makes of it becomes the state and nothing else;
- acc is read only to be divided by l, and l and m only for that and for the logarithm;
- m, l and acc are of the same rows at all times, and in memory lie in arrays that cut the same ones: what is
  beyond an array's bound reads as 0, whatever the reference;
- memory that holds the state is the kernel's own, is stored to once in front of the loop that updates it, and
  is read behind that.

So m may be less than the maximum; and sums over some keys, scaled by exp2(m - m'), may be added to sums over
others.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import log

from xdsl.dialects import arith, math, memref, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import BlockArgument, Operation, SSAValue, Use

from flashgen.analysis.linear import same
from flashgen.analysis.neutral import State, states
from flashgen.analysis.padding import cut_alike
from flashgen.analysis.state import Cell, cells, initial_store, is_after, others, outside, updating_loop
from flashgen.ir.compute import BroadcastOp, DotOp, HoldOp, ReplaceOp, RowMaxOp, RowSumOp
from flashgen.ir.memory import LoadOp, StoreOp
from flashgen.passes.base import Match, TilePass
from flashgen.passes.patterns import (
    guards,
    is_finite_guard,
    only_use,
    read_rounded,
    splat,
    unbroadcast,
    unrounded,
)


@dataclass(frozen=True)
class Running:
    """A step in its loop: the running maximum, and the state m, l and acc as it finds and leaves them."""

    loop: scf.ForOp
    maximum: arith.MaximumfOp
    m: State
    total: State
    acc: State

    @property
    def state(self) -> tuple[State, State, State]:
        return self.m, self.total, self.acc


class OnlineSoftmaxPass(TilePass[Match]):
    """A pass that is legal for these steps alone.

    Not handled: exponentials of base e (run base-2 before it); an accumulator that is normalised in every
    step (run lazy-rescale before it); sweeps, several loops over one state, products onto an accumulator (run
    it before fuse-sweeps, causal-skip and accumulate).
    """

    def steps(self, module: ModuleOp) -> list[Running]:
        """All of a module; refuses where there is none, and what is of another form."""
        maxima = [op for op in module.walk() if isinstance(op, arith.MaximumfOp) and row_maximum(op)]
        if not maxima:
            self.refuse(module, "no running maximum of row maxima")
        return [self.running(op) for op in maxima]

    def running(self, maximum: arith.MaximumfOp) -> Running:
        loop = maximum.parent_op()
        own = states(loop) if isinstance(loop, scf.ForOp) else []
        top = reference(maximum)
        m = next((s for s in own if s.new is top and s.old in maximum.operands), None)
        row_max = row_maximum(maximum)
        if m is None:
            self.refuse(maximum, "is not the state that it is compared with, one step later")
        # states() is empty without a loop; steps() asked for the row maximum
        assert isinstance(loop, scf.ForOp) and row_max is not None
        weights, factor = self.exponentials(maximum, row_max, m)
        scaled = [self.scaled(use, own) for use in spread(factor)]
        fresh, users = {op for _, _, op in scaled}, {use.operation for use in read_rounded(weights)}
        for op in (*users - fresh, *fresh - users):
            self.refuse(op, "is not both made of the weights and added to what is rescaled")
        for op in fresh:
            if isinstance(op, DotOp) and (unrounded(op.lhs) is not weights or op.acc is not None):
                self.refuse(op, "is not a product of the weights alone with something else")
        for state, kept, _ in scaled:
            self.check_step(state, kept)
        total = [s for s, _, op in scaled if isinstance(op, RowSumOp)]
        acc = [s for s, _, op in scaled if isinstance(op, DotOp)]
        if len(total) != 1 or len(acc) != 1:
            self.refuse(maximum, "one row sum and one product are wanted that its weights go into")
        found = Running(loop, maximum, m, total[0], acc[0])
        self.check_rows(found)
        self.check_behind(loop, *found.state)
        return found

    def exponentials(
        self, maximum: arith.MaximumfOp, row_max: RowMaxOp, m: State
    ) -> tuple[SSAValue, SSAValue]:
        """exp2(s - finite(m')) and exp2(m - finite(m')): m and m' are read for these and no more."""
        weights: list[SSAValue] = []
        factors: list[SSAValue] = []
        reads: list[Operation] = [maximum, owner(m.new)]
        for use in m.new.uses:
            top = use.operation
            if becomes(use, m):
                continue
            if not isinstance(top, ReplaceOp) or not is_finite_guard(top.result):
                self.refuse(top, "reads the maximum otherwise than to subtract it")
            for reader in spread(top.result):
                gap = reader.operation
                if not isinstance(gap, arith.SubfOp) or unbroadcast(gap.rhs) is not top.result:
                    self.refuse(gap, "reads the maximum otherwise than to subtract it")
                kind = {row_max.operand: weights, m.old: factors}.get(gap.lhs)
                if kind is None:
                    self.refuse(gap, "rescales what is new, too: run lazy-rescale before")
                kind.append(self.exponential(gap))
                reads.append(gap)
        self.check_read(m.old, reads)
        if len(weights) != 1 or len(factors) != 1:
            self.refuse(maximum, "one exponential of scores and one of the old maximum are wanted")
        return weights[0], factors[0]

    def exponential(self, gap: arith.SubfOp) -> SSAValue:
        use = only_use(gap.result)
        if use is None or not isinstance(use.operation, math.Exp2Op):
            self.refuse(gap, "is no exponent of base 2: run base-2 before")
        return use.operation.result

    def scaled(self, use: Use, own: list[State]) -> tuple[State, Operation, Operation]:
        """What becomes of x * alpha: the state that x was and is again, x * alpha, and what is added."""
        kept = use.operation
        total = only_use(kept.results[0]) if isinstance(kept, arith.MulfOp) else None
        if total is None or not isinstance(total.operation, arith.AddfOp):
            self.refuse(kept, "is scaled otherwise than to be added to")
        old = kept.operands[1 - use.index]
        fresh = total.operation.operands[1 - total.index].owner
        state = next((s for s in own if s.old is old and s.new is total.operation.result), None)
        if state is None or not isinstance(fresh, RowSumOp | DotOp) or only_use(fresh.results[0]) is None:
            self.refuse(total.operation, "is not state times a factor plus a sum of weights")
        return state, kept, fresh

    def check_rows(self, step: Running) -> None:
        """That one loop carries m, l and acc, or one loop updates them at rows that their arrays share."""
        kept = [cell_of(s, step.loop) for s in step.state if not isinstance(s.old, BlockArgument)]
        if not kept:
            return
        first = kept[0]
        alike = all(same_rows(first.load, c.load) and updating_loop(first) is updating_loop(c) for c in kept)
        if len(kept) < len(step.state) or not alike:
            self.refuse(step.maximum, "row sum and product are not kept beside it, for the same rows")
        for cell in kept:
            if not (cut_alike(first.load, cell.load) and cut_alike(cell.load, first.load)):
                self.refuse(cell.load, "its array may cut other rows than the maximum's")

    def check_step(self, state: State, kept: Operation) -> None:
        """That a step reads the state to rescale it alone, and that what it adds up is the state alone."""
        self.check_read(state.old, [kept])
        for use in state.new.uses:
            if not becomes(use, state):
                self.refuse(use.operation, "reads the state in the midst of a loop")

    def check_read(self, old: SSAValue, allowed: list[Operation]) -> None:
        """That a step reads what the state was for these operations alone."""
        for use in spread(old):
            if use.operation not in allowed:
                self.refuse(use.operation, "reads the state in the midst of a loop")

    def check_behind(self, loop: scf.ForOp, *own: State) -> None:
        """That O = acc / l and lse = finite(m) * ln 2 + ln l are all that is made of the state."""
        m, total, acc = (self.finals(loop, s) for s in own)
        inner: list[Operation] = []
        ends: list[Operation] = []
        for found in (*quotients(acc, total), *logsumexps(m, total)):
            ends.append(found[0])
            inner += found[1:]
        for v in (*m, *total, *acc, *(op.results[0] for op in inner)):
            for use in spread(v):
                if use.operation not in (*inner, *ends):
                    self.refuse(use.operation, "reads the state otherwise than for acc / l and m + ln l")

    def finals(self, loop: scf.ForOp, state: State) -> list[SSAValue]:
        """What is read of a state outside the step: the loop's result, or what is loaded from its array."""
        if isinstance(state.old, BlockArgument):
            return [loop.results[number(state)]]
        cell = cell_of(state, loop)
        outer = self.check_memory(cell)
        return [op.result for op in outside(cell.array, outer) if isinstance(op, LoadOp)]

    def check_memory(self, cell: Cell) -> scf.ForOp:
        """That the kernel alone has the memory, stores once in front of the loop given, and reads behind."""
        if not isinstance(cell.array.owner, memref.AllocOp):
            self.refuse(cell.load, "loads state from an array that is not the kernel's own")
        for use in cell.array.uses:
            if not isinstance(use.operation, LoadOp | StoreOp):
                self.refuse(use.operation, "uses the state otherwise than tile by tile")
        outer = updating_loop(cell)
        if outer is None or initial_store(cell, outer) is None:
            self.refuse(cell.load, "its state is not stored once, in front of the loop that updates it")
        for op in others(cell, outer):
            self.refuse(op, "touches the state beside the step, in the loop that updates it")
        for op in outside(cell.array, outer):
            if isinstance(op, LoadOp) and not is_after(op, outer):
                self.refuse(op, "reads the state in front of the loop that updates it")
        return outer


def number(state: State) -> int:
    """Which of the values that its loop carries a state is."""
    assert isinstance(state.old, BlockArgument)
    return state.old.index - 1


def cell_of(state: State, loop: scf.ForOp) -> Cell:
    """The place in memory of state that is not carried."""
    return next(c for c in cells(loop.body.block) if c.old is state.old and c.new is state.new)


def becomes(use: Use, state: State) -> bool:
    """Whether the use passes on what the state is to be."""
    op, old = use.operation, state.old
    if isinstance(old, BlockArgument):
        return isinstance(op, scf.YieldOp) and use.index == number(state)
    return isinstance(op, StoreOp) and isinstance(old.owner, LoadOp) and op.memref is old.owner.memref


def reference(maximum: arith.MaximumfOp) -> SSAValue:
    """What the exponentials refer to: the maximum, or what is held until that is far above it."""
    use = only_use(maximum.result)
    held = use.operation if use is not None else None
    follows = isinstance(held, HoldOp) and held.held in maximum.operands
    return held.result if follows and isinstance(held, HoldOp) else maximum.result


def row_maximum(op: arith.MaximumfOp) -> RowMaxOp | None:
    """The row maximum that is one side of op."""
    return next((v.owner for v in op.operands if isinstance(v.owner, RowMaxOp)), None)


def spread(v: SSAValue) -> Iterator[Use]:
    """The uses of v, and in place of a broadcast that one's."""
    for use in v.uses:
        if isinstance(use.operation, BroadcastOp):
            yield from use.operation.result.uses
        else:
            yield use


def quotients(acc: list[SSAValue], total: list[SSAValue]) -> Iterator[list[Operation]]:
    """The operations of acc / nonzero(l), or of acc * (1 / nonzero(l)), the last first."""
    for v in acc:
        for use in v.uses:
            last, found = use.operation, [use.operation]
            if isinstance(last, arith.MulfOp):
                inverse = unbroadcast(last.operands[1 - use.index]).owner
                found, last = [last, inverse], inverse
                if not isinstance(inverse, arith.DivfOp) or splat(inverse.lhs) != 1:
                    continue
            elif use.index != 0:
                continue
            guard = unbroadcast(last.rhs) if isinstance(last, arith.DivfOp) else None
            if guard and guards(guard, 0.0, 1.0) and is_of_same_rows(operand(guard), v, total):
                yield [*found, owner(guard)]


def logsumexps(m: list[SSAValue], total: list[SSAValue]) -> Iterator[list[Operation]]:
    """The operations of finite(m) * ln 2 + ln l, the last first."""
    for v in total:
        for ln in (use.operation for use in v.uses if isinstance(use.operation, math.LogOp)):
            use = only_use(ln.result)
            if use is None or not isinstance(use.operation, arith.AddfOp):
                continue
            shift = use.operation.operands[1 - use.index].owner
            if not isinstance(shift, arith.MulfOp):
                continue
            for top, factor in (shift.operands, shift.operands[::-1]):
                if is_finite_guard(top) and is_ln_2(factor) and is_of_same_rows(operand(top), v, m):
                    yield [use.operation, ln, shift, owner(top)]


def owner(v: SSAValue) -> Operation:
    assert isinstance(v.owner, Operation)
    return v.owner


def operand(v: SSAValue) -> SSAValue:
    """What a guard lets through."""
    return owner(v).operands[0]


def is_of_same_rows(v: SSAValue, other: SSAValue, known: list[SSAValue]) -> bool:
    """Whether v is one of the known values, and of other's rows, should both be loaded."""
    if v not in known:
        return False
    if not isinstance(v.owner, LoadOp) or not isinstance(other.owner, LoadOp):
        return v.owner is other.owner
    return same_rows(v.owner, other.owner)


def same_rows(a: LoadOp, b: LoadOp) -> bool:
    """Whether two tiles, of one or two dimensions, begin at the same row."""
    return all(same(x, y) for x, y in zip(a.indices, b.indices, strict=False))


def is_ln_2(v: SSAValue) -> bool:
    """Whether v is that constant, stated in float64 and perhaps rounded."""
    factor = unbroadcast(v)
    exact = factor.owner.input if isinstance(factor.owner, arith.TruncFOp) else factor
    return splat(exact) == log(2)
