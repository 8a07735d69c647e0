"""Faults of masks, biases and softcaps that real kernels have shipped with: interpreted, and on avx2.

F01 and so on are stable names of their kinds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

from flashgen.passes.pipeline import lower
from flashgen.problem import Problem
from flashgen.reference import attention, bound
from flashgen.schedule import Schedule
from flashgen.targets.cpu import Avx2
from tests import compiled, modules
from tests.compiled import Build, call
from tests.faults import column
from tests.mods import SCORE, B, H, K, Q, constant, element, of
from tests.strategies import Inputs

MASKED = Problem(1, mask=element("seen", "bool", Q, K))
BIASED = Problem(1, score=of("add", SCORE, element("bias", "float32", B, H, Q, K)))
CAPPED = Problem(4, score=of("mul", constant(2.0), of("tanh", of("div", SCORE, constant(2.0)))))
CAPPED_AT_50 = Problem(1, score=of("mul", constant(50.0), of("tanh", of("div", SCORE, constant(50.0)))))
PROBLEMS = (MASKED, BIASED, CAPPED, CAPPED_AT_50)
SCHEDULE = Schedule(br=4, bc=4, panel=0, group_rows=False, split_keys=0)


@dataclass(frozen=True)
class Case:
    """An input; o and lse where they are known better than by the definition."""

    fault: str
    problem: Problem
    x: Inputs
    inputs: Mapping[str, Any]
    o: np.ndarray | None = None
    lse: np.ndarray | None = None

    def check(self, o: np.ndarray, lse: np.ndarray) -> None:
        x = self.x
        want_o, want_lse = attention(self.problem, x.q, x.k, x.v, x.scale, self.inputs)
        limit = bound(self.problem, x.q, x.k, x.v, x.scale, values=self.inputs)
        limit.check(o, lse, want_o if self.o is None else self.o, want_lse if self.lse is None else self.lse)


def inputs(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float = 1.0) -> Inputs:
    return Inputs("fault", q, k, v, scale)


def cases() -> Iterator[Case]:
    three = inputs(column(1, 1), column(0, 0, 5), column(1, 2, 9))
    rows = np.array([[False] * 3, [True, True, False]])
    known = column(0, 1.5), np.array([[[-np.inf, np.log(2)]]])
    yield Case("F01", MASKED, three, {"seen": rows}, *known)
    far = inputs(column(1), column(*[-1e32] * 8), column(*range(8)))
    lowest = np.zeros((1, 1, 1, 8), np.float32)
    lowest[..., :4] = np.finfo(np.float32).min
    yield Case("F02", BIASED, far, {"bias": lowest}, column(5.5), np.array([[[-1e32]]]))
    rng = np.random.default_rng(4)
    q, k, v = (rng.normal(size=(1, 1, n, 4)).astype(np.float32) for n in (1, 65, 65))
    yield Case("F04", CAPPED, inputs(q, k, v), {})
    steep = inputs(column(1), column(4400, 5000, -10000), column(1, 2, 3))
    yield Case("F05", CAPPED_AT_50, steep, {}, column(1.5))
    first = {"seen": np.array([[True, False]])}
    for bad in (np.nan, np.inf):
        yield Case("F06", MASKED, inputs(column(1), column(2, bad), column(7, bad)), first, column(7))
    both = {"seen": np.ones((1, 2), bool)}
    yield Case("F15", MASKED, inputs(column(1), column(300, -300), column(1, 2), -1.0), both, column(2))
    yield Case("F15", MASKED, inputs(column(1), column(3, np.inf), column(7, 8), 0.0), first, column(7))


@cache
def module(problem: Problem):
    return lower(problem, Avx2().complete(problem, SCHEDULE))


@cache
def kernels() -> dict[Problem, Any]:
    found = compiled.kernels(Build(Avx2()), tuple((problem, SCHEDULE) for problem in PROBLEMS))
    return dict(zip(PROBLEMS, found, strict=True))


@pytest.mark.parametrize("case", list(cases()), ids=lambda c: c.fault)
def test_interpreted(case: Case) -> None:
    p = case.problem
    o, lse, _ = modules.call(module(p), p, case.x, np.float32, values=case.inputs)
    case.check(o, lse)


@pytest.mark.parametrize("case", list(cases()), ids=lambda c: c.fault)
def test_avx2(case: Case) -> None:
    case.check(*call(kernels()[case.problem], case.x, values=case.inputs))


@pytest.mark.parametrize("shape", list(product((1, 2), (1, 2), (1, 2), (1, 3))))
def test_a_broadcast_bias_is_the_expanded_one(shape: tuple[int, ...]) -> None:
    """F13, with H == Nq: strides of 0 are read as they are, for the same bits."""
    rng = np.random.default_rng(13)
    q, k, v = (rng.normal(size=(2, 2, n, 1)).astype(np.float32) for n in (2, 3, 3))
    bias = np.broadcast_to(rng.normal(size=shape).astype(np.float32), (2, 2, 2, 3))
    x, kernel = inputs(q, k, v), kernels()[BIASED]
    found, expanded = (call(kernel, x, values={"bias": b}) for b in (bias, bias.copy()))
    for a, b in zip(found, expanded, strict=True):
        np.testing.assert_array_equal(a, b)
    bound(BIASED, q, k, v, 1.0, values={"bias": bias}).check(
        *found, *attention(BIASED, q, k, v, 1.0, {"bias": bias})
    )
