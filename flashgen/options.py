"""The options of flashgen.attention beyond the plain call: what they are as a Problem, and what they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from flashgen.expression import Expression
from flashgen.runtime.arrays import View
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


def find_extra(see: Callable[[str, object], View], q: View, k: View, **options: Any) -> Extra:
    """Of the options that flashgen.combine.combine takes, without ``is_causal``.

    see: how an array is looked at. q, k: of the call, (B, H, N, D). Raises InvalidArgument.
    """
    from flashgen.combine import combine

    found = combine((q.shape[0], q.shape[1], q.shape[2], k.shape[2]), **options)
    problem = found.problem(1, 1, q.dtype)
    arrays, told = expect_inputs(problem.arrays, problem.scalars, q.dtype, found.values, see)
    forms = tuple([Form(x.shape, x.strides) for x in arrays])
    return Extra((found.mask, found.score, found.sink, forms), arrays, told)
