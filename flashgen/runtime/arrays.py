"""Arrays of every library as kernels see them, without a copy: ``look``, and ``to_write`` for outputs.

| arrays                                                                            | results like them |
|-----------------------------------------------------------------------------------|-------------------|
| numpy.ndarray and its subclasses, but masked arrays                               | NumPy arrays      |
| torch.Tensor in the processor's memory (torch_arrays.py)                          | tensors           |
| jax.Array in the processor's memory (dlpack_arrays.py)                            | JAX arrays        |
| cupy.ndarray, for kernels of the target "cuda" alone (cuda_arrays.py)             | CuPy arrays       |
| whatever else has ``__dlpack__`` in the processor's memory, or the buffer protocol | NumPy arrays      |

A library is looked for among the modules that are imported: who has its arrays has imported it.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from flashgen.errors import InvalidArgument, MissingTool
from flashgen.runtime.tensors import FORMS, ITEMSIZE, address, in_order, steps_align

ALLOWED = "a NumPy array without mask is allowed, or one that speaks DLPack or the buffer protocol"


class View(NamedTuple):
    """An array as a kernel sees it.

    address: of the element at 0, ..., 0. strides: in bytes.
    dtype: what a Problem calls the type of the elements; of others what their library calls it.
    kind: of array; results of a call are of that of q.
    value: the array, or what else keeps its memory.
    name: of the argument, as the caller knows it, for errors.
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    kind: Kind
    value: Any
    name: str


class Kind:
    """What the arrays of one library have in common, as far as calls need it. Results are NumPy arrays."""

    def look(self, name: str, value: Any) -> View:
        """The argument ``name``, to be read. Raises InvalidArgument."""
        raise InvalidArgument(name, f"of type {type(value).__name__}", ALLOWED)

    def check_writable(self, view: View) -> None:
        """Raise InvalidArgument where its memory cannot be written."""
        if not view.value.flags.writeable:
            raise InvalidArgument(view.name, "read-only", "an array that can be written is allowed")

    def empty(self, shape: tuple[int, ...], dtype: str, like: View) -> Any:
        """Memory for a result: an array whose last index runs fastest, of elements that are not set."""
        return np.empty(shape, numpy_type(dtype))

    address = staticmethod(address)
    """Of what ``empty`` made."""

    def finish(self, made: Any, like: View) -> Any:
        """The result, when what ``empty`` made is written."""
        return made

    def note_write(self, view: View) -> None:
        """A call has written what its caller gave."""

    def spell(self, view: View) -> str:
        """The type of its elements, as an error shows it."""
        return view.dtype


class _NumPy(Kind):
    def look(self, name: str, value: Any) -> View:
        array = value.view(np.ndarray)
        return View(address(array), array.shape, array.strides, element_type(array.dtype), self, array, name)

    def empty(self, shape: tuple[int, ...], dtype: str, like: View) -> Any:
        return np.empty(shape, like.value.dtype if dtype == like.dtype else numpy_type(dtype))

    def spell(self, view: View) -> str:
        dtype = view.value.dtype
        return dtype.name if dtype.kind == "V" else dtype.str


class _Buffer(_NumPy):
    """Whatever has the buffer protocol, through NumPy."""

    def look(self, name: str, value: Any) -> View:
        try:
            array = np.asarray(memoryview(value))
        except TypeError:
            raise InvalidArgument(name, f"of type {type(value).__name__}", ALLOWED) from None
        except (ValueError, RuntimeError, BufferError, NotImplementedError) as error:
            raise InvalidArgument(name, f"a buffer that NumPy does not read ({error})", ALLOWED) from error
        return View(address(array), array.shape, array.strides, element_type(array.dtype), self, array, name)


class _Seen(Kind):
    """A View, which has been looked at."""

    def look(self, name: str, value: Any) -> View:
        return value


NUMPY = _NumPy()
_make = tuple.__new__


def look(name: str, value: object) -> View:
    """What a kernel has to know of the argument ``name``: an array as the table above has them, or a View.

    Raises InvalidArgument.
    """
    if type(value) is np.ndarray:
        dtype = value.dtype
        found = _TYPES.get(dtype) or element_type(dtype)
        # View(...) in half the time
        return _make(View, (address(value), value.shape, value.strides, found, NUMPY, value, name))
    return kind_of(type(value)).look(name, value)


def to_write(view: View, dtype: str) -> View:
    """The view, of an output: of ``dtype``, in memory that can be written, with elements at multiples of
    their size. Raises InvalidArgument."""
    check_type(view, dtype)
    view.kind.check_writable(view)
    if not is_aligned(view):
        allowed = f"elements at multiples of {ITEMSIZE[dtype]} bytes are allowed"
        raise InvalidArgument(f"{view.name}.strides", view.strides, allowed)
    return view


LIBRARIES = (
    ("cupy", "ndarray", "cuda_arrays", "CUPY"),
    ("torch", "Tensor", "torch_arrays", "TORCH"),
    ("jax", "Array", "dlpack_arrays", "JAX"),
    ("jax.core", "Tracer", "dlpack_arrays", "JAX"),
)
"""A library's module and its type of array; which module of this folder has their kind, and by what name."""


