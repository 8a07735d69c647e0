"""The options of a call -> one mask, one score, and the values of what they read, in the order that is fixed.

A score is scaled, capped (``softcap``), modified (``score_mod``) and biased (``alibi``, then a floating
``attn_mask``); a key is visible where the causal mask, the window, ``mask_mod`` and a boolean ``attn_mask``
all show it, and its score is not -inf then. Nothing that saturates runs behind a -inf of a bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flashgen import mods
from flashgen.capture import is_array, type_of
from flashgen.errors import InvalidArgument, check_choice
from flashgen.expression import KINDS, Expression
from flashgen.problem import CAUSAL, Problem
from flashgen.trace import check_function, trace_both

MOST = 4
"""Dimensions of an attn_mask: B, Hq, Nq, Nk."""


@dataclass(frozen=True)
class Combined:
    """The fields of a Problem that options of a call make, and the ``values`` of its inputs by name."""

    causal: str | None
    mask: Expression | None
    score: Expression | None
    sink: bool
    values: Mapping[str, Any]

    def problem(self, head_dim: int, head_dim_v: int | None = None, dtype: str = "float32") -> Problem:
        return Problem(head_dim, head_dim_v, dtype, self.causal, self.mask, self.score, self.sink)


def combine(
    shape: tuple[int, int, int, int],
    *,
    is_causal: bool = False,
    causal_alignment: str = "bottom-right",
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    alibi: Any = None,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    attn_mask: Any = None,
    sinks: Any = None,
) -> Combined:
    """What options of a call come to.

    shape: (B, Hq, Nq, Nk) of the scores.
    causal_alignment: of ``is_causal``, the window and ALiBi.
    window: (left, right) as of ``mods.sliding_window``. softcap: of ``mods.softcap``.
    alibi: True for the paper's slopes, or an array of slopes (Hq,) or (B, Hq).
    score_mod, mask_mod: functions, as of flashgen.trace.
    attn_mask: an array of up to four dimensions, broadcast to ``shape`` by NumPy's rules without a copy:
        bools are a mask (True is visible), floats are added to scores.
    sinks: an array (Hq,) of logits, one more in the sum of each row of a head.

    The function is traced at the first call of its kind. Raises InvalidArgument.
    """
    check_choice("causal_alignment", causal_alignment, CAUSAL)
    masks: list[Callable[..., Any]] = []
    scores: list[Callable[..., Any]] = []
    if window is not None:
        masks.append(mods.sliding_window(*pair(window), causal_alignment))
    parts = []
    if mask_mod is not None:
        check_function("mask_mod", mask_mod)
        masks.append(mask_mod)
        parts.append((mask_mod, "mask", "mask_mod"))
    if softcap is not None:
        scores.append(mods.softcap(softcap))
    if score_mod is not None:
        check_function("score_mod", score_mod)
        scores.append(score_mod)
        parts.append((score_mod, "score", "score_mod"))
    if alibi is not None and alibi is not False:
        scores.append(mods.alibi(slopes(alibi, shape[0], shape[1]), causal_alignment))
    if attn_mask is not None:
        array, kind = broadcast(attn_mask, shape)
        if kind == "bool":
            masks.append(mods.dense_mask(array))
        else:
            scores.append(mods.dense_bias(array))
    mask = score = None
    values: dict[str, Any] = {}
    if masks or scores:
        mask, score, values = trace_both(
            mods.and_masks(*masks) if masks else None, mods.chain(*scores) if scores else None, parts=parts
        )
        if mask is not None and mask.op == "constant" and mask.value:
            mask = None  # a window without bounds
        if score is not None and score.op == "score":
            score = None
    if sinks is not None:
        values["sink"] = heads(sinks, shape[1])
    return Combined(causal_alignment if is_causal else None, mask, score, sinks is not None, values)


def pair(window: object) -> tuple[Any, Any]:
    if not isinstance(window, tuple | list) or len(window) != 2:
        raise InvalidArgument("window", repr(window), "a pair (left, right) is allowed, None for no bound")
    return window[0], window[1]


_SLOPES: dict[int, np.ndarray] = {}


def slopes(alibi: Any, batch: int, count: int) -> Any:
    """The slopes of so many heads: the paper's, or those given. Raises InvalidArgument."""
    if alibi is True:
        if count not in _SLOPES:
            _SLOPES[count] = mods.alibi_slopes(count) if count else np.zeros(0, np.float32)
        return _SLOPES[count]
    if not is_array(alibi) or tuple(alibi.shape) not in ((count,), (batch, count)):
        what = f"of shape {tuple(alibi.shape)}" if is_array(alibi) else repr(alibi)
        allowed = f"True is allowed, or an array of slopes of shape {(count,)} or {(batch, count)}"
        raise InvalidArgument("alibi", what, allowed)
    return alibi


def heads(sinks: Any, count: int) -> Any:
    """Raises InvalidArgument unless there is a float for each head."""
    if not is_array(sinks) or tuple(sinks.shape) != (count,) or KINDS[type_of(sinks, "sinks")] != "float":
        what = f"{sinks.dtype} of shape {tuple(sinks.shape)}" if is_array(sinks) else repr(sinks)
        raise InvalidArgument("sinks", what, f"an array of floats of shape {(count,)} is allowed")
    return sinks


def broadcast(array: Any, shape: tuple[int, int, int, int]) -> tuple[Any, str]:
    """An attn_mask of four dimensions, with stride 0 along what it does not have, and its elements' kind.

    Never copied, and no axis is guessed by its size. Raises InvalidArgument.
    """
    if not is_array(array):
        raise InvalidArgument("attn_mask", f"of type {type(array).__name__}", "an array is allowed")
    kind = KINDS[type_of(array, "attn_mask")]
    if kind == "index":
        raise InvalidArgument("type of attn_mask", array.dtype, "bool or a floating type is allowed")
    sizes = tuple(array.shape)
    fits = 1 <= len(sizes) <= MOST
    for have, want in zip(sizes[::-1], shape[::-1], strict=False):
        fits = fits and have in (1, want)
    if not fits:
        allowed = f"what NumPy broadcasts to (B, Hq, Nq, Nk) = {shape} is allowed, of 1 to 4 dimensions"
        raise InvalidArgument("attn_mask.shape", sizes, allowed)
    if sizes == shape:
        return array, kind
    if isinstance(array, np.ndarray):
        return np.broadcast_to(array, shape), kind
    if hasattr(array, "expand"):  # PyTorch's tensors
        return array.expand(shape), kind
    return np.broadcast_to(np.from_dlpack(array), shape), kind
