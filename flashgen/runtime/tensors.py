"""NumPy arrays as the tensors of the C interface, and the checks before a kernel may see them.

    typedef struct flashgen_tensor { void *data; int64_t size[4]; int64_t stride[4]; } flashgen_tensor;

Nine words of eight bytes; strides count elements. What follows from shapes and strides alone, checks
included, is worked out once for each combination: a call of a small problem takes a few microseconds.
"""

from __future__ import annotations

import ctypes
import functools
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flashgen.errors import InvalidArgument
from flashgen.problem import Problem

ITEMSIZE = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
"""Bytes of one number, by what a Problem calls its type."""
LOG2E = math.log2(math.e)
SCALES = {
    "float32": (2.0**-126, float(np.finfo(np.float32).max / np.float32(LOG2E))),
    "float64": (2.0**-1022, math.nextafter(np.finfo(np.float64).max / LOG2E, 0)),
}
"""The smallest scale but 0, and the largest, by the type computed in: kernels multiply it by log2 e in that
type (passes base-2 and fold-scale), and may take what is below a normal number for 0."""
TENSOR_WORDS = 9
TENSOR_BYTES = 8 * TENSOR_WORDS
TENSORS = ("q", "k", "v", "o", "lse")

Block = ctypes.c_int64 * (TENSOR_WORDS * len(TENSORS))
"""The five tensors of a call, one behind the other."""


