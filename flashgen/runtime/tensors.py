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
from flashgen.problem import Problem

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
FORMS = 256
"""How many forms of a call are remembered: a decoding loop has a new Nk, and so new ones, at every step."""

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
    for name, form in (("q", q), ("k", k), ("v", v)):
        check_rank(name, form.shape, order)
    (b, hq, nq, _), (_, hkv, nk, _) = q.shape, k.shape
    d, dv = problem.head_dim, problem.head_dim_v
    _match("q", q, (b, hq, nq, d), "D is the head dimension that the kernel was compiled for", order)
    _match("k", k, (b, hkv, nk, d), "B as q has it, and the kernel's D", order)
    _match("v", v, (b, hkv, nk, dv), "B, H and N as q and k have them, and the kernel's Dv", order)
    turn = functools.partial(in_order, order=order)
    check_groups(turn(q.shape), hq, hkv)
    o_shape, rows = (b, hq, nq, dv), (b, hq, nq)
    if out is not None:
        _match("out", out, o_shape, "the output's shape", order)
    if lse is not None:
        _match("lse", lse, rows, "one value for each query row")
    work = b * hq * nq * nk * (d + dv)
    return layout_of(problem, (q, k, v), (out, lse), inputs, (o_shape, rows), turn, order, work)


def layout_of(
    problem: Problem,
    read: tuple[Form, Form, Form],
    outputs: tuple[Form | None, Form | None],
    inputs: tuple[Form, ...],
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    turn: Callable[[tuple[int, ...]], tuple[int, ...]],
    order: str,
    work: int,
) -> Layout:
    """The layout of a call whose shapes fit.

    read: of q, k and v, with heads in front of rows. outputs: of o and lse, those that are given; shapes: of
        both. turn: makes the caller's order of O's sizes or strides, and the way back as well.
    Raises InvalidArgument where elements of an output may share an address, and for a sink's wrong shape.
    """
    (out, lse), (o_shape, lse_shape), (q, k, _) = outputs, shapes, read
    stored, summed = ITEMSIZE[problem.dtype], ITEMSIZE[problem.computed]
    shown = turn(o_shape)
    o_form = out or Form(*(turn(t) for t in contiguous(shown, stored)))
    lse_form = lse or contiguous(lse_shape, summed)
    check_addresses("out", o_form, stored, turn)
    check_addresses("lse", lse_form, summed)
    if problem.sink:
        _match("sink", inputs[-1], (q.shape[-3],), "one logit for each query head")
    sizes = [ITEMSIZE[array.dtype] for array in problem.arrays] if inputs else []
    sized = [*((form, stored) for form in read), *zip(inputs, sizes, strict=True)]
    tensors = [*sized[:3], (o_form, stored), (lse_form, summed), *sized[3:]]
    return Layout(
        order,
        shown,
        lse_shape,
        tuple(word for form, itemsize in tensors for word in words_of(form, itemsize)),
        work,
        k.shape[-3] == 0,
        stored - 1,
        not all(steps_align(*form, itemsize) for form, itemsize in sized),
    )


def check_groups(shape: tuple[int, ...], hq: int, hkv: int, grouped: bool = True) -> None:
    """Raise InvalidArgument unless query heads share key heads evenly; one has one if they are not grouped.

    shape: of q, as the caller has it.
    """
    if not grouped and hq != hkv:
        allowed = f"{hkv} heads as k has are allowed, or a multiple with enable_gqa=True"
        raise InvalidArgument("q.shape", shape, allowed)
    if hq % hkv if hkv else hq:
        raise InvalidArgument("q.shape", shape, f"heads that are a multiple of k's {hkv} are allowed")


def check_addresses(
    name: str,
    form: Form,
    itemsize: int,
    turn: Callable[[tuple[int, ...]], tuple[int, ...]] = tuple,
) -> None:
    """Raise InvalidArgument where two elements of an output may share an address."""
    if meets_itself(form, itemsize):
        allowed = "strides that give every element an address of its own are allowed"
        raise InvalidArgument(f"{name}.strides", turn(form.strides), allowed)


def check_rank(name: str, shape: tuple[int, ...], order: str = BHND) -> None:
    """Raise InvalidArgument unless there are four dimensions; ``shape`` is as the caller has it."""
    if len(shape) != 4:
        raise InvalidArgument(f"{name}.shape", shape, f"four dimensions are allowed: {AXES[order]}")


def in_order(sizes: tuple[int, ...], order: str) -> tuple[int, ...]:
    """Sizes or strides of (B, H, N, D) in the order of a caller's dimensions, and the way back as well."""
    return sizes if order == BHND else (sizes[0], sizes[2], sizes[1], sizes[3])


@functools.lru_cache(FORMS)
def steps_align(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> bool:
    """Whether elements lie at multiples of their size, if the first does."""
    return not any(stride % itemsize for size, stride in zip(shape, strides, strict=True) if size > 1)


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
    """Of an array whose last index runs fastest."""
    strides = [itemsize]
    for size in shape[:0:-1]:
        strides.append(strides[-1] * max(size, 1))
    return Form(shape, tuple(reversed(strides))[: len(shape)])


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
