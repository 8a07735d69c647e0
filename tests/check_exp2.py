"""Checks exp2 of the emitted layers on every float32: `make exp2`.

    python tests/check_exp2.py --jobs 2

Each target that this machine can run or emulate takes about a minute of one processor.
"""

from __future__ import annotations

import argparse
import ctypes
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent.parent))

from flashgen.runtime.compiler import OPTIMIZE
from tests.compiled import TARGETS, Build, around, library

ULPS = 1.0
"""The largest error that is promised for normal results."""
PARTS = 256
"""Into which the 2^32 bit patterns are divided."""


class Report(ctypes.Structure):
    """As in exp2_check.cpp."""

    ulps: float
    at: float
    wrong: int
    first: float
    _fields_ = [
        ("ulps", ctypes.c_double),
        ("at", ctypes.c_float),
        ("wrong", ctypes.c_int64),
        ("first", ctypes.c_float),
    ]

    def __str__(self) -> str:
        rules = f"{self.wrong} results break a rule" + (f", first {self.first!r}" if self.wrong else "")
        return f"at most {self.ulps:.4f} ulp, at {self.at!r}; {rules}"

    @property
    def good(self) -> bool:
        return self.wrong == 0 and self.ulps <= ULPS


@cache
def functions(build: Build) -> ctypes.CDLL:
    """check_exp2 and apply_exp2, among the layers that kernels have."""
    text = (Path(__file__).parent / "exp2_check.cpp").read_text()
    return ctypes.CDLL(str(library(around(text, build.target), build)))


def check(build: Build, ranges: Iterable[tuple[int, int]], jobs: int = 1) -> Report:
    """The worst of some ranges of bit patterns."""

    def one(ends: tuple[int, int]) -> Report:
        report = Report()
        functions(build).check_exp2(*map(ctypes.c_uint64, ends), ctypes.byref(report))
        return report

    total = Report()
    with ThreadPoolExecutor(jobs) as pool:
        for part in pool.map(one, ranges):
            if part.ulps > total.ulps:
                total.ulps, total.at = part.ulps, part.at
            if part.wrong and not total.wrong:
                total.first = part.first
            total.wrong += part.wrong
    return total


def between(nearer: float, farther: float) -> tuple[int, int]:
    """The bit patterns of the floats from one to another of the same sign, the second excluded."""
    first, last = (int(np.float32(x).view(np.uint32)) for x in (nearer, farther))
    return first, last


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2, help="threads")
    jobs = parser.parse_args().jobs
    step = 2**32 // PARTS
    everything = [(n * step, (n + 1) * step) for n in range(PARTS)]
    good = True
    for build in (Build(target, OPTIMIZE) for target in TARGETS):
        report = check(build, everything, jobs)
        print(f"{build}: {report}", flush=True)
        good &= report.good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
