"""The threads and the memory of a compiled kernel: how many it starts, and what it does when it gets none."""

from __future__ import annotations

import ctypes
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from flashgen.emission import source, variant
from flashgen.errors import KernelFailure
from flashgen.problem import Problem
from flashgen.runtime.cpu import CpuKernel
from flashgen.schedule import Schedule
from flashgen.targets.cpu import Avx2
from tests.compiled import HEADERS, Build, all_combinations, around, call, library
from tests.strategies import Inputs, make_inputs

PROBLEM, BR, BC = Problem(24, 40, causal="bottom-right"), 20, 40
ORDERS = {
    "q-outer": Schedule("q-outer", BR, BC, hoist_packs=False),
    "kv-outer": Schedule("kv-outer", BR, BC, hoist_packs=False),
    "hoisted": Schedule("q-outer", BR, BC, hoist_packs=True),
    "split": Schedule("q-outer", BR, BC, panel=0, split_keys=BC),
}
ARRAYS = {"q-outer": 0, "kv-outer": 3, "hoisted": 2, "split": 3}
"""How many a thread asks for in a call."""
SHARED = {"hoisted": (3, 6), "split": (18, 6)}
"""What threads share of a head of keys, which has 3 tiles of keys, and 3 tiles of queries in each of 2 heads:
the keys to pack, then the queries; or the queries at each tile of keys, then those to merge what is found."""
MOST = 9
"""Threads that the kernel of these tests can start, its caller's included."""

each_order = pytest.mark.parametrize("order", ORDERS)
each_flat = pytest.mark.parametrize("order", ["q-outer", "kv-outer"])

WATCHED = (
    HEADERS
    + """
int alive, most_alive, created, create_limit = 1 << 30, allocated, alloc_limit = 1 << 30;
extern "C" void watch(int creates, int allocs) {
  most_alive = created = allocated = 0, create_limit = creates, alloc_limit = allocs;
}
extern "C" int threads_created() { return created; }
extern "C" int threads_together() { return most_alive; }
static int watched_create(pthread_t *t, const pthread_attr_t *a, void *(*f)(void *), void *x) {
  if (__atomic_add_fetch(&created, 1, __ATOMIC_RELAXED) > create_limit)
    return __atomic_sub_fetch(&created, 1, __ATOMIC_RELAXED), 11;
  const int now = __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED);
  for (int most = most_alive; most < now;) __atomic_compare_exchange_n(&most_alive, &most, now, 0, 0, 0);
  return pthread_create(t, a, f, x);
}
static int watched_join(pthread_t t, void **result) {
  const int status = pthread_join(t, result);
  __atomic_sub_fetch(&alive, 1, __ATOMIC_RELAXED);
  return status;
}
static void *watched_alloc(size_t alignment, size_t bytes) {
  const int before = __atomic_fetch_add(&allocated, 1, __ATOMIC_RELAXED);
  return before < alloc_limit ? aligned_alloc(alignment, bytes) : 0;
}
#define pthread_create watched_create
#define pthread_join watched_join
#define aligned_alloc watched_alloc
namespace kernel {
%s
}
"""
)


@cache
def watched(order: str) -> tuple[ctypes.CDLL, CpuKernel]:
    """A kernel that starts threads and gets memory through functions that count, and can refuse.

    Its limit is so low that a test can reach it.
    """
    target = Avx2()
    schedule = target.complete(PROBLEM, ORDERS[order])
    text = WATCHED % source(PROBLEM, schedule, target)
    limit = f"max_threads = {target.max_threads};"
    assert text.count(limit) == 1
    path = library(text.replace(limit, f"max_threads = {MOST};"), Build(target))
    return ctypes.CDLL(str(path)), CpuKernel(variant(PROBLEM, schedule, target), PROBLEM, path)


def inputs(batch: int = 2, nq: int = 47) -> Inputs:
    return make_inputs(PROBLEM, "plain", (batch, 4, 2, nq, 95), 0.25, seed=3)


@each_flat
def test_no_more_threads_than_asked_for_or_than_there_is_work(order: str) -> None:
    """The caller's own works too. q-outer can share the tiles of one head, kv-outer only whole heads."""
    lib, kernel = watched(order)
    tiles = 3 if order == "q-outer" else 1
    for batch, threads in ((0, 4), (1, 1), (1, 2), (1, 3), (2, 8), (1, 64), (4, 1000)):
        lib.watch(1 << 30, 1 << 30)
        call(kernel, inputs(batch), threads)
        work = batch * 4 * tiles
        assert lib.threads_created() == max(min(threads, work, MOST), 1) - 1


