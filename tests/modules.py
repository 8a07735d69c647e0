"""Lowered modules, each made once, and how tests call them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

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
    module: ModuleOp,
    problem: Problem,
    x: Inputs,
    dtype: type = np.float64,
    shuffle: int | None = None,
    values: Mapping[str, Any] | None = None,
) -> tuple[np.ndarray, np.ndarray, Counter[str]]:
    """O, lse and the counts of an interpreted run, on outputs that hold NaN before.

    values: by name, of which the run is given what the mask and the score read.
    """
    shape = (*x.q.shape[:3], problem.head_dim_v)
    storage = dtype if problem.dtype == "float32" else STORAGE[problem.dtype]
    o, lse = np.full(shape, np.nan, storage), np.full(shape[:3], np.nan, dtype)
    rng = None if shuffle is None else np.random.default_rng(shuffle)
    arrays = [(values or {})[a.name] for a in problem.arrays]
    numbers = [(values or {})[s.name] for s in problem.scalars]
    args = (x.q, x.k, x.v, o, lse, *arrays, dtype(x.scale), *numbers)
    counts = interpret(module, *args, dtype=dtype, shuffle=rng)
    return o, lse, counts


def check(
    module: ModuleOp,
    problem: Problem,
    x: Inputs,
    dtype: type = np.float64,
    products: str = "float32",
    values: Mapping[str, Any] | None = None,
) -> Counter[str]:
    """An interpreted run is within the one bound of the reference."""
    o, lse, counts = call(module, problem, x, dtype, values=values)
    scale = float(dtype(x.scale))
    with np.errstate(invalid="ignore"):
        limit = bound(problem, x.q, x.k, x.v, scale, np.dtype(dtype).name, products, values)
    limit.check(o, lse, *attention(problem, x.q, x.k, x.v, scale, values))
    return counts
