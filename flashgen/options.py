"""The options of flashgen.attention beyond the plain call: what they are as a Problem, and what they read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from flashgen.expression import Expression
from flashgen.problem import Problem
from flashgen.runtime.arrays import NUMPY, View, numbers_of
from flashgen.runtime.inputs import expect_inputs
from flashgen.runtime.tensors import Form

Mods = tuple[Expression | None, Expression | None, bool, tuple[Form, ...]]
"""Mask, score and sink of a Problem, and the forms of the arrays that they read, in the problem's order."""


class Extra(NamedTuple):
    """What a call has beside the plain one. arrays, numbers: in the order of the problem's."""

    mods: Mods | None
    arrays: tuple[View, ...]
    numbers: tuple[float, ...]


NO_EXTRA = Extra(None, (), ())


def find_extra(
    see: Callable[[str, object], View], q: View, k: View, *, attn_mask: Any = None, **options: Any
) -> Extra:
    """Of the options that flashgen.combine.combine takes.

    see: how an array is looked at. q, k: of the call, (B, H, N, D). Raises InvalidArgument.
    """
    from flashgen.combine import combine

    shape = q.shape[0], q.shape[1], q.shape[2], k.shape[2]
    if attn_mask is not None:
        attn_mask = _repeatable(see("attn_mask", attn_mask), attn_mask, shape)
    found = combine(shape, attn_mask=attn_mask, **options)
    problem = Problem(1, 1, q.dtype, None, found.mask, found.score, found.sink)
    arrays, told = expect_inputs(problem.arrays, problem.scalars, q.dtype, found.values, see)
    forms = tuple([Form(x.shape, x.strides) for x in arrays])
    return Extra((found.mask, found.score, found.sink, forms), arrays, told)


def _repeatable(view: View, array: Any, shape: tuple[int, ...]) -> Any:
    """The mask as an array that ``combine`` can repeat by strides of 0: NumPy's, or one that can itself."""
    if view.kind is NUMPY or hasattr(array, "expand"):
        return array
    cupy = sys.modules.get("cupy")
    if cupy is not None and isinstance(array, cupy.ndarray):
        return cupy.broadcast_to(array, shape)
    return numbers_of(view)
