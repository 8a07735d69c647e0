"""What a kernel reads beside q, k and v: arrays and numbers of its mask and its score, by their names."""

from __future__ import annotations

import numbers
from collections.abc import Callable, Mapping
from typing import Any

from flashgen.errors import InvalidArgument
from flashgen.expression import LEAST, MOST, Array, Scalar
from flashgen.problem import computed, holds
from flashgen.runtime.arrays import View, check_type, look


def expect_inputs(
    arrays: tuple[Array, ...],
    scalars: tuple[Scalar, ...],
    dtype: str,
    given: object,
    see: Callable[[str, object], View] = look,
) -> tuple[tuple[View, ...], tuple[float, ...]]:
    """Arrays and numbers in the order in which a kernel of storage type ``dtype`` takes them.

    given: a mapping from their names, or None. An array has the rank and the type that the problem says; any
        sizes and strides. A number of kind "index" is a whole one of 64 bits; one of kind "float" is any that
        does not overflow the type computed in.
    see: how an array is looked at.
    Raises InvalidArgument: for a name that is missing, for one that the kernel does not read.
    """
    if given is None:
        given = {}
    if not isinstance(given, Mapping):
        allowed = "a mapping from names to arrays and numbers is allowed"
        raise InvalidArgument("inputs", f"of type {type(given).__name__}", allowed)
    names = [x.name for x in (*arrays, *scalars)]
    reads = f"the kernel reads {', '.join(names) or 'no other arrays'}"
    for name in given:
        if name not in names:
            raise InvalidArgument("inputs", f"with {name!r}", reads)
    for name in names:
        if name not in given:
            raise InvalidArgument("inputs", f"without {name!r}", reads)
    views = tuple([_expect_array(array, see(array.name, given[array.name])) for array in arrays])
    return views, tuple([_expect_number(scalar, given[scalar.name], dtype) for scalar in scalars])


def _expect_array(array: Array, view: View) -> View:
    check_type(view, array.dtype)
    if len(view.shape) != array.rank:
        allowed = f"{array.rank} dimensions are allowed"
        raise InvalidArgument(f"{view.name}.shape", view.shape, allowed)
    return view


def _expect_number(scalar: Scalar, value: Any, dtype: str) -> float:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if scalar.kind == "index":
        if is_number and isinstance(value, numbers.Integral) and LEAST <= int(value) <= MOST:
            return int(value)
        raise InvalidArgument(scalar.name, repr(value), "a whole number of 64 bits is allowed")
    kind = computed(dtype)
    try:
        number = float(value) if is_number else None
    except OverflowError:  # a whole number of hundreds of digits
        number = None
    if number is not None and holds(kind, number):
        return number
    raise InvalidArgument(scalar.name, repr(value), f"a number that {kind} holds is allowed")
