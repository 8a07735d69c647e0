"""What this machine's processor can run."""

from __future__ import annotations

import functools
import platform
from pathlib import Path

from flashgen.errors import MissingTool
from flashgen.targets import TARGETS
from flashgen.targets.cpu import Cpu

CPUINFO = Path("/proc/cpuinfo")


@functools.cache
def cpu_features() -> frozenset[str]:
    """Instruction set extensions by Linux's names, those only that processor and kernel both support.

    Linux takes a name off the list where it does not save the extension's registers. Raises MissingTool
    where the machine is not an x86-64 or the system does not tell.
    """
    machine = platform.machine()
    if machine not in ("x86_64", "AMD64"):
        raise MissingTool(
            f"this machine is {machine!r}; targets avx2, avx512 and avx512bf16 run on x86-64, "
            "emit works anywhere"
        )
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError as error:
        raise MissingTool(
            f"what the processor supports cannot be read ({error}); emit works anywhere"
        ) from error
    return frozenset(next((line for line in lines if line.startswith("flags")), "").partition(":")[2].split())


def missing_features(target: Cpu) -> list[str]:
    """Features that emitted code for ``target`` uses and this machine has not."""
    return [feature for feature in target.features if feature not in cpu_features()]


def require(target: Cpu) -> None:
    """Raise MissingTool unless this machine runs code for ``target``."""
    if missing := missing_features(target):
        raise MissingTool(
            f"this processor cannot run target {target.name}: it has no {', '.join(missing)}; "
            "emit works without, and compile for another target runs here if it needs less"
        )


def best_target() -> Cpu:
    """The widest target that this machine runs, of several the one with most features.

    Raises MissingTool where there is none.
    """
    cpus = sorted(
        (t for t in TARGETS.values() if isinstance(t, Cpu)), key=lambda t: (t.lanes, len(t.features))
    )
    for target in reversed(cpus):
        if not missing_features(target):
            return target
    require(cpus[0])
    raise AssertionError("the narrowest target misses something")
