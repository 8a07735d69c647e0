"""Packed and paged sequences in CUDA kernels: on the CPU, with every access checked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashgen.errors import InvalidArgument
from flashgen.layouts import LAYOUTS
from flashgen.plan.launch import Sizes
from flashgen.problem import Problem
from flashgen.schedule import FA1, FA2, Schedule
from tests.cuda_emitted import TARGET, emitted
from tests.sequences import EACH, make

LENGTHS = [(5, 9), (0, 4), (3, 0), (1, 1), (9, 18)]
EVEN = [(5, 9), (5, 0), (5, 17)]


@pytest.mark.parametrize("layout", EACH)
@pytest.mark.parametrize("schedule", [FA2, FA1], ids=["q-outer", "kv-outer"])
def test_kernels(layout: str, schedule: Schedule) -> None:
    """Right, and nothing is touched that is no sequence's: what lies there is NaN, outputs too."""
    problem = Problem(5, 7, causal="bottom-right", layout=layout)
    queries = LAYOUTS[layout].queries
    if schedule is FA1 and queries == "packed":
        with pytest.raises(InvalidArgument, match="order is 'kv-outer'; target cuda has memory of one size"):
            TARGET.complete(problem, FA1)
        return
    kernel = emitted(problem, replace(schedule, br=4, bc=8))
    x = make(problem, EVEN if queries == "dense" else LENGTHS, (4, 2), "hidden")
    found = kernel.run(Sizes(len(x.parts), 4, 2, 5, 0), x.arguments, (x.scale,))
    assert found.clean, found.message
    x.check()
