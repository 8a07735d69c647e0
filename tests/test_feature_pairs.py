"""Every two features together, compiled: right within the bound, nothing read that is NaN, no gap written.

The number of threads, which changes no bit, is tried on each, and causal_skip on every other one with a mask.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from flashgen.problem import Problem
from flashgen.reference import attention, bound
from flashgen.runtime.cpu import CpuKernel
from flashgen.schedule import Schedule
from flashgen.targets.cpu import Avx2
from tests.compiled import Build, kernels
from tests.feature_pairs import CHOICES, POISON, SCHEDULES, Call, calls, pairs

ROWS = dict(calls())
TOGETHER = 8
"""Rows that one test compiles at once."""
NAMES = list(ROWS)


def test_the_cover_has_every_pair() -> None:
    names = list(CHOICES)
    met = set().union(*(pairs(row, names) for row in ROWS.values()))
    assert len(ROWS) < 60
    sizes = [len(choices) for choices in CHOICES.values()]
    assert len(met) == (sum(sizes) ** 2 - sum(n * n for n in sizes)) // 2


@pytest.mark.parametrize("first", range(0, len(NAMES), TOGETHER))
def test_every_pair_of_features(first: int) -> None:
    made = [Call.of(ROWS[name], seed=n) for n, name in enumerate(NAMES[first : first + TOGETHER])]
    for call, alike in zip(made, compiled(made), strict=True):
        check(call, alike)


def compiled(made: list[Call]) -> list[list[CpuKernel]]:
    """For each call its kernel, and of every other one with a mask a kernel with the other causal_skip."""
    wanted: list[list[tuple[Problem, Schedule]]] = []
    for n, call in enumerate(made):
        schedule = SCHEDULES[call.row["schedule"]]
        turned = replace(schedule, causal_skip=not schedule.causal_skip)
        tiles = [schedule, turned] if n % 2 and call.row["mask"] != "none" else [schedule]
        wanted.append([(call.problem, each) for each in tiles])
    different = tuple(dict.fromkeys(itertools.chain(*wanted)))
    found = dict(zip(different, kernels(Build(Avx2()), different), strict=True))
    return [[found[each] for each in row] for row in wanted]


def check(call: Call, alike: list[CpuKernel]) -> None:
    values, kernel = call.options.values, alike[0]
    memory, o, lse = call.outputs()
    kernel(call.q, call.k, call.v, scale=call.scale, inputs=values, out=o, lse=lse, threads=1)
    want = attention(call.problem, call.q, call.k, call.v, call.scale, values)
    limits = bound(call.problem, call.q, call.k, call.v, call.scale, call.problem.computed, values=values)
    try:
        limits.check(o, lse, *want)
    except AssertionError as error:
        raise AssertionError(f"{call.row}: {error}") from error
    gaps = memory.astype(np.float64)
    if call.row["layout"] == "gaps":
        assert (gaps[..., 1::2] == POISON).all() and (gaps[..., -3:] == POISON).all(), call.row
    for again, threads in zip(alike, (3, 2), strict=False):
        o2, lse2 = again(call.q, call.k, call.v, scale=call.scale, inputs=values, threads=threads)
        assert o2.tobytes() == np.ascontiguousarray(o).tobytes(), (call.row, threads)
        assert lse2.tobytes() == lse.tobytes(), (call.row, threads)
