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
from tests.guarded import exit_status, place
from tests.mods import NK, SCORE, B, K, Q, constant, of
from tests.sequences import EACH, Sequences, call, make

BR, BC = 5, 40
SCHEDULES = {
    "default": Schedule(br=BR, bc=BC),
    "in place": Schedule(br=BR, bc=BC, panel=0),
    "decoding": Schedule(br=4, bc=BC, panel=0, group_rows=True, split_keys=2 * BC),
    "keys outside": Schedule("kv-outer", BR, BC, False, False),
}
each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
each_layout = pytest.mark.parametrize("layout", EACH)


def schedules(target: Cpu) -> list[str]:
    """All of them on avx2; where kernels are emulated those that read K and V in both ways."""
    return list(SCHEDULES) if isinstance(target, Avx2) else ["default", "decoding"]


@cache
def compiled(target: Cpu) -> dict[tuple[str, str], CpuKernel]:
    """A kernel for each layout and schedule."""
    names = [(layout, name) for layout in LAYOUTS for name in schedules(target)]
    causal = "bottom-right"
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
def test_compiled_kernels(target: Cpu, layout: str) -> None:
    """Within the bound of the reference of each sequence; to the bit what the dense kernel makes of it."""
    found = compiled(target)
    for n, name in enumerate(schedules(target)):
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
    kernel = compiled(Avx2())[layout, name]
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
        kernel = compiled(Avx2())[layout, name]
        for each in ([], [(0, 0)], [(3, 0)], [(0, 3)], [(1, 1)]):
            x = make(kernel.problem, each)
            call(kernel, x)
            x.check()


@pytest.mark.parametrize("layout", ["paged", "packed-paged"])
def test_pages_may_be_shared(layout: str) -> None:
    """Sequences that begin alike may have their first pages in common, in any order."""
    for name in SCHEDULES:
        kernel = compiled(Avx2())[layout, name]
        x = make(kernel.problem, [(3, 32), (3, 30), (3, 16)], page=16)
        table, first = x.arrays["block_table"], x.parts[0]
        table[1, :2], table[2, 0] = table[0, :2], table[0, 1]
        for n, rows in ((1, slice(30)), (2, slice(16, 32))):
            x.parts[n] = replace(x.parts[n], k=first.k[:, :, rows], v=first.v[:, :, rows])
        call(kernel, x)
        x.check()


OF_LENGTHS = of("lt", of("mul", K, constant(2)), of("add", Q, NK))
"""A row sees keys up to half of its own position and of the sequence's length."""


@pytest.mark.parametrize("layout", ["packed", "packed-paged"])
@pytest.mark.parametrize("panel", [None, 0])
def test_masks_and_scores_are_of_each_sequence(layout: str, panel: int | None) -> None:
    """Positions count from its start, lengths are its own, and b is its number."""
    problem = Problem(24, 40, mask=OF_LENGTHS, score=of("add", SCORE, of("float", B)), layout=layout)
    (kernel,) = kernels(Build(Avx2()), ((problem, Schedule(br=BR, bc=BC, panel=panel)),))
    x = make(problem, lengths(layout, 5))
    call(kernel, x)
    x.check()


@pytest.mark.parametrize("layout", EACH)
@pytest.mark.parametrize("at_end", [True, False], ids=["up to", "from"])
def test_guard_pages(layout: str, at_end: bool) -> None:
    """Nothing beyond an array is touched, where its last page is full, and no input is written."""
    for name in SCHEDULES:
        kernel = compiled(Avx2())[layout, name]
        x = make(kernel.problem, [(BR, 2 * BC), (BR, 16)], page=16)
        for each in list(x.arrays):
            array = x.arrays[each]
            plain = array.base is None or each in ("o", "lse")
            inner = np.ascontiguousarray(array if plain else array.swapaxes(-3, -2))
            memory = place(inner, at_end, read_only=each not in ("o", "lse"))
            x.arrays[each] = memory if plain else memory.swapaxes(-3, -2)
        x.whole = [x.arrays["o"], x.arrays["lse"]]
        assert exit_status(lambda x=x, kernel=kernel: call(kernel, x)) == 0
        call(kernel, x)
        x.check()


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_narrow_storage(dtype: str) -> None:
    wanted = [
        (Problem(24, 40, dtype, "top-left", layout="packed-paged"), SCHEDULES[n])
        for n in ("default", "in place")
    ]
    for kernel in kernels(Build(Avx2()), tuple(wanted)):
        for page in (1, 16):
            x = make(kernel.problem, lengths("packed-paged", page), page=page)
            call(kernel, x, threads=2)
            x.check()
