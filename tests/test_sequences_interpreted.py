"""Packed and paged sequences: every pass keeps what the module means, for each as if it were alone."""

from __future__ import annotations

import numpy as np
import pytest

from flashgen.layouts import LAYOUTS
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.schedule import Schedule
from tests.modules import COMBINATIONS, stages
from tests.sequences import EACH, Sequences, make, run

RAGGED = [(5, 9), (0, 4), (3, 0), (1, 1), (4, 8), (7, 5), (0, 0), (11, 13)]
EVEN = [(5, 9), (5, 0), (5, 1), (5, 4), (5, 13)]
"""Lengths of queries and keys, around tiles of 4; of dense queries all are as many."""


def sequences(problem: Problem, **options: object) -> Sequences:
    lengths = EVEN if LAYOUTS[problem.layout].queries == "dense" else RAGGED
    return make(problem, lengths, computed=np.float64, **options)  # pyright: ignore[reportArgumentType]


def check_every_stage(problem: Problem, schedule: Schedule, x: Sequences) -> None:
    for name, module in stages(problem, schedule).items():
        for array in x.whole:
            array[...] = np.nan
        run(module, x)
        try:
            x.check("float64")
        except AssertionError as wrong:
            raise AssertionError(f"after {name}: {wrong}") from None


@pytest.mark.parametrize("layout", EACH)
@pytest.mark.parametrize(("order", "lazy", "skip"), COMBINATIONS)
def test_every_pass_keeps_the_meaning(layout: str, order: str, lazy: bool, skip: bool) -> None:
    """NaN at keys that nobody sees, in other sequences' rows, in tails of pages and pages of nobody."""
    problem = Problem(4, 3, causal=ALIGNMENTS[1 + lazy], layout=layout)
    packs = (
        {"panel": 4, "hoist_packs": True, "fetch_ahead": lazy} if skip else {"panel": 0, "hoist_packs": False}
    )
    schedule = Schedule(order, 3, 4, lazy, skip, **packs, group_rows=False, split_keys=0)
    x = sequences(problem, kind="hidden")
    check_every_stage(problem, schedule, x)


@pytest.mark.parametrize("layout", EACH)
@pytest.mark.parametrize("grouped", [True, False])
def test_grouped_rows_and_parts_of_the_keys(layout: str, grouped: bool) -> None:
    """As decoding is done: rows of a group in one tile, keys in parts."""
    problem = Problem(4, causal="bottom-right", layout=layout)
    schedule = Schedule("q-outer", 4, 4, True, True, 0, False, grouped, split_keys=8)
    x = sequences(problem, page=5)
    check_every_stage(problem, schedule, x)


@pytest.mark.parametrize("layout", EACH)
def test_work_is_that_of_the_sequences(layout: str) -> None:
    """Two products a tile of keys, and tiles of each sequence's own lengths alone."""
    problem = Problem(4, layout=layout)
    schedule = Schedule("q-outer", 4, 4, True, True, 0, False, False, split_keys=0)
    x = sequences(problem)
    counts = run(stages(problem, schedule)["final"], x)
    tiles = sum(-(-p.q.shape[2] // 4) * -(-p.k.shape[2] // 4) for p in x.parts)
    assert counts["tile.dot"] == 2 * 4 * tiles
