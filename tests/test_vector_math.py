"""exp2, maximum, replace and log of the layers in templates/cpp/, as functions of their own."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from flashgen.runtime.compiler import OPTIMIZE
from tests import check_exp2
from tests.check_exp2 import between
from tests.compiled import TARGETS, Build, around, library

PROGRAM = """
}  // namespace
extern "C" void apply_log(const float *x, float *y, int64_t n) {
  for (isize i = 0; i < n; i += lanes) store(y + i, log(load(x + i)));
}
extern "C" void apply_maximum(const float *x, float *y, int64_t n) {  // of pairs
  for (isize i = 0; i < n; i += lanes) store(y + i, maximum(load(x + i), load(x + n + i)));
}
extern "C" void apply_hold(const float *x, float *y, int64_t n) {  // of pairs
  for (isize i = 0; i < n; i += lanes) store(y + i, hold(load(x + i), load(x + n + i), 8.0f));
}
extern "C" void apply_replace(const float *x, float *y, int64_t n) {
  for (isize i = 0; i < n; i += lanes) store(y + i, replace(load(x + i), -INFINITY, 0.0f));
}
"""
EACH = pytest.mark.parametrize(
    "build", [Build(t, OPTIMIZE) for t in TARGETS] + [Build(TARGETS[1], OPTIMIZE, emulated=True)], ids=str
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
    found = check_exp2.functions(build) if name == "apply_exp2" else functions(build)
    found[name](*(ctypes.c_void_p(a.ctypes.data) for a in (x, y)), ctypes.c_int64(whole))
    return y[:count]


SIGN = 1 << 31
INF = between(np.inf, np.inf)[0]
FEW = 1 << 16
RANGES = [
    *((first + SIGN, last + SIGN) for first, last in (
        (0, FEW),  # 0 and the smallest numbers
        (between(2.0**-27, 1)[0] - FEW, between(2.0**-27, 1)[0] + FEW),  # where 1 + x begins to differ from 1
        between(2.0**-4, 2.0**-3),
        between(0.5, 1.0),
        between(124.9, 128.0),  # the last results that are not 0
        (INF - FEW, INF + FEW),  # the largest, -inf and NaN
    )),
    (SIGN - FEW, SIGN),  # NaN
    between(0.125, 0.25),  # every remainder: y is a multiple of 1/8, or of 1/16
    between(7.9, 8.1),
    between(127.0, 128.0),
]  # fmt: skip
"""Of bit patterns."""


@EACH
def test_exp2_keeps_its_promises(build: Build) -> None:
    """On 25 million floats; `make exp2` takes every one. The beginning of each range, if emulated."""
    ranges = [(first, first + FEW) for first, _ in RANGES] if build.emulated else RANGES
    report = check_exp2.check(build, ranges)
    assert report.good, report
    assert build.emulated or report.ulps > 0.9  # float32 arithmetic leaves no less


def test_exp2_is_emulated_to_the_bit() -> None:
    """So what is found without AVX-512 holds with it. AVX2 has other steps, and so other bits."""
    native, emulated = Build(TARGETS[1], OPTIMIZE), Build(TARGETS[1], OPTIMIZE, emulated=True)
    rng = np.random.default_rng(0)
    any_bits = rng.integers(0, 1 << 32, 1 << 18, np.uint32).view(np.float32)
    for x in (any_bits, rng.uniform(-160, 130, 1 << 18), -rng.exponential(1, 1 << 18)):
        y, z = (apply(build, "apply_exp2", x.astype(np.float32)) for build in (native, emulated))
        np.testing.assert_array_equal(y, z)


PAYLOADS = np.array(
    [0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0xFF800001, 0xFFC00001, 0xFFFFFFFF, 0x7F80BEEF], np.uint32
).view(np.float32)


@EACH
def test_exp2_of_nan_is_nan(build: Build) -> None:
    """Whatever its bits: they must not pass for an exponent."""
    assert np.isnan(apply(build, "apply_exp2", PAYLOADS)).all()


@EACH
def test_maximum_and_replace(build: Build) -> None:
    x = np.array([1, 3, -np.inf, -np.inf, np.inf, -0.0, *PAYLOADS, *[2] * 7, np.nan], np.float32)
    y = np.array([2, 1, -np.inf, 5, 4, 0.0, *[2] * 7, *PAYLOADS, np.nan], np.float32)
    np.testing.assert_array_equal(apply(build, "apply_maximum", x, y), np.maximum(x, y))
    want = np.where(x == -np.inf, np.float32(0), x)
    np.testing.assert_array_equal(apply(build, "apply_replace", x), want)


@EACH
def test_hold(build: Build) -> None:
    """The first number while the second is at most 8 above it; where the difference is NaN, the second."""
    inf, nan = np.inf, np.nan
    held = [(1, 9), (1, -50), (inf, 0), (1e30, 1e30), (-8, 0)]
    followed = [(1, 9.000001), (-inf, -1e30), (-inf, -inf), (inf, inf), (0, inf), (nan, 3), (3, nan)]
    a, b = np.array([*held, *followed], np.float32).T
    want = np.concatenate([a[: len(held)], b[len(held) :]])
    np.testing.assert_array_equal(apply(build, "apply_hold", a, b), want)


@EACH
def test_log(build: Build) -> None:
    x = np.concatenate([np.geomspace(1e-38, 3e38, 1001), [0, 1, np.inf, np.nan]]).astype(np.float32)
    with np.errstate(divide="ignore"):
        want = np.log(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_max_ulp(apply(build, "apply_log", x), want, 1)
