"""The floating-point peak of this machine, measured: what a kernel's speed is a share of."""

from __future__ import annotations

import ctypes
import functools
import time
from collections.abc import Callable
from typing import Any

from flashgen.errors import check_positive
from flashgen.runtime.probe import load_probe, measure_rate
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
    return measure_rate(
        lambda thread, rounds: run(rounds), CALIBRATION_ROUNDS, threads, seconds, clock, repeats
    )


@functools.cache
def _load(target: Cpu) -> Any:
    """The function of templates/cpp/peak.cpp."""
    run = load_probe("peak.cpp", "flashgen_peak", target)
    run.argtypes, run.restype = [ctypes.c_int64], ctypes.c_double
    return run
