"""reciprocal: a row is divided by its sum once, and its elements are multiplied by what that gives.

    divisor = nonzero(l);  o = acc / divisor
        ~>   divisor = nonzero(l);  inverse = 1 / divisor;  o = acc * inverse

A division takes as long as five to ten products, and a row has Dv of them.

Legal because l is 0, so that the divisor is 1, or at least 1: the step that follows a new reference adds the
exponential of the row's maximum less itself, which is exactly 1, to what is not negative, and a step that
follows none multiplies l by exactly 1 and adds to it; sums of numbers that are not negative round monotonely.
And l is at most Nk * 2^t, t the threshold of rescale-threshold (0 without it, at most 64): up to Nk = 2^62,
more than memory holds, 1 / l is a normal number. So it is off by half a unit in the last place, and so is the
product. A row of one visible key has l = 1, and its values stay to the bit; one of none stays 0.

Not handled: a division in every step, as FlashAttention-1 has it (run lazy-rescale before); spans (run it
before mask-to-spans); what passes/online_softmax.py lists.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.rewriter import InsertPoint

from flashgen.analysis.neutral import constant
from flashgen.ir.compute import RowMaxOp, RowSumOp
from flashgen.ir.construct import divf, fill, named
from flashgen.ir.types import NEG_INF, number
from flashgen.passes.edit import insert_before, remove_dead, scaled, shared_constant, swap
from flashgen.passes.online_softmax import OnlineSoftmaxPass, Running, quotients
from flashgen.passes.patterns import unbroadcast


@dataclass(frozen=True)
class ReciprocalPass(OnlineSoftmaxPass[list[arith.DivfOp]]):
    name = "reciprocal"

    def match(self, module: ModuleOp) -> list[arith.DivfOp]:
        found = [divide for step in self.steps(module) for divide in self.divisions(step)]
        if not found:
            self.refuse(module, "nothing is divided by the sum of a softmax's row")
        return found

    def divisions(self, step: Running) -> list[arith.DivfOp]:
        """Those of a step's state by its row sum, which is 0 or at least 1."""
        for state, neutral in zip(step.state, (NEG_INF, 0.0, 0.0), strict=True):
            if constant(state.start) != neutral:
                self.refuse(step.loop, "its state does not start as that of no keys, so l may be below 1")
        for op in step.loop.walk():
            if isinstance(op, RowMaxOp | RowSumOp) and op.over is not None:
                self.refuse(op, "may look at a part of a row: run it before mask-to-spans")
        ends = quotients(self.finals(step.loop, step.acc), self.finals(step.loop, step.total))
        return [last for last, *_ in ends if isinstance(last, arith.DivfOp)]

    def rewrite(self, module: ModuleOp, match: list[arith.DivfOp]) -> None:
        for divide in match:
            divisor = unbroadcast(divide.rhs)
            assert isinstance(divisor.type, TensorType)
            one = shared_constant(divide, number(1.0, divisor.type.element_type))
            with ImplicitBuilder(Builder(InsertPoint.before(divide))):
                inverse = named("inverse", divf(fill(one, divisor.type), divisor))
            wide, product = scaled(divide.lhs, inverse)
            insert_before(divide, wide)
            swap(divide, product)
        remove_dead(module)
