"""base-2: scores in units of log2, so that every exponential is an exp2.

    s = select visible, x, -inf;           p = exp(s - b);   lse = m + log l
        ~>   s = select visible, x * log2 e, -inf;  p = exp2(s - b);  lse = m * ln 2 + log l

exp(x) is exp2(x * log2 e), so what is multiplied is followed from the masked scores through maxima,
guards, differences, memory and carried values, until it is the exponent of an exponential or is added to
a logarithm. It works wherever the state is kept, and does not ask in what order the loops stand. The
subtraction stays last, hence exp2 is exactly 1 at the maximum, whatever the sign of the scale.

Legal when nothing else reads a score, and when what meets a score in a maximum or as its start value is a
score too, or -inf, which the multiplication leaves as it is. A maximum that starts at a sink is refused. What
compares a score reads it as it was. Exponentials of anything else, of which scores may be made, stay.

Not handled: scores in an array that the caller sees.

The two factors are float64 constants, rounded once to the type computed in where that is float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import e, log, log2

from xdsl.dialects import arith, math, memref, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue, Use

from flashgen.ir.compare import CompareOp
from flashgen.ir.compute import BroadcastOp, ReplaceOp, RowMaxOp, SelectOp
from flashgen.ir.memory import LoadOp, StoreOp
from flashgen.ir.types import NEG_INF, element_of
from flashgen.passes.base import TilePass
from flashgen.passes.edit import insert_at_first_use, insert_before, remove_dead, rounded, scaled, swap
from flashgen.passes.patterns import splat

UNSCALED = (0.0, NEG_INF, -NEG_INF)


@dataclass
class Scores:
    """What is made of scores, and so is multiplied where they are."""

    scores: list[SSAValue]
    values: set[SSAValue] = field(default_factory=set)
    exponentials: list[math.ExpOp] = field(default_factory=list)
    exits: list[Use] = field(default_factory=list)
    """Where a score is added to a logarithm, which is not multiplied."""
    met: list[tuple[Operation, SSAValue]] = field(default_factory=list)
    """What meets a score in an operation, and so has to be one."""


@dataclass(frozen=True)
class Base2Pass(TilePass[Scores]):
    name = "base-2"

    def match(self, module: ModuleOp) -> Scores:
        maxima = [op for op in module.walk() if isinstance(op, RowMaxOp)]
        if not maxima:
            self.refuse(module, "no row maximum, so no scores")
        found = Scores(list(dict.fromkeys(unmasked(op.operand) for op in maxima)))
        todo = list(found.scores)
        while todo:
            value = todo.pop()
            if value in found.values:
                continue
            found.values.add(value)
            for use in list(value.uses):
                todo += self.reached(use, found)
        for op, value in found.met:
            if value not in found.values and splat(value) != NEG_INF:
                self.refuse(op, "what meets a score here is not one, nor -inf, so it must not be multiplied")
        return found

    def reached(self, use: Use, found: Scores) -> Sequence[SSAValue]:
        """The values that are multiplied because this use reads one that is."""
        op = use.operation
        made: Sequence[SSAValue] = []
        if isinstance(op, RowMaxOp | BroadcastOp) or (
            isinstance(op, ReplaceOp) and {op.from_.value.data, op.to.value.data} <= set(UNSCALED)
        ):
            made = [op.result]
        elif isinstance(op, SelectOp | arith.MaximumfOp | arith.SubfOp):
            found.met += [(op, op.lhs), (op, op.rhs)]
            made = [op.result]
        elif isinstance(op, math.ExpOp):
            found.exponentials.append(op)
        elif isinstance(op, CompareOp) and op.operands[use.index] in found.scores:
            pass  # it reads what is not multiplied
        elif isinstance(op, arith.AddfOp) and isinstance(op.operands[1 - use.index].owner, math.LogOp):
            found.exits.append(use)
        elif isinstance(op, StoreOp):
            made = self.through_memory(op, found)
        elif isinstance(op, scf.ForOp):
            made = through_loop(op, use.index - 3, found)
        elif isinstance(op, scf.YieldOp) and isinstance(loop := op.parent_op(), scf.ForOp):
            made = through_loop(loop, use.index, found)
        else:
            self.refuse(op, "reads a score otherwise than for a maximum, a difference or a logarithm's sum")
        if any(v in found.scores for v in made):
            self.refuse(op, "scores that are made of other scores would be multiplied twice")
        return made

    def through_memory(self, store: StoreOp, found: Scores) -> list[SSAValue]:
        """All that is loaded from where a score is stored; all that is stored there has to be one."""
        array = store.memref
        if not isinstance(array.owner, memref.AllocOp):
            self.refuse(store, "the caller would see scores in units of log2")
        users = [use.operation for use in array.uses]
        for other in users:
            if not isinstance(other, LoadOp | StoreOp | memref.DimOp):
                self.refuse(other, "reads an array of scores otherwise than by tile.load")
        found.met += [(a, a.value) for a in users if isinstance(a, StoreOp)]
        return [a.result for a in users if isinstance(a, LoadOp)]

    def rewrite(self, module: ModuleOp, match: Scores) -> None:
        near = next(iter(match.scores[0].uses)).operation
        element = element_of(match.scores[0])
        log2e, ln2 = (rounded(near, x, element, name) for x, name in ((log2(e), "log2e"), (log(2), "ln2")))
        for score in match.scores:
            users = list(score.uses)
            wide, product = scaled(score, log2e)
            insert_at_first_use(score, wide, product)
            for use in users:
                if not isinstance(use.operation, CompareOp):
                    use.operation.operands[use.index] = product.result
        for op in match.exponentials:
            swap(op, math.Exp2Op(op.operand))
        for use in match.exits:
            value = use.operation.operands[use.index]
            wide, product = scaled(value, ln2)
            insert_before(use.operation, wide, product)
            use.operation.operands[use.index] = product.result
        remove_dead(module)


def unmasked(v: SSAValue) -> SSAValue:
    """The scores that v selects from, where what is not selected is -inf."""
    return v.owner.lhs if isinstance(v.owner, SelectOp) and splat(v.owner.rhs) == NEG_INF else v


def through_loop(loop: scf.ForOp, n: int, found: Scores) -> list[SSAValue]:
    """The loop's n-th carried value, within it and behind it."""
    last = loop.body.block.last_op
    assert last is not None
    found.met += [(loop, loop.iter_args[n]), (last, last.operands[n])]
    return [loop.body.block.args[n + 1], loop.results[n]]
