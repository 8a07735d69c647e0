"""Emitted CUDA kernels with masks and scores, on the CPU: right, and without a race."""

from __future__ import annotations

import numpy as np
import pytest

from flashgen.plan.launch import Sizes
from flashgen.reference import attention, bound
from flashgen.schedule import Schedule
from tests.cuda_emitted import emitted
from tests.mods import PROBLEMS, random_inputs, what_is_read


@pytest.mark.parametrize("schedule", [Schedule("q-outer", 16, 8), Schedule("kv-outer", 8, 16, False)])
@pytest.mark.parametrize(
    "name",
    [
        "document, causal",
        "chosen",
        "bias and sink",
        "softcap",
        "log n",
        "numbers alone",
        "hidden by the score",
    ],
)
def test_kernels_equal_the_definition(name: str, schedule: Schedule) -> None:
    problem, rng = PROBLEMS[name], np.random.default_rng(3)
    x = random_inputs(problem, rng, (1, 2, 1, 18, 21))
    x.v[0, 0, 10, 1] = np.nan
    inputs = what_is_read(rng, x)
    o, lse = np.full((1, 2, 18, 5), np.nan, np.float32), np.full((1, 2, 18), np.nan, np.float32)
    tensors = (x.q, x.k, x.v, o, lse, *(inputs[a.name] for a in problem.arrays))
    numbers = (x.scale, *(inputs[s.name] for s in problem.scalars))
    report = emitted(problem, schedule).run(Sizes(1, 2, 1, 18, 21), tensors, numbers)
    assert report.clean, report.message
    want = attention(problem, x.q, x.k, x.v, x.scale, inputs)
    bound(problem, x.q, x.k, x.v, x.scale, values=inputs).check(o, lse, *want)
