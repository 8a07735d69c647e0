"""Compiled kernels and memory: any strides give the contiguous bits (F12), and nothing outside is touched."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from flashgen.problem import Problem
from flashgen.runtime.cpu import CpuKernel
from flashgen.schedule import Schedule
from flashgen.targets.cpu import Cpu
from tests import guarded
from tests.compiled import TARGETS, Build, call, kernels, pairwise, sample
from tests.strategies import Inputs, make_inputs

each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
PROBLEMS = (Problem(24, 40, causal="bottom-right"), Problem(7, 3))
OTHERS = (
    Problem(24, 40, "bfloat16", "bottom-right"),
    Problem(7, 3, "float16"),
    Problem(7, 9, "float64", "top-left"),
)


@cache
def some(target: Cpu) -> list[CpuKernel]:
    """D that are whole vectors and that are not; both orders, tiles that are no multiples of anything.

    Each of the other types has one kernel, and each problem in place has. In the emulation every other one.
    """
    schedules, in_place = pairwise(20, 40), pairwise(5, 40, panel=0)
    wanted = [(problem, schedule) for problem in PROBLEMS for schedule in schedules]
    wanted += [(problem, schedules[n]) for n, problem in enumerate(OTHERS)]
    wanted += [(problem, in_place[n % len(in_place)]) for n, problem in enumerate((*PROBLEMS, *OTHERS))]
    build = Build(target)
    return kernels(build, tuple(sample(build, wanted, 2)))


def inputs(problem: Problem, nq: int = 33, nk: int = 93) -> Inputs:
    return make_inputs(problem, "plain", (2, 4, 2, nq, nk), 0.25, seed=nk)


def every_second(a: np.ndarray) -> np.ndarray:
    wide = np.full((*a.shape[:-1], 2 * a.shape[-1]), np.nan, a.dtype)
    wide[..., ::2] = a
    return wide[..., ::2]


def padded_rows(a: np.ndarray) -> np.ndarray:
    wide = np.full((*a.shape[:-1], a.shape[-1] + 3), np.nan, a.dtype)
    wide[..., :-3] = a
    return wide[..., :-3]


def moved(*axes: int) -> Callable[[np.ndarray], np.ndarray]:
    """The same array, with its axes in another order in memory."""
    back = np.argsort(axes)
    return lambda a: np.ascontiguousarray(a.transpose(axes[: a.ndim])).transpose(back[: a.ndim])


def reversed_in_memory(a: np.ndarray) -> np.ndarray:
    turn = (slice(None, None, -1),) * a.ndim
    return a[turn].copy()[turn]


LAYOUTS = {
    "every second column": every_second,
    "padded rows": padded_rows,
    "heads behind rows": moved(0, 2, 1, 3),
    "transposed": moved(0, 1, 3, 2),
    "batch innermost": moved(3, 2, 1, 0),
    "reversed": reversed_in_memory,
}


@each_target
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("which", ["q", "k", "v", "qkv"])
def test_layouts_of_inputs(target: Cpu, layout: str, which: str) -> None:
    for kernel in some(target):
        for nk in (33, 93):
            x = inputs(kernel.problem, nk=nk)
            y = replace(x, **{name: LAYOUTS[layout](getattr(x, name)) for name in which})
            for a, b in zip(call(kernel, x), call(kernel, y, threads=2), strict=True):
                assert a.tobytes() == b.tobytes()


@each_target
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_outputs(target: Cpu, layout: str) -> None:
    """What lies between the elements of an output stays as it was."""
    for kernel in some(target):
        x = inputs(kernel.problem)
        want = call(kernel, x)
        shape = want[0].shape
        out = LAYOUTS[layout](np.full(shape, 7, want[0].dtype))
        lse = every_second(np.full(shape[:3], 7, want[1].dtype))
        o, _ = call(kernel, x, out=out, lse=lse)
        assert np.array_equal(o, want[0])
        assert np.array_equal(lse, want[1])
        for array in (out, lse):
            between = array.base if array.base is not None else array
            assert np.isnan(between).sum() == between.size - array.size


@each_target
def test_stride_0(target: Cpu) -> None:
    """K and V of one head for all heads, of one key for all keys, and one number for all."""
    for kernel in some(target):
        x = inputs(kernel.problem)
        for index in (
            (slice(None), slice(1)),
            (..., slice(1), slice(None)),
            (..., slice(1)),
            (slice(1),) * 4,
        ):
            k, v = (np.broadcast_to(a[index], a.shape) for a in (x.k, x.v))
            assert 0 in k.strides
            whole = replace(x, k=k.copy(), v=v.copy())
            for a, b in zip(call(kernel, replace(x, k=k, v=v)), call(kernel, whole), strict=True):
                assert a.tobytes() == b.tobytes()


@each_target
@pytest.mark.parametrize("at_end", [True, False], ids=["up to", "from"])
@pytest.mark.parametrize("sizes", [(33, 93), (40, 80), (1, 1), (20, 41), (7, 0), (0, 7)], ids=str)
def test_guard_pages(target: Cpu, sizes: tuple[int, int], at_end: bool) -> None:
    """Each array lies beside a page that may not be touched; inputs may not be written."""
    wide = kernels(Build(target), ((Problem(64, causal="bottom-right"), Schedule()),))
    for kernel in [*some(target), *wide]:
        x = inputs(kernel.problem, *sizes)
        y = replace(x, **{n: guarded.place(getattr(x, n), at_end, read_only=True) for n in "qkv"})
        want = call(kernel, x)
        out, lse = (guarded.place(np.full_like(a, np.nan), at_end) for a in want)

        def run(kernel=kernel, y=y, want=want, out=out, lse=lse) -> None:
            call(kernel, y, out=out, lse=lse)
            assert out.tobytes() == want[0].tobytes()
            assert lse.tobytes() == want[1].tobytes()

        assert guarded.exit_status(run) == 0, kernel.name


def test_guards_guard() -> None:
    """One element beyond either end, or a write to what is read only, ends the process."""
    ones = np.ones(guarded.PAGE // 4 - 3, np.float32)
    first, last = guarded.place(ones, at_end=False), guarded.place(ones, at_end=True)
    beyond = np.lib.stride_tricks.as_strided

    def write(array: np.ndarray) -> None:
        array[0] = 2

    for call_it in (
        lambda: beyond(last, (len(ones) + 1,), (4,)).sum(),
        lambda: beyond(first, (2,), (-4,)).sum(),
        lambda: write(guarded.place(ones, at_end=True, read_only=True)),
    ):
        assert guarded.exit_status(call_it) == -signal.SIGSEGV
    assert guarded.exit_status(lambda: write(last)) == 0
    assert guarded.exit_status(lambda: write(ones[:0])) == 1  # IndexError
