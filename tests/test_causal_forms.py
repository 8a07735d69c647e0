"""Causal attention as an option, a mask function, a boolean mask and a bias: four ways to say one thing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import flashgen
from flashgen import mods
from flashgen.problem import Problem
from flashgen.reference import attention as reference
from flashgen.reference import bound, visible
from flashgen.schedule import Schedule
from tests import faults
from tests.compiled import quick_compiler

Results = tuple[np.ndarray, np.ndarray]
ALIGNED = ("bottom-right", "top-left")
SIZES = [(1, 1), (5, 9), (9, 5), (33, 33), (70, 131), (1, 65), (65, 1)]
"""Nq and Nk: on both sides of a tile, and more of each than of the other."""
SCHEDULE = Schedule(br=16, bc=32, group_rows=False, split_keys=0)
"""A kernel for each form, whatever the lengths."""


@pytest.fixture(scope="module", autouse=True)
def quickly() -> Iterator[None]:
    with quick_compiler():
        yield


def forms(alignment: str, nq: int, nk: int) -> dict[str, dict]:
    """By name, what attention() is told."""
    seen = visible(Problem(1, causal=alignment), np.arange(nq), nq, nk)
    return {
        "option": {"is_causal": True, "causal_alignment": alignment},
        "function": {"mask_mod": mods.causal(alignment)},
        "boolean mask": {"attn_mask": seen},
        "bias": {"attn_mask": np.where(seen, 0, -np.inf).astype(np.float32)},
    }


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, **options: Any) -> Results:
    """O and lse; a kernel for D = Dv = 8 serves whatever is narrower."""
    wide = (np.pad(x, [(0, 0)] * 3 + [(0, 8 - x.shape[3])]) for x in (q, k, v))
    options |= {"schedule": SCHEDULE, "target": "avx2", "enable_gqa": True, "return_lse": True}
    o, lse = flashgen.attention(*wide, scale=scale, **options)
    return o[..., : v.shape[3]], lse


def results(q: np.ndarray, k: np.ndarray, v: np.ndarray, alignment: str, scale: float) -> dict[str, Results]:
    told = forms(alignment, q.shape[2], k.shape[2])
    return {name: attention(q, k, v, scale, **options) for name, options in told.items()}


@pytest.mark.parametrize("alignment", ALIGNED)
@pytest.mark.parametrize(("nq", "nk"), SIZES)
def test_four_forms_give_one_result(alignment: str, nq: int, nk: int) -> None:
    """The first two to the bit. What no row sees holds NaN, but for K under a bias: NaN - inf is no -inf."""
    rng = np.random.default_rng(nq)
    q, k, v = (rng.normal(size=(2, h, n, 8)).astype(np.float32) for h, n in ((4, nq), (2, nk), (2, nk)))
    problem = Problem(8, causal=alignment)
    unseen = np.asarray(~visible(problem, np.arange(nq), nq, nk).any(axis=0))
    v[:, :, unseen] = np.nan
    bad = np.where(unseen[:, None], np.float32(np.nan), k)
    found = results(q, bad, v, alignment, 0.5) | {"bias": results(q, k, v, alignment, 0.5)["bias"]}
    for array, same in zip(found["function"], found["option"], strict=True):
        np.testing.assert_array_equal(array, same, strict=True)
    limit, want = bound(problem, q, k, v, 0.5), reference(problem, q, k, v, 0.5)
    for o, lse in found.values():
        limit.check(o, lse, *want)


CAUSAL = [case for case in faults.cases() if case.problem.causal and case.fault in ("F07", "F08")]


@pytest.mark.parametrize("case", CAUSAL, ids=str)
def test_faults_of_causal_attention_in_each_form(case: faults.Case) -> None:
    assert case.problem.causal
    found = results(case.q, case.k, case.v, case.problem.causal, case.scale)
    for o, lse in found.values():
        case.check(o, lse)


@pytest.mark.parametrize("case", [c for c in faults.cases() if c.fault == "F03"], ids=str)
@pytest.mark.parametrize("hides", [True, False])
def test_a_finite_stand_in_for_infinity_is_nowhere_with_masks(case: faults.Case, hides: bool) -> None:
    """F03, beside keys that a mask or a bias hides."""
    k, v = (np.concatenate([x, np.zeros_like(x)], axis=2) for x in (case.k, case.v))
    seen = np.arange(4) < 2
    mask = seen if hides else np.where(seen, 0, -np.inf).astype(np.float32)
    case.check(*attention(case.q, k, v, 1.0, attn_mask=mask))


def test_every_fault_is_found() -> None:
    assert {case.why for case in CAUSAL} == {*ALIGNED, "Nq 5, Nk 2"}
