"""The floating-point peak of this machine, measured: what a kernel's speed is a share of."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from typing import Any

from flashgen.errors import check_positive
from flashgen.runtime.probe import load_probe, time_threads
from flashgen.targets.cpu import Cpu

CALIBRATION_ROUNDS = 100_000


def measure_peak(
    target: Cpu,
    threads: int = 1,
    seconds: float = 0.02,
    repeats: int = 5,
    clock: Callable[[], float] = time.perf_counter,
) -> float:
    """GFLOP/s of fused multiply-adds on registers, all ``threads`` together; the best of ``repeats`` runs.

    target: gives the width of the vectors.
    seconds: about how long one run takes.
    clock: of each thread; see time_threads.

    Clock and neighbours change from one moment to the next: measure right before and right behind what is
    compared with it. Raises InvalidArgument, MissingTool or CompileFailure.
    """
    check_positive("threads", threads)
    check_positive("repeats", repeats)
    run = _load(target)
    # ctypes lets the other threads run
    _, taken = time_threads(lambda thread: run(CALIBRATION_ROUNDS), 1, clock)
    rounds = max(int(CALIBRATION_ROUNDS * seconds / taken), 1)
    best = 0.0
    for _ in range(repeats):
        done, taken = time_threads(lambda thread: run(rounds), threads, clock)
        best = max(best, done / taken)
    return best / 1e9


@functools.cache
def _load(target: Cpu) -> Any:
    """The function of templates/cpp/peak.cpp."""
    run = load_probe("peak.cpp", "flashgen_peak", target)
    run.argtypes, run.restype = [ctypes.c_int64], ctypes.c_double
    return run
