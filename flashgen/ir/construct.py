"""Short constructors: each appends one operation at the implicit builder and returns its value."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, math, memref, scf
from xdsl.dialects.builtin import (
    Float64Type,
    FloatAttr,
    IntegerAttr,
    MemRefType,
    TensorType,
)
from xdsl.ir import Attribute, Block, BlockArgument, SSAValue

from flashgen.ir.compute import BroadcastOp, ReplaceOp
from flashgen.ir.types import NEG_INF, f64, index, number


def const(n: int) -> SSAValue:
    """An index."""
    return arith.ConstantOp(IntegerAttr(n, index)).result


def real(x: float, element: Attribute) -> SSAValue:
    """A scalar of a float type."""
    return arith.ConstantOp(number(x, element)).result


def add(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.AddiOp(a, b).result


def sub(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.SubiOp(a, b).result


def mul(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.MuliOp(a, b).result


def floordiv(a: SSAValue, b: SSAValue) -> SSAValue:
    """Rounded towards minus infinity; 0 where b is 0."""
    return arith.FloorDivSIOp(a, b).result


def ceildiv(a: SSAValue, b: SSAValue) -> SSAValue:
    """Rounded towards plus infinity; 0 where b is 0."""
    return arith.CeilDivSIOp(a, b).result


def remainder(a: SSAValue, b: SSAValue) -> SSAValue:
    """What is left of a division rounded towards 0; b is not 0."""
    return arith.RemSIOp(a, b).result


def smaller(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.MinSIOp(a, b).result


def larger(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.MaxSIOp(a, b).result


def compare(a: SSAValue, predicate: str, b: SSAValue) -> SSAValue:
    """i1; the predicate is arith.cmpi's: "slt", "sle", ..."""
    return arith.CmpiOp(a, b, predicate).result


def both(a: SSAValue, b: SSAValue) -> SSAValue:
    """Conjunction of i1 scalars, or tiles."""
    return arith.AndIOp(a, b, a.type).result


def either(a: SSAValue, b: SSAValue) -> SSAValue:
    """Disjunction of i1 scalars, or tiles."""
    return arith.OrIOp(a, b, a.type).result


def addf(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.AddfOp(a, b).result


def subf(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.SubfOp(a, b).result


def mulf(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.MulfOp(a, b).result


def divf(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.DivfOp(a, b).result


def maxf(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.MaximumfOp(a, b).result


def exp(a: SSAValue) -> SSAValue:
    return math.ExpOp(a).result


def log(a: SSAValue) -> SSAValue:
    return math.LogOp(a).result


def fill(x: SSAValue, t: TensorType) -> SSAValue:
    """A tile of one value."""
    return BroadcastOp(x, t).result


def rows(v: SSAValue, like: SSAValue) -> SSAValue:
    """One value a row, or a scalar, spread over a tile shaped as ``like``."""
    assert isinstance(like.type, TensorType)
    return BroadcastOp(v, like.type).result


def finite(m: SSAValue) -> SSAValue:
    """0 in place of -inf: what may be subtracted from a score."""
    return ReplaceOp(m, NEG_INF, 0.0).result


def nonzero(x: SSAValue) -> SSAValue:
    """1 in place of 0: what may be divided by."""
    return ReplaceOp(x, 0.0, 1.0).result


def dim(array: SSAValue, n: SSAValue) -> SSAValue:
    """The extent of an array's dimension n."""
    return memref.DimOp(array, n).result


def alloc(t: MemRefType, *sizes: SSAValue) -> SSAValue:
    """A workspace whose run-time extents are ``sizes``; what it holds at first is unspecified."""
    return memref.AllocOp(list(sizes), [], result_type=t).memref


def loop(
    name: str, start: SSAValue, stop: SSAValue, step: SSAValue, body: Callable[[BlockArgument], None]
) -> scf.ForOp:
    """`for name in range(start, stop, step)`, its body built by a function of the induction variable."""
    block = Block(arg_types=[index])
    block.args[0].name_hint = name
    op = scf.ForOp(start, stop, step, [], block)
    with ImplicitBuilder(block):
        body(block.args[0])
        scf.YieldOp()
    return op


def named(name: str, value: SSAValue) -> SSAValue:
    """The value, printed under that name and so emitted."""
    value.name_hint = name
    return value


def exactly(x: float, element: Attribute) -> SSAValue:
    """A scalar of a float type, stated in float64 where that type does not hold it, and rounded once.

    An attribute of type f32 would round at once, also where the interpreter computes in float64.
    """
    if not isfinite(x) or number(x, element).value.data == x:
        return real(x, element)
    exact = arith.ConstantOp(FloatAttr[Float64Type](x, f64)).result
    return arith.TruncFOp(exact, element).result
