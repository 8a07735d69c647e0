"""Emitted kernels with masks and scores equal the definition, with NaN at what no row sees."""

from __future__ import annotations

import numpy as np
import pytest

from flashgen.emission import source
from flashgen.problem import Problem
from flashgen.reference import attention, bound
from flashgen.schedule import Schedule
from flashgen.targets.cpu import Avx2
from tests.compiled import Build, call, kernels, library
from tests.mods import (
    NEVER,
    PROBLEMS,
    SCORE,
    K,
    constant,
    element,
    hidden_keys,
    of,
    random_inputs,
    what_is_read,
)
from tests.strategies import Inputs

SCHEDULES = [
    Schedule("q-outer", 16, 32),
    Schedule("q-outer", 16, 64, panel=0, group_rows=True, split_keys=64),
    Schedule("kv-outer", 8, 32, lazy_rescale=False),
]
SIZES = (
    (1, 4, 2, 37, 70),
    (2, 2, 1, 16, 32),
    (1, 2, 2, 1, 65),
    (1, 1, 1, 40, 3),
    (1, 1, 1, 0, 3),
    (1, 1, 1, 3, 0),
)


WITH_ALL = ("document, causal", "bias and sink", "chosen")


def wanted(name: str) -> list[Schedule]:
    """One of the schedules in turn, and all for a few problems."""
    return SCHEDULES if name in WITH_ALL else [SCHEDULES[list(PROBLEMS).index(name) % len(SCHEDULES)]]


@pytest.mark.parametrize("name", ["log n", "numbers alone", "hidden by the score"])
def test_a_file_compiles_alone(name: str) -> None:
    """Where the C library's functions are in scope, which have the names of those of vectors."""
    library(source(PROBLEMS[name], SCHEDULES[0], Avx2()), Build(Avx2()))


@pytest.mark.parametrize("name", PROBLEMS)
def test_kernels_equal_the_definition(name: str) -> None:
    problem = PROBLEMS[name]
    made = kernels(Build(Avx2()), tuple((problem, schedule) for schedule in wanted(name)))
    for n, sizes in enumerate(SIZES):
        rng = np.random.default_rng(n)
        x = random_inputs(problem, rng, sizes)
        inputs = what_is_read(rng, x)
        x.v[hidden_keys(problem, x.q, x.k, x.scale, inputs)] = np.nan
        if x.v.size and n % 2 == 0:
            x.v[0, 0, x.v.shape[2] // 2, 1] = np.nan  # where some rows see it, and others do not
        want = attention(problem, x.q, x.k, x.v, x.scale, inputs)
        limit = bound(problem, x.q, x.k, x.v, x.scale, values=inputs)
        for kernel in made:
            limit.check(*call(kernel, x, values=inputs), *want)


@pytest.mark.parametrize(("dtype", "least", "beyond"), [("float32", -126, 128), ("float64", -1022, 1024)])
def test_powers_of_two_are_exact(dtype: str, least: int, beyond: int) -> None:
    """A key is seen where exp2 of its score is what it says; below comes 0, and beyond inf."""
    said = of("eq", of("exp2", SCORE), element("said", dtype, K))
    problem = Problem(1, dtype=dtype, score=of("where", said, constant(0.0), NEVER))
    (kernel,) = kernels(Build(Avx2()), ((problem, Schedule(br=8, bc=64)),))
    n = np.arange(least - 1, beyond + 1, dtype=dtype)
    said_of = np.array([0, *np.ldexp(np.ones(n.size - 2, dtype), n[1:-1].astype(int)), np.inf], dtype)
    x = Inputs("plain", np.ones((1, 1, 1, 1), dtype), n[None, None, :, None], n[None, None, :, None], 1.0)
    _, lse = call(kernel, x, values={"said": said_of})
    np.testing.assert_allclose(np.exp(lse.astype(float)), n.size, rtol=1e-5)
