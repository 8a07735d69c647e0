"""How fast this machine multiplies tiles in its caches, measured: whether something disturbs them now."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from flashgen.errors import check_positive
from flashgen.runtime.probe import load_probe, measure_rate
from flashgen.runtime.tensors import address
from flashgen.targets.cpu import Cpu

MEMORY, LINE = 560 << 10, 64
"""Bytes that templates/cpp/product.cpp works in, and at a multiple of how many they begin."""
TRIAL_ROUNDS = 4


def measure_product(
    target: Cpu, threads: int = 1, seconds: float = 0.004, clock: Callable[[], float] = time.perf_counter
) -> float:
    """GFLOP/s of a product of tiles in the first- and second-level caches, all ``threads`` together.

    target: gives the instructions. seconds: about how long it takes. clock: of each thread; see time_threads.

    A neighbour on the other half of a core disturbs caches more than arithmetic units: this shows it where
    ``measure_peak`` does not. Raises InvalidArgument, MissingTool or CompileFailure.
    """
    check_positive("threads", threads)
    run = _load(target)
    return measure_rate(
        lambda thread, rounds: run(_memory(thread)[1], rounds), TRIAL_ROUNDS, threads, seconds, clock
    )


@functools.cache
def _memory(thread: int) -> tuple[np.ndarray, int]:
    """A thread's tiles, and where they begin. Zeros would draw less power than data do."""
    memory = np.full(MEMORY + LINE, 0x3F, np.uint8)  # floats of 0.75
    return memory, -(-address(memory) // LINE) * LINE


@functools.cache
def _load(target: Cpu) -> Any:
    """The function of templates/cpp/product.cpp."""
    run = load_probe("product.cpp", "flashgen_product", target)
    run.argtypes, run.restype = [ctypes.c_void_p, ctypes.c_int64], ctypes.c_double
    return run
