"""Which keys a row sees, and which of a loop's tiles are visited: for given sizes, as numbers.

What is visited contains what is visible, and what is visited without a mask is visible as a whole; the
difference is work that a mask throws away.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.dialects import arith, scf
from xdsl.dialects.builtin import IntegerAttr
from xdsl.ir import Operation, SSAValue

from flashgen.analysis.intervals import Arithmetic, classes
from flashgen.analysis.linear import inside, linear, step_of
from flashgen.analysis.numbers import ORDERINGS, lookup, quotient
from flashgen.analysis.ranges import evaluate, parts
from flashgen.ir.memory import ElementOp
from flashgen.ir.regions import MaskOp

Symbols = Mapping[SSAValue, int]
"""What values defined outside a mask are: lengths, and positions of the loops around."""
Arrays = Mapping[SSAValue, NDArray[Any]]
"""What the arrays hold that a mask reads."""


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


def visited_tiles(mask: MaskOp, loop: scf.ForOp, symbols: Symbols, arrays: Arrays) -> list[Visit]:
    """The tiles that are left of those once skip-tiles has asked each what the mask shows of it."""
    kept: list[Visit] = []
    for visit in visited(mask, loop, symbols):
        for n in visit.positions:
            here = {**symbols, loop.body.block.args[0]: n}
            row, col = (evaluate(linear(v), here) for v in (mask.row, mask.col))
            holds = classes(mask, Numbers(here, arrays), row, col)
            if not visit.masked or holds.may is None or holds.may:
                kept.append(Visit(range(n, n + 1), visit.masked and not holds.must))
    return kept


@dataclass(frozen=True)
class Numbers(Arithmetic[int]):
    """Whole numbers, and truth values as 0 and 1, for given values of what is outside."""

    symbols: Symbols
    arrays: Arrays

    def outside(self, v: SSAValue) -> int:
        return number_of(v, self.symbols)

    def constant(self, n: int) -> int:
        return n

    def do(self, kind: type[Operation], a: int, b: int) -> int:
        return NUMBERS[kind](a, b)

    def compare(self, a: int, ordering: str, b: int) -> int:
        return int({"slt": a < b, "sle": a <= b, "eq": a == b}[ordering])

    def negate(self, a: int) -> int:
        return int(not a)

    def choose(self, c: int, a: int, b: int) -> int:
        return a if c else b

    def extremes(self, array: SSAValue, first: Sequence[int], last: Sequence[int]) -> tuple[int, int]:
        box = np.meshgrid(*(np.arange(a, b + 1) for a, b in zip(first, last, strict=True)), indexing="ij")
        found = lookup(self.arrays[array], box)
        return (int(found.min()), int(found.max())) if found.size else (0, 0)


def visible(
    mask: MaskOp, rows: NDArray[Any], cols: NDArray[Any], symbols: Symbols, arrays: Arrays | None = None
) -> NDArray[np.bool_]:
    """Which of the columns each row sees, by the mask's predicate; bool (rows, cols).

    Raises ValueError where the predicate is more than whole numbers and truth values.
    """
    row, col = mask.body.block.args
    known: dict[SSAValue, Any] = {row: rows[:, None], col: cols[None, :]}

    def value(v: SSAValue) -> Any:
        if v not in known:
            known[v] = made(v)
        return known[v]

    def made(v: SSAValue) -> Any:
        op = v.owner
        if not inside(v, mask):
            return number_of(v, symbols)
        assert isinstance(op, Operation)
        if isinstance(op, ElementOp):
            return lookup((arrays or {})[op.source], [value(i) for i in op.indices])
        if isinstance(op, arith.ConstantOp) and isinstance(op.value, IntegerAttr):
            return op.value.value.data
        if isinstance(op, arith.CmpiOp):
            return ORDERINGS[op.predicate.value.data](value(op.lhs), value(op.rhs))
        if type(op) not in NUMBERS:
            raise ValueError("a predicate that is not understood")
        return NUMBERS[type(op)](*map(value, op.operands))

    return np.broadcast_to(value(mask.predicate), (len(rows), len(cols))).astype(bool)


def number_of(v: SSAValue, symbols: Symbols) -> int:
    """What a value from outside is, itself or by what it is made of."""
    return symbols[v] if v in symbols else evaluate(linear(v), symbols)


NUMBERS: dict[type[Operation], Callable[..., Any]] = {
    arith.AddiOp: np.add,
    arith.SubiOp: np.subtract,
    arith.MuliOp: np.multiply,
    arith.FloorDivSIOp: quotient,
    arith.RemSIOp: lambda a, b: a - quotient(a, b) * b,  # of what is not negative
    arith.MinSIOp: np.minimum,
    arith.MaxSIOp: np.maximum,
    arith.SelectOp: np.where,
    arith.AndIOp: np.logical_and,
    arith.OrIOp: np.logical_or,
}
