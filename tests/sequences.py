"""Sequences of different lengths in the arrays of each layout, each with its own right answer.

What no sequence holds is NaN, in inputs and in outputs: rows in front of the first and behind the last one,
pages that nobody has, tails of pages, and entries of the block table that name no page at all.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from flashgen.interpret import interpret
from flashgen.layouts import LAYOUTS
from flashgen.problem import Problem
from flashgen.reference import attention, bound
from flashgen.runtime.cpu import CpuKernel
from tests.strategies import STORAGE, Inputs, make_inputs
from tests.tensor import Tensor

EACH = [name for name in LAYOUTS if name != "dense"]
"""The layouts in which sequences differ."""
Results = list[tuple[np.ndarray, np.ndarray]]
GAP = 3
"""Heads and columns between those of the outputs, which nobody may write."""


@dataclass
class Sequences:
    """parts: each sequence alone, (1, H, N, D). arrays: a kernel's, by name, heads in front of rows.

    lengths: (Nq, Nk) of each.
    """

    problem: Problem
    parts: list[Inputs]
    arrays: dict[str, np.ndarray]
    scale: float
    whole: list[np.ndarray] = field(default_factory=list)
    """The memory that o and lse are parts of."""
    values: dict[str, Any] = field(default_factory=dict)
    """Of what the problem's mask, score and sink read, by name."""

    @property
    def dense(self) -> Problem:
        """What each sequence is alone."""
        return replace(self.problem, layout="dense")

    @property
    def arguments(self) -> list[np.ndarray]:
        """In the order of a kernel's arguments."""
        names = ["q", "k", "v", "o", "lse", *(a.name for a in self.problem.arrays)]
        return [self.arrays[name] for name in names]

    def results(self) -> Results:
        """o and lse of each sequence, (1, Hq, Nq, ...), as they are now; nothing beside them was written."""
        found = [self.of(n) for n in range(len(self.parts))]
        kept = [[array.copy() for array in each] for each in found]
        for each in found:
            for array in each:
                array[...] = np.nan
        beside = [bool(np.isnan(memory).all()) for memory in self.whole]
        for each, values in zip(found, kept, strict=True):
            for array, value in zip(each, values, strict=True):
                array[...] = value
        assert all(beside), "what is beside the results was written"
        return found

    def of(self, n: int) -> tuple[np.ndarray, np.ndarray]:
        o, lse = self.arrays["o"], self.arrays["lse"]
        if LAYOUTS[self.problem.layout].queries == "dense":
            return o[n : n + 1], lse[n : n + 1]
        rows = slice(*self.arrays["cu_seqlens_q"][n : n + 2])
        return o[None, :, rows], lse[None, :, rows]

    def check(self, computed: str = "float32", products: str = "float32") -> Results:
        """Each sequence is within the one bound of the reference of it alone."""
        found = self.results()
        for n, (x, (o, lse)) in enumerate(zip(self.parts, found, strict=True)):
            given = {"values": self.values, "first": (n, 0)}
            limit = bound(self.dense, x.q, x.k, x.v, x.scale, computed, products, **given)
            limit.check(o, lse, *attention(self.dense, x.q, x.k, x.v, x.scale, **given))
        return found


