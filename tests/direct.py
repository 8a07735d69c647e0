"""Emitted kernels with inputs of their own, called as C calls them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flashgen.emission import variant
from flashgen.problem import Problem
from flashgen.schedule import Schedule
from tests import compiled
from tests.compiled import Build
from tests.strategies import STORAGE, Inputs


class Tensor(ctypes.Structure):
    """flashgen_tensor"""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_int64 * 4), ("stride", ctypes.c_int64 * 4))


def tensor(array: np.ndarray) -> Tensor:
    rest = 4 - array.ndim
    strides = [n // array.itemsize for n in array.strides]
    size, stride = (*array.shape, *[1] * rest), (*strides, *[0] * rest)
    return Tensor(array.ctypes.data, (ctypes.c_int64 * 4)(*size), (ctypes.c_int64 * 4)(*stride))


def functions(build: Build, wanted: Sequence[tuple[Problem, Schedule]]) -> list[Any]:
    """The functions of these kernels, compiled together."""
    parts = [tuple(wanted[n : n + compiled.TOGETHER]) for n in range(0, len(wanted), compiled.TOGETHER)]
    found = []
    for part in parts:
        library = ctypes.CDLL(str(compiled.library(compiled.together(part, build.target), build)))
        for problem, schedule in part:
            found.append(library[variant(problem, build.target.complete(problem, schedule), build.target)])
    return found


def call(
    function: Any, problem: Problem, x: Inputs, inputs: Mapping[str, Any], threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """O and lse, which hold NaN before."""
    o = np.full((*x.q.shape[:3], problem.head_dim_v), np.nan, STORAGE[problem.dtype])
    lse = np.full(x.q.shape[:3], np.nan, np.float32)
    arrays = [x.q, x.k, x.v, o, lse, *(inputs[a.name] for a in problem.arrays)]
    numbers = [
        ctypes.c_int64(inputs[s.name]) if s.kind == "index" else ctypes.c_float(inputs[s.name])
        for s in problem.scalars
    ]
    tensors = [tensor(a) for a in arrays]
    status = function(*map(ctypes.byref, tensors), ctypes.c_float(x.scale), *numbers, ctypes.c_int(threads))
    assert status == 0
    return o, lse
