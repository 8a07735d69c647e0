"""The options of flashgen.attention beyond the plain call: what they are as a Problem, and what they read."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from flashgen.capture import buffered, is_array, type_of
from flashgen.expression import Array, Expression, Scalar
from flashgen.problem import Problem, check_types
from flashgen.runtime.arrays import NUMPY, View, numbers_of
from flashgen.runtime.inputs import expect_inputs
from flashgen.runtime.tensors import FORMS, Form

Mods = tuple[Expression | None, Expression | None, bool, tuple[Form, ...]]
"""Mask, score and sink of a Problem, and the forms of the arrays that they read, in the problem's order."""


class Extra(NamedTuple):
    """What a call has beside the plain one. arrays, numbers: in the order of the problem's."""

    mods: Mods
    arrays: tuple[View, ...]
    numbers: tuple[float, ...]


PLAIN: Mods = (None, None, False, ())
NO_EXTRA = Extra(PLAIN, (), ())
MODIFIERS = ("window", "softcap", "alibi", "score_mod", "mask_mod", "sinks")
"""The options that a call with sequences of different lengths has, too."""


def find_extra(
    see: Callable[[str, object], View],
    shape: tuple[int, int, int, int],
    dtype: str,
    *,
    attn_mask: Any = None,
    alibi: Any = None,
    sinks: Any = None,
    **options: Any,
) -> Extra:
    """Of the options that flashgen.combine.combine takes.

    see: how an array is looked at. shape: (B, Hq, Nq, Nk) of the scores; Nq and Nk are attn_mask's alone.
        dtype: of q, k and v. Raises InvalidArgument, which names the argument of the call.
    """
    from flashgen.combine import combine

    if attn_mask is not None:
        attn_mask = _repeatable(see("attn_mask", attn_mask), attn_mask, shape)
    alibi, sinks = _array(see, "alibi", alibi), _array(see, "sinks", sinks)
    found = combine(shape, attn_mask=attn_mask, alibi=alibi, sinks=sinks, **options)
    if found.mask is None and found.score is None and not found.sink:
        return NO_EXTRA
    for name, array in (("attn_mask", attn_mask), ("alibi", alibi)):
        if array is not None and is_array(array):
            check_types((Array(name, array.ndim, type_of(array, name)),), dtype)
    called = found.arguments
    arrays, scalars = read_by(dtype, found.mask, found.score, found.sink)
    views, told = expect_inputs(
        arrays, scalars, dtype, found.values, lambda name, x: see(called.get(name, name), x)
    )
    forms = tuple([Form(x.shape, x.strides) for x in views])
    return Extra((found.mask, found.score, found.sink, forms), views, told)


@functools.lru_cache(FORMS)
def read_by(
    dtype: str, mask: Expression | None, score: Expression | None, sink: bool
) -> tuple[tuple[Array, ...], tuple[Scalar, ...]]:
    """The arrays and the numbers of a problem's mask, score and sink. Raises InvalidArgument."""
    problem = Problem(1, 1, dtype, None, mask, score, sink)
    return problem.arrays, problem.scalars


def _array(see: Callable[[str, object], View], name: str, value: Any) -> Any:
    """An option's array as ``combine`` can look at it: NumPy's, of one that only gives its memory."""
    if value is None or is_array(value) or not (hasattr(value, "__dlpack__") or buffered(value)):
        return value
    return numbers_of(see(name, value))


def _repeatable(view: View, array: Any, shape: tuple[int, ...]) -> Any:
    """The mask as an array that ``combine`` can repeat by strides of 0: NumPy's, or one that can itself."""
    if view.kind is NUMPY or hasattr(array, "expand"):
        return array
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, cupy.ndarray):
        return cupy.broadcast_to(array, shape)
    return numbers_of(view)