def make(
    problem: Problem,
    lengths: list[tuple[int, int]],
    heads: tuple[int, int] = (4, 2),
    kind: str = "plain",
    page: int = 3,
    computed: type = np.float32,
    seed: int = 0,
) -> Sequences:
    """Sequences of lengths (Nq, Nk), with outputs that hold NaN. heads: Hq and Hkv. page: its slots."""
    if not lengths:
        return none_of(make(problem, [(1, 1)], heads))
    dense, scale = replace(problem, layout="dense"), 0.3
    parts = [make_inputs(dense, kind, (1, *heads, *n), scale, seed + i) for i, n in enumerate(lengths)]
    layout, rng, storage = LAYOUTS[problem.layout], np.random.default_rng(seed), STORAGE[problem.dtype]
    arrays: dict[str, np.ndarray] = {}
    if layout.queries == "packed":
        arrays["q"], arrays["cu_seqlens_q"] = packed([x.q for x in parts])
    else:
        arrays["q"] = np.concatenate([x.q for x in parts])
    if layout.keys == "packed":
        arrays["k"], arrays["cu_seqlens_k"] = packed([x.k for x in parts])
        arrays["v"], _ = packed([x.v for x in parts])
    else:
        table, pool = tables([n for _, n in lengths], page, rng)
        arrays["block_table"], arrays["seqlens_k"] = table, np.array([n for _, n in lengths], np.int32)
        arrays["k"], arrays["v"] = (paged([getattr(x, n) for x in parts], table, pool, page) for n in "kv")
    made = Sequences(problem, parts, arrays, scale)
    outputs = storage if computed is np.float32 or problem.dtype != "float32" else computed
    shape = arrays["q"].shape[:-1]
    whole = np.full((*shape[:-2], shape[-1], shape[-2] + GAP, problem.head_dim_v + GAP), np.nan, outputs)
    arrays["o"] = whole.swapaxes(-3, -2)[..., : shape[-2], :, : problem.head_dim_v]
    rows = np.full((*shape[:-1], shape[-1] * 2), np.nan, computed)
    arrays["lse"] = rows[..., ::2]
    made.whole += [whole, rows]
    return made


def none_of(x: Sequences) -> Sequences:
    """Its arrays without a sequence."""
    for name, array in x.arrays.items():
        if "B" in (shape := LAYOUTS[x.problem.layout].shapes[name]):
            x.arrays[name] = array[:0]
        elif shape == ("B + 1",):
            x.arrays[name] = array[:1]
    return Sequences(x.problem, [], x.arrays, x.scale, x.whole)


def packed(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Rows of all parts, (H, total, D), of which heads lie behind rows; and where each starts."""
    starts = np.cumsum([0, *(x.shape[2] for x in parts)]).astype(np.int32)
    whole = np.concatenate([x[0].swapaxes(0, 1) for x in parts])
    around = np.full((len(whole) + 2, *whole.shape[1:]), np.nan, whole.dtype)
    around[1:-1] = whole
    return around[1:-1].swapaxes(0, 1), starts


def tables(lengths: list[int], page: int, rng: np.random.Generator) -> tuple[np.ndarray, int]:
    """Pages of each sequence in any order, with some that nobody has; what names no page is far outside."""
    counts = [-(-n // page) for n in lengths]
    pool = sum(counts) + 3
    order = iter(rng.permutation(pool))
    table = np.full((len(lengths), max(counts, default=0) + 1), 1 << 30, np.int32)
    for b, count in enumerate(counts):
        table[b, :count] = [next(order) for _ in range(count)]
    return table, pool


def paged(parts: list[np.ndarray], table: np.ndarray, pool: int, page: int) -> np.ndarray:
    """Rows of all parts in pages, (pages, H, slots, D), of which heads lie behind slots."""
    heads, d = parts[0].shape[1], parts[0].shape[3]
    whole = np.full((pool, page, heads, d), np.nan, parts[0].dtype)
    for b, x in enumerate(parts):
        for n in range(x.shape[2]):
            whole[table[b, n // page], n % page] = x[0, :, n]
    return whole.swapaxes(1, 2)


def run(module: ModuleOp, x: Sequences, dtype: type = np.float64) -> Counter[str]:
    """An interpreted run."""
    return interpret(module, *x.arguments, dtype(x.scale), dtype=dtype)


def call(kernel: CpuKernel, x: Sequences, threads: int = 1) -> None:
    """A compiled kernel, called through its C interface."""
    tensors = [Tensor.of(array) for array in x.arguments]
    function = kernel._function  # pyright: ignore[reportPrivateUsage]
    function.argtypes = [ctypes.c_void_p] * len(tensors) + [ctypes.c_float, ctypes.c_int]
    assert function(*map(ctypes.byref, tensors), x.scale, threads) == 0
