"""Python functions as expressions: what tracing sees, what it names, what it remembers, what it refuses."""

from __future__ import annotations

import array
import functools
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from ml_dtypes import bfloat16

from flashgen import capture, mods
from flashgen import trace as trace_module
from flashgen.evaluate import evaluate
from flashgen.layouts import LAYOUTS
from flashgen.mods import and_masks, runtime
from flashgen.notation import inputs, parse
from flashgen.problem import Problem
from flashgen.trace import trace, trace_both

DOC = np.array([0, 0, 1, 2], np.int32)
BIAS = np.arange(6, dtype=np.float32).reshape(2, 3)
CAP = 30


def text(function, kind: str = "mask") -> str:
    return str(trace(function, kind).expression)


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda b, h, q, k: q >= k, "k <= q"),
        (lambda b, h, q, k: q > k, "k < q"),
        (lambda b, h, q, k: 5 > q, "q < 5"),  # noqa: SIM300
        (lambda b, h, q, k: (k <= q) & ~(b == h) | (q != 3), "(k <= q and not b == h) or q != 3"),
        (lambda b, h, q, k: (k <= q) ^ (q < 2), "(k <= q) != (q < 2)"),
        (lambda b, h, q, k: ~~(k < q), "k < q"),
        (lambda b, h, q, k: True & (k < q) & True, "k < q"),
        (lambda b, h, q, k: (k < q) | True, "True"),
        (lambda b, h, q, k: True, "True"),
        (lambda b, h, q, k: np.bool_(False), "False"),
        (lambda b, h, q, k: q // 4 == k % 4, "q // 4 == k % 4"),
        (lambda b, h, q, k: 7 // (q + 1) < -k, "7 // (q + 1) < 0 - k"),
        (lambda b, h, q, k: q / 2 < 1, "float(q) / 2.0 < 1.0"),
        (lambda b, h, q, k: (q < k) + (q < 3) < 2, "where(q < k, 1, 0) + where(q < 3, 1, 0) < 2"),
        (lambda b, h, q, k: q**2 < k, "q * q < k"),
        (lambda b, h, q, k: 2**q < 5.0, "exp2(float(q)) < 5.0"),
        (lambda b, h, q, k: abs(q - k) <= 2 * 3 + 1, "abs(q - k) <= 7"),
        (lambda b, h, q, k: mods.clip(q, 0, 3) < k, "minimum(maximum(q, 0), 3) < k"),
        (lambda b, h, q, k: np.minimum(q, 3) < np.maximum(k, h), "minimum(q, 3) < maximum(k, h)"),
        (lambda b, h, q, k: np.logical_and(q < k, np.logical_not(q < 3)), "q < k and not q < 3"),
        (lambda b, h, q, k: np.int64(3) + q < k, "3 + q < k"),
        (lambda b, h, q, k: +(q < k) if CAP > 3 else q, "q < k"),
        (lambda b, h, q, k: (q < k) == (h < b), "(q < k) == (h < b)"),
    ],
)
def test_masks(function, wanted: str) -> None:
    assert text(function) == wanted


@pytest.mark.parametrize(
    ("function", "wanted"),
    [
        (lambda s, b, h, q, k: s, "score"),
        (lambda s, b, h, q, k: -s, "-0.0 - score"),
        (lambda s, b, h, q, k: CAP * np.tanh(s / CAP), "30.0 * tanh(score / 30.0)"),
        (lambda s, b, h, q, k: np.where(k <= q, s, -np.inf), "where(k <= q, score, -inf)"),
        (lambda s, b, h, q, k: mods.where(k <= q, s, -math.inf), "where(k <= q, score, -inf)"),
        (lambda s, b, h, q, k: s + (q - k) * np.float32(0.5), "score + float(q - k) * 0.5"),
        (lambda s, b, h, q, k: np.float64(2) * s - abs(s), "2.0 * score - abs(score)"),
        (lambda s, b, h, q, k: np.exp(s) + np.exp2(s) + np.log(s), "exp(score) + exp2(score) + log(score)"),
        (lambda s, b, h, q, k: mods.exp(2) * s, f"{np.exp(2.0)} * score"),
        (lambda s, b, h, q, k: s + (q < k), "score + where(q < k, 1.0, 0.0)"),
        (lambda s, b, h, q, k: 0.5, "0.5"),
        (lambda s, b, h, q, k: mods.query_len() * s, "float(Nq) * score"),
    ],
)
def test_scores(function, wanted: str) -> None:
    assert text(function, "score") == wanted


