"""Faults that real attention kernels have shipped with, as inputs and right values.

Whoever computes attention is held to them. F03 and so on are stable names of their kinds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from flashgen.problem import Problem
from flashgen.reference import attention, bound
from tests.strategies import STORAGE


@dataclass(frozen=True)
class Case:
    """One input with its right O and lse; q, k and v are (B, H, N, D) of the problem's type.

    digits: how far O may be off, where the right value is known better than by the one bound; lse then
        agrees to a few float32 roundings of itself.
    """

    fault: str
    problem: Problem
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    o: np.ndarray
    lse: np.ndarray
    scale: float = 1.0
    digits: float | None = None
    why: str = field(default="", compare=False)

    def check(self, o: np.ndarray, lse: np.ndarray) -> None:
        """Raise AssertionError unless these are right."""
        if self.digits is None:
            bound(self.problem, self.q, self.k, self.v, self.scale).check(o, lse, self.o, self.lse)
        else:
            np.testing.assert_allclose(o, self.o, rtol=0, atol=self.digits)
            np.testing.assert_allclose(lse, self.lse, rtol=1e-6, atol=1e-6)

    def __str__(self) -> str:
        return f"{self.fault}-{self.why}"


def column(*values: float) -> np.ndarray:
    """One batch, one head, D = 1."""
    return np.array(values, np.float32).reshape(1, 1, -1, 1)


def rows(values: list[list[float]]) -> np.ndarray:
    """One batch, one head."""
    return np.array(values, np.float32)[None, None]


def by_definition(
    fault: str, problem: Problem, q: np.ndarray, k: np.ndarray, v: np.ndarray, why: str
) -> Case:
    o, lse = attention(problem, q, k, v, 0.5)
    return Case(fault, problem, q, k, v, o, lse, 0.5, why=why)


def random(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.normal(size=shape).astype(np.float32)


def stand_in() -> Iterator[Case]:
    """F03: a finite stand-in for -inf lies within reach of real scores."""
    p, v, inf = Problem(1), column(1, 3), np.float32(1e30)
    weight = 1 / (1 + np.exp(1.0))  # of the second key
    near = column(-60000, -60001)
    o, lse = rows([[1 + 2 * weight]]), np.array([[[-60000 + np.log1p(np.exp(-1.0))]]])  # 1.5379, -59999.69
    yield Case("F03", p, column(1), near, v, o, lse, why="near -6e4")
    far = near * inf
    yield Case(
        "F03", p, column(1), far, v, column(1), far[:, :, 0, :].astype(float), digits=1e-6, why="-6e34"
    )


def alignments() -> Iterator[Case]:
    """F07: keys are told apart by one-hot values; equal logits share the weight among the visible ones."""
    for alignment, seen in (("bottom-right", (4, 5)), ("top-left", (1, 2))):
        p = Problem(1, 5, causal=alignment)
        o = rows([[1 / n] * n + [0] * (5 - n) for n in seen])
        v = np.eye(5, dtype=np.float32)[None, None]
        lse = np.log(np.array([[seen]], float))
        yield Case("F07", p, column(0, 0), column(*[1] * 5), v, o, lse, digits=1e-6, why=alignment)


def negative_trip_counts() -> Iterator[Case]:
    """F08: more rows than keys, so that the first rows see nothing."""
    p = Problem(1, 2, causal="bottom-right")
    v = rows([[1, 2], [3, 4]])
    o = rows([[0, 0], [0, 0], [0, 0], [1, 2], [2, 3]])
    lse = np.array([[[-np.inf, -np.inf, -np.inf, 0, np.log(2)]]])
    yield Case("F08", p, column(*[0] * 5), column(1, 1), v, o, lse, digits=1e-6, why="Nq 5, Nk 2")


def tails() -> Iterator[Case]:
    """F09: five keys in a tile of eight, no mask."""
    rng = np.random.default_rng(9)
    q, k, v = random(rng, 1, 1, 3, 4), random(rng, 1, 1, 5, 4), random(rng, 1, 1, 5, 4)
    yield by_definition("F09", Problem(4), q, k, v, "Nk 5, tile 8")


HEAD_DIMS = (1, 3, 7, 8, 24, 40, 72, 80, 96, 100, 112, 192)


def head_dims() -> Iterator[Case]:
    """F10: sizes that are no multiple of a vector; every column of O is to be written."""
    for d in HEAD_DIMS:
        rng = np.random.default_rng(d)
        q, k, v = random(rng, 1, 1, 3, d), random(rng, 1, 1, 5, d), random(rng, 1, 1, 5, d)
        yield by_definition("F10", Problem(d, causal="bottom-right"), q, k, v, f"D {d}")


def zero_sizes() -> Iterator[Case]:
    """F11: each of B, Hq, Nq, Nk set to 0 in turn."""
    full = {"B": 1, "Hq": 2, "Hkv": 1, "Nq": 3, "Nk": 5}
    for zero in ({"B": 0}, {"Hq": 0, "Hkv": 0}, {"Hq": 0}, {"Nq": 0}, {"Nk": 0}, {"Nq": 0, "Nk": 0}):
        n = full | zero
        rng = np.random.default_rng(11)
        q = random(rng, n["B"], n["Hq"], n["Nq"], 4)
        k, v = random(rng, n["B"], n["Hkv"], n["Nk"], 4), random(rng, n["B"], n["Hkv"], n["Nk"], 4)
        why = " ".join(f"{name} 0" for name in zero)
        if n["Nk"] == 0:
            nothing = np.zeros(q.shape), np.full(q.shape[:3], -np.inf)
            yield Case("F11", Problem(4), q, k, v, *nothing, scale=0.5, why=why)
        else:
            yield by_definition("F11", Problem(4), q, k, v, why)


def fused_exponent() -> Iterator[Case]:
    """F14: the exponent at the maximum is exactly 0, so one visible key gives v exactly."""
    lse = np.array([[[64 * 133120.0**2]]])
    for dtype in ("float32", "bfloat16"):
        big = np.full((1, 1, 1, 64), 133120, STORAGE[dtype])
        p = Problem(64, dtype=dtype)
        yield Case("F14", p, big, big, big, big.astype(float), lse, digits=0.0, why=f"133120 in {dtype}")


def sums_in_storage() -> Iterator[Case]:
    """F18: 2048 equal logits, and a few more; a sum of ones stops at 2048 in float16, in bfloat16 at 256."""
    for dtype, keys in (("float16", 2048), ("float16", 2051), ("bfloat16", 515)):
        p = Problem(1, dtype=dtype)
        q, k, v = (np.full((1, 1, n, 1), x, STORAGE[dtype]) for n, x in ((1, 0), (keys, 1), (keys, 100)))
        lse = np.full((1, 1, 1), np.log(keys))
        yield Case("F18", p, q, k, v, column(100), lse, digits=0.0, why=f"{keys} keys in {dtype}")


def cases() -> list[Case]:
    """Every case of every fault that can be stated without a mask, a bias or a device."""
    kinds = (
        stand_in,
        alignments,
        negative_trip_counts,
        tails,
        head_dims,
        zero_sizes,
        fused_exponent,
        sums_in_storage,
    )
    return [case for kind in kinds for case in kind()]
