"""The options of a call -> one mask, one score, and the values of what they read, in the order that is fixed.

A score is scaled, capped (``softcap``), modified (``score_mod``) and biased (``alibi``, then a floating
``attn_mask``); a key is visible where the causal mask, the window, ``mask_mod`` and a boolean ``attn_mask``
all show it, and its score is not -inf then. Nothing that saturates runs behind a -inf of a bias.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flashgen import mods
from flashgen.capture import Runtime, Seen, is_array, look, type_of
from flashgen.errors import InvalidArgument, check_choice
from flashgen.expression import KINDS, Expression
from flashgen.problem import CAUSAL, Problem
from flashgen.trace import SIZE, check_function, resolve

MOST = 4
"""Dimensions of an attn_mask: B, Hq, Nq, Nk."""


@dataclass(frozen=True)
class Combined:
    """The fields of a Problem that options of a call make, and the ``values`` of its inputs by name.

    arguments: what the caller calls those of the inputs that are options, by name.
    """

    causal: str | None
    mask: Expression | None
    score: Expression | None
    sink: bool
    values: Mapping[str, Any]
    arguments: Mapping[str, str]

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
    if causal_alignment not in CAUSAL:
        check_choice("causal_alignment", causal_alignment, CAUSAL)
    given: dict[str, Any] = {}
    if window is not None:
        for name, bound in zip(("window_left", "window_right"), pair(window), strict=True):
            mods.check_bound(bound, name)
            given[name] = None if bound is None else int(bound)
    if softcap is not None:
        mods.check_cap(softcap)
        given["softcap"] = float(softcap)
    if alibi is not None and alibi is not False:
        given["alibi"] = slopes(alibi, shape[0], shape[1])
    kind = None
    if attn_mask is not None:
        given["attn_mask"], kind = broadcast(attn_mask, shape)
    values: dict[str, Any] = {}
    arguments: dict[str, str] = {}
    mask = score = None
    if given or mask_mod is not None or score_mod is not None:
        plan, read = planned(causal_alignment, given, kind, mask_mod, score_mod)
        mask, score = plan.mask, plan.score
        for name, place, make in plan.values:
            if isinstance(place, str):
                arguments[name] = place
            value = given[place] if isinstance(place, str) else read[place]
            values[name] = value if make is None else make(value)
    if sinks is not None:
        values["sink"], arguments["sink"] = heads(sinks, shape[1]), "sinks"
    causal = causal_alignment if is_causal else None
    return Combined(causal, mask, score, sinks is not None, values, arguments)


class Plan(NamedTuple):
    """What calls of one kind come to. ``values``: of each input its name, where its value is (a named option,
    or a place among what the caller's functions read) and how it is made of that, None where it is that."""

    mask: Expression | None
    score: Expression | None
    values: tuple[tuple[str, str | int, Callable[[Any], Any] | None], ...]


_PLANS: dict[tuple, Plan] = {}
NOTHING = Seen((), [], True)


def planned(
    alignment: str,
    given: Mapping[str, Any],
    kind: str | None,
    mask_mod: Callable[..., Any] | None,
    score_mod: Callable[..., Any] | None,
) -> tuple[Plan, list[Any]]:
    """The plan of a call, remembered by what it depends on, and what the caller's functions read.

    given: the named options that are there. kind: of the elements of "attn_mask".
    """
    seen = NOTHING
    if mask_mod is not None or score_mod is not None:
        for name, function in (("mask_mod", mask_mod), ("score_mod", score_mod)):
            if function is not None:
                check_function(name, function)
        seen = look((mask_mod, score_mod), "function")
    forms = [(name, None if x is None else type_in_key(x)) for name, x in given.items()]
    key = (alignment, kind, *forms, seen.key)
    # an array that is an option, and is read by a function too, is one input: no plan of other calls fits
    lasting = seen.lasting and not any(x is y for x in given.values() for y in seen.inputs)
    plan = _PLANS.get(key) if lasting else None
    if plan is None:
        plan = make_plan(alignment, given, kind, mask_mod, score_mod, seen.inputs)
        if lasting:
            if len(_PLANS) >= SIZE:
                _PLANS.clear()
            _PLANS[key] = plan
    return plan, seen.inputs


def type_in_key(value: Any) -> object:
    """What of an option decides how a call is traced: of an array its type, nothing of a number."""
    return (value.ndim, value.dtype) if hasattr(value, "ndim") and hasattr(value, "dtype") else True


def make_plan(
    alignment: str,
    given: Mapping[str, Any],
    kind: str | None,
    mask_mod: Callable[..., Any] | None,
    score_mod: Callable[..., Any] | None,
    read: list[Any],
) -> Plan:
    """Trace all that a call asks for. Raises InvalidArgument."""
    masks: list[Callable[..., Any]] = []
    scores: list[Callable[..., Any]] = []
    if "window_left" in given:
        masks.append(mods.sliding_window(given["window_left"], given["window_right"], alignment))
    if mask_mod is not None:
        masks.append(mask_mod)
    if "softcap" in given:
        scores.append(mods.softcap(given["softcap"]))
    if score_mod is not None:
        scores.append(score_mod)
    if "alibi" in given:
        scores.append(mods.alibi(given["alibi"], alignment))
    if kind == "bool":
        masks.append(mods.dense_mask(given["attn_mask"]))
    elif kind is not None:
        scores.append(mods.dense_bias(given["attn_mask"]))
    parts = [] if mask_mod is None else [(mask_mod, "mask", "mask_mod")]
    parts += [] if score_mod is None else [(score_mod, "score", "score_mod")]
    tracing, inputs = resolve(
        mods.and_masks(*masks) if masks else None, mods.chain(*scores) if scores else None, parts=parts
    )
    mask, score = tracing.mask, tracing.score
    if mask is not None and mask.op == "constant" and mask.value:
        mask = None  # a window without bounds
    if score is not None and score.op == "score":
        score = None
    values = tuple((name, *source(inputs[n], make, given, read)) for n, name, make in tracing.found)
    return Plan(mask, score, values)


def source(
    value: Any, make: Callable[[Any], Any] | None, given: Mapping[str, Any], read: list[Any]
) -> tuple[str | int, Callable[[Any], Any] | None]:
    """Where the value of an input is, and how it is made of that."""
    for n, x in enumerate(read):
        if x is value:
            return n, make
    if isinstance(value, Runtime):  # of a named option, whose name it has
        return value.name, None
    return next(name for name, x in given.items() if x is value), make


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
