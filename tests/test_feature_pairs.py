"""Every two features together, compiled: right within the bound, nothing read that is NaN, no gap written.

The thread counts and causal_skip, which change no bit, are tried on each.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashgen.problem import Problem
from flashgen.reference import attention, bound
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
    for call, (kernel, other) in zip(made, compiled(made), strict=True):
        check(call, kernel, other)


def compiled(made: list[Call]) -> list[tuple]:
    """For each call its kernel, and one without causal_skip."""
    wanted: list[tuple[Problem, Schedule]] = []
    for call in made:
        schedule = SCHEDULES[call.row["schedule"]]
        wanted += [
            (call.problem, schedule),
            (call.problem, replace(schedule, causal_skip=not schedule.causal_skip)),
        ]
    different = tuple(dict.fromkeys(wanted))
    found = dict(zip(different, kernels(Build(Avx2()), different), strict=True))
    return [(found[wanted[n]], found[wanted[n + 1]]) for n in range(0, len(wanted), 2)]


def check(call: Call, kernel, other) -> None:
    values = call.options.values
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
    for again, threads in ((kernel, 3), (other, 2)):
        o2, lse2 = again(call.q, call.k, call.v, scale=call.scale, inputs=values, threads=threads)
        assert o2.tobytes() == np.ascontiguousarray(o).tobytes(), (call.row, threads)
        assert lse2.tobytes() == lse.tobytes(), (call.row, threads)
