"""Emitted C++ compiles without a warning and equals the reference: every schedule, head dimensions, sizes."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from flashgen.emission import source
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.reference import Bound, attention, bound
from flashgen.runtime.compiler import OPTIMIZE
from flashgen.runtime.cpu import CpuKernel
from flashgen.schedule import FA1, FA2, Schedule
from flashgen.targets.cpu import Avx2, Cpu
from tests.compiled import TARGETS, Build, call, combinations, kernels, pairwise, sample, tiles
from tests.strategies import Inputs, make_inputs, rounded

PRIMES = (5, 257, 401, 1021)
HEADS = ((1, 2, 2), (2, 4, 2), (1, 4, 1), (1, 3, 1), (2, 1, 1))
"""(B, Hq, Hkv): groups of 1, 2, 4 and 3 query heads."""

HEAD_DIMS = (32, 64, 80, 128, 256)
UNROUNDED = (1, 3, 7, 8, 24, 40, 72, 96, 100, 112, 192)
"""F10: head dimensions that some kernels cut to a multiple of their vectors."""
UNEQUAL = ((64, 32), (32, 80), (8, 100), (40, 1), (1, 33))
"""D and Dv."""

Case = tuple[Problem, int | None, int | None]


def cases() -> list[Case]:
    """Every head dimension meets every mask and odd tiles."""
    found: list[Case] = [(Problem(64, causal=causal), None, None) for causal in ALIGNMENTS]
    found += [(Problem(64, causal=causal), 37, 70) for causal in ALIGNMENTS[:2]]
    found += [(Problem(64, causal="top-left"), 5, 7)]
    found += [(Problem(64, None, "float16", "bottom-right"), None, None)]
    found += [(Problem(80, None, "bfloat16"), 37, 70), (Problem(80, None, "float64", "top-left"), 37, 70)]
    found += [(Problem(64, None, "float64", "bottom-right"), None, None)]
    for n, head_dim in enumerate(d for d in HEAD_DIMS if d != 64):
        found.append((Problem(head_dim, causal=ALIGNMENTS[n % 3]), None, None))
        found.append((Problem(head_dim, causal=ALIGNMENTS[(n + 1) % 3]), *((5, 7), (37, 70))[n % 2]))
    return found


def schedules(case: Case, build: Build) -> list[Schedule]:
    """All for the target's own tiles, D = 64 and float32; else every two choices. Through the emulation, in
    which a compiler takes several times as long, half of them."""
    problem, br, bc = case
    if build.emulates:
        return pairwise(br, bc)[CASES.index(case) % 2 :: 2]
    usual = problem.head_dim == 64 and problem.dtype == "float32" and br is None
    return combinations(br, bc) if usual else pairwise(br, bc)


CASES = cases()


def lengths(br: int, bc: int) -> list[tuple[int, int]]:
    """(Nq, Nk): around the tiles, primes, 0 and 1."""
    around = [(br + d, bc + d) for d in (-1, 0, 1)] + [(br + 1, bc - 1), (2 * br + 1, 2 * bc + 1)]
    small = [(0, 3), (3, 0), (0, 0), (1, 1), (1, bc + 1), (br + 1, 1), (5, 257)]
    return [*around, *small, *([(401, 1021), (1021, 401)] if br > 100 else [(61, 127), (127, 61)])]


@cache
def expected(problem: Problem, n: int, nq: int, nk: int) -> tuple[Inputs, np.ndarray, np.ndarray, Bound]:
    """Random inputs with the n-th of the head counts; O and lse, and how far off they may be."""
    scale = rounded(problem, problem.head_dim**-0.5)
    x = make_inputs(problem, "plain", (*HEADS[n % len(HEADS)], nq, nk), scale, seed=n)
    return x, *attention(problem, x.q, x.k, x.v, scale), bound(problem, x.q, x.k, x.v, scale)


def check(kernel: CpuKernel, sizes: list[tuple[int, int]]) -> None:
    """The kernel equals the reference at these lengths, on poisoned outputs, with one and two threads."""
    for n, (nq, nk) in enumerate(sizes):
        x, want_o, want_lse, limit = expected(kernel.problem, n, nq, nk)
        o, lse = call(kernel, x, threads=1 + n % 2)
        try:
            limit.check(o, lse, want_o, want_lse)
        except AssertionError as wrong:
            raise AssertionError(f"{kernel.name} with {x}: {wrong}") from None


def case_name(case: Case) -> str:
    problem, br, bc = case
    tiles = f"{br}x{bc}" if br else "default"
    return f"{problem.head_dim}-{problem.dtype}-{problem.causal}-{tiles}"


@pytest.mark.parametrize("case", CASES, ids=case_name)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_combinations(target: Cpu, case: Case) -> None:
    problem, br, bc = case
    sizes = lengths(*tiles(target, problem, Schedule(br=br, bc=bc)))
    build = Build(target)
    for kernel in kernels(build, tuple((problem, s) for s in schedules(case, build))):
        check(kernel, sizes)


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_any_head_dimension(target: Cpu) -> None:
    """F10, and Dv apart from D: neither is cut to vectors or panels. A third of it through the emulation."""
    problems = [
        Problem(d, dv, causal=ALIGNMENTS[n % 3])
        for n, (d, dv) in enumerate([*((d, d) for d in UNROUNDED), *UNEQUAL])
    ]
    problems += [Problem(7, 100, "float16"), Problem(33, 1, "bfloat16", "bottom-right")]
    problems += [
        Problem(d, dv, "float64", ALIGNMENTS[d % 3]) for d, dv in ((1, 1), (3, 9), (7, 100), (33, 1), (8, 17))
    ]
    some = pairwise(20, 40)
    build = Build(target)
    wanted = tuple((problem, some[n % 4]) for n, problem in enumerate(problems))
    for kernel in kernels(build, sample(build, wanted, 3)):
        check(kernel, [(1, 1), (0, 5), (3, 0), (20, 40), (21, 41), (41, 83), (67, 31)])


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_as_shipped(target: Cpu) -> None:
    """With the runtime's optimisation FA-1 and FA-2 have no warnings either, and the same bits."""
    dims = (24,) if Build(target).emulates else (64, 80, 256)
    wanted = tuple(
        (Problem(head_dim, causal=ALIGNMENTS[head_dim % 3]), schedule)
        for head_dim in dims
        for schedule in (FA1, FA2)
    )
    for quick, shipped in zip(
        kernels(Build(target), wanted), kernels(Build(target, OPTIMIZE), wanted), strict=True
    ):
        check(shipped, [(193, 513), (401, 1021)])
        x = expected(shipped.problem, 1, 401, 1021)[0]
        for a, b in zip(call(quick, x), call(shipped, x), strict=True):
            assert a.tobytes() == b.tobytes()


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_emulated(target: Cpu) -> None:
    """Through SIMDe, which is how a machine without the instructions runs all of this: the native bits."""
    if Build(target).emulates:
        pytest.skip("the processor lacks what would be compared with")
    problem, sizes = Problem(24, 40, causal="bottom-right"), lengths(20, 40)
    wanted = tuple((problem, schedule) for schedule in pairwise(20, 40)[1:3])
    for kernel, same in zip(
        kernels(Build(target, emulated=True), wanted), kernels(Build(target), wanted), strict=True
    ):
        check(kernel, sizes)
        x = expected(problem, 4, 41, 81)[0]
        for a, b in zip(call(kernel, x), call(same, x), strict=True):
            assert a.tobytes() == b.tobytes()