@functools.lru_cache(64)
def kind_of(array: type) -> Kind:
    """Of the arrays of this type."""
    if array is View:
        return _Seen()
    for module, base, home, kind in LIBRARIES:
        known = getattr(sys.modules.get(module), base, None)
        if isinstance(known, type) and issubclass(array, known):
            return getattr(importlib.import_module(f"flashgen.runtime.{home}"), kind)
    if issubclass(array, np.ndarray):
        return Kind() if issubclass(array, np.ma.MaskedArray) else NUMPY
    if hasattr(array, "__dlpack__"):
        from flashgen.runtime.dlpack_arrays import DLPACK

        return DLPACK
    return _Buffer()


@functools.lru_cache(64)
def element_type(dtype: np.dtype) -> str:
    """What a Problem calls this type; NumPy's own name for one that is not native or that a Problem lacks.

    bfloat16 is known by its name: whoever has such an array has the package that brings the type.
    """
    known = dtype.isnative and ITEMSIZE.get(dtype.name) == dtype.itemsize
    return dtype.name if known else dtype.str


_TYPES = {np.dtype(name): name for name in ITEMSIZE if name != "bfloat16"}


@functools.cache
def numpy_type(dtype: str) -> np.dtype:
    """NumPy's type for what a Problem calls so. Raises MissingTool."""
    if dtype != "bfloat16":
        return np.dtype(dtype)
    try:
        from ml_dtypes import bfloat16
    except ImportError as error:
        raise MissingTool(
            "NumPy arrays of bfloat16 need the package ml_dtypes: pip install 'flashgen[bfloat16]'; "
            f"PyTorch's tensors work without ({error})"
        ) from error
    return np.dtype(bfloat16)


def check_type(view: View, dtype: str | None, allowed: str = "") -> None:
    """Raise InvalidArgument unless the elements are of ``dtype``."""
    if view.dtype != dtype:
        shown = repr(view.kind.spell(view))
        raise InvalidArgument(f"{view.name}.dtype", shown, f"native {allowed or dtype} is allowed")


def is_aligned(view: View) -> bool:
    """Whether each element lies at a multiple of its size."""
    size = ITEMSIZE[view.dtype]
    return view.address % size == 0 and steps_align(view.shape, view.strides, size)


def aligned(view: View) -> View:
    """The view, or one of a copy, where elements do not lie at multiples of their size.

    What a stride of 0 repeats is copied once, and repeated again.
    """
    if is_aligned(view):
        return view
    copy = once(view).copy()
    return view._replace(address=address(copy), strides=again(view, copy.strides), value=copy)


def once(view: View) -> np.ndarray:
    """Its elements as ``bits`` gives them, of those that strides of 0 repeat the first."""
    return bits(view)[tuple([slice(1) if stride == 0 else slice(None) for stride in view.strides])]


def again(view: View, strides: tuple[int, ...]) -> tuple[int, ...]:
    """The strides by which a copy of ``once``, which has these, is all of the view."""
    return tuple([0 if old == 0 else new for old, new in zip(view.strides, strides, strict=True)])


def turned(view: View, order: str) -> View:
    """The view of four dimensions in this order as one of (B, H, N, D), or the other way round."""
    return view._replace(shape=in_order(view.shape, order), strides=in_order(view.strides, order))


def bits(view: View) -> np.ndarray:
    """A NumPy array on the same memory; of bfloat16 its bits."""
    return np.asarray(_Described(view))


class _Described:
    """A view in NumPy's array interface protocol."""

    def __init__(self, view: View):
        self.view = view
        dtype = np.dtype(np.uint16 if view.dtype == "bfloat16" else view.dtype)
        self.__array_interface__ = {
            "version": 3,
            "typestr": dtype.str,
            "data": (view.address, False),
            "shape": view.shape,
            "strides": view.strides,
        }


def numbers_of(view: View) -> np.ndarray:
    """A NumPy array on the same memory. Raises MissingTool where its type needs a package."""
    found = bits(view)
    return found.view(numpy_type("bfloat16")) if view.dtype == "bfloat16" else found


def check_apart(outputs: Sequence[View], inputs: Sequence[View]) -> None:
    """Raise InvalidArgument unless each output lies apart from the inputs and the outputs before it.

    Compared are the ranges of addresses between first and last element, because an exact answer can take
    exponential time: an output whose elements lie between another array's is refused as well.
    """
    others = [(view.name, *_reach(view)) for view in inputs]
    for output in outputs:
        first, end = _reach(output)
        for other, low, high in others:
            if first < high and low < end:
                used = f"in memory that {other} uses"
                raise InvalidArgument(output.name, used, "memory of its own is allowed")
        others.append((output.name, first, end))


def _reach(view: View) -> tuple[int, int]:
    """Its first address, and the one behind its last."""
    first, end = _extent(view.shape, view.strides, ITEMSIZE[view.dtype])
    return view.address + first, view.address + end


@functools.lru_cache(FORMS)
def _extent(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """The same from the element at 0, ..., 0 on; nothing lies between them where there is no element."""
    if 0 in shape:
        return 0, 0
    ways = [(size - 1) * stride for size, stride in zip(shape, strides, strict=True)]
    return sum(way for way in ways if way < 0), sum(way for way in ways if way > 0) + itemsize
