"""rescale-threshold: the maximum that a row's exponentials refer to moves only when it has risen far.

    m' = max(m, row_max s);  p = exp2(s - finite(m'));  alpha = exp2(m - finite(m'))
  ~>
    r = hold m, max(m, row_max s), t;  p = exp2(s - finite(r));  alpha = exp2(m - finite(r))

While the new maximum is at most t above m, m stays, alpha is exactly 1, and the accumulator is left as it is;
a first maximum (m = -inf) and a NaN are followed at once. FlashAttention-4 does so with t = 8.

What it costs: p goes up to 2^t, a row's sum up to Nk 2^t, and the accumulator to that times max|v|. Roundings
are relative to these, so results are as good as before; what is lost is range. float32 ends at 2^128, hence t
is at most 64, and leaves 2^63 for Nk times max|v|; float64 ends at 2^1024.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from flashgen.ir.compute import HoldOp
from flashgen.passes.edit import insert_after
from flashgen.passes.online_softmax import OnlineSoftmaxPass, Running
from flashgen.schedule import check_threshold


@dataclass(frozen=True)
class RescaleThresholdPass(OnlineSoftmaxPass[list[Running]]):
    """``threshold``: t, in units of log2, from 0 (follow every maximum) to 64.

    Legal because O = acc / l and lse = m + ln l are the same for any reference m, of a step of the form that
    passes/online_softmax.py knows. Not handled: what that lists; in a step that normalises its accumulator
    the factor is never 1, so nothing would be spared.
    """

    name = "rescale-threshold"
    threshold: float | int

    def match(self, module: ModuleOp) -> list[Running]:
        check_threshold("threshold", self.threshold)
        steps = self.steps(module)
        for step in steps:
            if step.m.new is not step.maximum.result:
                self.refuse(step.maximum, "is not the state that it is compared with, but is held already")
        return steps

    def rewrite(self, module: ModuleOp, match: list[Running]) -> None:
        for found in match:
            highest = found.maximum.result
            hold = HoldOp(found.m.old, highest, self.threshold)
            hold.result.name_hint, highest.name_hint = highest.name_hint, "highest"
            highest.replace_all_uses_with(hold.result)
            hold.operands[1] = highest
            insert_after(found.maximum, hold)
