"""Products of bfloat16 pairs under masks and scores, beside reciprocals and fetching: every two that meet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flashgen import mods
from flashgen.emission import source
from flashgen.notation import parse
from flashgen.passes.pipeline import pipeline
from flashgen.problem import Problem
from flashgen.reference import attention, bound
from flashgen.schedule import Schedule
from flashgen.targets.avx512bf16 import Avx512Bf16
from flashgen.trace import trace
from tests.compiled import Build, call, kernel
from tests.modules import check, stages
from tests.strategies import Inputs, make_inputs

D, DV, BR, BC, NQ, NK = 3, 5, 4, 6, 9, 17
IDS = np.array([0] * 5 + [1] * 3 + [2] * 40 + [1] * 47, np.int32)
"""No document begins or ends where a pair does."""
DOCUMENT, SOFTCAP = trace(mods.document(IDS), "mask"), trace(mods.softcap(3.0), "score")
ALIBI = trace(mods.alibi(np.array([0.5, 0.25, 0.1, 0.2], np.float32)), "score")
VALUES = {**DOCUMENT.values, **SOFTCAP.values, **ALIBI.values}


def problem(causal: str | None = None, **parts: Any) -> Problem:
    return Problem(D, DV, "bfloat16", causal, **parts)


PROBLEMS = {
    "a mask of data": problem(mask=DOCUMENT.expression),
    "and a score that is not linear": problem(
        "bottom-right", mask=DOCUMENT.expression, score=SOFTCAP.expression
    ),
    "a bias": problem("top-left", score=ALIBI.expression),
    "a comparison": problem("top-left", score=parse("where(score < 0.5, score * 2.0, 1.0)")),
}
NARROW = Schedule(
    "q-outer", BR, BC, True, True, 4, True, False, split_keys=0, fetch_ahead=True, products="bfloat16"
)
VARIANTS = {
    "hoisted": NARROW,
    "split and held": replace(NARROW, split_keys=2 * BC, rescale_threshold=8.0),
    "fa1": Schedule("kv-outer", BR, BC, False, False, 4, False, True, split_keys=0, products="bfloat16"),
}


def within(p: Problem, x: Inputs, o: np.ndarray, lse: np.ndarray, values: Mapping[str, Any]) -> None:
    scale, computed = float(lse.dtype.type(x.scale)), lse.dtype.name
    with np.errstate(invalid="ignore"):
        limit = bound(p, x.q, x.k, x.v, scale, computed, "bfloat16", values)
    limit.check(o, lse, *attention(p, x.q, x.k, x.v, scale, values))


@pytest.mark.parametrize("schedule", VARIANTS.values(), ids=VARIANTS)
@pytest.mark.parametrize("p", PROBLEMS.values(), ids=PROBLEMS)
def test_every_stage_is_attention(p: Problem, schedule: Schedule) -> None:
    x = make_inputs(p, "plain", (1, 4, 2, NQ, NK), 0.7, seed=3)
    modules = stages(p, schedule)
    for name in ("build", "narrow-products", "fold-scale", "mask-to-spans", "fuse-sweeps", "final"):
        try:
            check(modules[name], p, x, np.float32, "bfloat16", VALUES)
        except AssertionError as e:
            raise AssertionError(f"after {name}: {e}") from e


def test_passes_are_in_order() -> None:
    """A row is divided before weights are rounded, and what is fetched is found beside pairs."""
    names = [p.name for p in pipeline(NARROW, PROBLEMS["and a score that is not linear"])]
    wanted = ["reciprocal", "narrow-products", "fold-scale", "pack", "skip-tiles", "mask-to-spans"]
    wanted.append("fetch-ahead")
    assert [name for name in names if name in wanted] == wanted


LONG = (2, 4, 2, 47, 95)
KERNEL = Schedule("q-outer", 20, 39, True, True, hoist_packs=True, fetch_ahead=True, products="bfloat16")
BUILD = Build(Avx512Bf16(), emulated=True)


def test_a_kernel_with_a_mask_and_a_score() -> None:
    """Where a key that is not seen holds NaN or infinities, rows are taken apart. Contractions are odd."""
    p = Problem(23, 33, "bfloat16", "bottom-right", DOCUMENT.expression, SOFTCAP.expression)
    made = kernel(BUILD, p, KERNEL)
    plain = make_inputs(p, "plain", LONG, 0.25, seed=7)
    hostile = replace(plain, v=plain.v.copy())
    hostile.v[:, :, 5:8] = np.nan  # document 1, beside another in the same pairs
    hostile.v[:, 1, 20] = np.inf
    for x in (plain, hostile):
        results = [call(made, x, threads, VALUES) for threads in (1, 3)]
        within(p, x, *results[0], VALUES)
        assert results[0][1].tobytes() == results[1][1].tobytes()
    assert np.isnan(results[0][0]).any() and np.isfinite(results[0][0].astype(np.float32)).any()


def test_products_of_pairs_take_masks_and_fetch() -> None:
    p = Problem(23, 33, "bfloat16", None, DOCUMENT.expression)
    text = source(p, KERNEL, Avx512Bf16())
    calls = [line for line in text.splitlines() if "product<" in line and line.startswith("  ")]
    assert any("fetch<20, 23>(k" in line for line in calls)
    assert any(", vis" in line and "fetch<20, 33>(v" in line for line in calls)
    assert "Pairs<P, N, W> b, const Part &part,\n                    Mask<R, K, SM> seen" in text
