"""Instructions and bytes of one call, counted by valgrind: a small case, one thread.

Cachegrind runs a process that makes one call, and one that makes two; what they differ by is a call, without
the interpreter's start. It knows AVX2 and no AVX-512, and has libraries believe the same.

The process reads a Counted as JSON on standard input.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from flashgen.bench.cases import Case
from flashgen.bench.prepare import make_arrays
from flashgen.bench.process import environment
from flashgen.bench.standard import standard_attention
from flashgen.errors import KernelFailure, MissingTool
from flashgen.problem import Problem

CACHE, WAYS, LINE = 512 << 10, 16, 64
"""Bytes, ways and bytes a line of the cache behind which memory is taken to begin: a small second level, so
that a small case does not fit."""


@dataclass(frozen=True)
class Counted:
    """What is run. library, name: of a compiled kernel; NumPy, where there is none."""

    case: Case
    calls: int
    library: str = ""
    name: str = ""


@dataclass(frozen=True)
class Counts:
    """Of one call.

    fetched: bytes of the lines that came from memory into a cache of CACHE bytes, to be read or written.
    Cachegrind does not model what is written back.
    """

    instructions: int
    fetched: int


def find_valgrind() -> str:
    """Raises MissingTool."""
    if path := shutil.which("valgrind"):
        return path
    raise MissingTool("instructions are counted by valgrind: install it (Debian: apt install valgrind)")


def count(case: Case, library: str = "", name: str = "") -> Counts:
    """Raises MissingTool or KernelFailure."""
    once, twice = (run(Counted(case, calls, library, name)) for calls in (1, 2))
    return Counts(twice.instructions - once.instructions, twice.fetched - once.fetched)


def run(counted: Counted) -> Counts:
    """Of a whole process."""
    cache = f"--LL={CACHE},{WAYS},{LINE}"
    command = [
        find_valgrind(),
        "--tool=cachegrind",
        "--cache-sim=yes",
        cache,
        "--cachegrind-out-file=/dev/null",
    ]
    done = subprocess.run(
        [*command, sys.executable, "-m", "flashgen.bench.count"],
        input=json.dumps(asdict(counted)),
        env=environment(1),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = [line for line in done.stderr.splitlines() if not line.startswith("==")] or [""]
        raise KernelFailure(f"valgrind ended with status {done.returncode}: {said[-1].strip()[-200:]}")
    return parse(done.stderr)


def parse(text: str) -> Counts:
    """What cachegrind prints at its end."""

    def number(label: str) -> int:
        found = re.search(rf"== {label}:\s+([\d,]+)", text)
        if found is None:
            raise KernelFailure(f"valgrind does not tell its {label!r}")
        return int(found[1].replace(",", ""))

    return Counts(number(r"I\s+refs"), number(r"LLd\s+misses") * LINE)


def main(text: str) -> None:
    fields = json.loads(text)
    counted = Counted(**{**fields, "case": Case(**fields["case"])})
    case, arrays = counted.case, make_arrays(counted.case)
    if not counted.library:
        for _ in range(counted.calls):
            standard_attention(*arrays, case.causal)
        return
    from flashgen.runtime.cpu import CpuKernel

    kernel = CpuKernel(
        counted.name, Problem(case.head_dim, causal=case.problem.causal), Path(counted.library)
    )
    for _ in range(counted.calls):
        kernel(*arrays, threads=1)


if __name__ == "__main__":
    main(sys.stdin.read())
