"""Arrays as emitted kernels take them, in C++ and in CUDA."""

from __future__ import annotations

import ctypes

import numpy as np


class Tensor(ctypes.Structure):
    """flashgen_tensor: a strided array of up to four dimensions; strides count elements."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_int64 * 4), ("stride", ctypes.c_int64 * 4))

    @classmethod
    def of(cls, array: np.ndarray) -> Tensor:
        sizes = array.shape + (1,) * (4 - array.ndim)
        strides = tuple(s // array.itemsize for s in array.strides) + (0,) * (4 - array.ndim)
        return cls(array.ctypes.data, (ctypes.c_int64 * 4)(*sizes), (ctypes.c_int64 * 4)(*strides))
