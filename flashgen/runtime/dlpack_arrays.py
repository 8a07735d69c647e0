"""JAX's arrays as kernels see them, and those of any other library that speaks DLPack."""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

import numpy as np

from flashgen.errors import InvalidArgument
from flashgen.runtime.arrays import Kind, View, numpy_type
from flashgen.runtime.dlpack import CPU, PINNED, VERSION, read
from flashgen.runtime.tensors import address

LINE = 64
"""Bytes at a multiple of which JAX takes memory over as it is."""


class _Held(NamedTuple):
    """What keeps the memory. array: its owner. capsule: what DLPack gave for it."""

    array: Any
    capsule: Any
    read_only: bool


class _Dlpack(Kind):
    """Arrays in the processor's memory. Results are NumPy arrays."""

    def look(self, name: str, value: Any) -> View:
        try:
            capsule = self.export(name, value)
            found = read(capsule)
        except InvalidArgument:
            raise
        except Exception as error:  # which ones, no library says
            said = " ".join(str(error).split())[:200] or type(error).__name__
            allowed = "one that its library exports through DLPack is allowed"
            raise InvalidArgument(name, f"of type {type(value).__name__} ({said})", allowed) from error
        if found.device_type not in (CPU, PINNED):
            shown = f"on a device of DLPack's type {found.device_type}"
            raise InvalidArgument(name, shown, "the processor's memory is allowed")
        held = _Held(value, capsule, found.read_only)
        return View(found.address, found.shape, found.strides, found.dtype, self, held, name)

    def export(self, name: str, value: Any) -> object:
        """The capsule. Raises whatever a library raises."""
        try:
            return value.__dlpack__(max_version=VERSION)
        except TypeError:  # of a library that knows no versions
            return value.__dlpack__()

    def check_writable(self, view: View) -> None:
        if view.value.read_only:
            raise InvalidArgument(view.name, "read-only", "an array that can be written is allowed")


class _Jax(_Dlpack):
    """Arrays whose elements are on one processor. Results are JAX arrays, on the device of ``like``."""

    def export(self, name: str, value: Any) -> object:
        if isinstance(value, sys.modules["jax"].core.Tracer):
            allowed = "an array with elements is allowed, outside of jit and its like"
            raise InvalidArgument(name, "a tracer of JAX", allowed)
        devices = value.devices()
        if len(devices) != 1 or any(device.platform != "cpu" for device in devices):
            shown = f"on the devices {', '.join(sorted(map(str, devices)))}"
            raise InvalidArgument(name, shown, "the memory of one processor is allowed")
        return super().export(name, value.block_until_ready())

    def check_writable(self, view: View) -> None:
        raise InvalidArgument(view.name, "an array of JAX", "an array that can be written is allowed")

    def empty(self, shape: tuple[int, ...], dtype: str, like: View) -> Any:
        """At a multiple of LINE."""
        kind = numpy_type(dtype)
        memory = np.empty(int(np.prod(shape, dtype=np.int64)) * kind.itemsize + LINE, np.uint8)
        skip = -address(memory) % LINE
        return memory[skip : len(memory) - LINE + skip].view(kind).reshape(shape)

    def finish(self, made: Any, like: View) -> Any:
        return sys.modules["jax"].device_put(made, next(iter(like.value.array.devices())))


JAX, DLPACK = _Jax(), _Dlpack()
