"""The options of flashgen.attention beyond the plain call: what they are as a Problem, and what they read."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any, NamedTuple

from flashgen.errors import InvalidArgument
from flashgen.expression import Expression
from flashgen.problem import Problem
from flashgen.runtime.arrays import View, broadcast
from flashgen.runtime.inputs import expect_inputs
from flashgen.runtime.tensors import SCALE_MAX, Form

Mods = tuple[Expression | None, Expression | None, bool, tuple[Form, ...]]
"""Mask, score and sink of a Problem, and the forms of the arrays that they read, in the problem's order."""


class Extra(NamedTuple):
    """What a call has beside the plain one. arrays, numbers: in the order of the problem's."""

    mods: Mods | None
    arrays: tuple[View, ...]
    numbers: tuple[float, ...]


NO_EXTRA = Extra(None, (), ())


def find_extra(see: Callable[[str, object], View], q: View, k: View, **options: Any) -> Extra:
    """Of the options that flashgen.mods.combine takes, all of them.

    see: how an array is looked at. q, k: of the call, (B, H, N, D). Raises InvalidArgument.
    """
    from flashgen.mods import combine  # pyright: ignore[reportMissingImports]

    attn_mask, alibi = options["attn_mask"], options["alibi"]
    shape = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
    check_options(options["window"], options["softcap"])
    if alibi is not None and alibi is not True and (slopes := see("alibi", alibi)).shape != shape[1:2]:
        allowed = f"{shape[1:2]} is allowed: one slope for each query head; or True"
        raise InvalidArgument("alibi.shape", slopes.shape, allowed)
    whole = None if attn_mask is None else expect_mask(see("attn_mask", attn_mask), shape)
    mask, score, sink, values = combine(**options)
    read = {name: whole if whole and x is attn_mask else x for name, x in values.items()}
    problem = Problem(1, 1, q.dtype, None, mask, score, sink)
    arrays, told = expect_inputs(problem.arrays, problem.scalars, q.dtype, read, see)
    forms = tuple([Form(x.shape, x.strides) for x in arrays])
    return Extra((mask, score, sink, forms), arrays, told)


def expect_mask(view: View, shape: tuple[int, int, int, int]) -> View:
    """The mask with its own number of dimensions, each as long as the scores' ``shape`` has it.

    Raises InvalidArgument.
    """
    if view.dtype != "bool" and not view.dtype.startswith(("float", "bfloat")):
        shown = repr(view.kind.spell(view))
        raise InvalidArgument("attn_mask.dtype", shown, "bool is allowed, and floats, which are added")
    rank = len(view.shape)
    whole = broadcast(view, shape[len(shape) - rank :]) if rank <= len(shape) else None
    if whole is None:
        allowed = f"what broadcasts to (B, Hq, Nq, Nk), here {shape}, is allowed"
        raise InvalidArgument("attn_mask.shape", view.shape, allowed)
    return whole


def check_options(window: Any, softcap: Any) -> None:
    """Raise InvalidArgument for bounds below 0, and for a cap that is not above 0."""
    if window is not None:
        pair = isinstance(window, tuple | list) and len(window) == 2
        if not pair or not all(side is None or _is_whole(side) for side in window):
            allowed = "(left, right) is allowed, each a whole number of at least 0, or None"
            raise InvalidArgument("window", repr(window), allowed)
    if softcap is not None:
        number = isinstance(softcap, numbers.Real) and not isinstance(softcap, bool)
        if not (number and 0 < float(softcap) <= SCALE_MAX):
            raise InvalidArgument("softcap", repr(softcap), "a finite number above 0 is allowed")


def _is_whole(side: object) -> bool:
    return isinstance(side, numbers.Integral) and not isinstance(side, bool) and int(side) >= 0
