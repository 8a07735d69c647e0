"""Standard attention, as one writes it in NumPy: the baseline of every comparison."""

from __future__ import annotations

import math

import numpy as np


def standard_attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The whole table of scores, its softmax, the products: O and lse in float32, nothing done twice.

    q: (B, Hq, Nq, D), k: (B, Hkv, Nk, D), v: (B, Hkv, Nk, Dv). The query heads of a group are rows of one
    product, so that K and V are read once. causal: bottom-right, Nq <= Nk: each row sees a key.
    """
    (b, hq, nq, d), (hkv, nk) = q.shape, k.shape[1:3]
    rows = hq // hkv * nq
    queries = (q * np.float32(1 / math.sqrt(d))).reshape(b, hkv, rows, d)
    p = queries @ k.swapaxes(-1, -2)
    if causal:
        hidden = np.arange(nk) > np.arange(nq)[:, None] + (nk - nq)
        np.copyto(p.reshape(b, hq, nq, nk), np.float32(-np.inf), where=hidden)
    top = p.max(axis=-1, keepdims=True)
    p -= top
    np.exp(p, out=p)
    total = p.sum(axis=-1, keepdims=True)
    o = p @ v
    o /= total
    return o.reshape(b, hq, nq, v.shape[3]), (top + np.log(total)).reshape(b, hq, nq)
