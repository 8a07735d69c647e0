"""Which keys a row sees, and which of a loop's tiles are visited: for given sizes, as numbers.

What is visited contains what is visible, and what is visited without a mask is visible as a whole; the
difference is work that a mask throws away.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith, scf
from xdsl.ir import SSAValue

from flashgen.analysis.linear import step_of
from flashgen.analysis.predicate import excess, period
from flashgen.analysis.ranges import evaluate, parts
from flashgen.ir.regions import MaskOp

Symbols = Mapping[SSAValue, int]
"""What values defined outside a mask are: lengths, and positions of the loops around."""


@dataclass(frozen=True)
class Visit:
    """Positions of a loop's tiles, and whether the mask is applied to them."""

    positions: range
    masked: bool


def visited(mask: MaskOp, loop: scf.ForOp, symbols: Symbols) -> list[Visit]:
    """The tiles that the loop visits once causal-skip has split it, in order."""
    step = step_of(loop)
    if step is None:
        raise ValueError("a loop with a constant step is wanted")
    ends = [
        (evaluate(part.lo, symbols), evaluate(part.hi, symbols), part.masked) for part in parts(mask, loop)
    ]
    return [Visit(range(lo, hi, step), masked) for lo, hi, masked in ends]


def visible(mask: MaskOp, rows: NDArray[Any], cols: NDArray[Any], symbols: Symbols) -> NDArray[np.bool_]:
    """Which of the columns each row sees, by the mask's predicate; bool (rows, cols).

    Raises ValueError where the predicate is more than orderings of linear forms, `and` and `or`.
    """
    row, col = mask.body.block.args
    known: dict[SSAValue, Any] = {**symbols, row: rows[:, None], col: cols[None, :]}

    def value(symbol: SSAValue) -> Any:
        n = period(symbol, mask)
        return known[symbol] if n is None else known[row] % known[n]

    def holds(v: SSAValue) -> NDArray[np.bool_]:
        op = v.owner
        if isinstance(op, arith.AndIOp):
            return holds(op.lhs) & holds(op.rhs)
        if isinstance(op, arith.OrIOp):
            return holds(op.lhs) | holds(op.rhs)
        form = excess(v, mask)
        if form is None:
            raise ValueError("a predicate that is not understood")
        total = sum((c * value(s) for s, c in form.terms.items()), start=np.array(form.constant))
        return np.asarray(total <= 0)

    return np.broadcast_to(holds(mask.predicate), (len(rows), len(cols)))
