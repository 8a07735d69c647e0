"""Plans: no value is overwritten while it is needed; what the planner refuses."""

from __future__ import annotations

from itertools import product

import pytest

from flashgen.emission import kernel_plan
from flashgen.plan.model import KernelPlan
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.schedule import Schedule
from flashgen.targets import TARGETS
from flashgen.targets.base import Target, TileLayout
from tests.compiled import combinations
from tests.mods import NK, SCORE, K, Q, of
from tests.plan_memory import Memory, loops

CASES = [
    (Problem(5, 3, dtype, causal), target, combination)
    for target, causal, combination in product(TARGETS.values(), ALIGNMENTS, range(8))
    for dtype in ("float32", "float64")
    if dtype in target.dtypes
]


def made(problem: Problem, target: Target, combination: int, br: int = 7, bc: int = 9) -> KernelPlan:
    return kernel_plan(problem, target.complete(problem, combinations(br, bc)[combination]), target)


def simulate(kernel: KernelPlan, layout: TileLayout) -> None:
    """Every loop may turn not at all, or more than once."""
    counters = loops(kernel.body)
    for turns in product((0, 2), repeat=len(counters)):
        Memory(kernel, layout, dict(zip(counters, turns, strict=True))).run()


@pytest.mark.parametrize(
    ("problem", "target", "combination"), CASES, ids=lambda x: getattr(x, "name", str(x))
)
def test_every_read_finds_what_was_written(problem: Problem, target: Target, combination: int) -> None:
    simulate(made(problem, target, combination), target.layout(problem))


@pytest.mark.parametrize("target", TARGETS.values(), ids=lambda t: t.name)
def test_buffers_are_shared(target: Target) -> None:
    """Else the simulation would have little to find: many values, few buffers."""
    kernel = made(Problem(5, 3, causal="bottom-right"), target, 7)
    placed = {o.name: o.offset for s in statements(kernel.body) for o in s.outs if o.offset or o.stride}
    assert len(placed) > 1.5 * len(kernel.buffers)


def test_numbers_that_nothing_reads() -> None:
    schedule = Schedule(br=8, bc=8)
    for problem, unread in ((Problem(8), []), (Problem(8, score=of("float", of("sub", K, Q))), ["scale"])):
        for target in TARGETS.values():
            kernel = kernel_plan(problem, target.complete(problem, schedule), target)
            assert [p.name for p in kernel.unread] == unread


def test_a_number_is_computed_in_front_of_what_reads_it_for_each_element() -> None:
    score = of("add", SCORE, of("mul", of("float", K), of("log", of("float", NK))))
    kernel = made(Problem(8, score=score), TARGETS["avx2"], 7)
    assert [s.inline for s in statements(kernel.body) if (s.op, s.form) == ("math_log", "scalar")] == [False]


def statements(body: list) -> list:
    return [t for s in body for t in [s, *statements(s.body)]]
