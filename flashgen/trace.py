"""Python functions in FlexAttention's convention -> expressions, and the values of what they read.

    mask_mod(b, h, q_idx, k_idx) -> bool               whether row q_idx of head h sees key k_idx
    score_mod(score, b, h, q_idx, k_idx) -> float      what takes the place of a score

(Dong et al. 2024, "Flex Attention"). The function is called once, on symbols (flashgen.symbol), in place of
which a kernel puts numbers; what else it does happens at that call, and need not happen at another. Arrays
that it reads from variables around it, of NumPy or whatever speaks DLPack or gives a buffer, are inputs, by
the names of these variables; numbers are constants, unless ``runtime`` made them. The same function over
other arrays of the same types gives the same expressions, and is not called again.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import Any

import numpy as np

from flashgen.capture import Rebuild, Runtime, is_array, look
from flashgen.errors import InvalidArgument, check_choice
from flashgen.expression import Array, Expression, Scalar
from flashgen.making import WORDS
from flashgen.symbol import Symbol, lift

ARGUMENTS = {"mask": ("b", "h", "q", "k"), "score": ("score", "b", "h", "q", "k")}
"""What each kind of function is called with."""

KIND = {"mask": "bool", "score": "float"}
"""What each has to give."""

SIZE = 4096
"""Functions that are remembered, before all are forgotten."""


@dataclass(frozen=True)
class Traced:
    """What a function computes; ``values`` are the arrays and numbers of the inputs in it, by name."""

    expression: Expression
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Tracing:
    """What is remembered. ``found``: for each input in use its place among those seen, its name, and how a
    call's value is made of it, None where it is the value."""

    mask: Expression | None
    score: Expression | None
    found: tuple[tuple[int, str, Callable[[Any], Any] | None], ...]


_KNOWN: dict[tuple, Tracing] = {}


def trace(function: Callable[..., Any], kind: str = "mask", argument: str | None = None) -> Traced:
    """The expression of a mask_mod (``kind`` "mask") or of a score_mod ("score").

    argument: what a refusal calls the function; ``kind`` and "_mod" if not given.

    Raises InvalidArgument: of what cannot be traced, or does not give a bool or a float.
    """
    check_choice("kind", kind, KIND)
    name = argument or f"{kind}_mod"
    mask, score, values = trace_both(
        function if kind == "mask" else None, function if kind == "score" else None, {kind: name}
    )
    expression = mask if kind == "mask" else score
    assert expression is not None
    return Traced(expression, values)


def trace_both(
    mask: Callable[..., Any] | None = None,
    score: Callable[..., Any] | None = None,
    names: Mapping[str, str] | None = None,
    parts: Iterable[tuple[Callable[..., Any], str, str]] = (),
) -> tuple[Expression | None, Expression | None, dict[str, Any]]:
    """The expressions of a mask_mod and a score_mod, over inputs whose names differ, and the inputs' values.

    names: what a refusal calls the two, by "mask" and "score".
    parts: functions that the two call, each with its kind and name: what is wrong with one is said of it.

    Raises InvalidArgument.
    """
    tracing, inputs = resolve(mask, score, names, parts)
    values = {name: inputs[n] if make is None else make(inputs[n]) for n, name, make in tracing.found}
    return tracing.mask, tracing.score, values


def resolve(
    mask: Callable[..., Any] | None,
    score: Callable[..., Any] | None,
    names: Mapping[str, str] | None = None,
    parts: Iterable[tuple[Callable[..., Any], str, str]] = (),
) -> tuple[Tracing, list[Any]]:
    """What ``trace_both`` makes its values of, and the inputs that it makes them of."""
    functions = {"mask": mask, "score": score}
    for kind, function in functions.items():
        if function is not None:
            check_function((names or {}).get(kind, f"{kind}_mod"), function)
    seen = look((mask, score), "function")
    tracing = _KNOWN.get(seen.key)
    if tracing is None:
        for part in parts:
            trace(*part)
        tracing = _trace(functions, names or {}, seen.inputs)
        if seen.lasting:
            if len(_KNOWN) >= SIZE:
                _KNOWN.clear()
            _KNOWN[seen.key] = tracing
    return tracing, seen.inputs


def check_function(argument: str, value: object) -> None:
    """Raise InvalidArgument for what is called like a function and is none."""
    if type(value) is not FunctionType and type(value) is not partial:
        allowed = "a Python function is allowed, or functools.partial of one; not a method or an object"
        raise InvalidArgument(argument, f"of type {type(value).__name__}", allowed)


def _trace(
    functions: Mapping[str, Callable[..., Any] | None], names: Mapping[str, str], inputs: list[Any]
) -> Tracing:
    """Call the functions on symbols."""
    rebuild = Rebuild()
    made = {
        kind: None if function is None else _call(rebuild, function, kind, names.get(kind, f"{kind}_mod"))
        for kind, function in functions.items()
    }
    used = {
        x.value.name
        for e in made.values()
        if e is not None
        for x in e.walk()
        if isinstance(x.value, Array | Scalar)
    }
    found = []
    for n, value in enumerate(inputs):
        if (name := rebuild.names.get(id(value))) in used:
            found.append((n, name, _value_of(value)))
    return Tracing(made["mask"], made["score"], tuple(found))


def _value_of(value: Any) -> Callable[[Any], Any] | None:
    """How a call's value is made of an input that was captured."""
    if type(value) is Runtime:
        return lambda number: number.value
    if is_array(value):
        return (lambda array: array.item()) if value.ndim == 0 else None
    return np.asarray


def _call(rebuild: Rebuild, function: Callable[..., Any], kind: str, name: str) -> Expression:
    """What a function gives for symbols. Raises InvalidArgument under the name that its caller gives it."""
    try:
        rebuilt = rebuild.of(function, name)
        try:
            inspect.signature(rebuilt).bind(*ARGUMENTS[kind])
        except TypeError as error:
            allowed = (
                f"a function of {len(ARGUMENTS[kind])} arguments is allowed: {', '.join(ARGUMENTS[kind])}"
            )
            raise InvalidArgument("signature", inspect.signature(rebuilt), allowed) from error
        result = rebuilt(*(Symbol(leaf(argument)) for argument in ARGUMENTS[kind]))
        expression = lift(result)
    except RecursionError as error:
        raise InvalidArgument(
            name, "endlessly recursive on traced values", "one that ends is allowed"
        ) from error
    except InvalidArgument as error:
        raise InvalidArgument(f"{name}: {error.argument}", error.value, error.allowed) from error
    if expression.kind != KIND[kind]:
        what = f"a function that gives {WORDS[expression.kind]}"
        raise InvalidArgument(name, what, f"one that gives {WORDS[KIND[kind]]} is allowed")
    return expression


def leaf(argument: str) -> Expression:
    return Expression("score") if argument == "score" else Expression("position", value=argument)
