"""What the figures were measured with."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from flashgen.bench.cases import CASES, Case
from flashgen.bench.peers import PEERS
from flashgen.errors import InvalidArgument
from flashgen.runtime.compiler import find_compiler
from flashgen.runtime.cpu_features import CPUINFO

MEMINFO = Path("/proc/meminfo")


def free_memory() -> int:
    """Bytes that can be had without swapping, as Linux has it (proc(5), MemAvailable)."""
    lines = MEMINFO.read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))


def check_fits(cases: Sequence[Case]) -> None:
    """Raise InvalidArgument for a case whose arrays do not fit the memory that is free."""
    free = free_memory()
    for case in cases:
        if case.array_bytes > free:
            most, taken = (f"{size / 2**30:,.1f} GiB" for size in (free, case.array_bytes))
            allowed = (
                f"arrays that take up to {most}, the memory that is free, are allowed; these take {taken}"
            )
            raise InvalidArgument("cases" if case.name in CASES else "shape", repr(case.name), allowed)


def processor() -> str:
    """Its name, as Linux has it."""
    lines = CPUINFO.read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {len(names)} processors"


def versions(peers: Sequence[str]) -> dict[str, str]:
    """Of flashgen, its compiler and each package that is compared."""
    packages = dict.fromkeys(PEERS[key].package for key in peers)
    return {
        "flashgen": version("flashgen"),
        "compiler": find_compiler().version,
        **{package: version(package) for package in ("numpy", *packages)},
    }
