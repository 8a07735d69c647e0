"""Masks and scores by name: functions that return a function in FlexAttention's convention (flashgen.trace).

    mask_mod = and_masks(causal(), document(ids))
    score_mod = chain(softcap(50.0), alibi(8))

To add one, write a function that checks its arguments and returns a ``mask_mod(b, h, q_idx, k_idx)`` or a
``score_mod(score, b, h, q_idx, k_idx)``. Arrays that it reads become a kernel's inputs, numbers constants of
the kernel, and numbers made by ``runtime`` inputs too, so that one kernel serves all of them. A row's
position among the keys is ``position(q_idx, alignment)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flashgen.capture import runtime
from flashgen.errors import InvalidArgument, check_choice, check_positive
from flashgen.expression import Expression
from flashgen.problem import CAUSAL
from flashgen.symbol import (
    clip,
    exp,
    exp2,
    key_len,
    log,
    logical_not,
    maximum,
    minimum,
    query_len,
    replaced,
    tanh,
    where,
)

__all__ = [
    "alibi",
    "alibi_slopes",
    "and_masks",
    "block_sparse",
    "butterfly",
    "causal",
    "chain",
    "clip",
    "dense_bias",
    "dense_mask",
    "dilated",
    "document",
    "exp",
    "exp2",
    "key_len",
    "key_lengths",
    "log",
    "logical_not",
    "maximum",
    "minimum",
    "not_mask",
    "or_masks",
    "position",
    "prefix_lm",
    "query_len",
    "relative_bias",
    "runtime",
    "sliding_window",
    "softcap",
    "tanh",
    "where",
    "written",
]

Mod = Callable[..., Any]
DEFAULT = CAUSAL[0]


def position(q_idx: Any, alignment: str = DEFAULT) -> Any:
    """The key that a row is at: q + Nk - Nq ("bottom-right": the last row is at the last key) or q."""
    return q_idx + (key_len() - query_len()) if alignment == "bottom-right" else q_idx


def causal(alignment: str = DEFAULT) -> Mod:
    """A mask: no key after the row's position."""
    check_choice("alignment", alignment, CAUSAL)

    def causal_mask(b, h, q_idx, k_idx):
        return k_idx <= position(q_idx, alignment)

    return causal_mask


def sliding_window(left: int | None, right: int | None, alignment: str = DEFAULT) -> Mod:
    """A mask: from ``left`` keys before the row's position to ``right`` behind it, both included.

    None is no bound, and 0 is one. Both are run-time values. Raises InvalidArgument where one is negative.
    """
    check_choice("alignment", alignment, CAUSAL)
    before, after = bound(left, "window_left"), bound(right, "window_right")

    def window_mask(b, h, q_idx, k_idx):
        seen = True if before is None else position(q_idx, alignment) - before <= k_idx
        return seen if after is None else seen & (k_idx <= position(q_idx, alignment) + after)

    return window_mask


def bound(value: int | None, name: str) -> Any:
    """A run-time number of keys, None where there is no bound. Raises InvalidArgument."""
    check_bound(value, name)
    return None if value is None else runtime(int(value), name)


def check_bound(value: object, name: str) -> None:
    """Raise InvalidArgument unless it is a number of keys, or None."""
    if value is None or (type(value) is int and 0 <= value < 2**62):
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 0 <= value < 2**62:
        allowed = "a whole number from 0 to 2^62 is allowed, or None for no bound"
        raise InvalidArgument(name, repr(value), allowed)


def prefix_lm(n: int, alignment: str = DEFAULT) -> Mod:
    """A mask: the first ``n`` keys, and those not after the row's position (Raffel et al. 2020, 3.2.1).

    ``n`` is a run-time value. Raises InvalidArgument where it is negative.
    """
    check_choice("alignment", alignment, CAUSAL)
    check_positive("n", n, least=0)
    prefix = runtime(n, "prefix")

    def prefix_mask(b, h, q_idx, k_idx):
        return (k_idx < prefix) | (k_idx <= position(q_idx, alignment))

    return prefix_mask