def test_any_number_counts_as_one_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the header says; Python would refuse these."""
    lib, kernel = watched("q-outer")
    monkeypatch.setattr("flashgen.runtime.cpu.choose_threads", lambda threads, _: threads)
    for threads, counts_as in ((0, 1), (-1, 1), (-(2**31), 1), (2**31 - 1, MOST)):
        lib.watch(1 << 30, 1 << 30)
        call(kernel, inputs(), threads)
        assert lib.threads_created() == counts_as - 1


@pytest.mark.parametrize("order", SHARED)
def test_threads_that_share_a_head_are_no_more_than_asked_for(order: str) -> None:
    """Two heads of keys a batch; what does not come out even is shared."""
    lib, kernel = watched(order)
    for batch, threads in ((0, 4), (1, 1), (1, 2), (1, 3), (2, 3), (2, 8), (1, 64), (4, 1000)):
        lib.watch(1 << 30, 1 << 30)
        call(kernel, inputs(batch), threads)
        assert lib.threads_together() <= min(max(threads, 1), MOST) - 1
        assert lib.threads_created() == starts(2 * batch, min(max(threads, 1), MOST), SHARED[order])


def starts(heads: int, threads: int, shared: tuple[int, int]) -> int:
    """Threads started for whole heads first, then for the rest, of which each has its share of threads."""
    left = heads % threads
    teams = [threads // left + (n < threads % left) for n in range(left)]
    within = sum(min(each, work) - 1 for each in teams for work in shared)
    return max(min(threads, heads - left), 1) - 1 + max(left, 1) - 1 + within


@each_order
def test_threads_that_do_not_start_are_done_without(order: str) -> None:
    lib, kernel = watched(order)
    x = inputs()
    lib.watch(1 << 30, 1 << 30)
    want = call(kernel, x)
    for started in (0, 1, 3):
        lib.watch(started, 1 << 30)
        for a, b in zip(call(kernel, x, threads=8), want, strict=True):
            assert a.tobytes() == b.tobytes()
        assert lib.threads_created() == started


@pytest.mark.parametrize("order", ["kv-outer", "hoisted", "split"])
def test_a_kernel_without_memory_says_so(order: str) -> None:
    """It asks for arrays in every call: any of them may be refused. It works again afterwards."""
    lib, kernel = watched(order)
    x = inputs()
    lib.watch(1 << 30, 1 << 30)
    want = call(kernel, x)
    for granted in range(ARRAYS[order]):
        for threads in (1, 3):
            lib.watch(1 << 30, granted)
            with pytest.raises(KernelFailure, match="there is not the memory it needs"):
                call(kernel, x, threads)
    lib.watch(1 << 30, 1 << 30)
    assert call(kernel, x)[0].tobytes() == want[0].tobytes()


def test_an_array_larger_than_any_memory_is_none() -> None:
    """Its bytes are not counted modulo 2^64, as they could be for keys that all lie at one place."""
    text = """}
    extern "C" int made(long tiles) {
      Pool pool;
      const Workspace<2> array(pool, {tiles, 16});
      return array.p != 0;
    }
    """
    made = ctypes.CDLL(str(library(around(text, Avx2()), Build(Avx2())))).made
    made.argtypes = [ctypes.c_long]
    assert made(3)
    for tiles in (1 << 58, (1 << 58) + 1, 1 << 59, 1 << 60, (1 << 62) + 1):
        assert not made(tiles)


def test_scratch_memory_that_is_refused_is_asked_for_again() -> None:
    target = Avx2()
    schedule = target.complete(PROBLEM, ORDERS["q-outer"])
    text = WATCHED % source(PROBLEM, schedule, target) + "// a library that nobody has called yet\n"
    path = library(text, Build(target))
    lib, kernel = ctypes.CDLL(str(path)), CpuKernel(variant(PROBLEM, schedule, target), PROBLEM, path)
    lib.watch(1 << 30, 0)
    with pytest.raises(KernelFailure, match="there is not the memory it needs"):
        call(kernel, inputs())
    lib.watch(1 << 30, 1)
    want = call(kernel, inputs())
    lib.watch(1 << 30, 0)  # it is kept from call to call
    assert call(kernel, inputs())[0].tobytes() == want[0].tobytes()


def test_calls_at_the_same_time() -> None:
    """From many Python threads, each call with threads of its own: they share what scratch memory is kept."""
    found = all_combinations(Build(Avx2()), PROBLEM, BR, BC)
    for kernel in (found[0], found[7]):
        problems = [make_inputs(PROBLEM, "plain", (2, 4, 2, 47, 95), 0.25, seed) for seed in range(4)]
        expected = [call(kernel, x) for x in problems]

        def work(n: int, kernel=kernel, problems=problems, expected=expected) -> bool:
            results = [call(kernel, problems[n], threads=1 + turn % 3) for turn in range(60)]
            return all(
                a.tobytes() == b.tobytes() for r in results for a, b in zip(r, expected[n], strict=True)
            )

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(4)))


def test_what_a_call_leaves_in_scratch_memory_does_not_matter() -> None:
    """NaN everywhere, in larger arrays than the next call's."""
    for kernel in all_combinations(Build(Avx2()), PROBLEM, BR, BC):
        x = inputs(nq=33)
        want = call(kernel, x)
        large = inputs(nq=127)
        call(kernel, replace(large, **{n: np.full_like(getattr(large, n), np.nan) for n in "qkv"}))
        for a, b in zip(call(kernel, x), want, strict=True):
            assert a.tobytes() == b.tobytes()
