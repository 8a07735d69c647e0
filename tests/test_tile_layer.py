"""Products, sweeps and moves of templates/cpp as functions of their own: any spans, any part of an array.

Kernels of today have spans that begin at 0; the layer promises more.
"""

from __future__ import annotations

import ctypes
from functools import cache
from itertools import product

import numpy as np
import pytest

from flashgen.problem import Problem
from flashgen.runtime.tensors import address
from tests.compiled import TARGETS, Build, around, library
from tests.strategies import STORAGE
from tests.tensor import Tensor

R, K, C = 31, 47, 75
"""Rows, contraction and columns: no multiples of anything, more than two register blocks."""

PROGRAM = """
typedef %s Stored;
typedef flashgen_tensor Tensor;
constexpr isize R = 31, K = 47, C = 75, W = %d, P = (C + W - 1) / W, whole = unroll * lanes;
typedef Tile<R, K, round_up(K, whole)> Left;
typedef Tile<R, C, round_up(C, whole)> Result;
typedef Panels<P, K, W> Right;
template <class Op> void reduce(Result t, Spans<R> s, Rows<R> out) {
  for (isize row = 0; row < R; ++row) {
    Reduction<Op> total;
    sweep(s.lo(row), s.hi(row), [&](isize column, isize u, auto seen) INLINE_LAMBDA {
      const vec x = load(t.at(row, column));
      store(t.at(row, column), x + x);
      total.take(u, seen, x);
    });
    out[row] = total.total();
  }
}
}
extern "C" {
int sizes(int n) { return (int[]){micro_rows, (int)whole, (int)W}[n]; }
void set_spans(void *spans, isize first, const isize *lo, const isize *hi, isize width) {
  const Spans<R> s(spans);
  for (isize r = 0; r < R; ++r) s.set(r, first, lo[r], hi[r], width);
}
void multiply(void *out, void *a, void *b, void *spans, int part, int accumulate) {
  const Spans<R> s(spans);
  if (part == 0 && !accumulate) product<false>(Result(out), Left(a), Right(b), Everything());
  if (part == 0 && accumulate) product<true>(Result(out), Left(a), Right(b), Everything());
  if (part == 1 && !accumulate) product<false>(Result(out), Left(a), Right(b), Only<R>(s));
  if (part == 1 && accumulate) product<true>(Result(out), Left(a), Right(b), Only<R>(s));
  if (part == 2 && !accumulate) product<false>(Result(out), Left(a), Right(b), Over<R>(s));
  if (part == 2 && accumulate) product<true>(Result(out), Left(a), Right(b), Over<R>(s));
}
void reduce_add(void *t, void *s, void *out) { reduce<Add>(Result(t), Spans<R>(s), Rows<R>(out)); }
void reduce_max(void *t, void *s, void *out) { reduce<Max>(Result(t), Spans<R>(s), Rows<R>(out)); }
void reduce_maxnum(void *t, void *s, void *out) { reduce<MaxNum>(Result(t), Spans<R>(s), Rows<R>(out)); }
void scale(void *t, void *factor) { scale_rows(Result(t), Rows<R>(factor)); }
void pack_keys(void *panels, const Tensor *t, isize first) {
  pack_transposed(Panels<P, K, W>(panels), view(array<Stored, 2>(t), {first, 0}, C));
}
void pack_values(void *panels, const Tensor *t, isize first) {
  pack<C>(Panels<P, K, W>(panels), view(array<Stored, 2>(t), {first, 0}, K));
}
void read_tile(void *out, const Tensor *t, isize i) { read(Result(out), array<Stored, 2>(t), {i, 0}); }
void write_tile(void *in, const Tensor *t, isize i) { write(Result(in), array<Stored, 2>(t), {i, 0}); }
void fill_tile(const Tensor *t, isize i) { fill(Shape<R, C>(), real(7), array<Stored, 2>(t), {i, 0}); }
void read_rows(void *out, const Tensor *t, isize i) { read(Rows<R>(out), array<Stored, 1>(t), {i}); }
void write_rows(void *in, const Tensor *t, isize i) { write(Rows<R>(in), array<Stored, 1>(t), {i}); }
void fill_rows(const Tensor *t, isize i) { fill(Shape<R>(), real(7), array<Stored, 1>(t), {i}); }
isize floordiv_of(isize a, isize b) { return floordiv(a, b); }
isize ceildiv_of(isize a, isize b) { return ceildiv(a, b); }
}
"""


def variant(build_and_type: tuple[Build, str]) -> str:
    return "-".join(map(str, build_and_type))


