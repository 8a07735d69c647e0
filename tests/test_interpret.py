"""Tier 1: a module means attention, before and after every pass, and its text says all that it is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashgen.ir.dialect import parse
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.schedule import Schedule
from tests.modules import COMBINATIONS, call, check, final, stages
from tests.strategies import KINDS, fitting, inputs, make_inputs, problems, schedules


@settings(max_examples=50)
@given(problems(), schedules(), st.data())
def test_every_stage_is_attention(problem, schedule, data):
    x = data.draw(inputs(problem, schedule.br, schedule.bc))
    schedule = fitting(problem, schedule)
    for name, module in stages(problem, schedule).items():
        try:
            check(module, problem, x, products=schedule.products)
        except AssertionError as e:
            raise AssertionError(f"after {name}: {e}") from e


@settings(max_examples=12)
@given(problems(), schedules())
def test_every_stage_round_trips(problem, schedule):
    for module in stages(problem, fitting(problem, schedule)).values():
        text = str(module)
        again = parse(text)
        assert str(again) == text
        assert again.is_structurally_equivalent(module)


@pytest.mark.parametrize("causal", ALIGNMENTS)
@pytest.mark.parametrize("panel", [0, 16])
@pytest.mark.parametrize(("order", "lazy", "skip"), COMBINATIONS)
def test_every_combination_in_float32(order, lazy, skip, panel, causal):
    """The last module, in the precision of kernels, on sizes around the tiles: 6 rows, 4 keys."""
    problem = Problem(8, 5, causal=causal)
    module = final(problem, Schedule(order, 6, 4, lazy, skip, panel, False, False, split_keys=0))
    for nq, nk in ((5, 3), (6, 4), (7, 5), (13, 9), (3, 13), (1, 0)):
        for kind in ("plain", "rising", "hidden"):
            check(module, problem, make_inputs(problem, kind, (1, 2, 1, nq, nk), 0.7), np.float32)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("order", "lazy", "skip"), COMBINATIONS)
def test_half_precision_storage(order, lazy, skip, kind):
    problem = Problem(8, 4, "float16", "bottom-right")
    x = make_inputs(problem, kind, (1, 2, 2, 7, 9), 0.5, seed=3)
    check(
        final(problem, Schedule(order, 4, 4, lazy, skip, 3, True, False, split_keys=0, fetch_ahead=True)),
        problem,
        x,
        np.float32,
    )


@pytest.mark.parametrize("ratio", [1, 3, 8])
@pytest.mark.parametrize("order", ["kv-outer", "q-outer"])
def test_query_heads_of_a_group_share_a_key_head(order, ratio):
    problem = Problem(4, causal="bottom-right")
    x = make_inputs(problem, "plain", (2, 2 * ratio, 2, 5, 6), 0.5)
    check(final(problem, Schedule(order, 4, 4, panel=0, group_rows=False, split_keys=0)), problem, x)


@pytest.mark.parametrize(("order", "lazy", "skip"), COMBINATIONS)
def test_parallel_iterations_are_independent(order, lazy, skip):
    """Any order of the iterations of scf.parallel gives the same bits."""
    problem = Problem(4, causal="bottom-right")
    x = make_inputs(problem, "plain", (2, 4, 2, 9, 9), 0.5)
    module = final(problem, Schedule(order, 4, 4, lazy, skip, 0, False, False, split_keys=0))
    assert "scf.parallel" in str(module)
    o, lse, _ = call(module, problem, x, np.float32)
    for seed in range(3):
        again = call(module, problem, x, np.float32, shuffle=seed)
        assert np.array_equal(o, again[0])
        assert np.array_equal(lse, again[1])


def tiles(problem: Problem, schedule: Schedule, nq: int, nk: int) -> tuple[int, int]:
    """Tiles of scores computed in one head, and those of them that are masked."""
    module = stages(problem, schedule)["causal-skip" if schedule.causal_skip else "base-2"]
    counts = check(module, problem, make_inputs(problem, "plain", (1, 1, 1, nq, nk), 0.5))
    return counts["tile.dot"] // 2, counts["tile.mask"]


@pytest.mark.parametrize("order", ["kv-outer", "q-outer"])
def test_causal_skip_skips(order):
    """Of 16 x 16 tiles the diagonal's 16 are masked, the 120 below are not, the 120 above are not visited."""
    problem = Problem(4, causal="bottom-right")
    assert tiles(problem, Schedule(order, 4, 4, True, False, 0, False, False, split_keys=0), 64, 64) == (
        256,
        256,
    )
    assert tiles(problem, Schedule(order, 4, 4, True, True, 0, False, False, split_keys=0), 64, 64) == (
        136,
        16,
    )


@pytest.mark.parametrize("order", ["kv-outer", "q-outer"])
def test_only_tails_are_masked_without_a_causal_mask(order):
    """65 = 16 tiles and one row: of 17 x 17 tiles those of the last row and column are cut."""
    problem = Problem(4)
    assert tiles(problem, Schedule(order, 4, 4, True, True, 0, False, False, split_keys=0), 64, 64) == (
        256,
        0,
    )
    assert tiles(problem, Schedule(order, 4, 4, True, True, 0, False, False, split_keys=0), 65, 65) == (
        289,
        33,
    )


@pytest.mark.parametrize("order", ["kv-outer", "q-outer"])
def test_rows_that_see_nothing_cost_nothing(order):
    """Bottom-right, 64 rows on 4 keys: only the last row tile sees the one key tile."""
    problem = Problem(4, causal="bottom-right")
    assert tiles(problem, Schedule(order, 4, 4, True, True, 0, False, False, split_keys=0), 64, 4) == (1, 1)
