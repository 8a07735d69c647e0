"""Lowered modules, each made once, and how tests call them."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from flashgen.interpret import interpret
from flashgen.passes.pipeline import lower
from flashgen.problem import Problem
from flashgen.reference import attention, bound
from flashgen.schedule import ORDERS, Schedule
from tests.strategies import STORAGE, Inputs

COMBINATIONS = [(order, lazy, skip) for order in ORDERS for lazy in (False, True) for skip in (False, True)]


@lru_cache(maxsize=80)
def stages(problem: Problem, schedule: Schedule) -> dict[str, ModuleOp]:
    """The module as each pass of the schedule's pipeline left it, by the pass's name; first comes "build"."""
    found: dict[str, ModuleOp] = {}

    def after(name: str, module: ModuleOp) -> None:
        found[name] = module.clone()

    found["final"] = lower(problem, schedule, after)
    return found


def final(problem: Problem, schedule: Schedule) -> ModuleOp:
    return stages(problem, schedule)["final"]


def call(
    module: ModuleOp, problem: Problem, x: Inputs, dtype: type = np.float64, shuffle: int | None = None
) -> tuple[np.ndarray, np.ndarray, Counter[str]]:
    """O, lse and the counts of an interpreted run, on outputs that hold NaN before."""
    shape = (*x.q.shape[:3], problem.head_dim_v)
    storage = dtype if problem.dtype == "float32" else STORAGE[problem.dtype]
    o, lse = np.full(shape, np.nan, storage), np.full(shape[:3], np.nan, dtype)
    rng = None if shuffle is None else np.random.default_rng(shuffle)
    counts = interpret(module, x.q, x.k, x.v, o, lse, dtype(x.scale), dtype=dtype, shuffle=rng)
    return o, lse, counts


def check(
    module: ModuleOp, problem: Problem, x: Inputs, dtype: type = np.float64, products: str = "float32"
) -> Counter[str]:
    """An interpreted run is within the one bound of the reference."""
    o, lse, counts = call(module, problem, x, dtype)
    scale = float(dtype(x.scale))
    limit = bound(problem, x.q, x.k, x.v, scale, np.dtype(dtype).name, products)
    limit.check(o, lse, *attention(problem, x.q, x.k, x.v, scale))
    return counts
