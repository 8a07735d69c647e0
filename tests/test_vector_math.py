"""exp2, maximum and replace of templates/cpp/math.hpp, as functions of their own, against float64."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from tests.compiled import TARGETS, Build, around, library

PROGRAM = """
}  // namespace
extern "C" void apply_exp2(const float *x, float *y, int64_t n) {
  for (isize i = 0; i < n; i += lanes) store(y + i, exp2(load(x + i)));
}
extern "C" void apply_log(const float *x, float *y, int64_t n) {
  for (isize i = 0; i < n; i += lanes) store(y + i, log(load(x + i)));
}
extern "C" void apply_maximum(const float *x, float *y, int64_t n) {  // of pairs
  for (isize i = 0; i < n; i += lanes) store(y + i, maximum(load(x + i), load(x + n + i)));
}
extern "C" void apply_replace(const float *x, float *y, int64_t n) {
  for (isize i = 0; i < n; i += lanes) store(y + i, replace(load(x + i), -INFINITY, 0.0f));
}
"""
EACH = pytest.mark.parametrize(
    "build", [Build(t) for t in TARGETS] + [Build(TARGETS[1], emulated=True)], ids=str
)


@cache
def functions(build: Build) -> ctypes.CDLL:
    return ctypes.CDLL(str(library(around(PROGRAM, build.target), build)))


def apply(build: Build, name: str, *operands: np.ndarray) -> np.ndarray:
    """A function of every element; the operands are one-dimensional and equally long."""
    count = len(operands[0])
    whole = -(-count // build.target.lanes) * build.target.lanes
    x = np.zeros((len(operands), whole), np.float32)
    for row, operand in zip(x, operands, strict=True):
        row[:count] = operand
    y = np.empty(whole, np.float32)
    functions(build)[name](*(ctypes.c_void_p(a.ctypes.data) for a in (x, y)), ctypes.c_int64(whole))
    return y[:count]


def samples() -> np.ndarray:
    """2^22 numbers from -127 to 0, as many in each binade, and all that lies near an integer or a half."""
    last = int(np.float32(127).view(np.uint32))
    dense = np.linspace(0, last, 1 << 22).astype(np.uint32).view(np.float32)
    halves = np.arange(1, 2 * 127, dtype=np.float32) / 2
    near = (halves.view(np.int32)[:, None] + np.arange(-64, 65, dtype=np.int32)).view(np.float32)
    return -np.sort(np.concatenate([dense, near.ravel()]))


@EACH
def test_exp2_is_right_to_one_ulp(build: Build) -> None:
    """0.952 is the largest error of all floats from -126 to 0. Below, where results are subnormal, 1 too."""
    x = samples()
    exact = np.exp2(x.astype(np.float64))
    off = np.abs(apply(build, "apply_exp2", x) - exact) / np.spacing(exact.astype(np.float32))
    assert 0.9 < off[x >= -126].max() < 0.953
    assert off[x > -126.5].max() <= 1


@EACH
def test_exp2_where_it_is_exact(build: Build) -> None:
    """At integers, so that the weight of the maximum is 1; and 0 from -126.5 on."""
    whole = -np.arange(127, dtype=np.float32)
    np.testing.assert_array_equal(apply(build, "apply_exp2", whole), np.exp2(whole))
    x = np.array([0.0, -126.5, np.nextafter(np.float32(-126.5), np.float32(0)), -127, -150, -1e30, -np.inf])
    np.testing.assert_array_equal(apply(build, "apply_exp2", x) > 0, [True, False, True, *[False] * 4])


PAYLOADS = np.array(
    [0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC00001, 0xFFFFFFFF, 0x7F80BEEF], np.uint32
).view(np.float32)


@EACH
def test_exp2_of_nan_is_nan(build: Build) -> None:
    """Whatever its bits: they must not pass for an exponent."""
    assert np.isnan(apply(build, "apply_exp2", PAYLOADS)).all()


@EACH
def test_exp2_rises_by_no_more_than_an_ulp_where_it_should_fall(build: Build) -> None:
    """Neighbours may be out of order above -1/2, where they lie closer than their results do."""
    runs = [-(np.arange(1 << 16, dtype=np.uint32) + np.float32(a).view(np.uint32)).view(np.float32)
            for a in (0.0, 1e-3, 0.2, 0.3, 0.49, 0.5, 0.7, 1, 1.5, 20, 125.5)]  # fmt: skip
    for x in [samples(), *runs]:
        y = apply(build, "apply_exp2", x)
        assert y.max() <= 1
        rise = np.diff(y)
        assert (rise <= np.where(x[:-1] > -0.5, np.spacing(y[:-1]), 0)).all()


@EACH
def test_maximum_and_replace(build: Build) -> None:
    x = np.array([1, 3, -np.inf, -np.inf, np.inf, -0.0, *PAYLOADS, *[2] * 7, np.nan], np.float32)
    y = np.array([2, 1, -np.inf, 5, 4, 0.0, *[2] * 7, *PAYLOADS, np.nan], np.float32)
    np.testing.assert_array_equal(apply(build, "apply_maximum", x, y), np.maximum(x, y))
    want = np.where(x == -np.inf, np.float32(0), x)
    np.testing.assert_array_equal(apply(build, "apply_replace", x), want)


@EACH
def test_log(build: Build) -> None:
    x = np.concatenate([np.geomspace(1e-38, 3e38, 1001), [0, 1, np.inf, np.nan]]).astype(np.float32)
    with np.errstate(divide="ignore"):
        want = np.log(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_max_ulp(apply(build, "apply_log", x), want, 1)
