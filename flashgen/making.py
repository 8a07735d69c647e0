"""Expressions from their parts: kinds mixed as Python mixes them, constants folded, nothing else changed."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from flashgen.errors import InvalidArgument
from flashgen.expression import OPERATIONS, Expression

ORDER = ("bool", "index", "float")
"""Kinds, each of which has room for those before it."""

WORDS = {"bool": "a bool", "index": "a whole number", "float": "a float"}


def constant(value: float) -> Expression:
    """Of a bool, a whole number or a float. Raises InvalidArgument where it is too large, or NaN."""
    kind = bool if isinstance(value, bool) else int if isinstance(value, int) else float
    return build("constant", value=kind(value))


def build(op: str, args: tuple[Expression, ...] = (), value: Any = None) -> Expression:
    """An expression whose kinds fit. Raises InvalidArgument where a constant or the whole is too large."""
    try:
        return Expression(op, args, value)
    except ValueError as error:
        limit = "a number of 64 bits that is not NaN, in an expression of bounded size, is allowed"
        raise InvalidArgument("expression", f"or has {error}", limit) from error


def make(op: str, *operands: Expression) -> Expression:
    """An operation, of operands converted to kinds that it has, with constants folded.

    Raises InvalidArgument.
    """
    args = [*operands]
    if op == "where" and args[0].kind != "bool":
        raise InvalidArgument("condition of where", WORDS[args[0].kind], "a bool is allowed")
    chosen = args[1:] if op == "where" else args
    kinds = OPERATIONS[op][1]
    kind = max((a.kind for a in chosen), key=ORDER.index)
    kind = next((wider for wider in ORDER[ORDER.index(kind) :] if wider in kinds), None)
    if kind is None:
        found = " and ".join(dict.fromkeys(WORDS[a.kind] for a in chosen))
        allowed = " or ".join(WORDS[k] for k in kinds)
        raise InvalidArgument(f"operand of {op}", found, f"{allowed} is allowed")
    args[-len(chosen) :] = [convert(a, kind) for a in chosen]
    if op in ("div", "floordiv", "mod") and args[1].op == "constant" and not args[1].value:
        raise InvalidArgument(f"divisor of {op}", args[1].value, "a number other than 0 is allowed")
    return fold(op, tuple(args))


def convert(e: Expression, kind: str) -> Expression:
    """The same number as a wider kind."""
    if e.kind == kind:
        return e
    number = int if kind == "index" else float
    if e.op == "constant":
        return constant(number(e.value))  # pyright: ignore[reportArgumentType]
    if e.kind == "bool":
        return build("where", (e, constant(number(1)), constant(number(0))))
    return build("float", (e,))


KNOWN: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "minimum": min,
    "maximum": max,
    "lt": operator.lt,
    "le": operator.le,
    "eq": operator.eq,
    "ne": operator.ne,
    "and": operator.and_,
    "or": operator.or_,
    "not": operator.not_,
    "abs": abs,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "tanh": np.tanh,
    "float": float,
    "where": lambda condition, a, b: a if condition else b,
}
"""What each operation is of numbers that are known."""


def fold(op: str, args: tuple[Expression, ...]) -> Expression:
    """The operation, or what it comes to: of constants, of a bool with a constant, of a negation."""
    if all(a.op == "constant" for a in args):
        with np.errstate(all="ignore"):
            value = KNOWN[op](*(a.value for a in args))
        return constant(float(value) if isinstance(value, np.floating) else value)
    if op == "where" and args[0].op == "constant":
        return args[1] if args[0].value else args[2]
    if op == "not" and args[0].op == "not":
        return args[0].args[0]
    if op in ("and", "or"):
        neutral = op == "and"
        for known, other in (args, args[::-1]):
            if known.op == "constant":
                return other if known.value == neutral else known
    return build(op, args)
