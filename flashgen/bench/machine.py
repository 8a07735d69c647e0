"""What the figures were measured with."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from importlib.metadata import version

from flashgen.bench.peers import PEERS
from flashgen.runtime.compiler import find_compiler
from flashgen.runtime.cpu_features import CPUINFO


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
