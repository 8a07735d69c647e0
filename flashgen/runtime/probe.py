"""Small programs that show what this machine can do: compiled, loaded, run by several threads at once."""

from __future__ import annotations

import functools
import importlib.resources
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flashgen.runtime.cpu import library, open_function
from flashgen.runtime.cpu_features import require
from flashgen.targets.cpu import Cpu


@functools.cache
def load_probe(file: str, function: str, target: Cpu) -> Any:
    """A function of a file of templates/cpp/, compiled for it. Raises MissingTool or CompileFailure."""
    require(target)
    source = importlib.resources.files("flashgen.templates").joinpath("cpp", file).read_text()
    return open_function(library(source, function, target), function)


def time_threads(
    work: Callable[[int], float], threads: int, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, float]:
    """What the threads did together, and seconds from their common start to the last end.

    work: a thread's part, by its number; returns how much it did. It has to let other threads run, as ctypes
    does. clock: read by each thread; that of a single one may be time.thread_time.
    """
    starts = [0.0] * threads
    barrier = threading.Barrier(threads)

    def timed(thread: int) -> tuple[float, float]:
        barrier.wait()
        starts[thread] = clock()
        done = work(thread)
        return done, clock()

    with ThreadPoolExecutor(threads) as pool:
        results = list(pool.map(timed, range(threads)))
    return sum(done for done, _ in results), max(end for _, end in results) - min(starts)


def measure_rate(
    run: Callable[[int, int], float],
    trial: int,
    threads: int,
    seconds: float,
    clock: Callable[[], float],
    repeats: int = 1,
) -> float:
    """GFLOP/s of all threads together; the best of ``repeats`` runs of about so many seconds.

    run: a thread's part, by its number and how many rounds; returns how many operations they were.
    trial: rounds that a first run takes, which says how many are needed.
    """
    _, taken = time_threads(lambda thread: run(thread, trial), 1, clock)
    rounds = max(int(trial * seconds / taken), 1)
    best = 0.0
    for _ in range(repeats):
        done, taken = time_threads(lambda thread: run(thread, rounds), threads, clock)
        best = max(best, done / taken)
    return best / 1e9
