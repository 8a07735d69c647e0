"""The floating-point peak of this machine, measured: what a kernel's speed is a share of."""

from __future__ import annotations

import ctypes
import functools
import importlib.resources
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flashgen.errors import check_positive
from flashgen.runtime.cpu import library, open_function
from flashgen.runtime.cpu_features import require
from flashgen.targets.cpu import Cpu

FUNCTION = "flashgen_peak"
CALIBRATION_ROUNDS = 100_000


def measure_peak(target: Cpu, threads: int = 1, seconds: float = 0.02, repeats: int = 5) -> float:
    """GFLOP/s of fused multiply-adds on registers, all ``threads`` together; the best of ``repeats`` runs.

    target: gives the width of the vectors.
    seconds: about how long one run takes.

    Clock and neighbours change from one moment to the next: measure right before and right behind what is
    compared with it. Raises InvalidArgument, MissingTool or CompileFailure.
    """
    check_positive("threads", threads)
    check_positive("repeats", repeats)
    run = _load(target)
    _, taken = _time(run, 1, CALIBRATION_ROUNDS)
    rounds = max(int(CALIBRATION_ROUNDS * seconds / taken), 1)
    best = 0.0
    for _ in range(repeats):
        done, taken = _time(run, threads, rounds)
        best = max(best, done / taken)
    return best / 1e9


@functools.cache
def _load(target: Cpu) -> Any:
    """The function of templates/cpp/peak.cpp, compiled for the target."""
    require(target)
    source = importlib.resources.files("flashgen.templates").joinpath("cpp/peak.cpp").read_text()
    run = open_function(library(source, FUNCTION, target), FUNCTION)
    run.argtypes, run.restype = [ctypes.c_int64], ctypes.c_double
    return run


def _time(run: ctypes._FuncPointer, threads: int, rounds: int) -> tuple[float, float]:
    """Operations done, and seconds from the common start to the last end."""
    starts = [0.0] * threads
    barrier = threading.Barrier(threads)

    def work(thread: int) -> tuple[float, float]:
        barrier.wait()
        starts[thread] = time.perf_counter()
        done = run(rounds)  # ctypes lets the other threads run
        return done, time.perf_counter()

    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(work, range(threads)))
    return sum(done for done, _ in results), max(end for _, end in results) - min(starts)
