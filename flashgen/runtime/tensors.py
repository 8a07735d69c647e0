"""The tensors of the C interface, and what has to hold of their shapes and strides.

    typedef struct flashgen_tensor { void *data; int64_t size[4]; int64_t stride[4]; } flashgen_tensor;

Nine words of eight bytes; strides count elements. What follows from shapes and strides alone, checks
included, is worked out once for each combination: a call of a small problem takes a few microseconds.
"""

from __future__ import annotations

import ctypes
import functools
import math
import numbers
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from flashgen.errors import InvalidArgument
from flashgen.problem import DTYPES, Problem, computed

ITEMSIZE = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float64": 8,
    "int32": 4,
    "int64": 8,
    "bool": 1,
}
"""Bytes of one element, by what a Problem calls its type: of those that it stores, and of its inputs'."""
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
MAX_RANK = 4

BHND = "BHND"
AXES = {BHND: "(B, H, N, D)", "BNHD": "(B, N, H, D)"}
"""Orders in which a caller's arrays of four dimensions may have theirs. Here all have the first."""


class Form(NamedTuple):
    """Shape, and strides in bytes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Block(NamedTuple):
    """The tensors of one call. words: of all, one behind the other. tensors: the address of each."""

    words: ctypes.Array[ctypes.c_int64]
    tensors: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layout:
    """What a call needs to know of its arrays' shapes and strides.

    order: of the caller's dimensions.
    o, lse: shapes of the outputs, o's in that order.
    words: of the five tensors, and of the inputs of the mask and the score behind them, without addresses.
    spare: blocks of these that no call is using.
    work: multiply-adds of the whole call.
    no_heads: whether Hq and Hkv are 0, so that a group of query heads has no size.
    low: bits of an address of q, k or v that are 0 where their elements lie at multiples of their size.
    odd: whether strides keep elements of any input from lying so.
    """

    order: str
    o: tuple[int, ...]
    lse: tuple[int, ...]
    words: tuple[int, ...]
    work: int
    no_heads: bool
    low: int
    odd: bool
    spare: list[Block] = field(default_factory=list, compare=False)

    def new_block(self) -> Block:
        """One more."""
        words = (ctypes.c_int64 * len(self.words))(*self.words)
        first = ctypes.addressof(words)
        return Block(words, tuple(range(first, first + ctypes.sizeof(words), TENSOR_BYTES)))


def lay_out(
    problem: Problem,
    q: Form,
    k: Form,
    v: Form,
    out: Form | None,
    lse: Form | None,
    order: str = BHND,
    inputs: tuple[Form, ...] = (),
) -> Layout:
    """Check the forms of a call against each other; an output that is None will be made contiguous.

    order: of the dimensions as the caller has them, for errors and for an output that is made; ``q``, ``k``,
        ``v`` and ``out`` are (B, H, N, D).
    inputs: of ``problem.arrays``, of the rank that each has.
    Raises InvalidArgument.
    """
    _check_heads(problem, q, k, v, order)
    b, hq, nq, head_dim = q.shape
    _, hkv, nk, head_dim_v = v.shape
    stored, summed = ITEMSIZE[problem.dtype], ITEMSIZE[computed(problem.dtype)]
    o_shape = in_order((b, hq, nq, head_dim_v), order)
    o_form = out or Form(*(in_order(t, order) for t in contiguous(o_shape, stored)))
    lse_form = lse or contiguous((b, hq, nq), summed)
    _match("out", o_form, (b, hq, nq, head_dim_v), "the output's shape", order)
    _match("lse", lse_form, (b, hq, nq), "one value for each query row")
    check_addresses("out", o_form, stored, order)
    check_addresses("lse", lse_form, summed)
    if problem.sink:
        _match("sink", inputs[-1], (hq,), "one logit for each query head")
    sizes = [ITEMSIZE[array.dtype] for array in problem.arrays] if inputs else []
    read = [(q, stored), (k, stored), (v, stored), *zip(inputs, sizes, strict=True)]
    tensors = [*read[:3], (o_form, stored), (lse_form, summed), *read[3:]]
    return Layout(
        order,
        o_shape,
        (b, hq, nq),
        tuple(word for form, itemsize in tensors for word in words_of(form, itemsize)),
        b * hq * nq * nk * (head_dim + head_dim_v),
        hkv == 0,
        stored - 1,
        not all(steps_align(*form, itemsize) for form, itemsize in read),
    )


def _check_heads(problem: Problem, q: Form, k: Form, v: Form, order: str) -> None:
    for name, form in (("q", q), ("k", k), ("v", v)):
        check_rank(name, form.shape, order)
    b, hq, nq, _ = q.shape
    _, hkv, nk, _ = k.shape
    d, dv = problem.head_dim, problem.head_dim_v
    _match("q", q, (b, hq, nq, d), "D is the head dimension that the kernel was compiled for", order)
    _match("k", k, (b, hkv, nk, d), "B as q has it, and the kernel's D", order)
    _match("v", v, (b, hkv, nk, dv), "B, H and N as q and k have them, and the kernel's Dv", order)
    if hq % hkv if hkv else hq:
        shape = in_order(q.shape, order)
        raise InvalidArgument("q.shape", shape, f"heads that are a multiple of k's {hkv} are allowed")


def check_addresses(name: str, form: Form, itemsize: int, order: str = BHND) -> None:
    """Raise InvalidArgument where two elements of an output may share an address."""
    if meets_itself(form, itemsize):
        allowed = "strides that give every element an address of its own are allowed"
        strides = in_order(form.strides, order)
        raise InvalidArgument(f"{name}.strides", strides, allowed)


def check_rank(name: str, shape: tuple[int, ...], order: str = BHND) -> None:
    """Raise InvalidArgument unless there are four dimensions; ``shape`` is as the caller has it."""
    if len(shape) != 4:
        raise InvalidArgument(f"{name}.shape", shape, f"four dimensions are allowed: {AXES[order]}")


def in_order(sizes: tuple[int, ...], order: str) -> tuple[int, ...]:
    """Sizes or strides of (B, H, N, D) in the order of a caller's dimensions, and the way back as well."""
    return sizes if order == BHND else (sizes[0], sizes[2], sizes[1], sizes[3])


