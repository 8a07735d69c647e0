"""What stands right before and right behind each turn: the machine's speed at that moment."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from flashgen.bench.turns import WALL, Clock, Speeds
from flashgen.targets.cpu import Cpu

Probe = Callable[[], Speeds]

SECONDS = 0.004
"""That a measurement of the FMA peak takes, and one of a product of tiles."""
READ = 64 << 20
"""Bytes that a measurement of reading reads at least."""
SETTLE = 0.05
"""Seconds before a probe, on several threads: those of OpenBLAS and OpenMP spin for a while when done."""


def compute_probe(target: Cpu, threads: int, clock: Clock = WALL) -> Probe:
    """GFLOP/s, all threads together: of fused multiply-adds on registers, and of a product of tiles.

    The first is the peak. A neighbour on the other half of the core can leave it as it is and still take so
    much of the caches that kernels fall from 0.8 to 0.6 of it; the second shows that.
    """
    from flashgen.runtime.peak import measure_peak
    from flashgen.runtime.product import measure_product

    def probe() -> Speeds:
        peak = measure_peak(target, threads, seconds=SECONDS, repeats=1, clock=clock.thread)
        return peak, measure_product(target, threads, SECONDS, clock.thread)

    return _settled(threads, probe)


def read_probe(target: Cpu, threads: int, size: int, clock: Clock = WALL) -> Probe:
    """GB/s of reading an array of ``size`` bytes, all threads together."""
    from flashgen.runtime.bandwidth import measure_read

    data = np.ones(size, np.uint8)
    times = max(1, READ // size)
    return _settled(threads, lambda: (measure_read(target, data, threads, times, clock.thread),))


def _settled(threads: int, probe: Probe) -> Probe:
    def settle_and_probe() -> Speeds:
        time.sleep(SETTLE)
        return probe()

    return settle_and_probe if threads > 1 else probe