BUILDS = [*(Build(t) for t in TARGETS), Build(TARGETS[1], emulated=True)]
COMPUTED = ("float32", "float64")
NEAR = {"float32": {"rtol": 1e-7, "atol": 1e-4}, "float64": {"rtol": 1e-16, "atol": 1e-13}}
"""What sums in each type may be off by."""
EACH = pytest.mark.parametrize("layer", [*product(BUILDS, COMPUTED)], indirect=True, ids=variant)
EACH_TYPE = pytest.mark.parametrize("layer", [*product(BUILDS, STORAGE)], indirect=True, ids=variant)


def c_argument(a: np.ndarray | Tensor | int) -> object:
    if isinstance(a, int):
        return ctypes.c_int64(a)
    return ctypes.byref(a) if isinstance(a, Tensor) else ctypes.c_void_p(address(a))


class Layer:
    """The layer of one target; arrays go in by address."""

    def __init__(self, build: Build, dtype: str):
        problem = Problem(8, dtype=dtype)
        self.dtype, self.real = STORAGE[dtype], STORAGE[problem.computed]
        in_c = {"float32": "float", "float64": "double"}.get(dtype, dtype)
        text = around(PROGRAM % (in_c, build.target.micro_of(problem)[1]), build.target, dtype)
        self._lib = ctypes.CDLL(str(library(text, build)))
        self.rows, self.cols, self.panel = (self._lib.sizes(n) for n in range(3))
        self.near = NEAR[problem.computed]

    def __call__(self, name: str, *arguments: np.ndarray | Tensor | int) -> int:
        function = self._lib[name]
        function.restype = ctypes.c_int64
        return function(*map(c_argument, arguments))

    def tile(self, values: np.ndarray) -> np.ndarray:
        """In the layout of tiles; the padding holds NaN."""
        rows, cols = (-(-n // to) * to for n, to in zip(values.shape, (self.rows, self.cols), strict=True))
        padded = np.full((rows, cols), np.nan, self.real)
        padded[: values.shape[0], : values.shape[1]] = values
        return padded

    def per_row(self, values: np.ndarray) -> np.ndarray:
        padded = np.full(-(-R // self.cols) * self.cols, np.nan, self.real)
        padded[:R] = values
        return padded

    def panels(self, values: np.ndarray) -> np.ndarray:
        """(K, columns) as panels, zeros behind the last column."""
        padded = np.zeros((K, -(-values.shape[1] // self.panel) * self.panel), self.real)
        padded[:, : values.shape[1]] = values
        return np.ascontiguousarray(padded.reshape(K, -1, self.panel).swapaxes(0, 1))

    def spans(self, lo: np.ndarray, hi: np.ndarray, width: int, first: int = 0) -> np.ndarray:
        made = np.full((-(-R // self.rows) * self.rows, 2), 1 << 40, np.int64)
        self("set_spans", made, first, lo + first, hi + first, width)
        return made


@pytest.fixture
def layer(request: pytest.FixtureRequest) -> Layer:
    return made(*request.param)


made = cache(Layer)


def spans_of(width: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """(lo, hi) of every row: whole, empty, causal, windows, and anything."""
    r, none, full = np.arange(R), np.zeros(R, np.int64), np.full(R, width)
    rng = np.random.default_rng(width)
    found = [(none, full), (none, none), (full, full), (none, r + 1), (r, full), (r, r + 9), (r + 5, r + 6)]
    found += [(none, np.where(r < R // 2, full, 0)), (np.where(r % 3, 0, 20), np.where(r % 5, full, 20))]
    for _ in range(8):
        a, b = rng.integers(0, width + 1, (2, R))
        found.append((np.minimum(a, b), np.maximum(a, b)))
    return found


def inside(lo: np.ndarray, hi: np.ndarray, width: int) -> np.ndarray:
    columns = np.arange(width)
    return (lo[:, None] <= columns) & (columns < hi[:, None])


def test_constants_are_the_programs() -> None:
    assert f"R = {R}, K = {K}, C = {C}," in PROGRAM


@EACH
def test_spans_are_clamped(layer: Layer) -> None:
    """lo <= hi, both within the tile; rows of the padding see nothing."""
    lo, hi = (np.resize(np.array(a), R) for a in ([-9, 3, 9, 50, 0, -2], [4, 2, 60, 70, -1, -1]))
    for first in (0, 64, -3):
        got = layer.spans(lo, hi, K, first)
        np.testing.assert_array_equal(got[:6], [[0, 4], [3, 3], [9, K], [K, K], [0, 0], [0, 0]])
        np.testing.assert_array_equal(got[R:], 0)


@EACH
@pytest.mark.parametrize("accumulate", [0, 1])
def test_products(layer: Layer, accumulate: int) -> None:
    rng = np.random.default_rng(0)
    a, b, start = (rng.normal(size=shape).astype(layer.real) for shape in ((R, K), (K, C), (R, C)))
    want = a.astype(np.longdouble) @ b + start * accumulate
    for part, (lo, hi) in [(0, spans_of(C)[0]), *product([1], spans_of(C))]:
        out, wanted = layer.tile(start), inside(lo, hi, C)
        layer("multiply", out, layer.tile(a), layer.panels(b), layer.spans(lo, hi, C), part, accumulate)
        np.testing.assert_allclose(out[:R, :C][wanted], want[wanted], **layer.near)


@EACH
@pytest.mark.parametrize("accumulate", [0, 1])
def test_products_over_spans(layer: Layer, accumulate: int) -> None:
    """What is outside is NaN on the left, and on the right where no row of it is seen."""
    rng = np.random.default_rng(1)
    a, b, start = (rng.normal(size=shape).astype(layer.real) for shape in ((R, K), (K, C), (R, C)))
    for lo, hi in spans_of(K):
        seen = inside(lo, hi, K)
        want = np.where(seen, a, 0).astype(np.longdouble) @ b + start * accumulate
        left, right = np.where(seen, a, np.nan), np.where(seen.any(axis=0)[:, None], b, np.nan)
        out = layer.tile(start)
        layer("multiply", out, layer.tile(left), layer.panels(right), layer.spans(lo, hi, K), 2, accumulate)
        np.testing.assert_allclose(out[:R, :C], want, **layer.near)


@EACH
def test_a_nan_on_the_right_reaches_the_rows_that_see_it_alone(layer: Layer) -> None:
    rng = np.random.default_rng(2)
    a, b = rng.normal(size=(R, K)), rng.normal(size=(K, C))
    b[17] = np.nan
    for lo, hi in spans_of(K):
        out, seen = layer.tile(np.zeros((R, C))), inside(lo, hi, K)
        layer("multiply", out, layer.tile(a), layer.panels(b), layer.spans(lo, hi, K), 2, 0)
        np.testing.assert_array_equal(np.isnan(out[:R, :C]).all(axis=1), seen[:, 17])
        np.testing.assert_array_equal(np.isnan(out[:R, :C]).any(axis=1), seen[:, 17])


@EACH
def test_reductions(layer: Layer) -> None:
    """Over a span, with NaN outside; with one inside "max" is NaN, "maxnum" passes over it, "add" is NaN."""
    rng = np.random.default_rng(3)
    values = rng.normal(size=(R, C)).astype(layer.real)
    for lo, hi in spans_of(C):
        seen, spans = inside(lo, hi, C), layer.spans(lo, hi, C)
        clean = np.where(seen, values, np.nan)
        dirty = np.where(np.arange(C) == 40, np.nan, clean)
        for name, given in product(("add", "max", "maxnum"), (clean, dirty)):
            out, t = layer.per_row(np.zeros(R)), layer.tile(given)
            layer(f"reduce_{name}", t, spans, out)
            x = np.where(seen, given, 0 if name == "add" else -np.inf).astype(np.longdouble)
            x = np.where(np.isnan(x), -np.inf, x) if name == "maxnum" else x
            want = x.sum(axis=1) if name == "add" else x.max(axis=1, initial=-np.inf)
            rtol, atol = layer.near["rtol"], layer.near["atol"] / 10
            np.testing.assert_allclose(out[:R], want, rtol=rtol, atol=atol)
            np.testing.assert_array_equal(t[:R, :C][seen], 2 * given[seen])


@EACH
def test_sums_do_not_depend_on_where_the_span_ends(layer: Layer) -> None:
    """Zeros outside the span give the bits of a whole row's sum."""
    rng = np.random.default_rng(4)
    for lo, hi in spans_of(C):
        x = np.where(inside(lo, hi, C), rng.normal(size=(R, C)), 0)
        sums = [layer.per_row(np.zeros(R)) for _ in range(2)]
        for out, spans in zip(sums, (spans_of(C)[0], (lo, hi)), strict=True):
            layer("reduce_add", layer.tile(x), layer.spans(*spans, C), out)
        np.testing.assert_array_equal(sums[0][:R], sums[1][:R])


@EACH
def test_scale_rows(layer: Layer) -> None:
    x, factor = np.random.default_rng(5).normal(size=(R, C)), np.resize([1.0, 0.5, 0.0, -2.0, np.nan], R)
    t = layer.tile(x)
    layer("scale", t, layer.per_row(factor))
    np.testing.assert_array_equal(t[:R, :C], x.astype(layer.real) * factor[:, None].astype(layer.real))


def arrays(dtype: type, rows: int, cols: int) -> list[np.ndarray]:
    """The same values, contiguous and otherwise."""
    a = np.random.default_rng(rows).normal(size=(rows, cols)).astype(dtype)
    wide = np.full((rows, 2 * cols + 3), np.nan, dtype)
    wide[:, : 2 * cols : 2] = a
    padded = np.full((rows, cols + 5), np.nan, dtype)
    padded[:, :cols] = a
    return [a, padded[:, :cols], wide[:, : 2 * cols : 2], a[::-1, ::-1].copy()[::-1, ::-1], a.T.copy().T]


FIRST = (0, 1, 8, 30, 70)
"""Rows at which tiles begin in an array of 80: from whole ones to one that is all but outside."""


@EACH_TYPE
def test_packing(layer: Layer) -> None:
    """Rows outside the array, and columns behind the last, are 0."""
    for first in FIRST:
        for keys, values in zip(arrays(layer.dtype, 80, K), arrays(layer.dtype, 80, C), strict=True):
            for name, array, rows in (("pack_keys", keys, C), ("pack_values", values, K)):
                inner = np.zeros((rows, array.shape[1]), layer.real)
                inner[: len(array[first : first + rows])] = array[first : first + rows]
                want = layer.panels(inner.T if name == "pack_keys" else inner)
                got = np.full(want.size + 99, np.nan, layer.real)
                layer(name, got, Tensor.of(array), first)
                np.testing.assert_array_equal(got[: want.size], want.ravel())
                assert np.isnan(got[want.size :]).all()


@EACH_TYPE
def test_reading_and_writing(layer: Layer) -> None:
    """Of a tile, and of one value a row: what lies outside the array reads as 0 and is not written.

    What is written rounds as NumPy, or ml_dtypes, rounds it.
    """
    rng = np.random.default_rng(6)
    for first in FIRST:
        inside_rows = min(80 - first, R)
        for array in arrays(layer.dtype, 80, C):
            t = layer.tile(np.full((R, C), 5))
            layer("read_tile", t, Tensor.of(array), first)
            np.testing.assert_array_equal(t[:inside_rows, :C], array[first : first + R])
            np.testing.assert_array_equal(t[inside_rows:R, :C], 0)
            check_write(layer, array, first, rng.normal(size=(R, C)).astype(layer.real), "tile")
        for array in [column for a in arrays(layer.dtype, 80, 3) for column in a.T[:1]]:
            t = layer.per_row(np.full(R, 5))
            layer("read_rows", t, Tensor.of(array), first)
            np.testing.assert_array_equal(t[:inside_rows], array[first : first + R])
            np.testing.assert_array_equal(t[inside_rows:R], 0)
            check_write(layer, array, first, rng.normal(size=R).astype(layer.real), "rows")


def check_write(layer: Layer, array: np.ndarray, first: int, values: np.ndarray, kind: str) -> None:
    """A store and a fill change the array where the tile lies, and nothing else of its memory."""
    held = layer.tile(values) if kind == "tile" else layer.per_row(values)
    base = array if array.base is None else array.base
    for name, arguments, wanted in (
        (f"write_{kind}", [held], values),
        (f"fill_{kind}", [], np.full_like(values, 7)),
    ):
        before, want = base.copy(), array.copy()
        want[first : first + R] = wanted[: 80 - first]
        layer(name, *arguments, Tensor.of(array), first)
        np.testing.assert_array_equal(array, want)
        bits = f"u{base.itemsize}"
        assert np.count_nonzero(base.view(bits) != before.view(bits)) <= want[first : first + R].size
        base[...] = before


@EACH
def test_divisions_of_indices(layer: Layer) -> None:
    """Towards minus and plus infinity; by 0 they give 0, for Hq / Hkv of no heads."""
    for a, b in product(range(-9, 10), (1, 2, 3, 7)):
        assert layer("floordiv_of", a, b) == a // b
        assert layer("ceildiv_of", a, b) == -(-a // b)
    assert layer("floordiv_of", -(2**63), -1) == -(2**63)
    assert layer("floordiv_of", 5, 0) == layer("ceildiv_of", 5, 0) == 0
