"""Arguments that all functions of Python's interface have, and what they give back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from flashgen.errors import InvalidArgument, check_choice
from flashgen.problem import CAUSAL, DTYPES
from flashgen.runtime.arrays import View, check_type
from flashgen.runtime.tensors import address

ZEROS = np.zeros(1, np.uint64)
"""The element of any type that is 0."""


def expect_flag(name: str, value: object, hint: str = "") -> bool:
    """Raises InvalidArgument unless it is True or False."""
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    raise InvalidArgument(name, repr(value), f"one of True, False is allowed{hint}")


def expect_causal(is_causal: Any, alignment: Any, window: Any, alibi: Any) -> str | None:
    """What a Problem calls it. Raises InvalidArgument, for an alignment of nothing, too."""
    if type(is_causal) is not bool:
        hint = "; causal_alignment takes 'bottom-right' or 'top-left'"
        is_causal = expect_flag("is_causal", is_causal, hint)
    if not isinstance(alignment, str) or alignment not in CAUSAL:
        check_choice("causal_alignment", alignment, CAUSAL)
    if is_causal:
        return alignment
    if alignment != CAUSAL[0] and window is None and (alibi is None or alibi is False):
        allowed = "it is allowed with is_causal=True, a window or alibi"
        raise InvalidArgument("causal_alignment", repr(alignment), allowed)
    return None


def check_types(q: View, k: View, v: View) -> None:
    """Raise InvalidArgument unless all have one type that is stored."""
    dtype = q.dtype if q.dtype in DTYPES else None
    check_type(q, dtype, " or ".join(DTYPES))
    check_type(k, dtype)
    check_type(v, dtype)


Sizes = tuple[int, ...]


def one_column(q: View, v: View, out: View | None, turn: Callable[[Sizes], Sizes]) -> View:
    """For values of no column: one of zeros, as a kernel has at least one; lse is the same for any.

    Arrays have heads in front of rows; turn: makes the caller's order of O's sizes. Raises InvalidArgument
    for an output that is not of no column.
    """
    right = (*q.shape[:-1], 0)
    if out is not None and out.shape != right:
        given = turn(out.shape) if len(out.shape) == len(right) else out.shape
        raise InvalidArgument("out.shape", given, f"{turn(right)} is allowed: the output's shape")
    strides = (0,) * len(v.shape)
    return v._replace(address=address(ZEROS), shape=(*v.shape[:-1], 1), strides=strides)


def results(made: Any, made_lse: Any, out: Any, lse: Any, return_lse: bool, no_values: bool) -> Any:
    """O, or (O, lse): what was given to be written, or else what was made."""
    if out is not None:
        made = out
    elif no_values:
        made = made[..., :0]
    if lse is not None:
        return made, lse
    return (made, made_lse) if return_lse else made
