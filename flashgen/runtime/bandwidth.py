"""How fast this machine reads memory, measured: what the speed of a decoding kernel is a share of."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from flashgen.errors import check_positive
from flashgen.runtime.probe import load_probe, time_threads
from flashgen.runtime.tensors import address
from flashgen.targets.cpu import Cpu


def measure_read(
    target: Cpu,
    data: np.ndarray,
    threads: int = 1,
    times: int = 1,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """GB/s (1e9 bytes) at which ``threads`` threads read ``data`` so many times, each its own part.

    data: a contiguous array. What of it lies in a cache is read from there: it should be as large as what
    the compared program reads, and not the same memory, which it would find warm.
    clock: of each thread; see time_threads.

    Raises InvalidArgument, MissingTool or CompileFailure.
    """
    check_positive("threads", threads)
    check_positive("times", times)
    read = _load(target)
    start, part = address(data), data.nbytes // threads

    def work(thread: int) -> int:
        return sum(read(start + thread * part, part) for _ in range(times))

    done, taken = time_threads(work, threads, clock)
    return done / taken / 1e9


@functools.cache
def _load(target: Cpu) -> Any:
    """The function of templates/cpp/read.cpp."""
    read = load_probe("read.cpp", "flashgen_read", target)
    read.argtypes, read.restype = [ctypes.c_void_p, ctypes.c_int64], ctypes.c_int64
    return read