def test_one_thing_is_said_in_one_way() -> None:
    assert trace(lambda b, h, q, k: q >= k) == trace(lambda b, h, q, k: k <= q)


def test_pytorchs_functions() -> None:
    """As PyTorch asks what it does not know: by __torch_function__."""

    def tanh(x):
        return type(x).__torch_function__(tanh, (type(x),), (x,))

    assert text(lambda s, b, h, q, k: mods.softcap(1.0) and s, "score") == "score"
    from flashgen.symbol import query_len

    assert str(tanh(query_len())) == "tanh(float(Nq))"


# What functions read.


def test_captured_arrays_are_inputs_by_the_names_of_their_variables() -> None:
    ids, layout = DOC, np.ones((2, 2), bool)

    def mask(b, h, q_idx, k_idx, table=BIAS):
        return (ids[q_idx] == ids[k_idx]) & layout[q_idx // 2][k_idx // 2] & (table[h, k_idx] < BIAS[b, 0])

    traced = trace(mask)
    assert text(mask) == "ids[q] == ids[k] and layout[q // 2, k // 2] and table[h, k] < table[b, 0]"
    assert list(traced.values) == ["layout", "ids", "table"] or set(traced.values) == {
        "layout",
        "ids",
        "table",
    }
    assert (
        traced.values["ids"] is DOC and traced.values["table"] is BIAS and traced.values["layout"] is layout
    )


def test_an_array_captured_twice_is_one_input() -> None:
    a = b_ = DOC
    traced = trace(lambda b, h, q, k: a[q] == b_[k])
    assert len(traced.values) == 1
    other = DOC.copy()
    assert len(trace(lambda b, h, q, k: a[q] == other[k]).values) == 2


def test_names_are_unique_and_mean_nothing_else() -> None:
    def make(ids):
        return lambda b, h, q_idx, k_idx: ids[q_idx] < 3

    first, second = DOC, DOC.copy()
    traced = trace(and_masks(make(first), make(second)))
    assert list(traced.values) == ["ids", "ids_2"]

    def hostile(scale, Nq, exp, __int, größe, double):  # noqa: PLC2401
        return lambda b, h, q, k: (scale[q] + Nq[q] + exp[q] + __int[q] + größe[q] + double[q]) < 3

    traced = trace(hostile(*(DOC.copy() for _ in range(6))))
    assert set(traced.values) == {"scale_in", "Nq_in", "exp_in", "int", "input", "double"}
    declared = ",".join(f"{name}:int32[1]" for name in traced.values)
    assert parse(str(traced.expression), inputs(declared)) == traced.expression


def test_names_of_a_problems_own_arrays_are_no_inputs() -> None:
    """A kernel with a sink, or for sequences, reads arrays of these names besides."""
    sink, seqlens_k, block_table, cu_seqlens_q, cu_seqlens_k = np.ones((5, 4), np.float32)

    def all_of_them(score, b, h, q, k):
        return score + sink[h] + seqlens_k[h] + block_table[h] + cu_seqlens_q[h] + cu_seqlens_k[h]

    traced = trace(all_of_them, "score")
    assert len(traced.values) == 5
    for layout in LAYOUTS:
        problem = Problem(8, score=traced.expression, sink=True, layout=layout)
        assert {"sink", "sink_in", "seqlens_k_in"} < {array.name for array in problem.arrays}


def test_what_is_not_read_is_no_input() -> None:
    unused = BIAS
    assert trace(lambda b, h, q, k: (unused is not None) & (DOC[q] < 3)).values.keys() == {"DOC"}


def test_numbers_are_constants_unless_made_by_runtime() -> None:
    def make(n):
        return lambda b, h, q, k: k < n

    assert (
        text(make(3)) == "k < 3"
        and text(make(np.int32(4))) == "k < 4"
        and text(make(2.5)) == "float(k) < 2.5"
    )
    traced = trace(make(runtime(3, "prefix")))
    assert str(traced.expression) == "k < prefix" and traced.values == {"prefix": 3}
    assert trace(make(runtime(0.5, "x"))).expression.args[1].kind == "float"
    zero_dimensional = trace(make(np.array(7)))
    assert str(zero_dimensional.expression) == "k < n" and zero_dimensional.values == {"n": 7}


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float16", "float32", "float64", bfloat16])
def test_types_of_arrays(dtype) -> None:
    x = np.ones(3, dtype)
    traced = trace(lambda b, h, q, k: x[q] == x[k])
    assert {a.value.dtype for a in traced.expression.args} == {np.dtype(dtype).name}  # pyright: ignore


def test_buffers_are_arrays() -> None:
    numbers = array.array("i", [1, 2, 3])
    traced = trace(lambda b, h, q, k: numbers[q] < 3)
    assert str(traced.expression) == "numbers[q] < 3"
    numbers[0] = 7
    assert traced.values["numbers"][0] == 7, "a view"


def test_containers_partial_and_functions_that_call_functions() -> None:
    tables = {"left": DOC, "right": (DOC.copy(), 3)}

    def same(a, b):
        return a == b

    def mask(tables, b, h, q, k):
        return same(tables["left"][q], tables["right"][0][k]) & (k < tables["right"][1])

    traced = trace(functools.partial(mask, tables))
    assert str(traced.expression) == "left[q] == right[k] and k < 3"
    assert text(and_masks(lambda b, h, q, k: q < k, lambda b, h, q, k: DOC[q] < 1)) == "q < k and DOC[q] < 1"


def factorial(n: int) -> int:
    return 1 if n <= 1 else n * factorial(n - 1)


def test_recursion_on_numbers_ends() -> None:
    def deep(n):
        return 0 if n == 0 else deep(n - 1) + 1

    assert text(lambda b, h, q, k: q < factorial(4) + deep(3)) == "q < 27"


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ids, cap = torch.arange(4), torch.tensor(2.0)
    traced = trace(lambda s, b, h, q, k: cap * torch.tanh(s / cap) + ids[q], "score")
    assert str(traced.expression) == "cap * tanh(score / cap) + float(ids[q])"
    assert traced.values["ids"] is ids and traced.values["cap"] == 2.0


# What is remembered.


def count(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """A list that grows by one at each tracing."""
    monkeypatch.setattr(trace_module, "_KNOWN", {})
    calls: list[object] = []
    inner = trace_module._trace
    monkeypatch.setattr(trace_module, "_trace", lambda *args: (calls.append(args), inner(*args))[1])
    return calls


def documents(ids, n=3):
    return lambda b, h, q, k: (ids[q] == ids[k]) & (q < n)


def test_other_arrays_of_the_same_types_trace_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count(monkeypatch)
    first, second = trace(documents(DOC)), trace(documents(other := np.arange(9, dtype=np.int32)))
    assert len(calls) == 1
    assert first.expression is second.expression
    assert first.values["ids"] is DOC and second.values["ids"] is other


@pytest.mark.parametrize(
    "other",
    [
        lambda: documents(DOC.astype(np.int64)),
        lambda: documents(DOC, 4),
        lambda: documents(DOC, 3.0),
        lambda: documents(DOC, True),
        lambda: documents(DOC, runtime(3, "n")),
        lambda: lambda b, h, q, k: (DOC[q] == DOC[k]) & (q < 3),
    ],
)
def test_what_makes_another_expression_is_traced(other, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count(monkeypatch)
    first, second = trace(documents(DOC)), trace(other())
    assert len(calls) == 2
    assert first.expression != second.expression


def two(x, y):
    return lambda b, h, q, k: x[q] < y[k]


def test_which_arrays_are_the_same_is_part_of_the_key() -> None:
    a, b = DOC, DOC.copy()
    assert text(two(a, b)) == "x[q] < y[k]"
    assert text(two(a, a)) == "x[q] < x[k]"
    assert text(two(a, b)) == "x[q] < y[k]"


def test_negative_zero_is_another_constant() -> None:
    def make(c):
        return lambda s, b, h, q, k: s * c

    assert text(make(0.0), "score") == "score * 0.0"
    assert text(make(-0.0), "score") == "score * -0.0"


def test_globals_are_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    def mask(b, h, q, k):
        return q < CAP

    assert text(mask) == "q < 30"
    monkeypatch.setattr(sys.modules[__name__], "CAP", 31)
    assert text(mask) == "q < 31"


settings = SimpleNamespace()


class Settings:
    window = 3


def test_what_can_change_unseen_is_traced_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class's attributes, like those of a module that is not NumPy's, say, are in no key."""

    def mask(b, h, q, k):
        return q < Settings.window

    assert text(mask) == "q < 3"
    monkeypatch.setattr(Settings, "window", 4)
    assert text(mask) == "q < 4"


def test_memory_of_tracings_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = count(monkeypatch)
    monkeypatch.setattr(trace_module, "SIZE", 4)
    for n in range(9):
        trace(documents(DOC, n))
    assert len(calls) == 9 and len(trace_module._KNOWN) <= 4


def test_codes_that_are_forgotten_are_not_mistaken_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of functions that come and go, whose codes may lie where others lay before."""
    monkeypatch.setattr(capture, "MOST_CODES", 3)
    monkeypatch.setattr(capture, "_CODES", {})
    for n in range(50):
        assert text(eval(f"lambda b, h, q, k: q < {n}")) == f"q < {n}"
        assert len(capture._CODES) <= 3


def test_side_effects_happen_at_most_once_and_to_a_copy() -> None:
    seen: list[int] = []

    def mask(b, h, q, k):
        seen.append(1)
        return q < k

    assert text(mask) == text(mask) == "q < k"
    assert seen == []


def test_mask_and_score_share_names_and_inputs() -> None:
    ids, other = DOC, DOC.copy()

    def score(ids):
        return lambda s, b, h, q, k: s + ids[q]

    mask, made, values = trace_both(documents(ids), score(other))
    assert (str(mask), str(made)) == ("ids[q] == ids[k] and q < 3", "score + float(ids_2[q])")
    assert values["ids"] is ids and values["ids_2"] is other
    assert set(trace_both(documents(ids), score(ids))[2]) == {"ids"}
    assert trace_both() == (None, None, {})


def test_the_tree_means_what_the_function_does() -> None:
    """The same function on NumPy's grids."""

    def score(s, b, h, q, k):
        return np.where((q - k) % 3 == 1, s * BIAS[h, k % 3] - abs(q - k), np.tanh(s / 2)) + q // 2

    q, k = np.arange(5)[:, None], np.arange(7)[None, :]
    s = np.linspace(-3, 3, 35).reshape(5, 7)
    traced = trace(score, "score")
    at = {"b": 0, "h": 1, "q": q, "k": k, "Nq": 5, "Nk": 7, "score": s}
    np.testing.assert_allclose(
        evaluate(traced.expression, at, traced.values), score(s, 0, 1, q, k), rtol=1e-15
    )
