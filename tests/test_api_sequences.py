"""attention_varlen and attention_paged: what a caller gives and gets, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest

import flashgen
from flashgen.errors import InvalidArgument
from flashgen.layouts import LAYOUTS
from flashgen.mods import key_len
from flashgen.problem import Problem
from tests.compiled import quick_compiler
from tests.mods import (
    LEFT,
    NK,
    POSITION,
    SCORE,
    SOFTCAP,
    WINDOW,
    B,
    H,
    K,
    Q,
    constant,
    element,
    of,
)
from tests.sequences import EACH, Sequences, make

LENGTHS = [(5, 9), (0, 4), (3, 0), (1, 1), (16, 70), (2, 2)]
EVEN = [(3, 9), (3, 0), (3, 3), (3, 70)]


@pytest.fixture(autouse=True, scope="module")
def compiler() -> Iterator[None]:
    with quick_compiler():
        yield


def caller(x: Sequences) -> dict[str, Any]:
    """Its arrays as a caller has them, with heads behind rows."""
    layout, arrays = LAYOUTS[x.problem.layout], dict(x.arrays)
    for name in "qkvo":
        kind = layout.queries if name in "qo" else layout.keys
        if kind != "dense":
            arrays[name] = arrays[name].swapaxes(-3, -2)
    return arrays


def call(x: Sequences, **options: Any) -> Any:
    """The function for its layout, on its arrays but for those among the options."""
    given = {name: array for name, array in caller(x).items() if name not in ("o", "lse")}
    if x.problem.layout == "paged":
        given["k_pages"], given["v_pages"] = given.pop("k"), given.pop("v")
        return flashgen.attention_paged(**{**given, **options})
    return flashgen.attention_varlen(**{**given, **options})


def sequences(layout: str, **options: Any) -> Sequences:
    problem = Problem(24, 40, causal="bottom-right", layout=layout)
    return make(problem, EVEN if layout == "paged" else LENGTHS, **options)


OPTIONS = {"is_causal": True, "scale": 0.3, "enable_gqa": True}
each_layout = pytest.mark.parametrize("layout", EACH)


@each_layout
@pytest.mark.parametrize("page", [1, 16])
def test_each_sequence_is_right(layout: str, page: int) -> None:
    x = sequences(layout, page=page)
    o, lse = call(x, return_lse=True, **OPTIONS)
    arrays = caller(x)
    assert (o.shape, lse.shape, o.dtype) == (arrays["o"].shape, arrays["lse"].shape, np.float32)
    assert o.flags.c_contiguous
    arrays["o"][...], arrays["lse"][...] = o, lse
    x.check()


@each_layout
def test_outputs_that_are_given(layout: str) -> None:
    """Written where they lie, and nothing between them."""
    x = sequences(layout)
    arrays = caller(x)
    o, lse = call(x, out=arrays["o"], lse=arrays["lse"], threads=2, **OPTIONS)
    assert o is arrays["o"] and lse is arrays["lse"]
    x.check()


@each_layout
def test_top_left(layout: str) -> None:
    x = sequences(layout)
    x.problem = replace(x.problem, causal="top-left")
    arrays = caller(x)
    call(x, out=arrays["o"], lse=arrays["lse"], **OPTIONS, causal_alignment="top-left")
    x.check()


@each_layout
def test_no_column_of_values(layout: str) -> None:
    x = sequences(layout)
    name = "v_pages" if layout == "paged" else "v"
    o, lse = call(x, **{name: caller(x)["v"][..., :0]}, return_lse=True, **OPTIONS)
    assert o.shape == (*caller(x)["o"].shape[:-1], 0)
    np.testing.assert_array_equal(lse, call(x, return_lse=True, **OPTIONS)[1])


HEADS = 4
LIMITS = np.array([7, 0, 2, 1, 40, 2], np.int32)
SLOPES = np.array([0.5, 0.0, 0.25, 2.0], np.float32)
EACH_ITS_OWN = (np.arange(6 * HEADS) / 16).reshape(6, HEADS).astype(np.float32)
SINKS = np.array([-1.0, 0.0, 3.0, -np.inf], np.float32)
AWAY = of("float", of("abs", of("sub", POSITION, K)))
OF_HEAD, OF_EACH = element("slopes", "float32", H), element("slopes", "float32", B, H)
UP_TO_HALF = of("lt", of("mul", K, constant(2)), of("add", Q, NK))
LIMITED = of("and", UP_TO_HALF, of("lt", K, element("limits", "int32", B)))
BY_NUMBER = of("add", SCORE, of("div", of("float", of("add", B, Q)), constant(8.0)))


def within(b: Any, h: Any, q_idx: Any, k_idx: Any) -> Any:
    return (2 * k_idx < q_idx + key_len()) & (k_idx < LIMITS[b])


def by_number(score: Any, b: Any, h: Any, q_idx: Any, k_idx: Any) -> Any:
    return score + (b + q_idx) / 8.0


MODIFIED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "window": ({"window": (3, 1)}, {"mask": WINDOW}, {"left": 3, "right": 1}),
    "window from its start": (
        {"window": (2, None), "causal_alignment": "top-left"},
        {"mask": of("le", of("sub", Q, constant(2)), K)},
        {},
    ),
    "softcap": ({"softcap": 0.5}, {"score": SOFTCAP}, {"cap": 0.5}),
    "alibi": ({"alibi": SLOPES}, {"score": of("sub", SCORE, of("mul", OF_HEAD, AWAY))}, {"slopes": SLOPES}),
    "alibi of each sequence": (
        {"alibi": EACH_ITS_OWN},
        {"score": of("sub", SCORE, of("mul", OF_EACH, AWAY))},
        {"slopes": EACH_ITS_OWN},
    ),
    "sinks": ({"sinks": SINKS}, {"sink": True}, {"sink": SINKS}),
    "mask_mod": ({"mask_mod": within}, {"mask": LIMITED}, {"limits": LIMITS}),
    "score_mod": ({"score_mod": by_number}, {"score": BY_NUMBER}, {}),
    "all": (
        {
            "is_causal": True,
            "window": (5, 0),
            "softcap": 0.5,
            "alibi": SLOPES,
            "sinks": SINKS,
            "mask_mod": within,
        },
        {
            "causal": "bottom-right",
            "mask": of("and", LIMITED, of("le", of("sub", POSITION, LEFT), K)),
            "score": of("sub", SOFTCAP, of("mul", OF_HEAD, AWAY)),
            "sink": True,
        },
        {"left": 5, "cap": 0.5, "slopes": SLOPES, "sink": SINKS, "limits": LIMITS},
    ),
}


IN_TURN = [(EACH[n % len(EACH)], case) for n, case in enumerate(MODIFIED)]
"""Each with one layout; all of them together, and window, with every one."""


@pytest.mark.parametrize(("layout", "case"), dict.fromkeys([*IN_TURN, *product(EACH, ("window", "all"))]))
def test_modifiers_are_of_each_sequence(layout: str, case: str) -> None:
    """Positions count from its start, lengths are its own, and b is its number."""
    options, fields, values = MODIFIED[case]
    lengths = EVEN if layout == "paged" else LENGTHS
    values = {name: x[: len(lengths)] if name == "limits" else x for name, x in values.items()}
    if case == "alibi of each sequence":
        slopes = EACH_ITS_OWN[: len(lengths)]
        options, values = {"alibi": slopes}, {"slopes": slopes}
    x = make(Problem(24, 40, layout=layout, **fields), lengths)
    x.values |= values
    arrays = caller(x)
    call(x, out=arrays["o"], lse=arrays["lse"], scale=0.3, enable_gqa=True, **options)
    x.check()


WRONG_MODIFIERS: dict[str, tuple[dict[str, Any], str]] = {
    "window": ({"window": (-1, 0)}, "window_left is -1; a whole number"),
    "softcap": ({"softcap": 0.0}, "softcap is 0.0; a finite number above 0 is allowed"),
    "slopes": (
        {"alibi": SLOPES[:3]},
        r"alibi is of shape \(3,\); True is allowed, or an array of slopes of ",
    ),
    "slopes' type": (
        {"alibi": SLOPES.astype(np.float64)},
        "type of alibi is float64; with float32 for q, k and v float16, bfloat16, float32 are allowed",
    ),
    "sinks": ({"sinks": SINKS[:3]}, r"sinks is float32 of shape \(3,\); an array of floats of shape \(4,\)"),
    "sinks' type": (
        {"sinks": SINKS.astype(np.float16)},
        "sinks.dtype is '<f2'; native float32 is allowed",
    ),
    "mask_mod": ({"mask_mod": lambda b, h, q: True}, r"mask_mod: signature is \(b, h, q\); a function of 4"),
    "score_mod": ({"score_mod": 3}, "score_mod is of type int; a Python function is allowed"),
    "alignment of nothing": (
        {"is_causal": False, "causal_alignment": "top-left", "softcap": 1.0, "alibi": False},
        "causal_alignment is 'top-left'; it is allowed with is_causal=True, a window or alibi",
    ),
}


@each_layout
@pytest.mark.parametrize("case", WRONG_MODIFIERS)
def test_wrong_modifiers_are_refused_before_anything_is_written(layout: str, case: str) -> None:
    wrong, message = WRONG_MODIFIERS[case]
    x = sequences(layout)
    arrays = caller(x)
    with pytest.raises(InvalidArgument, match=f"^{message}"):
        call(x, **{**OPTIONS, "out": arrays["o"], "lse": arrays["lse"], **wrong})
    assert np.isnan(arrays["o"]).all() and np.isnan(arrays["lse"]).all()


def starts(*numbers: int, dtype: type = np.int32) -> np.ndarray:
    return np.array(numbers, dtype)


ROWS, KEYS = sum(n for n, _ in LENGTHS), sum(n for _, n in LENGTHS)
WRONG: dict[str, tuple[str, dict[str, Any], str]] = {
    "starts behind 0": (
        "packed",
        {"cu_seqlens_q": starts(1, 5, 8, 8, 9, 25, 27)},
        r"cu_seqlens_q\[0\] is 1; 0 is allowed",
    ),
    "starts that fall": (
        "packed",
        {"cu_seqlens_k": starts(0, 9, 8, 13, 14, 84, KEYS)},
        r"cu_seqlens_k\[2\] is 8; at least cu_seqlens_k\[1\], which is 9, is allowed",
    ),
    "starts that end early": (
        "packed",
        {"cu_seqlens_q": starts(0, 5, 5, 8, 9, 25, 26)},
        rf"cu_seqlens_q\[6\] is 26; {ROWS} is allowed: all rows of q",
    ),
    "starts that end late": (
        "packed-paged",
        {"cu_seqlens_q": starts(0, 5, 5, 8, 9, 25, 28)},
        rf"cu_seqlens_q\[6\] is 28; {ROWS} is allowed",
    ),
    "starts of 64 bits": (
        "packed",
        {"cu_seqlens_q": starts(0, 5, 5, 8, 9, 25, 27, dtype=np.int64)},
        "cu_seqlens_q.dtype is '<i8'; native int32 is allowed",
    ),
    "starts of fewer sequences": (
        "packed",
        {"cu_seqlens_k": starts(0, 9, KEYS)},
        r"cu_seqlens_k.shape is \(3,\); \(7,\) is allowed: \(B \+ 1\)",
    ),
    "no starts": ("packed", {"cu_seqlens_k": None}, "cu_seqlens_k, block_table is neither given; one of"),
    "starts and pages": (
        "packed-paged",
        {"cu_seqlens_k": starts(0, 9)},
        "cu_seqlens_k, block_table is both given; one of",
    ),
    "pages without lengths": ("packed-paged", {"seqlens_k": None}, "seqlens_k is None; with block_table"),
    "lengths without pages": ("packed", {"seqlens_k": starts(1)}, "seqlens_k is given; it is allowed with"),
    "longer than its pages": (
        "paged",
        {"seqlens_k": starts(9, 0, 3, 76)},
        r"seqlens_k\[3\] is 76; from 0 to 75 is allowed: block_table has 25 pages of 3 keys",
    ),
    "a length below 0": ("paged", {"seqlens_k": starts(9, -1, 3, 70)}, r"seqlens_k\[1\] is -1; from 0 to 75"),
    "a page that is not there": (
        "paged",
        {"seqlens_k": starts(9, 1, 3, 70)},
        r"block_table\[1, 0\] is 1073741824; from 0 to 30 is allowed: k_pages has 31 pages",
    ),
    "lengths of fewer sequences": (
        "paged",
        {"seqlens_k": starts(9, 0, 3)},
        r"seqlens_k.shape is \(3,\); \(4,\) is allowed: \(B\)",
    ),
    "a table of numbers": (
        "paged",
        {"block_table": starts(9, 0, 3, 70)},
        r"block_table.shape is \(4,\); 2 dim",
    ),
    "four dimensions": (
        "packed",
        {"q": np.zeros((1, ROWS, 4, 24), np.float32)},
        r"q.shape is \(1, 27, 4, 24\); three dimensions are allowed: \(total_q, Hq, D\)",
    ),
    "values of fewer rows": (
        "packed",
        {"v": np.zeros((KEYS - 1, 2, 40), np.float32)},
        rf"v.shape is \({KEYS - 1}, 2, 40\); \({KEYS}, 2, 40\) is allowed: \(total_k, Hkv, Dv\)",
    ),
    "values of other pages": (
        "paged",
        {"v_pages": np.zeros((31, 4, 2, 40), np.float32)},
        r"v_pages.shape is \(31, 4, 2, 40\); \(31, 3, 2, 40\) is allowed: \(pages, page_size, Hkv, Dv\)",
    ),
    "heads that do not divide": (
        "packed",
        {"q": np.zeros((ROWS, 3, 24), np.float32)},
        rf"q.shape is \({ROWS}, 3, 24\); heads that are a multiple of k's 2 are allowed",
    ),
    "heads without gqa": ("packed", {"enable_gqa": False}, "q.shape is .*; 2 heads as k has are allowed"),
    "an output of another shape": (
        "packed",
        {"out": np.zeros((ROWS, 4, 24), np.float32)},
        rf"out.shape is \({ROWS}, 4, 24\); \({ROWS}, 4, 40\) is allowed: \(total_q, Hq, Dv\)",
    ),
    "cuda": ("packed", {"target": "cuda"}, "layout is 'packed'; 'dense' is allowed"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refused_before_anything_is_written(case: str) -> None:
    layout, wrong, message = WRONG[case]
    x = sequences(layout)
    arrays = caller(x)
    outputs = {"out": arrays["o"], "lse": arrays["lse"]}
    with pytest.raises(flashgen.errors.FlashgenError, match=message):
        call(x, **{**OPTIONS, **outputs, **wrong})
    assert np.isnan(arrays["o"]).all() and np.isnan(arrays["lse"]).all()


def test_an_output_among_the_tables_is_refused() -> None:
    x = sequences("paged")
    memory = np.zeros(4 * 4 * 3, np.float32)
    memory.view(np.int32)[:4] = x.arrays["seqlens_k"]
    with pytest.raises(InvalidArgument, match="lse is in memory that seqlens_k uses"):
        call(x, lse=memory.reshape(4, 4, 3), seqlens_k=memory.view(np.int32)[:4], **OPTIONS)


def test_an_output_among_the_sinks_is_refused() -> None:
    x = sequences("packed")
    lse = caller(x)["lse"]
    with pytest.raises(InvalidArgument, match="lse is in memory that sinks uses"):
        call(x, lse=lse, sinks=lse[:, 0], **OPTIONS)
    assert np.isnan(lse).all()


@each_layout
def test_an_output_of_no_column_is_one_that_can_be_written(layout: str) -> None:
    x = sequences(layout)
    arrays = caller(x)
    name = "v_pages" if layout == "paged" else "v"
    none = {name: arrays["v"][..., :0], "lse": arrays["lse"]}
    for out, message in (
        (np.zeros((*arrays["o"].shape[:-1], 0), np.int32), "out.dtype is '<i4'; native float32 is allowed"),
        ([], "out is of type list; "),
        (arrays["o"], r"out.shape is .*, 40\); .*, 0\) is allowed: the output's shape"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            call(x, out=out, **none, **OPTIONS)
    assert np.isnan(arrays["lse"]).all()
    given = arrays["o"][..., :0]
    o, lse = call(x, out=given, **none, **OPTIONS)
    assert o is given and lse is arrays["lse"] and not np.isnan(lse).any()


def test_decoding_reads_keys_once_for_all_heads_of_a_group() -> None:
    """The schedule that a few queries get is one for which K and V are read in place."""
    from flashgen.variants import at_steps

    at_steps.cache_clear()
    x = make(Problem(24, layout="packed-paged"), [(1, 90), (1, 7)], page=16)
    arrays = caller(x)
    call(x, out=arrays["o"], lse=arrays["lse"], scale=0.3, enable_gqa=True)
    x.check()
    kernel = at_steps(x.problem, None, None, 0, 1, 1)
    assert "panel0_group" in kernel.name
    assert at_steps.cache_info().hits == 1


def test_a_program_that_checks_itself_knows_no_sequences() -> None:
    from flashgen.emission import emit
    from flashgen.targets import find

    with pytest.raises(InvalidArgument, match="with_main is True; layout 'dense' is allowed"):
        emit(Problem(8, layout="packed"), flashgen.Schedule(), find("avx2"), with_main=True)
