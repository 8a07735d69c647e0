"""How many threads a call gets."""

from __future__ import annotations

import os

from flashgen.errors import InvalidArgument
from flashgen.targets.cpu import Cpu

VARIABLE = "OMP_NUM_THREADS"

MAX_THREADS = Cpu.max_threads
"""More are taken for a mistake and refused."""

WORK_PER_THREAD = 1 << 21
"""Multiply-adds that are worth a thread of their own: 50 to 100 microseconds of one core, where starting and
joining a thread takes 10 to 15. What has less runs on the caller's thread."""


def choose_threads(threads: int | None, work: int) -> int:
    """Threads of a call of ``work`` multiply-adds: ``threads`` if given, else as many as the work is worth.

    At most $OMP_NUM_THREADS (of a list its first number), else the processors that this process may run
    on. The variable is read where the work is worth a second thread. Raises InvalidArgument.
    """
    if threads is not None:
        return _check("threads", threads)
    worth = work // WORK_PER_THREAD
    return 1 if worth < 2 else min(worth, available_threads())


def available_threads() -> int:
    """$OMP_NUM_THREADS, else the processors that this process may run on. Raises InvalidArgument."""
    if text := os.environ.get(VARIABLE):
        first = text.split(",")[0].strip()
        return _check(VARIABLE, int(first) if first.isascii() and first.isdigit() else text)
    if hasattr(os, "sched_getaffinity"):
        return min(len(os.sched_getaffinity(0)), MAX_THREADS)
    return min(os.cpu_count() or 1, MAX_THREADS)


def _check(argument: str, value: object) -> int:
    if type(value) is not int or not 1 <= value <= MAX_THREADS:
        raise InvalidArgument(argument, repr(value), f"a whole number from 1 to {MAX_THREADS} is allowed")
    return value
