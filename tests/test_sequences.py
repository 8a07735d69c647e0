"""Compiled kernels on packed and paged sequences: right, to the bit as if alone, whoever does the work."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from flashgen.layouts import LAYOUTS
from flashgen.problem import Problem
from flashgen.runtime.cpu import CpuKernel
from flashgen.schedule import Schedule
from flashgen.targets.cpu import Avx2, Cpu
from tests.compiled import TARGETS, Build, kernels
from tests.compiled import call as call_alone
from tests.sequences import Sequences, call, make

EACH = [name for name in LAYOUTS if name != "dense"]
BR, BC = 5, 40
SCHEDULES = {
    "default": Schedule(br=BR, bc=BC),
    "in place": Schedule(br=BR, bc=BC, panel=0),
    "decoding": Schedule(br=4, bc=BC, panel=0, group_rows=True, split_keys=2 * BC),
    "keys outside": Schedule("kv-outer", BR, BC, False, False),
}
each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
each_layout = pytest.mark.parametrize("layout", EACH)


@cache
def compiled(target: Cpu, causal: str | None) -> dict[tuple[str, str], CpuKernel]:
    """A kernel for each layout and schedule."""
    names = [(layout, name) for layout in LAYOUTS for name in SCHEDULES]
    wanted = [(Problem(24, 40, causal=causal, layout=layout), SCHEDULES[name]) for layout, name in names]
    return dict(zip(names, kernels(Build(target), tuple(wanted)), strict=True))


def lengths(layout: str, seed: int, count: int = 12) -> list[tuple[int, int]]:
    """Of queries and keys: none, one, primes, around tiles, and one that is long among the others."""
    rng = np.random.default_rng(seed)
    rows = rng.choice([0, 1, BR - 1, BR, BR + 1, 7, 13, 23], count)
    keys = rng.choice([0, 1, 3, BC - 1, BC, BC + 1, 2 * BC, 2 * BC + 1, 97], count)
    rows[count // 2], keys[count // 2] = 61, 331
    if LAYOUTS[layout].queries == "dense":
        rows[:] = rows[0]
    return list(zip(rows.tolist(), keys.tolist(), strict=True))


def bits(x: Sequences) -> list[bytes]:
    return [array.tobytes() for each in x.results() for array in each]


@each_target
@each_layout
@pytest.mark.parametrize("causal", ["bottom-right", None])
def test_compiled_kernels(target: Cpu, layout: str, causal: str | None) -> None:
    """Within the bound of the reference of each sequence; to the bit what the dense kernel makes of it."""
    found = compiled(target, causal)
    for n, name in enumerate(SCHEDULES):
        kernel, dense = found[layout, name], found["dense", name]
        for page in (1, 3, 16, 256):
            x = make(
                kernel.problem, lengths(layout, n + page), ((4, 2), (3, 1), (2, 2))[n % 3], "hidden", page
            )
            call(kernel, x, 1 + n % 2)
            for part, (o, lse) in zip(x.parts, x.check(), strict=True):
                for a, b in zip((o, lse), call_alone(dense, part), strict=True):
                    assert a.tobytes() == b.tobytes(), (name, page)
            if LAYOUTS[layout].keys != "paged":
                break


@each_layout
@pytest.mark.parametrize("name", SCHEDULES)
def test_threads_change_no_bit(layout: str, name: str) -> None:
    kernel = compiled(Avx2(), "bottom-right")[layout, name]
    x = make(kernel.problem, lengths(layout, 3))
    call(kernel, x)
    want = bits(x)
    for threads in (2, 3, 7, 64):
        for array in x.whole:
            array[...] = np.nan
        call(kernel, x, threads)
        assert bits(x) == want


@each_layout
def test_no_sequence_and_one(layout: str) -> None:
    for name in SCHEDULES:
        kernel = compiled(Avx2(), None)[layout, name]
        for each in ([], [(0, 0)], [(3, 0)], [(0, 3)], [(1, 1)]):
            x = make(kernel.problem, each)
            call(kernel, x)
            x.check()


@pytest.mark.parametrize("layout", ["paged", "packed-paged"])
def test_pages_may_be_shared(layout: str) -> None:
    """Sequences that begin alike may have their first pages in common, in any order."""
    for name in SCHEDULES:
        kernel = compiled(Avx2(), None)[layout, name]
        x = make(kernel.problem, [(3, 32), (3, 30), (3, 16)], page=16)
        table, first = x.arrays["block_table"], x.parts[0]
        table[1, :2], table[2, 0] = table[0, :2], table[0, 1]
        for n, rows in ((1, slice(30)), (2, slice(16, 32))):
            x.parts[n] = replace(x.parts[n], k=first.k[:, :, rows], v=first.v[:, :, rows])
        call(kernel, x)
        x.check()
