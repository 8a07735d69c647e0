"""Runs emitted code on processors that lack its instructions: SIMDe in place of <immintrin.h>.

The emitted file stays as it is; tests/simde_headers/ stands first among the folders of headers.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from flashgen.errors import MissingTool
from flashgen.runtime.cpu_features import cpu_features
from flashgen.targets.cpu import Avx2, Cpu

HEADERS = Path(__file__).parent / "simde_headers"


def read() -> str:
    """Our own headers, which a compiled file depends on beside its text."""
    return "".join(path.read_text() for path in sorted(HEADERS.glob("*.h")))


def flags(target: Cpu) -> tuple[str, ...]:
    """What stands in place of the target's own flags. Raises MissingTool.

    The emulation is made of what this processor has: of AVX2 if it can be. -Wno-psabi: vectors that are
    wider than a register are passed in memory, which matters to no function here.
    """
    if find_spec("simde_py") is None:
        raise MissingTool("SIMDe, which stands in for instructions, is not here (pip install simde-py)")
    from simde_py import get_include  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]

    has_avx2 = cpu_features().issuperset(Avx2.features)
    march = "-march=x86-64-v3" if has_avx2 else "-march=x86-64"
    return (march, f"-I{HEADERS}", f"-isystem{get_include()}", "-Wno-psabi")
