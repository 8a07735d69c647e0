"""What stands right before and right behind each turn: the machine's speed at that moment."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from flashgen.bench.turns import WALL, Clock
from flashgen.targets.cpu import Cpu

Probe = Callable[[], float]

SECONDS = 0.005
"""That a measurement of the FMA peak takes."""
READ = 64 << 20
"""Bytes that a measurement of reading reads at least."""
SETTLE = 0.05
"""Seconds before a probe, on several threads: those of OpenBLAS and OpenMP spin for a while when done."""


def fma_probe(target: Cpu, threads: int, clock: Clock = WALL) -> Probe:
    """GFLOP/s of fused multiply-adds on registers, all threads together."""
    from flashgen.runtime.peak import measure_peak

    def probe() -> float:
        return measure_peak(target, threads, seconds=SECONDS, repeats=1, clock=clock.thread)

    return _settled(threads, probe)


def read_probe(target: Cpu, threads: int, size: int, clock: Clock = WALL) -> Probe:
    """GB/s of reading an array of ``size`` bytes, all threads together."""
    from flashgen.runtime.bandwidth import measure_read

    data = np.ones(size, np.uint8)
    times = max(1, READ // size)
    return _settled(threads, lambda: measure_read(target, data, threads, times, clock.thread))


def _settled(threads: int, probe: Probe) -> Probe:
    def settle_and_probe() -> float:
        time.sleep(SETTLE)
        return probe()

    return settle_and_probe if threads > 1 else probe
