"""exp2 of doubles in templates/cpp/, and what else the vectors of doubles have, as functions of their own.

Where float32's are tried on every number (tests/test_vector_math.py), these are held to 80-bit numbers, at
places that matter and at random.
"""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import pytest

from flashgen.problem import Problem
from flashgen.runtime.compiler import OPTIMIZE
from tests.compiled import TARGETS, Build, around, library

PROGRAM = """
}  // namespace
extern "C" void apply_exp2(const double *x, double *y, int64_t n) {
  for (isize i = 0; i < n; i += lanes) store(y + i, exp2(load(x + i)));
}
extern "C" void apply_log(const double *x, double *y, int64_t n) {
  for (isize i = 0; i < n; i += lanes) store(y + i, log(load(x + i)));
}
extern "C" void apply_maximum(const double *x, double *y, int64_t n) {  // of pairs
  for (isize i = 0; i < n; i += lanes) store(y + i, maximum(load(x + i), load(x + n + i)));
}
extern "C" void apply_hold(const double *x, double *y, int64_t n) {  // of pairs
  for (isize i = 0; i < n; i += lanes) store(y + i, hold(load(x + i), load(x + n + i), 8.0));
}
extern "C" void apply_replace(const double *x, double *y, int64_t n) {
  for (isize i = 0; i < n; i += lanes) store(y + i, replace(load(x + i), -INFINITY, 0.0));
}
extern "C" void apply_columns(const double *ends, double *y, int64_t n) {  // lo, and hi in the next; 1 within
  for (isize i = 0; i < n; i += lanes)
    store(y + i, choose(columns(i + (isize)ends[2], (isize)ends[0], (isize)ends[1]), all(1.0), all(0.0)));
}
"""
BUILDS = [*(Build(t, OPTIMIZE) for t in TARGETS), Build(TARGETS[1], OPTIMIZE, emulated=True)]
EACH = pytest.mark.parametrize("build", BUILDS, ids=str)
ULPS = 0.9
"""Of exp2's largest error; what is promised is 1."""


@cache
def functions(build: Build) -> ctypes.CDLL:
    return ctypes.CDLL(str(library(around(PROGRAM, build.target, "float64"), build)))


