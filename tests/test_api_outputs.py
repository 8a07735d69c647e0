"""flashgen.attention: where results go, in which layout, and that a refused call writes nothing."""

from __future__ import annotations

import re
import sys
from array import array as buffer
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16

import flashgen
from flashgen import options
from flashgen.errors import InvalidArgument
from flashgen.expression import Array, Expression, Scalar
from flashgen.options import find_extra
from flashgen.runtime.arrays import bits, look
from tests.test_api import arrays, check, emitted
from tests.test_arrays import Exported

__all__ = ["emitted"]  # the fixture that has the sample kernel emitted

POISON = np.float32(np.nan)


def outputs(q: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.full((*q.shape[:3], v.shape[3]), POISON), np.full(q.shape[:3], POISON)


def test_outputs_are_written_and_returned() -> None:
    q, k, v = arrays(dv=3)
    out, lse = outputs(q, v)
    assert flashgen.attention(q, k, v, out=out) is out
    check((out, flashgen.attention(q, k, v, return_lse=True)[1]), q, k, v)
    out, _ = outputs(q, v)
    result = flashgen.attention(q, k, v, out=out, lse=lse)
    assert result[0] is out and result[1] is lse
    check(result, q, k, v)
    _, lse = outputs(q, v)
    o, row = flashgen.attention(q, k, v, lse=lse, return_lse=True)
    assert row is lse
    check((o, lse), q, k, v)


def test_layout() -> None:
    """The same numbers in the same arrays, seen in another order; what is made lies in that order."""
    q, k, v = arrays(hq=4, dv=3)
    want_o, want_lse = flashgen.attention(q, k, v, enable_gqa=True, return_lse=True)
    turned = [np.ascontiguousarray(x.swapaxes(1, 2)) for x in (q, k, v)]
    o, lse = flashgen.attention(*turned, layout="BNHD", enable_gqa=True, return_lse=True)
    assert o.shape == (2, 3, 4, 3) and o.flags.c_contiguous
    np.testing.assert_array_equal(o.swapaxes(1, 2), want_o)
    np.testing.assert_array_equal(lse, want_lse)
    wide = np.full((2, 3, 4, 6), POISON)
    out, row = wide[..., ::2], np.full((2, 4, 3), POISON)
    result = flashgen.attention(*turned, layout="BNHD", enable_gqa=True, out=out, lse=row)
    assert result[0] is out and result[1] is row
    np.testing.assert_array_equal(out, o)
    assert np.isnan(wide[..., 1::2]).all()
    views = (x.swapaxes(1, 2) for x in (q, k, v))
    np.testing.assert_array_equal(flashgen.attention(*views, layout="BNHD", enable_gqa=True), o)


@pytest.mark.parametrize("layout", ["BHND", "BNHD"])
def test_no_values(layout: str) -> None:
    """Dv of 0: lse is that of any values, and the output is the one that was given."""
    q, k, v = arrays(hq=4, hkv=4, dv=0)
    want = flashgen.attention(q, k, k, return_lse=True)[1]
    if layout == "BNHD":
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    out, lse = np.empty((*q.shape[:3], 0), np.float32), np.full((2, 4, 3), POISON)
    result = flashgen.attention(q, k, v, out=out, lse=lse, layout=layout)
    assert result[0] is out
    np.testing.assert_array_equal(lse, want)
    assert flashgen.attention(q, k, v, layout=layout).shape == out.shape
    lse[...] = POISON
    for wrong in (np.empty((*q.shape[:3], 1), np.float32), np.empty((2, 0), np.float32)):
        with pytest.raises(InvalidArgument, match=r"out\.shape is .*; .* allowed: "):
            flashgen.attention(q, k, v, out=wrong, lse=lse, layout=layout)
    with pytest.raises(InvalidArgument, match=r"q\.shape is \(4, 3, 4\)|q\.shape is \(3, 4, 4\)"):
        flashgen.attention(q[0], k, v, lse=lse, layout=layout)
    assert np.isnan(lse).all()


@pytest.mark.parametrize("zero", ["b", "hq", "nq", "nk", "heads"])
def test_zero_sizes_in_the_other_layout(zero: str) -> None:
    q, k, v = arrays(**({"hq": 0, "hkv": 0} if zero == "heads" else {zero: 0}))
    turned = (x.swapaxes(1, 2) for x in (q, k, v))
    o, lse = flashgen.attention(*turned, enable_gqa=True, return_lse=True, layout="BNHD")
    check((o.swapaxes(1, 2), lse), q, k, v)


Q, K, V = arrays(dv=4)
OUT, LSE = outputs(Q, V)
LARGE = np.full(1000, POISON)
HALF = LARGE[: OUT.size].reshape(OUT.shape)
READ_ONLY = OUT.copy()
READ_ONLY.flags.writeable = False
as_strided = np.lib.stride_tricks.as_strided
REFUSED = [
    ({"out": OUT[..., :3]}, "out.shape is (2, 2, 3, 3); (2, 2, 3, 4) is allowed: the output's shape"),
    ({"out": OUT[0]}, "out.shape is (2, 3, 4); (2, 2, 3, 4) is allowed"),
    ({"out": OUT.astype(np.float16)}, "out.dtype is '<f2'; native float32 is allowed"),
    ({"out": OUT.astype(">f4")}, "out.dtype is '>f4'"),
    ({"out": OUT.astype(bfloat16)}, "out.dtype is 'bfloat16'"),
    ({"out": OUT.tolist()}, "out is of type list"),
    ({"out": READ_ONLY}, "out is read-only"),
    ({"out": as_strided(LARGE, OUT.shape, (0, 48, 16, 4))}, "out.strides is (0, 48, 16, 4)"),
    ({"out": as_strided(LARGE, OUT.shape, (48, 48, 16, 4))}, "out.strides is (48, 48, 16, 4)"),
    ({"q": HALF, "out": HALF}, "out is in memory that q uses"),
    ({"k": LARGE[40:120].reshape(K.shape), "out": HALF}, "out is in memory that k uses"),
    ({"v": LARGE[47:127].reshape(V.shape), "out": HALF}, "out is in memory that v uses"),
    ({"out": HALF, "lse": LARGE[47:59].reshape(LSE.shape)}, "lse is in memory that out uses"),
    ({"lse": LSE[..., None]}, "lse.shape is (2, 2, 3, 1); (2, 2, 3) is allowed"),
    ({"lse": LSE.astype(np.float64)}, "lse.dtype is '<f8'; native float32 is allowed"),
    ({"lse": as_strided(LARGE, LSE.shape, (4, 4, 4))}, "lse.strides is (4, 4, 4)"),
    ({"layout": "HBND"}, "layout is 'HBND'; one of 'BHND', 'BNHD' is allowed"),
    ({"layout": None}, "layout is None; one of 'BHND', 'BNHD' is allowed"),
    ({"layout": ["BHND"]}, "layout is ['BHND']; one of"),
    ({"layout": "BNHD"}, "q.shape is (2, 2, 3, 4); 5 heads as k has are allowed"),
    ({"layout": "BNHD", "q": Q[0]}, "q.shape is (2, 3, 4); four dimensions are allowed: (B, N, H, D)"),
    ({"layout": "BNHD", "out": OUT[0]}, "out.shape is (2, 3, 4); four dimensions are allowed: (B, N, H, D)"),
    ({"q": Q[:, :1]}, "q.shape is (2, 1, 3, 4); 2 heads as k has are allowed"),
    ({"q": Q.repeat(2, 1)[:, :3], "enable_gqa": True}, "q.shape is (2, 3, 3, 4); heads that are a multiple"),
    ({"k": K[:1]}, "k.shape is (1, 2, 5, 4); (2, 2, 5, 4) is allowed"),
    ({"v": V[:, :, :4]}, "v.shape is (2, 2, 4, 4); (2, 2, 5, 4) is allowed"),
    ({"k": K.astype(np.float16)}, "k.dtype is '<f2'; native float32 is allowed"),
    ({"q": Q.astype(int)}, "q.dtype is '<i8'; native float32 or float16 or bfloat16"),
    ({"q": Q.astype(complex)}, "q.dtype is '<c16'; native float32 or"),
    ({"q": Q.astype(object)}, "q.dtype is '|O'"),
    ({"q": None}, "q is of type NoneType"),
    ({"q": "q"}, "q is of type str"),
    ({"q": np.float32(1)}, "q.shape is (); four dimensions are allowed"),
    ({"v": np.float32(1)}, "v.shape is (); four dimensions are allowed"),
    ({"scale": np.inf}, "scale is inf"),
    ({"scale": "1"}, "scale is '1'"),
    ({"threads": True}, "threads is True; a whole number from 1 to 1024 is allowed"),
    ({"threads": 2.0}, "threads is 2.0; a whole number"),
    (
        {"causal_alignment": "top-left"},
        "causal_alignment is 'top-left'; it is allowed with is_causal=True, a window",
    ),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[message[:45] for _, message in REFUSED])
def test_refused_before_anything_is_written(change: dict, message: str) -> None:
    arguments: dict[str, Any] = {"q": Q, "k": K, "v": V, "out": OUT, "lse": LSE} | change
    LARGE[...] = POISON
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        flashgen.attention(**arguments)
    for array in (OUT, LSE, READ_ONLY, LARGE):
        assert np.isnan(array).all()


def test_a_shape_is_shown_as_it_was_given() -> None:
    q, k, v = (x.swapaxes(1, 2) for x in arrays(hq=4))
    with pytest.raises(InvalidArgument, match=r"q\.shape is \(2, 3, 4, 4\); 2 heads as k has are allowed"):
        flashgen.attention(q, k, v, layout="BNHD")
    with pytest.raises(InvalidArgument, match=r"v\.shape is \(2, 4, 2, 4\); \(2, 5, 2, 4\) is allowed"):
        flashgen.attention(q, k, v[:, :4], layout="BNHD", enable_gqa=True)
    strided = as_strided(LARGE, (2, 3, 4, 4), (192, 8, 16, 4))
    with pytest.raises(InvalidArgument, match=r"out\.strides is \(192, 8, 16, 4\)"):
        flashgen.attention(q, k, v, layout="BNHD", enable_gqa=True, out=strided)


POSITIONS = tuple(Expression("position", value=name) for name in "bhqk")


class Combined:
    """Stands in for flashgen.combine: the mask where it is given, and a cap that is told at the call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.asked: dict[str, Any] = {}
        monkeypatch.setitem(sys.modules, "flashgen.combine", SimpleNamespace(combine=self))

    def __call__(self, shape: tuple[int, ...], **asked: Any) -> Any:
        self.asked = asked
        values, mask, score = {}, None, Expression("score")
        if (array := asked["attn_mask"]) is not None:
            values["bias"] = array = np.broadcast_to(array, shape)
            found = Expression("element", POSITIONS, Array("bias", 4, array.dtype.name))
            mask, score = (found, score) if array.dtype == bool else (None, Expression("add", (score, found)))
        if asked.get("softcap") is not None:
            score = Expression("mul", (score, Expression("scalar", value=Scalar("cap", "float"))))
            values["cap"] = asked["softcap"]
        if asked.get("sinks") is not None:
            values["sink"] = asked["sinks"]
        arguments = {"bias": "attn_mask", "cap": "softcap", "sink": "sinks"}
        made = {"mask": mask, "score": score, "sink": "sink" in values, "values": values}
        return SimpleNamespace(arguments=arguments, **made)


def extra(**given: Any) -> options.Extra:
    return find_extra(look, (2, 2, 3, 5), "float32", **given)


@pytest.mark.parametrize("shape", [(5,), (1,), (3, 1), (2, 3, 5), (2, 1, 1, 5), (1, 1, 1, 1), (2, 2, 3, 5)])
@pytest.mark.parametrize("library", [np.asarray, memoryview, Exported])
def test_a_mask_is_read_where_it_lies(
    monkeypatch: pytest.MonkeyPatch, library: Any, shape: tuple[int, ...]
) -> None:
    """With strides of 0 for what repeats."""
    Combined(monkeypatch)
    for dtype in (bool, np.float32):
        mask = np.ones(shape, dtype)
        found = extra(attn_mask=library(mask), softcap=2, sinks=np.ones(2, np.float32))
        whole, sink = found.arrays
        repeated = np.broadcast_to(mask, (2, 2, 3, 5))
        assert (whole.shape, whole.strides) == (repeated.shape, repeated.strides)
        assert whole.address == mask.ctypes.data and sink.shape == (2,)
        assert found.numbers == (2.0,)
        assert found.mods[2] is True and len(found.mods[3]) == 2


def test_what_is_asked_for_reaches_the_combination(monkeypatch: pytest.MonkeyPatch) -> None:
    combined = Combined(monkeypatch)
    given = {
        "window": (3, None),
        "alibi": True,
        "mask_mod": max,
        "score_mod": min,
        "causal_alignment": "top-left",
    }
    flashgen.attention(Q, K, V, **given)
    rest = {"softcap": None, "sinks": None, "attn_mask": None}
    assert combined.asked == given | rest


@pytest.mark.parametrize("library", [memoryview, lambda x: buffer("f", x), Exported])
def test_sinks_and_slopes_are_whatever_attention_reads(library: Any) -> None:
    numbers = np.array([0.5, -2.0], np.float32)
    for name in ("sinks", "alibi"):
        (found,) = extra(**{name: library(numbers)}).arrays
        np.testing.assert_array_equal(bits(found), numbers)
        assert found.name == name


def test_alibi_that_is_false_is_none() -> None:
    assert extra(alibi=False) is options.NO_EXTRA
    np.testing.assert_array_equal(flashgen.attention(Q, K, V, alibi=False), flashgen.attention(Q, K, V))
    with pytest.raises(InvalidArgument, match="causal_alignment is 'top-left'; it is allowed with"):
        flashgen.attention(Q, K, V, alibi=False, causal_alignment="top-left")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"alibi": np.ones(2)}, "type of alibi is float64; with float32 for q, k and v float16, bfloat16, "),
        ({"attn_mask": np.ones(5)}, "type of attn_mask is float64; with float32 for q, k and v float16, "),
        ({"sinks": buffer("d", [1, 2])}, "sinks.dtype is '<f8'; native float32 is allowed"),
        ({"sinks": b"12345678"}, "sinks is uint8 of shape (8,); an array of floats of shape (2,) is allowed"),
        ({"alibi": LSE[0, :, 0]}, "lse is in memory that alibi uses; memory of its own is allowed"),
        (
            {"attn_mask": LSE[0, 0, :, None]},
            "lse is in memory that attn_mask uses; memory of its own is allowed",
        ),
        ({"sinks": LSE[0, :, 0]}, "lse is in memory that sinks uses; memory of its own is allowed"),
    ],
    ids=lambda x: x[:40] if isinstance(x, str) else "",
)
def test_refusals_name_the_callers_argument(given: dict, message: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{re.escape(message)}"):
        flashgen.attention(Q, K, V, out=OUT, lse=LSE, **given)
    assert np.isnan(OUT).all() and np.isnan(LSE).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"attn_mask": [True] * 5}, "attn_mask is of type list"),
        ({"attn_mask": np.ones(5, ">f4")}, "type of attn_mask is >f4; bool, int32, int64, "),
        ({"sinks": np.ones(2)}, "sinks.dtype is '<f8'; native float32 is allowed"),
        (
            {"sinks": np.ones(3, np.float32)},
            "sink.shape is (3,); (2,) is allowed: one logit for each query head",
        ),
    ],
    ids=lambda x: x[:40] if isinstance(x, str) else "",
)
def test_options_refused(monkeypatch: pytest.MonkeyPatch, given: dict, message: str) -> None:
    Combined(monkeypatch)
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        flashgen.attention(Q, K, V, out=OUT, lse=LSE, **given)
    assert np.isnan(OUT).all() and np.isnan(LSE).all()
