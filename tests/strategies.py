"""What Hypothesis draws: problems, schedules, sizes around the tiles, and values that have broken kernels."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from ml_dtypes import bfloat16, finfo

from flashgen.problem import ALIGNMENTS, DTYPES, Problem
from flashgen.reference import visible
from flashgen.schedule import ORDERS, PRODUCTS, Schedule

PRIMES = (2, 3, 5, 7, 11, 13)
OFFSETS = {"far": 200.0, "farther": 6e4, "farthest": 1e30}
"""Added to every logit. exp(200) is no float32; 6e4 is near finite stand-ins for -inf, and 1e30 beyond."""

STORAGE = {"float32": np.float32, "float16": np.float16, "bfloat16": bfloat16, "float64": np.float64}
"""NumPy's types by what a Problem calls them; flashgen itself does without ml_dtypes' bfloat16."""

KINDS = ("plain", *OFFSETS, "rising", "falling", "nan_q", "nan_k", "nan_v", "hidden")
"""What is special about the values. Of float16, "farthest" is as far as that type goes."""


@dataclass(frozen=True)
class Inputs:
    """q, k, v in the problem's storage type, and a scale; ``kind`` says what is special about them."""

    kind: str
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    scale: float

    def __repr__(self) -> str:
        shapes = ", ".join(f"{n} {x.shape}" for n, x in zip("qkv", (self.q, self.k, self.v), strict=True))
        return f"Inputs({self.kind}: {shapes}, scale {self.scale})"


@st.composite
def problems(draw: Any, max_head_dim: int = 8, dtypes: Collection[str] = tuple(DTYPES)) -> Problem:
    dims = st.sampled_from([d for d in (1, 3, 4, 7, 8) if d <= max_head_dim])
    return Problem(
        draw(dims), draw(dims), draw(st.sampled_from(sorted(dtypes))), draw(st.sampled_from(ALIGNMENTS))
    )


@st.composite
def schedules(draw: Any) -> Schedule:
    """Complete schedules; br is not always a multiple of bc, nor the other way round."""
    order = draw(st.sampled_from(ORDERS))
    panel = draw(st.sampled_from((0, 1, 3, 4, 16)))
    grouped = draw(st.booleans())
    repeats = order == "q-outer" or not grouped  # whether a tile of keys is read more than once
    lazy = draw(st.booleans())
    bc = draw(st.sampled_from((1, 3, 4, 6, 8)))
    hoists = panel > 0 and repeats and draw(st.booleans())
    return Schedule(
        order=order,
        br=draw(st.sampled_from((1, 3, 4, 6, 8))),
        bc=bc,
        lazy_rescale=lazy,
        causal_skip=draw(st.booleans()),
        panel=panel,
        hoist_packs=hoists,
        group_rows=grouped,
        rescale_threshold=draw(st.sampled_from((0.0, 0.5, 8.0))) if lazy else 0.0,
        split_keys=bc * draw(st.integers(0, 3)) if lazy and order == "q-outer" else 0,
        fetch_ahead=hoists and draw(st.booleans()),
        products=draw(st.sampled_from(PRODUCTS)) if panel else "float32",
    )


def fitting(problem: Problem, schedule: Schedule) -> Schedule:
    """The schedule, with products that the problem's type allows."""
    return (
        schedule if schedule.products in ("float32", problem.dtype) else replace(schedule, products="float32")
    )


def lengths(tile: int) -> st.SearchStrategy[int]:
    """Lengths that have broken kernels with tiles of that many rows."""
    return st.sampled_from(sorted({0, 1, tile - 1, tile, tile + 1, 2 * tile, 2 * tile + 1, *PRIMES}))


@st.composite
def inputs(draw: Any, problem: Problem, br: int, bc: int) -> Inputs:
    """Arrays for a problem, of lengths around tiles of ``br`` and ``bc``."""
    kind = draw(st.sampled_from(KINDS))
    batch, hkv, ratio = draw(
        st.sampled_from(((1, 1, 1), (1, 1, 2), (2, 1, 1), (1, 2, 3), (0, 1, 1), (1, 0, 0)))
    )
    nq, nk = draw(lengths(br)), draw(lengths(bc))
    scale = draw(st.sampled_from((0.5, 0.125, 0.3, 1.0, 0.0, -0.7)))
    seed = draw(st.integers(0, 2**32 - 1))
    return make_inputs(problem, kind, (batch, hkv * ratio, hkv, nq, nk), scale, seed)


def make_inputs(
    problem: Problem, kind: str, sizes: tuple[int, int, int, int, int], scale: float, seed: int = 0
) -> Inputs:
    """Inputs of a kind; sizes are (batch, query heads, key heads, Nq, Nk).

    What moves logits far is the last term of their sums. Were it the first, each later term would be rounded
    at its size, and D such roundings may walk further than the bound says (see reference.bound);
    tests/test_hostile.py has them first, too."""
    batch, hq, hkv, nq, nk = sizes
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(batch, hq, nq, problem.head_dim))
    k = rng.normal(size=(batch, hkv, nk, problem.head_dim))
    v = rng.normal(size=(batch, hkv, nk, problem.head_dim_v))
    if kind in (*OFFSETS, "rising", "falling"):
        q[..., -1] = 1
        k[..., -1] = logits(kind, problem, nk)
    if kind == "hidden":  # no row sees these keys, so nothing there may matter
        unseen = ~visible(problem, np.arange(nq), nq, nk).any(axis=0)
        k[:, :, unseen], v[:, :, unseen] = np.nan, np.inf
    for name, array in (("nan_q", q), ("nan_k", k), ("nan_v", v)):
        if kind == name and array.size:
            array[tuple(rng.integers(n) for n in array.shape)] = np.nan
    storage = STORAGE[problem.dtype]
    return Inputs(kind, q.astype(storage), k.astype(storage), v.astype(storage), scale)


def rounded(problem: Problem, scale: float) -> float:
    """A scale as the problem's kernels take it: in the type computed in."""
    return float(STORAGE[problem.computed](scale))


def logits(kind: str, problem: Problem, nk: int) -> np.ndarray:
    """A component of k that moves whole rows of logits: far away, or by more than 88 from tile to tile."""
    if kind in OFFSETS:
        return np.full(nk, min(OFFSETS[kind], float(finfo(STORAGE[problem.dtype]).max)))
    steps = 100.0 * np.arange(nk)
    return steps if kind == "rising" else steps[::-1]
