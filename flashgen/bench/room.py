"""Whether the arrays of a case fit the memory that is free."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flashgen.bench.cases import CASES, Case
from flashgen.errors import InvalidArgument

MEMINFO = Path("/proc/meminfo")
GIB, MIB = 1 << 30, 1 << 20


def free_memory() -> int | None:
    """Bytes that can be had without swapping, as Linux has it (proc(5), MemAvailable); None if unknown."""
    lines = MEMINFO.read_text().splitlines()
    found = (int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    return next(found, None)


def check_fits(cases: Sequence[Case]) -> None:
    """Raise InvalidArgument for a case whose arrays do not fit the memory that is free, if that is known."""
    free = free_memory()
    for case in cases:
        if free is not None and case.array_bytes > free:
            allowed = (
                f"arrays that take up to {in_words(free)}, the memory that is free, are allowed; these take "
                f"{in_words(case.array_bytes)}"
            )
            raise InvalidArgument("cases" if case.name in CASES else "shape", repr(case.name), allowed)


def in_words(size: int) -> str:
    """Of bytes: in GiB, and below 1 GiB in MiB."""
    return f"{size / GIB:,.1f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"
