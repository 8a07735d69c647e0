"""Expressions: what fits together, what is equal, and text that is read back as it was."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashgen.errors import InvalidArgument
from flashgen.expression import DEEPEST, LARGEST, Array, Expression, Scalar
from flashgen.notation import declare, inputs, parse
from tests.expressions import INPUTS, expressions
from tests.mods import constant

Q, K = (Expression("position", value=x) for x in "qk")
SCORE = Expression("score")


def test_constants_of_three_kinds_are_three() -> None:
    """For Python 1 == 1.0 == True and 0.0 == -0.0; kernels differ."""
    different = [constant(x) for x in (1, 1.0, True, 0, 0.0, -0.0, False)]
    assert len(set(different)) == len(different)
    assert constant(1) == constant(1) and hash(constant(1)) == hash(constant(1))
    assert constant(1) != 1


def test_equal_where_built_alike() -> None:
    assert Expression("le", (Q, K)) == Expression("le", (Q, K))
    assert Expression("le", (Q, K)) != Expression("le", (K, Q))
    assert Expression("le", (Q, K)) != Expression("lt", (Q, K))
    reads = [Expression("element", (Q,), Array("a", 1, dtype)) for dtype in ("int32", "int64")]
    assert reads[0] != reads[1]


def test_a_pickled_one_is_equal_in_another_process() -> None:
    """Its hash, which was worked out before, is not: strings are hashed otherwise there."""
    e = Expression("le", (Q, K))
    code = (
        "import pickle, sys; from flashgen.expression import Expression as E\n"
        "e = pickle.loads(sys.stdin.buffer.read())\n"
        "assert e in {E('le', tuple(E('position', value=x) for x in 'qk'))}"
    )
    for seed in "12":
        environment = {"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)}
        subprocess.run([sys.executable, "-c", code], input=pickle.dumps(e), env=environment, check=True)


@pytest.mark.parametrize(
    ("op", "args", "value", "message"),
    [
        ("add", (Q, SCORE), None, "add of index, float"),
        ("add", (Q,), None, "add of index"),
        ("and", (Q, Q), None, "and of index, index"),
        ("exp", (Q,), None, "exp of index"),
        ("where", (Q, Q, Q), None, "where of index, index, index"),
        ("element", (Q,), Array("a", 2, "int32"), "element of index"),
        ("element", (SCORE,), Array("a", 1, "int32"), "element of float"),
        ("sqrt", (SCORE,), None, "sqrt of float"),
        ("constant", (), float("nan"), "a constant that is NaN"),
        ("constant", (), 2**63, "a whole number of more than 64 bits"),
        ("constant", (), -(2**63) - 1, "a whole number of more than 64 bits"),
        ("constant", (), "a", "a constant of type str"),
    ],
)
def test_what_does_not_fit(op, args, value, message) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        Expression(op, args, value)


def test_depth_and_size_are_bounded() -> None:
    """One that shares its parts is as large as it prints."""
    e = Q
    for _ in range(DEEPEST - 1):
        e = Expression("add", (e, constant(1)))
    assert parse(str(e)) == e
    with pytest.raises(ValueError, match="more than 100 deep"):
        Expression("abs", (e,))
    wide = Q
    with pytest.raises(ValueError, match=f"more than {LARGEST} operations"):
        for _ in range(20):
            wide = Expression("add", (wide, wide))


@given(st.sampled_from(("bool", "index", "float")).flatmap(lambda kind: expressions(kind, 5, score=True)))
def test_text_is_read_back(e: Expression) -> None:
    assert parse(str(e), INPUTS) == e
    assert "*/" not in str(e)  # it stands in comments of C
    ast.parse(str(e), mode="eval")


@given(st.floats(allow_nan=False) | st.integers(-(2**63), 2**63 - 1) | st.booleans())
def test_constants_are_read_back(value) -> None:
    assert parse(str(constant(value))) == constant(value)
    e = Expression("sub", (constant(float(value)), Expression("mul", (constant(float(value)), SCORE))))
    assert parse(str(e)) == e


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("q >= k", "k <= q"),
        ("q > k", "k < q"),
        ("k <= q < Nq", "k <= q and q < Nq"),
        ("(q < k) & ~(q < 3) | (k == 0) ^ (q == 0)", "(q < k and not q < 3) or (k == 0) != (q == 0)"),
        ("q / 2", "float(q) / 2.0"),
        ("score + 1", "score + 1.0"),
        ("score * (q - k)", "score * float(q - k)"),
        ("float(score)", "score"),
        ("-q + +k", "0 - q + k"),
        ("-score", "-0.0 - score"),
        ("where(q < k, score, -inf)", "where(q < k, score, -inf)"),
        ("where(q < k, 1, score)", "where(q < k, 1.0, score)"),
        ("doc[q] == doc[k]", "doc[q] == doc[k]"),
        ("bias[h, q // 2]", "bias[h, q // 2]"),
        (" q - (k - n) - (b - h)", "q - (k - n) - (b - h)"),
        ("tanh(x) * exp(2)", "tanh(x) * exp(2.0)"),
    ],
)
def test_what_users_type(text: str, wanted: str) -> None:
    assert str(parse(text, INPUTS)) == wanted


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "invalid syntax"),
        ("q <", "invalid syntax"),
        ("q\nk", "invalid syntax"),
        ("__import__('os').system('true')", "is none of the functions"),
        ("q.real", "'q.real' is something else"),
        ("lambda: q", "is something else"),
        ("q if q < k else k", "is something else"),
        ("(q := 3)", "is something else"),
        ("[q]", "is something else"),
        ("q ** 2", r"'q \*\* 2' is something else"),
        ("q is k", "'q is k' is something else"),
        ("'text'", "\"'text'\" is no number"),
        ("1j", "'1j' is no number"),
        ("y", "'y' is not declared"),
        ("doc", "'doc' is an array, which wants indices"),
        ("n[q]", "'n' is not declared as an array"),
        ("doc[q, k]", r"'doc\[q, k\]' has 2 indices, and 1 dimensions"),
        ("doc[score]", "is element of float"),
        ("doc[q:k]", "'q:k' is something else"),
        ("sqrt(score)", "is none of the functions"),
        ("exp(score, score)", "is exp of float, float"),
        ("minimum(q, k, out=q)", "is none of the functions"),
        ("q and k", "is and of index, index"),
        ("score % 2", "is mod of float, float"),
        ("nan", "'nan' is not declared"),
        ("9223372036854775808", "it has a whole number of more than 64 bits"),
        ("+".join(["q"] * 102), "is an expression more than 100 deep"),
        ("+".join(["q"] * 5000), "recursion|nested too deeply|more than 100 deep"),
        ("(" * 300 + "q" + ")" * 300, "too many nested parentheses"),
    ],
)
def test_texts_that_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidArgument, match=reason) as caught:
        parse(text, INPUTS, "mask")
    assert caught.value.argument == "mask"
    assert len(str(caught.value)) < 800


def test_declarations_are_read_back() -> None:
    assert inputs(declare(INPUTS.values())) == INPUTS
    assert declare(INPUTS.values()).startswith("doc:int32[1],layout:bool[2],")
    assert inputs(" n : index , t:float32[0]") == {"n": Scalar("n", "index"), "t": Array("t", 0, "float32")}
    assert inputs("") == {}


@pytest.mark.parametrize(
    "text",
    ["n", "n:int", "n:bool", "a:index[1]", "a:int8[1]", "a:int32[x]", "q:index", "exp:float", "if:index"],
)
def test_declarations_that_are_refused(text: str) -> None:
    with pytest.raises(
        InvalidArgument, match=r"^inputs is '.*'; name:index, name:float and name:TYPE\[RANK\]"
    ):
        inputs(f"m:index,{text}")


def test_one_name_is_declared_once() -> None:
    with pytest.raises(InvalidArgument, match=r"inputs is 'n:float'; .* each name once"):
        inputs("n:index,n:float")
