"""Options of a call as one mask and one score: their order, their values, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from flashgen import mods
from flashgen.combine import combine
from flashgen.errors import InvalidArgument
from flashgen.mods import chain

BATCH, HEADS, NQ, NK = 2, 3, 7, 9
SHAPE = (BATCH, HEADS, NQ, NK)


def test_the_order_of_options_is_fixed() -> None:
    bias = np.random.default_rng(0).normal(size=(NQ, NK)).astype(np.float32)

    def double(score, b, h, q, k):
        return 2 * score

    def early(b, h, q, k):
        return k < 8

    made = combine(
        SHAPE,
        is_causal=True,
        window=(2, 0),
        softcap=2.0,
        alibi=True,
        score_mod=double,
        mask_mod=early,
        attn_mask=bias,
        sinks=np.zeros(HEADS, np.float32),
    )
    place = "q + (Nk - Nq)"
    assert made.causal == "bottom-right" and made.sink
    assert str(made.mask) == f"{place} - window_left <= k and k <= {place} + window_right and k < 8"
    assert (
        str(made.score)
        == f"2.0 * (softcap * tanh(score / softcap)) - slopes[h] * float(abs({place} - k)) + bias[b, h, q, k]"
    )
    assert set(made.values) == {"window_left", "window_right", "softcap", "slopes", "bias", "sink"}
    problem = made.problem(8, 4, "float16")
    assert (problem.head_dim_v, problem.dtype, problem.sink) == (4, "float16", True)
    assert {x.name for x in (*problem.arrays, *problem.scalars)} == set(made.values)


def same_value(x, y) -> bool:
    return x is y or np.array_equal(x, y)


def test_a_call_of_a_known_kind_gets_its_own_values() -> None:
    """Nothing of another call, also where an array is an option and is read by a function."""

    def reading(table):
        return lambda score, b, h, q, k: score + table[h]

    def ask(window, cap, slopes, bias, table):
        return combine(
            SHAPE, window=window, softcap=cap, alibi=slopes, attn_mask=bias, score_mod=reading(table)
        )

    rng = np.random.default_rng(0)
    arrays = [rng.random(HEADS).astype(np.float32) for _ in range(4)]
    biases = [rng.random(SHAPE).astype(np.float32) for _ in range(2)]
    one = ask((1, 2), 3.0, arrays[0], biases[0], arrays[1])
    two = ask((4, 5), 6.0, arrays[2], biases[1], arrays[3])
    assert one.mask is two.mask and one.score is two.score
    names = ("window_left", "window_right", "softcap", "slopes", "bias", "table")
    for made, wanted in (
        (one, (1, 2, 3.0, arrays[0], biases[0], arrays[1])),
        (two, (4, 5, 6.0, arrays[2], biases[1], arrays[3])),
    ):
        assert all(same_value(made.values[name], x) for name, x in zip(names, wanted, strict=True))
    shared = ask((1, 2), 3.0, arrays[0], biases[0], arrays[0])
    assert shared.score != one.score and len(shared.values) == 5
    again = ask((1, 2), 3.0, arrays[0], biases[0], arrays[1])
    assert again.score is one.score and again.values["table"] is arrays[1]


def test_a_functions_own_run_time_number_is_not_an_options() -> None:
    left = mods.runtime(9, "window_left")
    made = combine(SHAPE, window=(1, None), mask_mod=lambda b, h, q, k: k < left)
    assert sorted(made.values.items()) == [("window_left", 1), ("window_left_2", 9)]
    assert "k < window_left_2" in str(made.mask)


def test_nothing_asked_for_is_nothing() -> None:
    for options in ({}, {"window": (None, None)}, {"alibi": False}, {"score_mod": chain()}):
        made = combine(SHAPE, **options)
        assert (made.causal, made.mask, made.score, made.sink, made.values) == (None, None, None, False, {})


def test_alignment_is_of_all_positions() -> None:
    made = combine(SHAPE, is_causal=True, causal_alignment="top-left", window=(1, None), alibi=True)
    assert made.causal == "top-left"
    assert str(made.mask) == "q - window_left <= k"
    assert str(made.score) == "score - slopes[h] * float(abs(q - k))"


SIZES = [
    (NK,),
    (NQ, 1),
    (NQ, NK),
    (1, 1),
    (HEADS, 1, NK),
    (HEADS, NQ, NK),
    (1, HEADS, 1, 1),
    (BATCH, 1, NQ, NK),
    SHAPE,
]


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("dtype", [bool, np.float32, np.float16])
def test_an_attn_mask_is_broadcast_by_numpys_rules_and_never_copied(sizes, dtype) -> None:
    array = (np.random.default_rng(0).normal(size=sizes) > 0).astype(dtype)
    made = combine(SHAPE, attn_mask=array)
    ((name, view),) = made.values.items()
    assert view.shape == SHAPE and np.shares_memory(view, array)
    np.testing.assert_array_equal(view, np.broadcast_to(array, SHAPE))
    assert all(
        stride == 0 for n, stride in zip((1,) * (4 - len(sizes)) + sizes, view.strides, strict=True) if n == 1
    )
    assert str(made.mask if dtype is bool else made.score).endswith(f"{name}[b, h, q, k]")
    assert made.problem(8) == combine(SHAPE, attn_mask=np.ones(SHAPE, dtype)).problem(8)


@pytest.mark.parametrize("size", [2, 3])
def test_no_axis_is_guessed_from_its_size(size: int) -> None:
    """H == Nq: what is (H, 1) for one is (Nq, 1) for another; the rules say which."""
    array = np.arange(size, dtype=np.float32).reshape(size, 1)
    view = combine((1, size, size, 4), attn_mask=array).values["bias"]
    np.testing.assert_array_equal(view[0, :, :, 0], np.tile(np.arange(size), (size, 1)))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"causal_alignment": "left"}, "causal_alignment is 'left'; one of"),
        ({"window": 3}, r"window is 3; a pair \(left, right\) is allowed, None for no bound"),
        ({"window": (1, 2, 3)}, r"window is \(1, 2, 3\); a pair"),
        ({"window": (-1, 0)}, "window_left is -1; "),
        ({"softcap": 0.0}, "softcap is 0.0; a finite number above 0 is allowed"),
        ({"alibi": 3}, r"alibi is 3; True is allowed, or an array of slopes of shape \(3,\) or \(2, 3\)"),
        ({"alibi": np.ones(4)}, r"alibi is of shape \(4,\); True is allowed"),
        ({"mask_mod": 3}, "mask_mod is of type int; a Python function is allowed"),
        ({"score_mod": "s"}, "score_mod is of type str; a Python function is allowed"),
        ({"attn_mask": [True]}, "attn_mask is of type list; an array is allowed"),
        (
            {"attn_mask": np.ones((NQ, NK), int)},
            "type of attn_mask is int64; bool or a floating type is allowed",
        ),
        ({"attn_mask": np.ones((NQ, NK), np.uint8)}, "type of attn_mask is uint8; bool, int32"),
        (
            {"attn_mask": np.ones((NK, NQ), bool)},
            r"attn_mask.shape is \(9, 7\); what NumPy broadcasts to .* = \(2, 3, 7, 9\)",
        ),
        ({"attn_mask": np.ones((HEADS, NQ), bool)}, r"attn_mask.shape is \(3, 7\); what NumPy broadcasts"),
        (
            {"attn_mask": np.ones((1, *SHAPE), bool)},
            r"attn_mask.shape is \(1, 2, 3, 7, 9\); .* of 1 to 4 dimensions",
        ),
        ({"attn_mask": np.array(True)}, "type of attn_mask is bool; .* without bool"),
        (
            {"sinks": np.zeros(4, np.float32)},
            r"sinks is float32 of shape \(4,\); an array of floats of shape \(3,\)",
        ),
        ({"sinks": np.zeros(3, int)}, r"sinks is int64 of shape \(3,\); an array of floats"),
        ({"sinks": 0.0}, "sinks is 0.0; an array of floats"),
    ],
)
def test_options_that_are_refused(options, message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{message}"):
        combine(SHAPE, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"mask_mod": lambda b, h, q, k: q},
            "mask_mod is a function that gives a whole number; one that gives",
        ),
        ({"mask_mod": lambda b, h, q, k: None}, "mask_mod: operand is of type NoneType"),
        ({"mask_mod": lambda b, h, q: True}, r"mask_mod: signature is \(b, h, q\); a function of 4"),
        ({"score_mod": lambda s, b, h, q, k: q}, "score_mod is a function that gives a whole number"),
        ({"score_mod": lambda s, b, h, q, k: s < 0}, "score_mod is a function that gives a bool"),
    ],
)
def test_a_refusal_names_the_users_argument(options, message: str) -> None:
    """Also where a number would do as an operand of what comes behind it."""
    with pytest.raises(InvalidArgument, match=f"^{message}"):
        combine(SHAPE, window=(1, 1), alibi=True, **options)
