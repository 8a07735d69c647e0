"""The NumPy meaning of operations that are the same for a number and for each element of an array."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from xdsl.dialects import arith, math, memref
from xdsl.ir import Operation

from flashgen.analysis.numbers import quotient
from flashgen.ir.compute import SelectOp

REAL_ORDERINGS: dict[int, Callable[..., Any]] = {
    1: np.equal,
    4: np.less,
    5: np.less_equal,
    9: lambda a, b: ~np.less_equal(a, b),
    10: lambda a, b: ~np.less(a, b),
    13: np.not_equal,
}
"""By arith.cmpf's encoding, as far as tile.compare has it."""
SIMPLE: dict[type[Operation], Callable[..., Any]] = {
    arith.AddiOp: np.add,
    arith.SubiOp: np.subtract,
    arith.MuliOp: np.multiply,
    arith.MinSIOp: np.minimum,
    arith.MaxSIOp: np.maximum,
    arith.FloorDivSIOp: quotient,
    arith.CeilDivSIOp: lambda a, b: -quotient(-a, b),
    arith.RemSIOp: np.fmod,
    arith.AndIOp: np.logical_and,
    arith.OrIOp: np.logical_or,
    arith.AddfOp: np.add,
    arith.SubfOp: np.subtract,
    arith.MulfOp: np.multiply,
    arith.DivfOp: np.divide,
    arith.MaximumfOp: np.maximum,
    arith.MinimumfOp: np.minimum,
    arith.IndexCastOp: lambda a: a,
    math.AbsFOp: np.abs,
    arith.SelectOp: np.where,
    SelectOp: np.where,
    math.ExpOp: np.exp,
    math.Exp2Op: np.exp2,
    math.LogOp: np.log,
    math.TanhOp: np.tanh,
    memref.DimOp: lambda array, n: array.shape[n],
}
