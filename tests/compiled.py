"""Emitted kernels that can be called: many in one compilation, natively or through SIMDe.

A compiler reads the vector headers for half a second and a kernel for half a second more, so several
kernels share a translation unit, each in a namespace of its own. Nothing is changed in an emitted file.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from flashgen.emission import source, variant
from flashgen.errors import MissingTool
from flashgen.problem import Problem
from flashgen.runtime.cache import fetch, make_key
from flashgen.runtime.compiler import BASE_FLAGS, OPTIMIZE, find_compiler
from flashgen.runtime.cpu import CpuKernel
from flashgen.runtime.cpu_features import missing_features
from flashgen.schedule import ORDERS, Schedule
from flashgen.targets.cpu import Avx2, Avx512, Cpu
from tests import simde
from tests.strategies import STORAGE, Inputs

T = TypeVar("T")
TARGETS = (Avx2(), Avx512())
QUICK = "-Og"
"""How most kernels of the tests are compiled: in a sixth less time than with -O1, through the emulation in a
quarter of it. What the runtime does, -O2, has tests of its own, which compare bits."""
CACHE = Path(__file__).parent.parent / ".pytest_cache" / "kernels"
WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Werror")
APART = "PYTEST_XDIST_WORKER" in os.environ
"""pytest-xdist has more than one of us already."""
PROCESSES = 1 if APART else 2
"""Compilers at a time."""
TOGETHER = 8 if APART else 4
"""Kernels in one compilation."""

HEADERS = "".join(
    f"#include <{name}.h>\n" for name in ("immintrin", "math", "pthread", "stdint", "stdlib", "string")
)
LIBRARY = "".join(f"using ::{name};\n" for name in ("exp", "exp2", "log", "tanh"))
"""What a kernel calls of the C library by names that its layers have as well, of vectors: in a namespace of
its own the library's would be hidden."""


def combinations(br: int | None = None, bc: int | None = None) -> list[Schedule]:
    """All of order, lazy rescale and causal skip, for tiles of one size."""
    return [
        Schedule(order, br, bc, lazy, skip)
        for order in ORDERS
        for lazy in (False, True)
        for skip in (False, True)
    ]


def pairwise(br: int | None = None, bc: int | None = None, panel: int | None = None) -> list[Schedule]:
    """Half of ``combinations``, in which every two of the choices still meet in all four ways."""
    every = [replace(schedule, panel=panel) for schedule in combinations(br, bc)]
    return [every[n] for n in (0b000, 0b011, 0b101, 0b110)]


@dataclass(frozen=True)
class Build:
    """How kernels are compiled. emulated: through SIMDe, though the processor might have the instructions."""

    target: Cpu
    optimize: str = QUICK
    emulated: bool = False

    def __str__(self) -> str:
        return f"{self.target.name}{'-emulated' if self.emulated else ''}"

    @property
    def emulates(self) -> bool:
        return self.emulated or bool(missing_features(self.target))

    @property
    def flags(self) -> tuple[str, ...]:
        """Of the runtime, with warnings as errors. Raises MissingTool where there is no way to run them."""
        isa = simde.flags(self.target) if self.emulates else self.target.flags
        base = (self.optimize if flag == OPTIMIZE else flag for flag in BASE_FLAGS)
        return (*WARNINGS, *isa, *base)


@cache
def kernels(build: Build, wanted: tuple[tuple[Problem, Schedule], ...]) -> list[CpuKernel]:
    """A kernel for each of the problems with its schedule, in order; see ``library`` for skips."""
    parts = [wanted[n : n + TOGETHER] for n in range(0, len(wanted), TOGETHER)]
    with own_cache(), ThreadPoolExecutor(PROCESSES) as pool:
        libraries = list(pool.map(lambda part: compiled(together(part, build.target), build), parts))
    return [
        CpuKernel(variant(problem, build.target.complete(problem, schedule), build.target), problem, library)
        for part, library in zip(parts, libraries, strict=True)
        for problem, schedule in part
    ]


def sample(build: Build, wanted: Sequence[T], every: int) -> Sequence[T]:
    """Some of what is to be compiled through the emulation, which takes a compiler several times as long, and
    all of it otherwise."""
    return wanted[::every] if build.emulates else wanted


