"""Reads DLPack's capsules: where an array lies that another library holds.

NumPy's own reader has no bfloat16. Nothing is taken over: a capsule that nobody renames lets go of the array
when it goes itself, so whoever keeps the capsule keeps the array.

https://dmlc.github.io/dlpack/latest/c_api.html
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import NamedTuple

from flashgen.runtime.tensors import contiguous

CPU, PINNED = 1, 3  # kDLCPU, kDLCUDAHost: memory that a processor reads
READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY
VERSION = (1, 0)
KINDS = {0: "int", 1: "uint", 2: "float", 3: "opaque", 4: "bfloat", 5: "complex", 6: "bool"}


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned. DLManagedTensor, which came before it, begins with its DLTensor."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    )


class Found(NamedTuple):
    """What a capsule says. strides: in bytes. read_only: also where it does not say that it may be written.

    dtype: "bool", or a kind and its bits, such as "bfloat16".
    """

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    device_type: int
    read_only: bool


_is_valid: Callable[[object, bytes], int] = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.py_object, ctypes.c_char_p
)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer: Callable[[object, bytes], int] = ctypes.PYFUNCTYPE(
    ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p
)(("PyCapsule_GetPointer", ctypes.pythonapi))


def read(capsule: object) -> Found:
    """What ``x.__dlpack__()`` gave. Raises ValueError for anything else, and for versions to come."""
    read_only = True
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        if managed.major != VERSION[0]:
            raise ValueError(f"DLPack {managed.major}.{managed.minor}, where {VERSION[0]} is known")
        tensor, read_only = managed.tensor, bool(managed.flags & READ_ONLY)
    elif _is_valid(capsule, b"dltensor"):
        tensor = _Tensor.from_address(_pointer(capsule, b"dltensor"))
    else:
        raise ValueError(f"{type(capsule).__name__}, which is no capsule of DLPack's")
    itemsize, kind = tensor.bits // 8 * tensor.lanes, KINDS.get(tensor.code, "opaque")
    shape = tuple(tensor.shape[: tensor.ndim])
    steps = tensor.strides[: tensor.ndim] if tensor.strides else contiguous(shape, 1).strides
    dtype = "bool" if (kind, tensor.bits) == ("bool", 8) else f"{kind}{tensor.bits}"
    if tensor.lanes != 1:
        dtype += f"x{tensor.lanes}"
    return Found(
        (tensor.data or 0) + tensor.byte_offset,
        shape,
        tuple(step * itemsize for step in steps),
        dtype,
        tensor.device_type,
        read_only,
    )
