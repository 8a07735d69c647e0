"""How far a kernel's value of an expression may be from the reference's: errors, carried along."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flashgen.evaluate import step
from flashgen.expression import Expression

FLOAT = {"float32": np.float32, "float64": np.float64}

UNDERFLOW = {"float32": 2.0**-126, "float64": 2.0**-1022}
"""The smallest normal number: what lies below may be taken for 0."""

ROUNDED = ("add", "sub", "mul", "div", "exp", "exp2", "log", "tanh")
"""Operations whose results are rounded where they are floats; the others give one of their arguments."""


@dataclass(frozen=True)
class Estimate:
    """A value, and by how much a kernel's may differ: arrays that broadcast with each other.

    The error of a bool is infinite where it may be the other one, else 0.
    """

    value: Any
    error: Any


def estimate(
    e: Expression, at: Mapping[str, Any], values: Mapping[str, Any], unit: float, computed: str
) -> Estimate:
    """The value of an expression as of ``evaluate``, and its error.

    at: also "score_error", how far a kernel's score may be from "score".
    unit: the error of one operation, relative to its result. computed: the type computed in.
    """
    args = [estimate(a, at, values, unit, computed) for a in e.args]
    value = step(e, [a.value for a in args], at, values)
    with np.errstate(all="ignore"):
        error = at["score_error"] if e.op == "score" else inherited(e, value, args)
        if e.kind == "float" and e.op != "score":
            error = error + rounding(e, value, args, unit, computed)
    # where the error is unknown, or what it is added to is infinite for one and not for the other
    return Estimate(value, np.where(np.isnan(error), np.inf, error))


def rounding(e: Expression, value: Any, args: Sequence[Estimate], unit: float, computed: str) -> Any:
    """What the operation itself adds."""
    size = np.where(np.isfinite(value), np.abs(value), 0.0)
    if e.op in ROUNDED:
        # e^x is 2^(x log2 e), of whose exponent the product is rounded
        grown = 1 + np.abs(args[0].value) if e.op == "exp" else 1
        lost = UNDERFLOW[computed] if e.op in ("mul", "div", "exp", "exp2") else 0
        return np.where(size == 0, 0, unit * size * grown) + lost
    if e.op in ("constant", "scalar", "element", "float"):
        return np.where(FLOAT[computed](value) == value, 0, unit * size)
    return 0.0


def inherited(e: Expression, value: Any, args: Sequence[Estimate]) -> Any:  # noqa: PLR0911
    """The error of the result where the arguments are off by theirs, and the operation is exact."""
    if not args:
        return 0.0
    if e.op == "where":
        chosen = np.where(args[0].value, args[1].error, args[2].error)
        either = np.maximum(args[1].error, args[2].error) + np.abs(
            np.subtract(args[1].value, args[2].value, dtype=np.float64)
        )
        return np.where(args[0].error > 0, either, chosen)
    (x, dx), (y, dy) = ((a.value, a.error) for a in (args[0], args[-1]))
    match e.op:
        case "add" | "sub":
            return dx + dy
        case "mul":
            return np.abs(x) * dy + np.abs(y) * dx + dx * dy
        case "div":
            # |(x + dx) / (y + dy) - x / y| <= (dx + |x / y| dy) / (|y| - dy)
            off = np.where(dy < np.abs(y), (dx + np.abs(value) * dy) / (np.abs(y) - dy), np.inf)
            return np.where((dx == 0) & (dy == 0), 0, off)
        case "lt" | "le" | "eq" | "ne" if e.args[0].kind != "bool":
            apart = np.abs(np.subtract(x, y, dtype=np.float64))
            return np.where((dx + dy > 0) & (apart <= dx + dy), np.inf, 0)
        case "exp" | "exp2":
            power = dx if e.op == "exp" else dx * math.log(2)
            return np.where(dx == 0, 0, value * np.expm1(power))
        case "log":
            return np.where(dx == 0, 0, np.where(dx < x, -np.log1p(-dx / x), np.inf))
        case "floordiv" | "mod" | "element":
            return np.where(sum(a.error for a in args) > 0, np.inf, 0)
    return np.maximum(dx, dy)  # nothing that is left changes by more than an argument: tanh and float neither