def apply(build: Build, name: str, *operands: np.ndarray) -> np.ndarray:
    """A function of every element; the operands are one-dimensional and equally long."""
    count, lanes = len(operands[0]), build.target.lanes_of(Problem(8, dtype="float64"))
    whole = -(-count // lanes) * lanes
    x = np.zeros((len(operands), whole))
    for row, operand in zip(x, operands, strict=True):
        row[:count] = operand
    y = np.empty(whole)
    functions(build)[name](*(ctypes.c_void_p(a.ctypes.data) for a in (x, y)), ctypes.c_int64(whole))
    return y[:count]


def around_each(middle: np.ndarray, steps: int = 8) -> np.ndarray:
    """Some doubles below and above each of these, in ascending order for ascending ones."""
    below, above = [middle], [middle]
    for _ in range(steps):
        below.insert(0, np.nextafter(below[0], -np.inf))
        above.append(np.nextafter(above[-1], np.inf))
    return np.stack([*below, *above[1:]], axis=1).ravel()


def places() -> np.ndarray:
    """Ascending: around each number where a root of two or its exponent changes, around 0, and between."""
    rng = np.random.default_rng(0)
    small = 2.0 ** np.arange(-80, -1)
    ends = around_each(np.concatenate([np.arange(-4100, 4096) / 4, -small, small]))
    random = [rng.uniform(-1030, 1024, 1 << 16), -rng.exponential(1, 1 << 17), rng.uniform(0, 0.25, 1 << 17)]
    x = np.concatenate([ends, *random, [-np.inf, -1e300, 5e-324, -5e-324]])
    return np.sort(x[x < 1024])


X = places()


@EACH
def test_exp2_is_within_an_ulp(build: Build) -> None:
    """Of normal results; what would be subnormal is 0."""
    y = apply(build, "apply_exp2", X)
    np.testing.assert_array_equal(y[X < -1022], 0)
    assert not np.signbit(y).any()
    x, y = X[X >= -1022], y[X >= -1022]
    exact = np.exp2(x.astype(np.longdouble))
    assert np.finfo(np.longdouble).eps < 2.0**-60, "a reference of 64 bits"
    ulps = np.abs(y - exact) / np.ldexp(np.longdouble(1), np.floor(x).astype(int) - 52)
    worst = int(ulps.argmax())
    assert 0.7 < float(ulps[worst]) < ULPS, (x[worst], float(ulps[worst]))


@EACH
def test_exp2_never_falls(build: Build) -> None:
    """Also from one root of two, or power, to the next; between two of them Horner's rule sees to it."""
    y = apply(build, "apply_exp2", X)
    falls = np.flatnonzero(np.diff(y) < 0)
    assert falls.size == 0, X[falls[:1]]


@EACH
def test_exp2_of_whole_numbers_is_exact(build: Build) -> None:
    x = np.arange(-1022, 1024).astype(float)
    np.testing.assert_array_equal(apply(build, "apply_exp2", x), np.ldexp(1.0, x.astype(int)))
    assert apply(build, "apply_exp2", np.array([-0.0, 0.0])).tolist() == [1, 1]


PAYLOADS = np.array(
    [0x7FF0000000000001, 0x7FF8000000000000, 0x7FFFFFFFFFFFFFFF, 0xFFF0000000000001, 0xFFF800000000BEEF],
    np.uint64,
).view(np.float64)


@EACH
def test_exp2_of_nan_is_nan(build: Build) -> None:
    """Whatever its bits: they must not pass for an exponent."""
    assert np.isnan(apply(build, "apply_exp2", PAYLOADS)).all()


def test_both_targets_have_the_same_bits() -> None:
    """exp2 of doubles takes the same steps on all vectors; so what is found on one holds on the other."""
    first, *others = (apply(build, "apply_exp2", X) for build in BUILDS)
    for other in others:
        np.testing.assert_array_equal(first, other)


@EACH
def test_maximum_replace_and_hold(build: Build) -> None:
    """As of float32: a NaN wins; -inf becomes 0; and what is held stays while it is at most 8 below."""
    inf, nan = np.inf, np.nan
    x = np.array([1, 3, -inf, -inf, inf, -0.0, *PAYLOADS, *[2] * 5, nan])
    y = np.array([2, 1, -inf, 5, 4, 0.0, *[2] * 5, *PAYLOADS, nan])
    np.testing.assert_array_equal(apply(build, "apply_maximum", x, y), np.maximum(x, y))
    np.testing.assert_array_equal(apply(build, "apply_replace", x), np.where(x == -inf, 0, x))
    held, followed = np.array(
        [(1, 9), (inf, 0), (1, np.nextafter(9, inf)), (-inf, -1e300), (nan, 3), (3, nan)]
    ).T
    want = [1, inf, followed[2], -1e300, 3, nan]
    np.testing.assert_array_equal(apply(build, "apply_hold", held, followed), want)


@EACH
def test_log(build: Build) -> None:
    x = np.array([*np.geomspace(1e-308, 1e308, 1001), 0, 1, np.inf, np.nan])
    with np.errstate(divide="ignore"):
        want = np.log(x.astype(np.longdouble)).astype(float)
    np.testing.assert_array_max_ulp(apply(build, "apply_log", x), want, 1)


@EACH
@pytest.mark.parametrize("first", [0, 3, 2**31 - 5, 2**40])
def test_columns(build: Build, first: int) -> None:
    """Lanes of a span, wherever it begins: their numbers are 64 bits wide."""
    for lo, hi in ((0, 0), (0, 9), (3, 5), (5, 16), (-2, 4), (20, 30)):
        ends = np.array([first + lo, first + hi, first, *[0] * 13])
        c = np.arange(16)
        want = ((c >= lo) & (c < hi)).astype(float)
        np.testing.assert_array_equal(apply(build, "apply_columns", ends), want)