@functools.lru_cache(256)
def steps_align(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether elements lie at multiples of their size, if the first does."""
    return not any(stride % itemsize for size, stride in zip(shape, strides, strict=True) if size > 1)


@functools.lru_cache(64)
def storage_type(dtype: np.dtype) -> str | None:
    """What a Problem calls this type; None of one that is not native, or that kernels do not have.

    bfloat16 is known by its name: whoever has such an array has the package that brings the type.
    """
    known = dtype.isnative and dtype.name in DTYPES and ITEMSIZE[dtype.name] == dtype.itemsize
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
            f"{name}.dtype", repr(shown), f"native {dtype or ' or '.join(DTYPES)} is allowed"
        )
    return value


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


def _match(name: str, form: Form, shape: tuple[int, ...], why: str, order: str = BHND) -> None:
    if form.shape != shape:
        given, right = form.shape, shape
        if len(given) == len(right) == MAX_RANK:
            given, right = in_order(given, order), in_order(right, order)
        raise InvalidArgument(f"{name}.shape", given, f"{right} is allowed: {why}")


def contiguous(shape: tuple[int, ...], itemsize: int) -> Form:
    strides = [itemsize]
    for size in shape[:0:-1]:
        strides.append(strides[-1] * max(size, 1))
    return Form(shape, tuple(reversed(strides)))


def meets_itself(form: Form, itemsize: int) -> bool:
    """Whether two elements may share an address: unless each dimension steps over all shorter strides."""
    if 0 in form.shape:
        return False
    reach = itemsize
    for stride, size in sorted((abs(stride), size) for size, stride in zip(*form, strict=True) if size > 1):
        if stride < reach:
            return True
        reach += (size - 1) * stride
    return False


def words_of(form: Form, itemsize: int) -> list[int]:
    rest = MAX_RANK - len(form.shape)
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


def _described(array: np.ndarray) -> int:
    return ctypes.c_int64.from_address(_capsule_pointer(array.__array_struct__, None) + _DATA).value


# PyArrayObject_fields, which NumPy promises to extensions: behind the head of an object the data's address.
_FIRST_FIELD = object.__basicsize__


def _in_its_place(array: np.ndarray) -> int:
    return ctypes.c_int64.from_address(id(array) + _FIRST_FIELD).value


def _quickest() -> Callable[[np.ndarray], int]:
    sample = np.zeros(1)
    if sys.implementation.name == "cpython" and _in_its_place(sample) == _described(sample):
        return _in_its_place
    return _described


address = _quickest()
"""Address of a NumPy array's first element, in a fraction of the time that ``array.ctypes.data`` takes."""
