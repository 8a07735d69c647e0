"""Types and small helpers that every operation of the tile dialect uses."""

from __future__ import annotations

from typing import cast

from xdsl.dialects.builtin import (
    DYNAMIC_INDEX,
    AnyFloat,
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    IndexType,
    MemRefType,
    StridedLayoutAttr,
    TensorType,
    i1,
    i32,
)
from xdsl.ir import Attribute, SSAValue
from xdsl.utils.exceptions import VerifyException

bf16 = BFloat16Type()
f16 = Float16Type()
f32 = Float32Type()
f64 = Float64Type()
index = IndexType()
COMPUTED = (f32, f64)
"""Types that numbers are computed in; a module has one of them."""
NARROW = (f16, bf16)
"""Storage types: what is computed in float32 may lie in memory as one of them."""
NEG_INF = float("-inf")


def tile(*shape: int, element: Attribute = f32) -> TensorType:
    """A tile: a tensor whose shape is known when the kernel is emitted."""
    return TensorType(element, list(shape))


def strided(*shape: int | None, element: Attribute = f32) -> MemRefType:
    """An array in memory with strides known at run time; None is an extent known at run time."""
    sizes = [DYNAMIC_INDEX if n is None else n for n in shape]
    return MemRefType(element, sizes, StridedLayoutAttr([None] * len(sizes), 0))


def shape_of(v: SSAValue) -> tuple[int, ...]:
    """The shape of a tile or of an array; () of a scalar."""
    return tuple(v.type.get_shape()) if isinstance(v.type, TensorType | MemRefType) else ()


def element_of(v: SSAValue) -> Attribute:
    """The element type of a tile or of an array; the type itself of a scalar."""
    return v.type.element_type if isinstance(v.type, TensorType | MemRefType) else v.type


def computed_in(element: Attribute) -> Attribute:
    """What numbers of an element type are computed in: what is narrow widens to float32."""
    return f32 if element in NARROW else element


def number(x: float, element: Attribute) -> FloatAttr:
    """x as an attribute of a float type."""
    return FloatAttr(x, cast(AnyFloat, element))


def check(condition: bool, message: str) -> None:
    """Raise VerifyException unless the condition holds."""
    if not condition:
        raise VerifyException(message)


__all__ = [
    "COMPUTED",
    "NARROW",
    "NEG_INF",
    "bf16",
    "check",
    "computed_in",
    "element_of",
    "f16",
    "f32",
    "f64",
    "i1",
    "i32",
    "index",
    "number",
    "shape_of",
    "strided",
    "tile",
]