def test_targets_are_all_there() -> None:
    from flashgen.targets import TARGETS as known

    cpus = [t.name for t in known.values() if isinstance(t, Cpu)]
    assert cpus == [*(t.name for t in TARGETS), "avx512bf16"]  # the last: tests/test_pair_kernels.py


IN_HEADERS = {
    "FA-1": (FA1, set()),
    "grouped rows": (replace(FA1, group_rows=True), {"group", "rows"}),
    "FA-2": (FA2, {"tiles"}),
    "parts": (replace(FA2, split_keys=1024), {"tiles", "group", "parts", "whole_rows"}),
}


@pytest.mark.parametrize(("schedule", "names"), IN_HEADERS.values(), ids=IN_HEADERS)
def test_the_header_says_what_the_extents_of_arrays_are(schedule: Schedule, names: set[str]) -> None:
    """Of sizes of the arguments, and as the code has it."""
    header, code = source(Problem(64), schedule, Avx2()).split('extern "C"', 1)
    arrays = re.findall(r"^//   float \w+(\[.*)$", header, re.M)
    said = dict(re.findall(r"^//   where (\w+) = (.*)$", header, re.M))
    made_of = set(re.findall(r"[A-Za-z]\w*", " ".join([*arrays, *said.values()])))
    assert made_of - {"ceildiv", "floordiv", "Hq", "Hkv", "Nq", "Nk"} == said.keys() == names
    assert not [name for name, value in said.items() if f"const isize {name} = {value};" not in code]
