"""A stand-in for CuPy, as far as the launcher uses it: memory is the host's, kernels run through CudaOnCpu.

It holds the launcher to what CuPy documents: structures arrive as 0-dimensional arrays of the parameter's
size, float parameters as NumPy scalars, and more than 48 KiB of dynamic shared memory only after the
attribute was set.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import numpy as np

from tests.cuda_on_cpu.runner import ATTENTION, TENSOR, CudaOnCpu, Report
from tests.tensor import Tensor


class CompileException(Exception):
    """cupy.cuda.compiler.CompileException."""


class CUDARuntimeError(RuntimeError):
    """cupy.cuda.runtime.CUDARuntimeError."""


class ndarray(np.ndarray):
    """cupy.ndarray."""

    @property
    def data(self) -> SimpleNamespace:  # pyright: ignore[reportIncompatibleMethodOverride]
        return SimpleNamespace(ptr=self.ctypes.data)

    def get(self) -> np.ndarray:
        return np.array(self)


class Double:
    """The module ``cupy`` of a machine with one GPU.

    reports: of every launch, oldest first. error: raised by getDeviceCount, if it is given.
    """

    ndarray = ndarray

    def __init__(self, *, count: int = 1, capability: str = "90", shared: int = 227 << 10, error: str = ""):
        self.count, self.error = count, error
        self.reports: list[Report] = []
        device = _Device(compute_capability=capability, attributes={"MaxSharedMemoryPerBlockOptin": shared})
        self.cuda = SimpleNamespace(
            Device=lambda: device,
            compiler=SimpleNamespace(CompileException=CompileException),
            runtime=SimpleNamespace(CUDARuntimeError=CUDARuntimeError, getDeviceCount=self._get_device_count),
        )

    def asarray(self, array: np.ndarray) -> ndarray:
        return array if isinstance(array, ndarray) else np.array(array).view(ndarray)

    def empty(self, shape: int | tuple[int, ...], dtype: object) -> ndarray:
        """Filled with NaN, or the largest number: memory that nothing has written."""
        return np.full(shape, np.nan if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max, dtype).view(
            ndarray
        )

    def RawModule(self, *, code: str, options: tuple[str, ...]) -> SimpleNamespace:
        def get_function(name: str) -> _Function:
            if name not in code:
                raise CompileException(f"{name} is undefined")
            return _Function(self, CudaOnCpu(code, name))

        assert "-std=c++17" in options
        return SimpleNamespace(get_function=get_function)

    def _get_device_count(self) -> int:
        if self.error:
            raise CUDARuntimeError(self.error)
        return self.count


class _Device(SimpleNamespace):
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class _Function:
    """cupy.RawKernel."""

    def __init__(self, double: Double, kernel: CudaOnCpu):
        self._double, self._kernel = double, kernel
        self.max_dynamic_shared_size_bytes = 48 << 10

    def __call__(self, grid: tuple, block: tuple, args: tuple, *, shared_mem: int = 0) -> None:
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        values = [self._value(kind, arg) for kind, arg in zip(ATTENTION, args, strict=True)]
        self._double.reports.append(self._kernel.launch(grid, block, values, shared_mem, seed=1))

    @staticmethod
    def _value(kind: str, arg: object) -> object:
        if kind == "float":
            assert type(arg) is np.float32
            return arg
        if kind == "float *":
            return arg if isinstance(arg, ndarray) else None
        assert TENSOR in kind and isinstance(arg, np.ndarray)
        assert arg.size == 1 and arg.nbytes == ctypes.sizeof(Tensor)
        return _array(Tensor.from_buffer_copy(arg.tobytes()))


def _array(tensor: Tensor) -> np.ndarray:
    """The float32 array that a tensor describes."""
    strides = tuple(4 * stride for stride in tensor.stride)
    interface = {"data": (tensor.data, False), "shape": tuple(tensor.size), "strides": strides}
    return np.asarray(SimpleNamespace(__array_interface__=interface | {"typestr": "<f4", "version": 3}))
