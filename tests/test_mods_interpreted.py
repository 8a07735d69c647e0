"""Modules with masks and scores equal the definition after every pass that knows of them."""

from __future__ import annotations

import numpy as np
import pytest

from flashgen.ir.dialect import parse
from flashgen.passes.pipeline import lower
from flashgen.problem import Problem
from flashgen.schedule import Schedule
from tests.mods import BOTTOM_RIGHT, NEVER, PROBLEMS, SCORE, TOP_LEFT, of, random_inputs, what_is_read
from tests.modules import check, stages

SCHEDULES = [
    Schedule("q-outer", 4, 3, True, True, 0, False, False, 0.0, 0),
    Schedule("q-outer", 3, 4, True, True, 4, True, True, 0.5, 8, fetch_ahead=True),
    Schedule("kv-outer", 3, 4, False, True, 0, False, True, 0.0, 0),
    Schedule("kv-outer", 4, 4, True, False, 3, False, False, 0.0, 0),
]
KNOWING = {
    "build",
    "group-rows",
    "lazy-rescale",
    "base-2",
    "causal-skip",
    "skip-tiles",
    "mask-to-spans",
    "fuse-sweeps",
    "parallel-loops",
}


MEETING = [
    *((name, SCHEDULES[n % len(SCHEDULES)]) for n, name in enumerate(PROBLEMS)),
    *(("document, causal", schedule) for schedule in SCHEDULES),
    *(("bias and sink", schedule) for schedule in SCHEDULES),
]
"""Each problem with a schedule in turn, as the two of them take seconds; two with all."""


@pytest.mark.parametrize(("name", "schedule"), dict.fromkeys(MEETING), ids=lambda x: getattr(x, "name", x))
def test_every_stage_equals_the_definition(name: str, schedule: Schedule) -> None:
    problem, rng = PROBLEMS[name], np.random.default_rng(1)
    x = random_inputs(problem, rng, (1, 4, 2, 6, 9))
    inputs = what_is_read(rng, x)
    seen = []

    def check_stage(stage: str, module) -> None:
        if stage in KNOWING:
            seen.append(stage)
            check(module, problem, x, values=inputs)

    text = str(lower(problem, schedule, check_stage))
    assert seen[-1] == "parallel-loops"
    assert str(parse(text)) == text


@pytest.mark.parametrize(("causal", "mask"), [("bottom-right", BOTTOM_RIGHT), ("top-left", TOP_LEFT)])
@pytest.mark.parametrize("schedule", SCHEDULES[:3], ids=lambda s: s.name)
def test_causal_is_the_mask_that_it_stands_for(causal: str, mask, schedule: Schedule) -> None:
    """As a field, as a mask, and as a score that is -inf elsewhere: the same module after every pass."""
    hidden = of("where", mask, SCORE, NEVER)
    problems = [Problem(8, causal=causal), Problem(8, mask=mask), Problem(8, score=hidden)]
    field, *others = ({name: str(m) for name, m in stages(p, schedule).items()} for p in problems)
    assert all(other == field for other in others)
