"""CuPy's arrays as the launcher of CUDA kernels sees them."""

from __future__ import annotations

from typing import Any

from flashgen.errors import InvalidArgument
from flashgen.runtime.arrays import Kind, View, element_type, kind_of, look


class _Cupy(Kind):
    """Arrays in the memory of a GPU. A processor's kernel does not read them: ``look`` refuses them."""

    def look(self, name: str, value: Any) -> View:
        allowed = "the processor's memory is allowed, and a GPU's with target 'cuda'"
        raise InvalidArgument(name, "in the memory of a GPU", allowed)

    def look_there(self, name: str, value: Any) -> View:
        """A CuPy array as it lies; NumPy has its types."""
        shape, strides = tuple(value.shape), tuple(value.strides)
        return View(value.data.ptr, shape, strides, element_type(value.dtype), self, value, name)

    def check_writable(self, view: View) -> None:
        """Any can be written."""


CUPY = _Cupy()


def look_anywhere(name: str, value: object) -> View:
    """What ``look`` gives, and the same of a CuPy array. Raises InvalidArgument."""
    if isinstance(value, View):
        return value
    return CUPY.look_there(name, value) if kind_of(type(value)) is CUPY else look(name, value)