def document(query_ids: Any, key_ids: Any = None) -> Mod:
    """A mask: the keys whose number is the row's. Numbers are (N,), or (B, N) for each sequence its own.

    key_ids: ``query_ids`` if not given. Raises InvalidArgument.
    """
    key_ids = query_ids if key_ids is None else key_ids
    batched, keys_batched = (rank(ids, "document ids", 1, 2) == 2 for ids in (query_ids, key_ids))

    def document_mask(b, h, q_idx, k_idx):
        row = query_ids[b, q_idx] if batched else query_ids[q_idx]
        return row == (key_ids[b, k_idx] if keys_batched else key_ids[k_idx])

    return document_mask


def rank(array: Any, name: str, *allowed: int) -> int:
    """The number of an array's dimensions. Raises InvalidArgument where it is not one of ``allowed``."""
    ndim = getattr(array, "ndim", None)
    if ndim not in allowed:
        words = " or ".join(map(str, allowed))
        what = f"of type {type(array).__name__}" if ndim is None else f"an array of {ndim} dimensions"
        raise InvalidArgument(name, what, f"an array of {words} dimensions is allowed")
    return ndim


def key_lengths(lengths: Any) -> Mod:
    """A mask: the first lengths[b] keys of each sequence; lengths (B,)."""
    rank(lengths, "lengths", 1)

    def length_mask(b, h, q_idx, k_idx):
        return k_idx < lengths[b]

    return length_mask


