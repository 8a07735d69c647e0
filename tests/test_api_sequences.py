"""attention_varlen and attention_paged: what a caller gives and gets, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import flashgen
from flashgen.errors import InvalidArgument
from flashgen.layouts import LAYOUTS
from flashgen.problem import Problem
from tests.compiled import quick_compiler
from tests.sequences import Sequences, make

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
each_layout = pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "dense"])


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
        r"block_table\[1, 0\] is 1073741824; from 0 to 30 is allowed: k has 31 pages",
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
        r"v.shape is \(31, 4, 2, 40\); \(31, 3, 2, 40\) is allowed: \(pages, page_size, Hkv, Dv\)",
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


def test_decoding_reads_keys_once_for_all_heads_of_a_group() -> None:
    """The schedule that a few queries get is one for which K and V are read in place."""
    from flashgen.api import _kernel  # pyright: ignore[reportPrivateUsage]

    _kernel.cache_clear()
    x = make(Problem(24, layout="packed-paged"), [(1, 90), (1, 7)], page=16)
    arrays = caller(x)
    call(x, out=arrays["o"], lse=arrays["lse"], scale=0.3, enable_gqa=True)
    x.check()
    kernel = _kernel(x.problem, None, None, 0, 1, 1)
    assert "panel0_group" in kernel.name
    assert _kernel.cache_info().hits == 1


def test_a_program_that_checks_itself_knows_no_sequences() -> None:
    from flashgen.emission import emit
    from flashgen.targets import find

    with pytest.raises(InvalidArgument, match="with_main is True; layout 'dense' is allowed"):
        emit(Problem(8, layout="packed"), flashgen.Schedule(), find("avx2"), with_main=True)
