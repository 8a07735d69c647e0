"""Every kind of CUDA kernel on a real GPU: right, and how fast. Needs a GPU and CuPy; a few minutes.

    python tests/device_check.py [--minutes 8]

Prints one line a variant: the largest error over the bound of flashgen.reference (at most 1 is right), at
sizes around the tiles' edges and in grouped heads, and the time of a call at (1, 8, 2048, D). Exits with 0
if all are right, 1 if one is not, 2 if there is no GPU to ask, and 3 if time ran out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np

import flashgen
from flashgen.errors import FlashgenError, MissingTool
from flashgen.problem import Problem
from flashgen.reference import attention, bound
from flashgen.runtime.cuda import find_gpu
from flashgen.schedule import FA1, FA2, ORDERS, Schedule

# B, Hq, Hkv, Nq, Nk
SIZES = ((2, 6, 2, 129, 191), (1, 2, 1, 63, 65), (1, 2, 2, 1, 257), (1, 1, 1, 67, 31), (1, 2, 1, 5, 0))
TIMED = (1, 8, 8, 2048, 2048)
CALLS = 5


def variants() -> Iterator[tuple[Problem, Schedule]]:
    """All 2 x 2 x 2 schedules at D = 64, and FlashAttention-1 and -2 at the other head dimensions."""
    for dtype, causal in product(("float32", "float16"), (None, "bottom-right", "top-left")):
        for order, lazy, skip in product(ORDERS, (False, True), (False, True)):
            yield Problem(64, None, dtype, causal), Schedule(order, lazy_rescale=lazy, causal_skip=skip)
        for head_dim, schedule in product((32, 80, 128, 256), (FA1, FA2)):
            yield Problem(head_dim, None, dtype, causal), schedule
    yield Problem(72, 40), FA2


def inputs(problem: Problem, sizes: tuple[int, ...]) -> list[np.ndarray]:
    b, hq, hkv, nq, nk = sizes
    rng = np.random.default_rng(nq + nk)
    shapes = (b, hq, nq, problem.head_dim), (b, hkv, nk, problem.head_dim), (b, hkv, nk, problem.head_dim_v)
    return [rng.standard_normal(shape).astype(problem.dtype) for shape in shapes]


def excess(kernel: Any, problem: Problem, sizes: tuple[int, ...]) -> float:
    """The largest error over its bound; infinity where NaN or infinities are not where they should be."""
    q, k, v = inputs(problem, sizes)
    scale = problem.head_dim**-0.5
    got, allowed = kernel(q, k, v), bound(problem, q, k, v, scale)
    want = attention(problem, q, k, v, scale)
    return max(deviation.share for deviation in allowed.deviations(*got, *want))


def milliseconds(kernel: Any, problem: Problem) -> float:
    """The median of a few calls on arrays that are on the GPU, after one to warm up."""
    import cupy  # pyright: ignore[reportMissingImports]

    q, k, v = map(cupy.asarray, inputs(problem, TIMED))
    kernel(q, k, v)
    times = []
    for _ in range(CALLS):
        start, end = cupy.cuda.Event(), cupy.cuda.Event()
        start.record()
        kernel(q, k, v)
        end.record()
        end.synchronize()
        times.append(cupy.cuda.get_elapsed_time(start, end))
    return float(np.median(times))


def main(minutes: float) -> int:
    try:
        find_gpu()
    except MissingTool as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    end, wrong = time.monotonic() + 60 * minutes, 0
    todo = list(variants())
    print(f"{'variant':76} {'error/bound':>11} {'ms':>9}")
    for done, (problem, schedule) in enumerate(todo):
        if time.monotonic() > end:
            print(f"{minutes} minutes are over: {len(todo) - done} of {len(todo)} variants were not run")
            return 1 if wrong else 3
        name = f"{problem.name}_{schedule.order}_{'lazy' if schedule.lazy_rescale else 'eager'}"
        name += "_skip" if schedule.causal_skip else "_noskip"
        try:
            kernel = flashgen.compile(problem, schedule, "cuda")
            worst = max(excess(kernel, problem, sizes) for sizes in SIZES)
            took = milliseconds(kernel, problem)
        except FlashgenError as error:
            wrong += 1
            print(f"{name:76} {type(error).__name__}: {error}")
            continue
        wrong += worst > 1
        print(f"{name:76} {worst:11.3f} {took:9.3f}{'  WRONG' if worst > 1 else ''}", flush=True)
    print(f"{len(todo) - wrong} of {len(todo)} variants are right")
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=8, help="stop after so many (default 8)")
    sys.exit(main(parser.parse_args().minutes))