def block_sparse(layout: Any, block_q: int, block_k: int) -> Mod:
    """A mask: where the layout has the block that q and k lie in.

    layout: bools, (Tq, Tk), (Hq, Tq, Tk) or (B, Hq, Tq, Tk); blocks beyond it are not seen.

    Raises InvalidArgument.
    """
    dimensions = rank(layout, "layout", 2, 3, 4)
    check_positive("block_q", block_q)
    check_positive("block_k", block_k)

    def block_mask(b, h, q_idx, k_idx):
        return layout[(b, h, q_idx // block_q, k_idx // block_k)[-dimensions:]]

    return block_mask


def butterfly(length: int, block: int) -> Mod:
    """A mask of blocks: i sees j where i xor j is 0 or a power of 2, the union of all butterfly factors
    (Chen et al. 2022, "Pixelated Butterfly", flat block butterfly), as block-sparse FlashAttention uses it.

    length: of the queries and of the keys. Raises InvalidArgument.
    """
    check_positive("length", length, least=0)
    check_positive("block", block)
    blocks = np.arange(-(-length // block))
    apart = blocks[:, None] ^ blocks[None, :]
    return block_sparse((apart & (apart - 1)) == 0, block, block)


def dilated(step: int, alignment: str = DEFAULT) -> Mod:
    """A mask: keys a multiple of ``step`` away from the row's position (Beltagy et al. 2020, 3.1)."""
    check_choice("alignment", alignment, CAUSAL)
    check_positive("step", step)

    def dilated_mask(b, h, q_idx, k_idx):
        return (position(q_idx, alignment) - k_idx) % step == 0

    return dilated_mask


def dense_mask(mask: Any) -> Mod:
    """A mask: what an array of bools (B, Hq, Nq, Nk) says; broadcast axes have stride 0."""
    rank(mask, "attn_mask", 4)

    def attn_mask_mod(b, h, q_idx, k_idx):
        return mask[b, h, q_idx, k_idx]

    return attn_mask_mod


def dense_bias(bias: Any) -> Mod:
    """A score: plus an array of floats (B, Hq, Nq, Nk); broadcast axes have stride 0."""
    rank(bias, "attn_mask", 4)

    def attn_bias_mod(score, b, h, q_idx, k_idx):
        return score + bias[b, h, q_idx, k_idx]

    return attn_bias_mod


def alibi_slopes(heads: int) -> np.ndarray:
    """ALiBi's slope of each head, float32 (heads,) (Press et al. 2022, section 3 and its published code).

    2^(-8 i / n) for i = 1..n where the number of heads n is a power of 2; else those of the largest power m
    below n, and then the slopes of 2 m heads with i = 1, 3, 5, ... as many as are missing.
    """
    check_positive("heads", heads)
    power = 1 << (heads.bit_length() - 1)
    exponents = [8 * i / power for i in range(1, power + 1)]
    exponents += [8 * i / (2 * power) for i in range(1, 2 * (heads - power), 2)]
    return np.exp2(-np.array(exponents)).astype(np.float32)


def alibi(heads: Any, alignment: str = DEFAULT) -> Mod:
    """A score: minus slope * |row's position - key|, with ALiBi's slopes for so many heads, or one's own.

    heads: their number, or an array of slopes (Hq,) or (B, Hq). Behind a causal mask this is the paper's
    bias; without one it is symmetric. Raises InvalidArgument.
    """
    check_choice("alignment", alignment, CAUSAL)
    slopes = alibi_slopes(heads) if isinstance(heads, int) else heads
    batched = rank(slopes, "slopes", 1, 2) == 2

    def alibi_mod(score, b, h, q_idx, k_idx):
        slope = slopes[b, h] if batched else slopes[h]
        return score - slope * abs(position(q_idx, alignment) - k_idx)

    return alibi_mod


def softcap(cap: float) -> Mod:
    """A score: cap * tanh(score / cap), within -cap and cap; ``cap`` is a run-time value.

    Raises InvalidArgument unless it is finite and above 0.
    """
    check_cap(cap)
    limit = runtime(float(cap), "softcap")

    def softcap_mod(score, b, h, q_idx, k_idx):
        return limit * tanh(score / limit)

    return softcap_mod


def check_cap(cap: Any) -> None:
    """Raise InvalidArgument unless it is a number that scores can be capped at."""
    number = not isinstance(cap, bool) and isinstance(cap, int | float | np.number)
    if not number or not 0 < float(cap) < math.inf:
        raise InvalidArgument("softcap", repr(cap), "a finite number above 0 is allowed")


def relative_bias(table: Any, alignment: str = DEFAULT) -> Mod:
    """A score: plus table[h, key - row's position + max], distances beyond max counting as max.

    table: floats (Hq, 2 * max + 1), learned (Shaw et al. 2018; T5's has buckets besides). ``max`` is a
    run-time value. Raises InvalidArgument.
    """
    check_choice("alignment", alignment, CAUSAL)
    if rank(table, "table", 2) and table.shape[1] % 2 == 0:
        raise InvalidArgument("table.shape", tuple(table.shape), "(Hq, 2 * max + 1) is allowed")
    reach = runtime(int(table.shape[1]) // 2, "max_distance")

    def relative_mod(score, b, h, q_idx, k_idx):
        return score + table[h, clip(k_idx - position(q_idx, alignment) + reach, 0, 2 * reach)]

    return relative_mod


def written(expression: Expression, values: Mapping[str, Any] | None = None) -> Mod:
    """A mask or a score, by its kind: what an expression says, such as flashgen.notation.parse reads.

    values: the arrays and numbers of its inputs; what is not there remains an input without a value.
    """
    inputs = dict(values or {})

    def written_mask(b, h, q_idx, k_idx):
        return replaced(expression, None, inputs)

    def written_score(score, b, h, q_idx, k_idx):
        return replaced(expression, score, inputs)

    return written_mask if expression.kind == "bool" else written_score


def and_masks(*masks: Mod) -> Mod:
    """A mask: what all of these show; of none, everything."""

    def all_masks(b, h, q_idx, k_idx):
        seen = True
        for mask in masks:
            seen = seen & mask(b, h, q_idx, k_idx)
        return seen

    return all_masks


def or_masks(*masks: Mod) -> Mod:
    """A mask: what at least one of these shows; of none, nothing."""

    def any_mask(b, h, q_idx, k_idx):
        seen = False
        for mask in masks:
            seen = seen | mask(b, h, q_idx, k_idx)
        return seen

    return any_mask


def not_mask(mask: Mod) -> Mod:
    """A mask: what this one hides."""

    def opposite(b, h, q_idx, k_idx):
        return logical_not(mask(b, h, q_idx, k_idx))

    return opposite


def chain(*scores: Mod) -> Mod:
    """A score: these, each of what the one before gives; of none, the score itself."""

    def chained(score, b, h, q_idx, k_idx):
        for modify in scores:
            score = modify(score, b, h, q_idx, k_idx)
        return score

    return chained
