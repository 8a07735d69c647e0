"""What tracing refuses, and in what words."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flashgen import mods
from flashgen.errors import InvalidArgument
from flashgen.mods import runtime
from flashgen.trace import trace

DOC = np.array([0, 0, 1, 2], np.int32)
BIAS = np.arange(6, dtype=np.float32).reshape(2, 3)
CAP = 30


class Callable:
    def __call__(self, b, h, q, k):
        return q < k

    def method(self, b, h, q, k):
        return q < k


OBJECT = Callable()
OBJECT.x = 3  # pyright: ignore[reportAttributeAccessIssue]


def assigns_global(b, h, q, k):
    global CAP  # noqa: PLW0603
    CAP = 3
    return q < k


def assigns_outer():
    n = 0

    def mask(b, h, q, k):
        nonlocal n
        n += 1
        return q < k

    return mask


def endless(b, h, q, k):
    return endless(b, h, q, k)


VALUE = "mask_mod: value of a traced expression is asked for by {}, before there is one .*; &, |, ~, where, "


def reading(x):
    return lambda b, h, q, k: x[q] < 1


def calling(f):
    def mask(b, h, q, k):
        return q < f(b, h, q, k)

    return mask


def bare(x):
    return lambda b, h, q, k: x


REFUSED = {
    "an object": (
        OBJECT,
        "^mask_mod is of type Callable; a Python function is allowed, or functools.partial",
    ),
    "a method": (OBJECT.method, "^mask_mod is of type method; a Python function is allowed"),
    "a builtin": (max, "^mask_mod is of type builtin_function_or_method; a Python function"),
    "no function": (3, "^mask_mod is of type int; a Python function is allowed"),
    "an object within": (
        lambda b, h, q, k: q < OBJECT.x,
        "^variable 'OBJECT' of a traced function is of type Call",
    ),
    "a method within": (
        calling(OBJECT.method),
        "^variable 'f' of a traced function is of type method; .* in variables of their own$",
    ),
    "a global assigned": (
        assigns_global,
        "^variable that a traced function assigns is 'CAP'; a mask or a score is",
    ),
    "an outer variable assigned": (assigns_outer(), "^variable that a traced function assigns is 'n'"),
    "endless recursion": (endless, "^mask_mod is endlessly recursive on traced values"),
    "three arguments": (
        lambda b, h, q: q < 3,
        r"^mask_mod: signature is \(b, h, q\); a function of 4 arguments",
    ),
    "an index for a mask": (
        lambda b, h, q, k: q,
        "^mask_mod is a function that gives a whole number; .* gives a bool",
    ),
    "a float for a mask": (
        lambda b, h, q, k: q / 2,
        "^mask_mod is a function that gives a float; .* a bool is all",
    ),
    "nothing": (lambda b, h, q, k: None, "^mask_mod: operand is of type NoneType; a traced value, a number"),
    "a tuple": (lambda b, h, q, k: (q < k, q), "^mask_mod: operand is of type tuple"),
    "if": (lambda b, h, q, k: q < (1 if q < k else 2), VALUE.format("if, and, or, not or a .* comparison")),
    "and": (lambda b, h, q, k: q < k and h < 3, VALUE.format("if, and, or, not or a chained comparison")),
    "a chain": (lambda b, h, q, k: q < k < 3, VALUE.format("if, and, or, not or a chained comparison")),
    "min": (lambda b, h, q, k: min(q, k) < 3, VALUE.format("if, and, or, not or a chained comparison")),
    "int": (lambda b, h, q, k: int(q) < 3, VALUE.format(r"int\(\)")),
    "float": (lambda b, h, q, k: math.tanh(q) < 3, VALUE.format(r"float\(\) or a function of math")),
    "range": (lambda b, h, q, k: list(range(q)) == [], VALUE.format("an index into what .* or range")),
    "iteration": (lambda b, h, q, k: [*q] == [], VALUE.format("iteration")),
    "len": (lambda b, h, q, k: len(q) < 3, VALUE.format(r"len\(\)")),
    "an index into a symbol": (lambda b, h, q, k: q[0] < 3, VALUE.format("an index")),
    "& of numbers": (
        lambda b, h, q, k: q & k,
        "^mask_mod: operand of and is a whole number; a bool is allowed",
    ),
    "^ of numbers": (
        lambda b, h, q, k: q ^ k,
        r"^mask_mod: operand of \^ is a whole number; a bool is allowed",
    ),
    "% of floats": (
        lambda b, h, q, k: q / 2 % 3 < 1,
        "^mask_mod: operand of mod is a float and a whole number; a whole",
    ),
    "// by 0": (
        lambda b, h, q, k: q // 0 < 1,
        "^mask_mod: divisor of floordiv is 0; a number other than 0 is allowed",
    ),
    "/ by 0": (lambda b, h, q, k: q / 0.0 < 1, "^mask_mod: divisor of div is 0.0"),
    "a root": (lambda b, h, q, k: q**0.5 < 1, "^mask_mod: exponent is 0.5; a whole number from 1 to 8"),
    "a power": (lambda b, h, q, k: 3**q < 1, r"^mask_mod: base of a power is 3; 2 is allowed"),
    "a huge number": (
        lambda b, h, q, k: q < 2**70,
        "^mask_mod: expression is or has a whole number of more than 64",
    ),
    "NaN": (lambda b, h, q, k: q + math.nan < 1, "^mask_mod: expression is or has a constant that is NaN"),
    "a sum": (
        lambda b, h, q, k: np.sum(q) < 1,
        "^mask_mod: function of a traced value is sum; without options .*: where",
    ),
    "an option": (
        lambda b, h, q, k: np.exp(q, dtype="f") < 1,
        "^mask_mod: function of a traced value is exp, dtype",
    ),
    "a reduction": (
        lambda b, h, q, k: np.add.reduce(q) < 1,
        "^mask_mod: function of a traced value is add.reduce",
    ),
    "where of numbers": (
        lambda b, h, q, k: mods.where(q, k, h) < 1,
        "^mask_mod: condition of where is a whole number",
    ),
    "an array": (
        lambda b, h, q, k: q + np.ones(3) < 1,
        "^mask_mod: operand is of type ndarray; a traced value",
    ),
    "too few indices": (
        lambda b, h, q, k: BIAS[h] < 1,
        "^mask_mod: operand is the array BIAS of 2 dimensions with 1 ind",
    ),
    "an array as a number": (
        lambda b, h, q, k: q < BIAS,
        "^mask_mod: operand is the array BIAS of 2 .* with 0 indices",
    ),
    "too many indices": (
        lambda b, h, q, k: BIAS[h, q, k] < 1,
        "^mask_mod: number of indices of BIAS is 3; 2 are",
    ),
    "a negative index": (
        lambda b, h, q, k: DOC[-1] < q,
        "^mask_mod: index of DOC is -1; a whole number .* from 0 on",
    ),
    "a float index": (
        lambda b, h, q, k: DOC[q / 2] < q,
        "^mask_mod: index of DOC is .*; a whole number is allowed",
    ),
    "a slice": (lambda b, h, q, k: DOC[1:] < q, r"^mask_mod: index of DOC is slice\(1, None, None\)"),
    "a shape": (
        lambda b, h, q, k: q < BIAS.shape[0],
        "^mask_mod: use of the input BIAS is .shape; .* find out all else",
    ),
    "a length": (
        lambda b, h, q, k: q < len(DOC),
        "^mask_mod: operand is the array DOC of 1 dimensions with 0 indices",
    ),
    "bytes of a number": (
        reading(np.ones(3, np.int8)),
        "^mask_mod: type of x is int8; bool, int32, int64, float16, .* is allowed$",
    ),
    "another order of bytes": (
        reading(np.ones(3, ">f4")),
        "^mask_mod: type of x is >f4; .* in this machine's order of bytes",
    ),
    "a masked array": (
        reading(np.ma.masked_array(np.ones(3))),
        "^mask_mod: type of x is a masked array",
    ),
    "a bool of no dimensions": (
        bare(np.array(True)),
        "^mask_mod: type of x is bool; .* for a number without bool$",
    ),
}


@pytest.mark.parametrize(("function", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(function, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        trace(function)
    assert CAP == 30


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda s, b, h, q, k: q,
            "^soft is a function that gives a whole number; one that gives a float is allowed$",
        ),
        (
            lambda s, b, h, q, k: s < 1,
            "^soft is a function that gives a bool; one that gives a float is allowed$",
        ),
        (lambda s, b, h, q, k: True, "^soft is a function that gives a bool"),
        (
            lambda b, h, q, k: 1.0,
            r"^soft: signature is \(b, h, q, k\); a function of 5 arguments is allowed: score,",
        ),
    ],
)
def test_refused_scores(function, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        trace(function, "score", "soft")


def test_what_a_function_raises_itself_is_left_alone() -> None:
    with pytest.raises(ZeroDivisionError):
        trace(lambda b, h, q, k: q < 1 // 0)


def test_kind() -> None:
    with pytest.raises(InvalidArgument, match="kind is 'bias'; one of 'mask', 'score' is allowed"):
        trace(lambda b, h, q, k: q < k, "bias")


@pytest.mark.parametrize(
    ("value", "name", "message"),
    [
        (True, "n", "n is True; a number is allowed"),
        (math.nan, "n", "n is nan; a number is allowed"),
        ("3", "n", "n is '3'; a number is allowed"),
        (2**63, "n", "n is 0x8000000000000000; a whole number of 64 bits"),
        (3, "two words", "name of an input is 'two words'; an identifier in ASCII"),
    ],
)
def test_runtime_refuses(value, name, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        runtime(value, name)


def test_a_runtime_number_is_made_outside() -> None:
    def mask(b, h, q, k):
        return k < runtime(3, "n")

    with pytest.raises(InvalidArgument, match="operand is of type Runtime"):
        trace(mask)
