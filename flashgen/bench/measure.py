"""How right a result is, and how much work it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flashgen import reference
from flashgen.problem import Problem
from flashgen.reference import Deviation


@dataclass(frozen=True)
class Expected:
    """What O and lse of one call should be, and how far off they may be; see flashgen.reference."""

    o: np.ndarray
    lse: np.ndarray
    bound: reference.Bound

    def deviations(self, o: np.ndarray, lse: np.ndarray) -> tuple[Deviation, Deviation]:
        """Of O and of lse."""
        return self.bound.deviations(o, lse, self.o, self.lse)

    def deviation_of_o(self, o: np.ndarray) -> Deviation:
        """Of O alone, for what gives no lse."""
        return self.deviations(o, self.lse)[0]


def expect(
    problem: Problem,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    scale: float,
    advance: Callable[[], object] = lambda: None,
    products: str = "float32",
    values: Mapping[str, Any] | None = None,
) -> Expected:
    """The reference, one query head after the other; ``advance`` is called behind each.

    products: what a kernel rounds P to, as a Schedule says.
    values: what the problem's mask, score and sink read, by name.
    """
    (batch, hq, nq, _), hkv = q.shape, k.shape[1]
    wide = reference.wider(problem)
    o, lse = np.zeros((batch, hq, nq, v.shape[3]), wide), np.full((batch, hq, nq), -np.inf, wide)
    bound = reference.Bound(np.ones((batch, hq)), np.ones((batch, hq)))
    for b, h in np.ndindex(batch, hq):
        g = h // (hq // hkv)
        head = (q[b, h][None, None], k[b, g][None, None], v[b, g][None, None])
        alone = reference.attention(problem, *head, scale, values, (b, h))
        o[b : b + 1, h : h + 1], lse[b : b + 1, h : h + 1] = alone
        allowed = reference.bound(problem, *head, scale, products=products, values=values, first=(b, h))
        bound.o[b, h], bound.lse[b, h] = allowed.o.item(), allowed.lse.item()
        advance()
    return Expected(o, lse, bound)


def operations(
    problem: Problem,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    values: Mapping[str, Any] | None = None,
) -> int:
    """Floating-point operations of the two products over the visible pairs; exponentials are not counted."""
    (batch, hq, nq, d), (nk, dv) = q.shape, v.shape[2:]
    alike = problem.mask is None  # all heads
    pairs = sum(
        int(reference.visible(problem, rows, nq, nk, head, values).sum())
        for head in ([(0, 0)] if alike else np.ndindex(batch, hq))
        for rows in np.array_split(np.arange(nq), -(-nq // 256) or 1)
    )
    return 2 * (batch * hq if alike else 1) * pairs * (d + dv)
