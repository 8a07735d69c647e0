"""Problems in which every two features meet: masks, scores, tails, layouts, types, head ratios and schedules.

``cover`` picks rows of the product of all choices until each pair of choices stands in one of them, which is
a few dozen of some hundred thousand. ``Call`` makes the inputs of one: what a kernel must not read is NaN,
and what it must not write is known.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from flashgen import mods
from flashgen.combine import Combined, combine
from flashgen.problem import Problem, computed
from flashgen.schedule import Schedule
from tests.mods import hidden_keys
from tests.strategies import STORAGE

B, NQ_STEP, NK_STEP = 2, 16, 16
POISON = 768.0
"""What lies in the gaps of an output: a number of every type."""

SCHEDULES = {
    "default": Schedule(br=NQ_STEP, bc=NK_STEP),
    "first": Schedule(order="kv-outer", br=NQ_STEP, bc=NK_STEP, lazy_rescale=False, causal_skip=False),
    "in place": Schedule(br=NQ_STEP, bc=NK_STEP, panel=0, group_rows=True, split_keys=2 * NK_STEP),
    "ahead": Schedule(br=NQ_STEP, bc=NK_STEP, fetch_ahead=True, rescale_threshold=8.0),
}
CHOICES: dict[str, tuple[Any, ...]] = {
    "mask": ("none", "bottom-right", "top-left", "window", "prefix", "document", "dense"),
    "score": ("none", "softcap", "alibi", "bias", "relative"),
    "lengths": ((33, 50), (16, 64), (1, 35), (50, 17), (5, 0)),
    "layout": ("whole", "turned", "gaps", "backwards", "shared"),
    "dtype": tuple(STORAGE),
    "heads": ((2, 2), (4, 2), (3, 1)),
    "sink": (False, True),
    "dims": ((24, 40), (7, 3), (64, 64)),
    "schedule": tuple(SCHEDULES),
}


def cover(choices: dict[str, tuple[Any, ...]], seed: int = 0) -> list[dict[str, Any]]:
    """Rows, each with one of the choices of every name, so that each pair of choices is in some row."""
    rng = np.random.default_rng(seed)
    names = list(choices)
    missing = {
        ((a, x), (b, y)) for a, b in itertools.combinations(names, 2) for x in choices[a] for y in choices[b]
    }
    rows = []
    while missing:
        best: tuple[int, dict[str, Any]] = (0, {})
        first = sorted(missing, key=repr)[0]
        for _ in range(60):
            row = {n: choices[n][rng.integers(len(choices[n]))] for n in names} | dict(first)
            found = len(missing & pairs(row, names))
            best = max(best, (found, row), key=lambda each: each[0])
        rows.append(best[1])
        missing -= pairs(best[1], names)
    return rows


def pairs(row: dict[str, Any], names: list[str]) -> set[tuple[tuple[str, Any], tuple[str, Any]]]:
    return {((a, row[a]), (b, row[b])) for a, b in itertools.combinations(names, 2)}


def laid_out(
    layout: str, shape: tuple[int, ...], fill: float, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """The memory, full of ``fill``, and an array of this shape (B, H, N, D) in it."""
    b, h, n, d = shape
    if layout == "turned":
        memory = np.full((b, n, h, d), fill, dtype)
        return memory, memory.transpose(0, 2, 1, 3)
    if layout == "gaps":
        memory = np.full((b, h, n, 2 * d + 3), fill, dtype)
        return memory, memory[..., : 2 * d : 2]
    memory = np.full(shape, fill, dtype)
    return memory, memory[:, :, ::-1, ::-1] if layout == "backwards" else memory


def repeated(array: np.ndarray) -> np.ndarray:
    """The first head, for all."""
    return np.broadcast_to(array[:, :1], array.shape)


@dataclass
class Call:
    """The inputs of one row of the cover, of a problem with these options."""

    row: dict[str, Any]
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    options: Combined
    problem: Problem
    scale: float

    @staticmethod
    def of(row: dict[str, Any], seed: int = 0) -> Call:
        rng = np.random.default_rng(seed)
        (nq, nk), (hq, hkv), (d, dv) = row["lengths"], row["heads"], row["dims"]
        dtype = STORAGE[row["dtype"]]
        arrays = []
        for shape in ((B, hq, nq, d), (B, hkv, nk, d), (B, hkv, nk, dv)):
            _, array = laid_out(row["layout"], shape, math.nan, dtype)
            array[...] = rng.standard_normal(shape).astype(dtype)
            arrays.append(array)
        q, k, v = arrays
        options = made(row, rng, (B, hq, nq, nk))
        call = Call(row, q, k, v, options, options.problem(d, dv, row["dtype"]), 1 / math.sqrt(d))
        call.hide()
        if row["layout"] == "shared":  # by now all heads hide the same keys, or none are NaN
            call.k, call.v = repeated(k), repeated(v)
        return call

    def hide(self) -> None:
        """NaN at keys and values that no row of any head sees."""
        hidden = hidden_keys(self.problem, self.q, self.k, self.scale, self.options.values).all(axis=(0, 1))
        self.k[:, :, hidden] = math.nan
        self.v[:, :, hidden] = math.nan

    def outputs(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The memory of O, full of POISON; O, and lse."""
        shape = (*self.q.shape[:3], self.v.shape[3])
        layout = "whole" if self.row["layout"] == "shared" else self.row["layout"]
        memory, o = laid_out(layout, shape, POISON, self.q.dtype)
        return memory, o, np.full(shape[:3], POISON, computed(self.row["dtype"]))


def made(row: dict[str, Any], rng: np.random.Generator, shape: tuple[int, int, int, int]) -> Combined:
    """The row's mask, score and sink as options of a call."""
    batch, hq, nq, nk = shape
    real = computed(row["dtype"])
    named: dict[str, Any] = {}
    masks = []
    if row["mask"] in ("bottom-right", "top-left"):
        named |= {"is_causal": True, "causal_alignment": row["mask"]}
    elif row["mask"] == "window":
        named["window"] = (9, 2)
    elif row["mask"] == "prefix":
        masks.append(mods.prefix_lm(5))
    elif row["mask"] == "document":
        masks.append(mods.document(np.arange(nq) // 11, (np.arange(nk) // 7).astype(np.int64)))
    elif row["mask"] == "dense":
        dense = rng.random((1, hq, nq, nk)) < 0.3
        dense[..., nk // 2 : nk // 2 + 4] = False
        masks.append(mods.dense_mask(np.broadcast_to(dense, shape)))
    if masks:
        named["mask_mod"] = masks[0]
    if row["score"] == "softcap":
        named["softcap"] = 1.5
    elif row["score"] == "alibi":
        named["alibi"] = True
    elif row["score"] == "bias":
        bias = rng.standard_normal((batch, 1, 1, nk)).astype(real)
        bias[rng.random(bias.shape) < 0.2] = -math.inf
        named["attn_mask"] = bias
    elif row["score"] == "relative":
        named["score_mod"] = mods.relative_bias(rng.standard_normal((hq, 13)).astype(np.float32))
    if row["sink"]:
        named["sinks"] = rng.standard_normal(hq).astype(real)
    return combine(shape, **named)


def calls() -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row of the cover, and a name for it."""
    for n, row in enumerate(cover(CHOICES)):
        yield f"{n}-{'-'.join(str(x).replace(' ', '') for x in row.values())}", row
