"""nan-in-sum: a row's maximum may pass over NaN, because its sum does not.

    m = row_max s;  p = exp2(s - b);  l = row_sum p
        ~>   m = row_max s drop_nan;  p = exp2(s - b);  l = row_sum p

A maximum that lets NaN win costs a CPU three instructions, one that passes over it costs one. A NaN score
makes its weight NaN whatever is subtracted, and so the sum and every product with that weight.

Legal when the same elements that the maximum looks at go through the exponential of a difference into a
row sum, and that sum reaches a state which, once NaN, stays so.

Not handled: a maximum that already passes over NaN (nothing is left to do), or whose sum is fused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import arith, math, scf
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.ir import SSAValue, Use

from flashgen.analysis.linear import same_address
from flashgen.ir.compute import BroadcastOp, ReplaceOp, RowMaxOp, RowSumOp, ScaleRowsOp
from flashgen.ir.memory import LoadOp, StoreOp
from flashgen.ir.provenance import claim
from flashgen.passes.base import TilePass

KEEPS_NAN = (
    arith.AddfOp,
    arith.SubfOp,
    arith.MulfOp,
    arith.DivfOp,
    arith.MaximumfOp,
    BroadcastOp,
    ReplaceOp,
    ScaleRowsOp,
)
EXPONENTIALS = (math.ExpOp, math.Exp2Op)


@dataclass(frozen=True)
class NanInSumPass(TilePass[list[RowMaxOp]]):
    name = "nan-in-sum"

    def match(self, module: ModuleOp) -> list[RowMaxOp]:
        maxima = [op for op in module.walk() if isinstance(op, RowMaxOp) and op.drop_nan is None]
        if not maxima:
            self.refuse(module, "no row maximum lets NaN win")
        for op in maxima:
            sums = list(sums_of_weights(op))
            if not sums:
                self.refuse(op, "no row sum of exponentials sees the same scores, so a NaN would be lost")
            if not any(stays_nan(end) for total in sums for end in ends(total.result)):
                self.refuse(op, "the row sum of its weights reaches no state that keeps a NaN")
        return maxima

    def rewrite(self, module: ModuleOp, match: list[RowMaxOp]) -> None:
        for op in match:
            op.properties["drop_nan"] = UnitAttr()
            claim(op, self.name)


def sums_of_weights(maximum: RowMaxOp) -> Iterator[RowSumOp]:
    """Row sums of exp(s - anything) over the elements s that the maximum looks at."""
    for difference in readers(maximum.operand, arith.SubfOp):
        if difference.lhs is not maximum.operand:
            continue
        for weights in readers(difference.result, *EXPONENTIALS):
            for total in readers(weights.result, RowSumOp):
                if total.over is maximum.over:
                    yield total


def readers(v: SSAValue, *kinds: type) -> Iterator:
    """The operations of these kinds that read v."""
    return (use.operation for use in v.uses if isinstance(use.operation, kinds))


def ends(v: SSAValue) -> Iterator[Use]:
    """Where v, or what is NaN if v is, is stored or yielded."""
    seen: set[SSAValue] = set()
    todo = [v]
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        for use in value.uses:
            op = use.operation
            if isinstance(op, KEEPS_NAN):
                todo.append(op.results[0])
            elif isinstance(op, StoreOp | scf.YieldOp):
                yield use


def stays_nan(end: Use) -> bool:
    """Whether what is stored or yielded there makes its own next value NaN if it is."""
    return any(
        other.operation is end.operation and other.index == end.index
        for old in previous(end)
        for other in ends(old)
    )


def previous(end: Use) -> list[SSAValue]:
    """What an iteration finds where the iteration before it stored or yielded."""
    op = end.operation
    block = op.parent
    if block is None:
        return []
    if isinstance(op, StoreOp):
        return [
            a.result
            for a in block.ops
            if isinstance(a, LoadOp) and same_address(a, op) and a.is_before_in_block(op)
        ]
    loop = block.parent_op()
    return [block.args[end.index + 1]] if isinstance(loop, scf.ForOp) else []
