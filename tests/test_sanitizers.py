"""Emitted programs under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer, at odd sizes."""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from flashgen.emission import source
from flashgen.errors import CompileFailure, MissingTool
from flashgen.problem import Problem
from flashgen.runtime.cache import fetch, make_key
from flashgen.runtime.compiler import find_compiler
from flashgen.runtime.cpu_features import require
from flashgen.schedule import Schedule
from flashgen.targets.cpu import Avx2, Avx512, Cpu
from tests.compiled import own_cache

MEMORY = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
THREADS = ("-fsanitize=thread",)
FLAGS = ("-std=c++17", "-O1", "-g", "-ffp-contract=off", "-pthread")

# Fresh memory holds NaN: what is read before it is written shows in the result.
ENVIRONMENT = os.environ | {"ASAN_OPTIONS": f"malloc_fill_byte=255:max_malloc_fill_size={1 << 30}"}

VARIANTS: list[tuple[Cpu, Problem, Schedule]] = [
    (Avx2(), Problem(7, 5, causal="bottom-right"), Schedule("q-outer", 5, 7)),
    (Avx2(), Problem(24, 40, causal="top-left"), Schedule("kv-outer", 20, 40, False, False)),
    (Avx2(), Problem(9, 11, "float16", "bottom-right"), Schedule("q-outer", 5, 7)),
    (Avx512(), Problem(33, 1, "bfloat16"), Schedule("q-outer", 20, 40, False, False)),
    (Avx512(), Problem(24, 40, causal="bottom-right"), Schedule("kv-outer", 5, 33)),
    (Avx2(), Problem(24, 40, causal="bottom-right"), Schedule(br=4, bc=40, panel=0, group_rows=True)),
    (Avx512(), Problem(33, 1), Schedule("kv-outer", 5, 33, panel=0)),
    (Avx2(), Problem(24, 40), Schedule(br=4, bc=16, panel=0, group_rows=True, split_keys=32)),
    (Avx512(), Problem(7, 5, causal="top-left"), Schedule(br=5, bc=16, hoist_packs=True, split_keys=16)),
]
SIZES = ("1 2 1 13 19 4", "2 4 2 0 3 4", "1 1 1 3 0 4", "1 6 2 61 127 4", "1 1 1 127 61 3", "1 2 1 40 80 1")
"""B, Hq, Hkv, Nq, Nk and threads."""

TRIVIAL = "int main() { return 0; }\n"


def program(text: str, flags: tuple[str, ...]) -> Path:
    """The program that a text makes, from the cache if it is there. Raises CompileFailure."""
    compiler = find_compiler()
    key = make_key(text, flags, compiler.identity)
    with own_cache():
        return fetch(key, lambda made: compiler.compile(text, made, flags))


def run(path: Path, arguments: str = "") -> subprocess.CompletedProcess[str]:
    """Addresses are not random: older ThreadSanitizers run out of room for them."""
    fixed = ["setarch", "-R"] if shutil.which("setarch") else []
    command = [*fixed, str(path), *arguments.split()]
    return subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)


@cache
def why_not(sanitizer: tuple[str, ...]) -> str:
    """Why programs with this sanitizer cannot be made or run here; "" if they can."""
    try:
        done = run(program(TRIVIAL, (*FLAGS, *sanitizer)))
    except (MissingTool, CompileFailure) as reason:
        return f"the compiler has no {sanitizer[0]}: {reason}"
    return f"{sanitizer[0]} does not run here: {done.stderr.strip()}" if done.returncode else ""


def emitted(
    variant: tuple[Cpu, Problem, Schedule], sanitizer: tuple[str, ...], old: str = "", new: str = ""
) -> Path:
    """The variant's own checking program; with a piece of its text replaced, for tests that break it."""
    target, problem, schedule = variant
    if reason := why_not(sanitizer):
        pytest.skip(reason)
    try:
        require(target)
    except MissingTool as reason:
        pytest.skip(str(reason))
    text = source(problem, schedule, target, with_main=True)
    assert text.count(old) == 1 or not old
    return program(text.replace(old, new) if old else text, (*target.flags, *FLAGS, *sanitizer))


@pytest.mark.parametrize("sanitizer", [MEMORY, THREADS], ids=["memory", "threads"])
@pytest.mark.parametrize("variant", VARIANTS, ids=lambda v: f"{v[0].name}-{v[1].name}")
def test_clean(variant: tuple[Cpu, Problem, Schedule], sanitizer: tuple[str, ...]) -> None:
    path = emitted(variant, sanitizer)
    for sizes in SIZES:
        done = run(path, sizes)
        assert (done.returncode, done.stderr) == (0, ""), f"{sizes}: {done.stdout}{done.stderr}"
        assert done.stdout.startswith("right: ")


def test_a_read_behind_an_array_is_found() -> None:
    """The rows that a tile of K has inside the array, taken for all of the tile's."""
    old = "const isize inside = larger(0, smaller(rows, a.size[N - 2] - index[N - 2]));"
    path = emitted(VARIANTS[0], MEMORY, old, "const isize inside = rows;")
    assert "heap-buffer-overflow" in run(path, "1 2 1 13 19 1").stderr


def test_memory_that_was_not_written_is_found() -> None:
    """The accumulator without its zeros."""
    old = "store(acc.at(y, x), all(0.0f));"
    path = emitted(VARIANTS[0], MEMORY, old, "(void)acc;")
    assert run(path, "1 2 1 13 19 1").stdout.startswith("WRONG: ")


def test_a_race_is_found() -> None:
    """Threads that count iterations without atomics take the same ones."""
    old = "__atomic_fetch_add(&work.next, 1, __ATOMIC_RELAXED)"
    path = emitted(VARIANTS[0], THREADS, old, "work.next++")
    assert "data race" in run(path, "2 6 2 61 127 4").stderr