class Form(NamedTuple):
    """Shape, and strides in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """What a call needs to know of its arrays' shapes and strides.

    o, lse: shapes of the outputs.
    block: the five tensors, without their addresses.
    work: multiply-adds of the whole call.
    no_heads: whether Hq and Hkv are 0, so that a group of query heads has no size.
    """

    o: tuple[int, int, int, int]
    lse: tuple[int, int, int]
    block: ctypes.Array[ctypes.c_int64]
    work: int
    no_heads: bool


def lay_out(problem: Problem, q: Form, k: Form, v: Form, out: Form | None, lse: Form | None) -> Layout:
    """Check the forms of a call against each other; an output that is None will be made contiguous.

    Raises InvalidArgument.
    """
    head_dim, head_dim_v = problem.head_dim, problem.head_dim_v
    stored, computed = ITEMSIZE[problem.dtype], ITEMSIZE[problem.computed]
    for name, form in (("q", q), ("k", k), ("v", v)):
        if len(form.shape) != 4:
            raise InvalidArgument(f"{name}.shape", form.shape, "four dimensions are allowed: (B, H, N, D)")
    b, hq, nq, _ = q.shape
    _, hkv, nk, _ = k.shape
    _match("q", q, (b, hq, nq, head_dim), "D is the head dimension that the kernel was compiled for")
    _match("k", k, (b, hkv, nk, head_dim), "B as q has it, and the kernel's D")
    _match("v", v, (b, hkv, nk, head_dim_v), "B, H and N as q and k have them, and the kernel's Dv")
    if hq % hkv if hkv else hq:
        raise InvalidArgument("q.shape", q.shape, f"heads that are a multiple of k's {hkv} are allowed")
    o_form = out or _contiguous((b, hq, nq, head_dim_v), stored)
    lse_form = lse or _contiguous((b, hq, nq), computed)
    _match("out", o_form, (b, hq, nq, head_dim_v), "the output's shape")
    _match("lse", lse_form, (b, hq, nq), "one value for each query row")
    for name, form, itemsize in (("out", o_form, stored), ("lse", lse_form, computed)):
        if _meets_itself(form, itemsize):
            allowed = "strides that give every element an address of its own are allowed"
            raise InvalidArgument(f"{name}.strides", form.strides, allowed)
    words = [word for form in (q, k, v, o_form) for word in _words(form, stored)]
    words += _words(lse_form, computed)
    work = b * hq * nq * nk * (head_dim + head_dim_v)
    return Layout((b, hq, nq, head_dim_v), (b, hq, nq), Block(*words), work, hkv == 0)


@functools.lru_cache(64)
def storage_type(dtype: np.dtype) -> str | None:
    """What a Problem calls this type; None of one that is not native, or that kernels do not have.

    bfloat16 is known by its name: whoever has such an array has the package that brings the type.
    """
    known = dtype.isnative and ITEMSIZE.get(dtype.name) == dtype.itemsize
    return dtype.name if known else None


def expect_array(name: str, value: object, dtype: str | None = None) -> np.ndarray:
    """``value`` if it is an array of native ``dtype``, of any storage type if that is None.

    Raises InvalidArgument.
    """
    if type(value) is not np.ndarray:
        if not isinstance(value, np.ndarray) or np.ma.isMaskedArray(value):
            raise InvalidArgument(
                name, f"of type {type(value).__name__}", "a NumPy array without mask is allowed"
            )
        value = value.view(np.ndarray)
    found = storage_type(value.dtype)
    if found is None or (found != dtype and dtype is not None):
        shown = value.dtype.name if value.dtype.kind == "V" else value.dtype.str
        raise InvalidArgument(
            f"{name}.dtype", repr(shown), f"native {dtype or ' or '.join(ITEMSIZE)} is allowed"
        )
    return value


def expect_input(name: str, value: object, dtype: str) -> np.ndarray:
    """An array that a kernel can read: a copy, where the elements do not lie at multiples of their size."""
    array = expect_array(name, value, dtype)
    return array if array.flags.aligned else array.copy()


def expect_output(name: str, value: object, dtype: str) -> np.ndarray:
    """An array that a kernel can write; raises InvalidArgument."""
    array = expect_array(name, value, dtype)
    if not array.flags.writeable:
        raise InvalidArgument(name, "read-only", "an array that can be written is allowed")
    if not array.flags.aligned:
        raise InvalidArgument(
            f"{name}.strides", array.strides, f"elements at multiples of {array.itemsize} bytes are allowed"
        )
    return array


def expect_scale(value: object, computed: str) -> float:
    """0, or a factor within SCALES of the type computed in, with either sign; raises InvalidArgument."""
    smallest, largest = SCALES[computed]
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        try:
            scale = float(value)
        except OverflowError:  # a whole number of hundreds of digits
            scale = math.inf
        if scale == 0 or smallest <= abs(scale) <= largest:
            return scale
    allowed = f"0 is allowed, or a finite {computed} of size {smallest:.8g} to {largest:.8g}"
    raise InvalidArgument("scale", repr(value), allowed)


def check_apart(outputs: dict[str, np.ndarray], inputs: dict[str, np.ndarray]) -> None:
    """Raise InvalidArgument unless each output lies apart from the inputs and the outputs before it.

    Compared are the ranges of addresses between first and last element, because an exact answer can take
    exponential time: an output whose elements lie between another array's is refused as well.
    """
    others = dict(inputs)
    for name, output in outputs.items():
        for other, array in others.items():
            if np.may_share_memory(output, array):
                raise InvalidArgument(name, f"in memory that {other} uses", "memory of its own is allowed")
        others[name] = output


def _match(name: str, form: Form, shape: tuple[int, ...], why: str) -> None:
    if form.shape != shape:
        raise InvalidArgument(f"{name}.shape", form.shape, f"{shape} is allowed: {why}")


def _contiguous(shape: tuple[int, ...], itemsize: int) -> Form:
    strides = [itemsize]
    for size in shape[:0:-1]:
        strides.append(strides[-1] * max(size, 1))
    return Form(shape, tuple(reversed(strides)))


def _meets_itself(form: Form, itemsize: int) -> bool:
    """Whether two elements may share an address: unless each dimension steps over all shorter strides."""
    if 0 in form.shape:
        return False
    reach = itemsize
    for stride, size in sorted((abs(stride), size) for size, stride in zip(*form, strict=True) if size > 1):
        if stride < reach:
            return True
        reach += (size - 1) * stride
    return False


def _words(form: Form, itemsize: int) -> list[int]:
    rest = 4 - len(form.shape)
    strides = [stride // itemsize for stride in form.strides]
    return [0, *form.shape, *[1] * rest, *strides, *[0] * rest]


class _ArrayInterface(ctypes.Structure):
    """PyArrayInterface, what NumPy's array interface protocol (version 3) has behind ``__array_struct__``."""

    _fields_ = (
        ("two", ctypes.c_int),
        ("nd", ctypes.c_int),
        ("typekind", ctypes.c_char),
        ("itemsize", ctypes.c_int),
        ("flags", ctypes.c_int),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("data", ctypes.c_void_p),
        ("descr", ctypes.c_void_p),
    )


_capsule_pointer: Callable[[object, None], int] = ctypes.PYFUNCTYPE(
    ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p
)(("PyCapsule_GetPointer", ctypes.pythonapi))
_DATA = _ArrayInterface.data.offset  # pyright: ignore[reportAttributeAccessIssue]


def address(array: np.ndarray) -> int:
    """Address of the first element, in half the time that ``array.ctypes.data`` takes."""
    return ctypes.c_int64.from_address(_capsule_pointer(array.__array_struct__, None) + _DATA).value