def together(part: Sequence[tuple[Problem, Schedule]], target: Cpu) -> str:
    """The files of these kernels as one, each in a namespace of its own; their functions are extern "C"."""
    text = HEADERS
    for n, (problem, schedule) in enumerate(part):
        name = variant(problem, target.complete(problem, schedule), target)
        text += f"namespace kernel_{n} {{\n{LIBRARY}"
        text += f'#line 1 "{name}.cpp"\n{source(problem, schedule, target)}}}\n'
    return text


def around(
    functions: str,
    target: Cpu,
    dtype: str = "float32",
    panel: int | None = None,
    products: str = "float32",
) -> str:
    """Functions of a test's own in the place of a kernel, among the layers of an emitted file."""
    schedule = Schedule(br=8, bc=8, panel=panel, products=products)
    head, end, _ = source(Problem(8, dtype=dtype), schedule, target).partition("}  // namespace\n")
    assert end
    return head + functions


def library(text: str, build: Build) -> Path:
    """The library that a text makes, from the cache if it is there. Raises CompileFailure, for a warning too.

    Skips the test where there is no compiler, or neither a processor nor an emulation for the target.
    """
    with own_cache():
        return compiled(text, build)


def compiled(text: str, build: Build) -> Path:
    try:
        compiler, flags = find_compiler(), build.flags
    except MissingTool as reason:
        pytest.skip(str(reason))
    key = make_key(text, (*flags, simde.read()), compiler.identity)
    return fetch(key, lambda made: compiler.compile(text, made, flags))


@contextmanager
def quick_compiler() -> Iterator[None]:
    """What compiles kernels for the runtime, in child processes too, does it as for ``Build``: into
    the cache of the tests. Skips the test where there is no compiler."""
    try:
        command = shlex.join(find_compiler().command)
    except MissingTool as reason:
        pytest.skip(str(reason))
    with own_cache(), pytest.MonkeyPatch.context() as patch:
        patch.setenv("CXX", shlex.join(["sh", "-c", f'exec {command} "$@" {QUICK}', "c++"]))
        yield


@contextmanager
def own_cache() -> Iterator[None]:
    """Kernels of the tests stay out of the user's cache folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLASHGEN_CACHE_DIR", str(CACHE))
        yield


def kernel(build: Build, problem: Problem, schedule: Schedule) -> CpuKernel:
    """One kernel."""
    return kernels(build, ((problem, schedule),))[0]


def all_combinations(
    build: Build, problem: Problem, br: int | None = None, bc: int | None = None
) -> list[CpuKernel]:
    """A kernel for each of ``combinations``; for each of ``pairwise`` through the emulation, which takes a
    compiler several times as long."""
    wanted = pairwise(br, bc) if build.emulates else combinations(br, bc)
    return kernels(build, tuple((problem, schedule) for schedule in wanted))


def tiles(target: Cpu, problem: Problem, schedule: Schedule) -> tuple[int, int]:
    """Br and Bc, where the schedule leaves them open too."""
    filled = target.complete(problem, schedule)
    assert filled.br is not None and filled.bc is not None
    return filled.br, filled.bc


def call(
    kernel: CpuKernel,
    x: Inputs,
    threads: int = 1,
    values: Mapping[str, Any] | None = None,
    **outputs: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """O and lse, which hold NaN before: what a kernel leaves unwritten shows.

    values: by name, of which the kernel is given what its mask and score read.
    """
    shape = (*x.q.shape[:3], x.v.shape[3])
    out, lse = (
        np.full(shape, np.nan, STORAGE[kernel.problem.dtype]),
        np.full(shape[:3], np.nan, STORAGE[kernel.problem.computed]),
    )
    given = {"out": out, "lse": lse} | outputs
    read = [v.name for v in (*kernel.problem.arrays, *kernel.problem.scalars)]
    inputs = {name: (values or {})[name] for name in read} if read else None
    return kernel(x.q, x.k, x.v, scale=x.scale, threads=threads, inputs=inputs, **given)
