"""Products whose right side stays in memory: any spans, strides and parts of an array, and whole kernels."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from flashgen.errors import CannotEmit, InvalidArgument
from flashgen.ir.dialect import parse
from flashgen.plan.layout import TileLayout
from flashgen.plan.planner import plan
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.reference import attention, bound
from flashgen.runtime.cpu import CpuKernel
from flashgen.schedule import Schedule
from flashgen.targets import find
from flashgen.targets.cpu import Cpu
from tests.compiled import TARGETS, Build, around, call, combinations, kernels, library, pairwise, sample
from tests.guarded import exit_status, place
from tests.strategies import OFFSETS, STORAGE, make_inputs
from tests.tensor import Tensor
from tests.test_tile_layer import (
    COMPUTED,
    NEAR,
    arrays,
    c_argument,
    inside,
    spans_of,
    variant,
)

R, N, D = 31, 47, 37
"""Rows on the left, rows of the array's tile, and its columns: no multiples of anything."""

PROGRAM = """
constexpr isize R = 31, N = 47, D = 37, whole = unroll * lanes;
typedef Tile<R, N, round_up(N, whole)> Scores;
typedef Tile<R, D, round_up(D, whole)> Wide;
}
extern "C" {
int sizes(int n) { return (int[]){micro_rows, (int)whole}[n]; }
void set_spans(void *spans, const isize *lo, const isize *hi) {
  const Spans<R> s(spans);
  for (isize r = 0; r < R; ++r) s.set(r, 0, lo[r], hi[r], N);
}
void scores(void *out, void *a, const flashgen_tensor *t, isize first, void *spans, int accumulate) {
  const View<real> b = view(array<real, 2>(t), {first, 0}, N);
  if (!spans) return product_transposed<false>(Scores(out), Wide(a), b, Whole<N>());
  if (!accumulate) product_transposed<false>(Scores(out), Wide(a), b, Spans<R>(spans));
  if (accumulate) product_transposed<true>(Scores(out), Wide(a), b, Spans<R>(spans));
}
void values(void *out, void *a, const flashgen_tensor *t, isize first, void *spans, int accumulate) {
  const View<real> b = view(array<real, 2>(t), {first, 0}, N);
  if (!spans) return product<false>(Wide(out), Scores(a), b, Whole<N>());
  if (!accumulate) product<false>(Wide(out), Scores(a), b, Spans<R>(spans));
  if (accumulate) product<true>(Wide(out), Scores(a), b, Spans<R>(spans));
}
}
"""
BUILDS = [*(Build(t) for t in TARGETS), Build(TARGETS[1], emulated=True)]
EACH = pytest.mark.parametrize("layer", [*product(BUILDS, COMPUTED)], indirect=True, ids=variant)
each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
FIRST = (0, 1, 40, 79, 80, 90)
"""Rows at which tiles begin in an array of 80: from whole ones to one that is outside."""


class Layer:
    """The layer of one target, in one type computed in."""

    def __init__(self, build: Build, computed: str):
        self._lib = ctypes.CDLL(str(library(around(PROGRAM, build.target, computed, panel=0), build)))
        self.rows, self.cols = self._lib.sizes(0), self._lib.sizes(1)
        self.real = STORAGE[computed]
        self.near = NEAR[computed]

    def __call__(self, name: str, *arguments: np.ndarray | Tensor | int) -> None:
        function = self._lib[name]
        function.restype = None
        function(*map(c_argument, arguments))

    def tile(self, values: np.ndarray) -> np.ndarray:
        """In the layout of tiles; the padding holds NaN."""
        rows, cols = (-(-n // to) * to for n, to in zip(values.shape, (self.rows, self.cols), strict=True))
        padded = np.full((rows, cols), np.nan, self.real)
        padded[: values.shape[0], : values.shape[1]] = values
        return padded

    def spans(self, lo: np.ndarray, hi: np.ndarray) -> np.ndarray:
        made = np.zeros((-(-R // self.rows) * self.rows, 2), np.int64)
        self("set_spans", made, lo, hi)
        return made


@pytest.fixture
def layer(request: pytest.FixtureRequest) -> Layer:
    return made(*request.param)


made = cache(Layer)


def there(array: np.ndarray, first: int) -> np.ndarray:
    """The tile of N rows from ``first`` on, 0 beyond the array."""
    tile = np.zeros((N, array.shape[1]), array.dtype)
    tile[: max(0, min(N, len(array) - first))] = array[first : first + N]
    return tile


@EACH
def test_constants_are_the_programs(layer: Layer) -> None:
    assert f"R = {R}, N = {N}, D = {D}," in PROGRAM


@EACH
@pytest.mark.parametrize("accumulate", [0, 1])
def test_scores(layer: Layer, accumulate: int) -> None:
    """In the span they are the products, 0 where the array ends; outside nothing is written."""
    rng = np.random.default_rng(0)
    a, start = (rng.normal(size=shape).astype(layer.real) for shape in ((R, D), (R, N)))
    stored = arrays(layer.real, 80, D)
    for first, array, (lo, hi) in zip(FIRST * 20, stored * 20, spans_of(N) * 7, strict=False):
        wanted, out = inside(lo, hi, N), layer.tile(start)
        layer("scores", out, layer.tile(a), Tensor.of(array), first, layer.spans(lo, hi), accumulate)
        want = a.astype(np.longdouble) @ there(array, first).T + start * accumulate
        np.testing.assert_allclose(out[:R, :N], np.where(wanted, want, start), **layer.near)


@EACH
@pytest.mark.parametrize("accumulate", [0, 1])
def test_values(layer: Layer, accumulate: int) -> None:
    """What is outside a row's span is NaN on the left, and on the right where no row sees it."""
    rng = np.random.default_rng(1)
    a, start = (rng.normal(size=shape).astype(layer.real) for shape in ((R, N), (R, D)))
    for first, number, (lo, end) in zip(FIRST * 20, [*range(5)] * 20, spans_of(N) * 7, strict=False):
        hi = np.maximum(lo, np.minimum(end, max(0, 80 - first)))
        seen, array = inside(lo, hi, N), arrays(layer.real, 80, D)[number]
        want = np.where(seen, a, 0).astype(np.longdouble) @ there(array, first) + start * accumulate
        unseen = np.ones(80, bool)
        unseen[first : first + N] = ~seen.any(axis=0)[: max(0, 80 - first)]
        array[unseen] = np.nan
        out = layer.tile(start)
        left = layer.tile(np.where(seen, a, np.nan))
        layer("values", out, left, Tensor.of(array), first, layer.spans(lo, hi), accumulate)
        np.testing.assert_allclose(out[:R, :D], want, **layer.near)


@EACH
def test_without_spans(layer: Layer) -> None:
    rng = np.random.default_rng(2)
    q, p = (rng.normal(size=shape).astype(layer.real) for shape in ((R, D), (R, N)))
    for first, array in product(FIRST, arrays(layer.real, 80, D)):
        s, o = layer.tile(np.full((R, N), np.nan)), layer.tile(np.full((R, D), np.nan))
        layer("scores", s, layer.tile(q), Tensor.of(array), first, 0, 0)
        layer("values", o, layer.tile(p), Tensor.of(array), first, 0, 0)
        keys = there(array, first).astype(np.longdouble)
        np.testing.assert_allclose(s[:R, :N], q @ keys.T, **layer.near)
        np.testing.assert_allclose(o[:R, :D], p @ keys, **layer.near)


@EACH
def test_a_number_depends_on_its_row_and_its_key_alone(layer: Layer) -> None:
    """To the bit: whatever rows it is computed with, and wherever spans begin and end."""
    rng = np.random.default_rng(3)
    q, p = (rng.normal(size=shape).astype(layer.real) for shape in ((R, D), (R, N)))
    array = arrays(layer.real, 80, D)[0]
    whole = layer.tile(np.zeros((R, N)))
    layer("scores", whole, layer.tile(q), Tensor.of(array), 0, 0, 0)
    for lo, hi in spans_of(N):
        seen, s = inside(lo, hi, N), layer.tile(np.zeros((R, N)))
        layer("scores", s, layer.tile(q), Tensor.of(array), 0, layer.spans(lo, hi), 0)
        np.testing.assert_array_equal(s[:R, :N][seen], whole[:R, :N][seen])
        o, each = layer.tile(np.zeros((R, D))), layer.tile(np.zeros((R, D)))
        layer("values", o, layer.tile(p), Tensor.of(array), 0, layer.spans(lo, hi), 0)
        for r in range(0, R, 7):
            alone = layer.spans(np.where(np.arange(R) == r, lo, 0), np.where(np.arange(R) == r, hi, 0))
            layer("values", each, layer.tile(p), Tensor.of(array), 0, alone, 0)
            np.testing.assert_array_equal(o[r, :D], each[r, :D])


DIMS = [(1, 1), (3, 8), (8, 3), (16, 17), (24, 40), (33, 64), (128, 128), (300, 130)]


@cache
def of_all_dims(target: Cpu) -> list[CpuKernel]:
    """Head dims around vectors and register blocks, rows around their groups; a third in the emulation."""
    wanted = [
        (Problem(d, dv, dtype, ALIGNMENTS[n % 3]), replace(combinations()[n], br=br, bc=bc, panel=0))
        for n, ((d, dv), br, bc) in enumerate(
            zip(DIMS, (1, 2, 3, 4, 5, 8, 4, 7), (1, 5, 16, 24, 40, 33, 64, 17), strict=True)
        )
        for dtype in ("float32", "float64")
    ]
    build = Build(target)
    return kernels(build, tuple(sample(build, wanted, 3)))


@each_target
def test_kernels_of_all_dims(target: Cpu) -> None:
    for n, kernel in enumerate(of_all_dims(target)):
        p = kernel.problem
        for nq, nk in ((0, 5), (1, 0), (1, 1), (1, 63), (1, 64), (3, 65), (4, 130), (9, 7), (13, 101)):
            x = make_inputs(p, "hidden" if n % 2 else "plain", (2, 4, 2, nq, nk), 0.25, seed=nk)
            limit = bound(p, x.q, x.k, x.v, x.scale)
            limit.check(*call(kernel, x), *attention(p, x.q, x.k, x.v, x.scale))


@each_target
@pytest.mark.parametrize("causal", ALIGNMENTS[:2])
def test_combinations(target: Cpu, causal: str | None) -> None:
    """Against the reference on hostile values, and to the bit where only order and skip differ."""
    problem = Problem(24, 40, causal=causal)
    every = pairwise(5, 40, panel=0)
    found = kernels(Build(target), tuple((problem, s) for s in every))
    for kind in ("plain", "hidden", "nan_q", "nan_k", "nan_v", "rising", "falling", *OFFSETS):
        x = make_inputs(problem, kind, (2, 4, 2, 13, 95), 0.25, seed=5)
        bits: dict[bool, bytes] = {}
        with np.errstate(invalid="ignore"):
            want, limit = attention(problem, x.q, x.k, x.v, 0.25), bound(problem, x.q, x.k, x.v, 0.25)
        for schedule, kernel in zip(every, found, strict=True):
            o, lse = call(kernel, x, threads=1 + schedule.causal_skip)
            limit.check(o, lse, *want)
            if not kind.startswith("nan"):
                assert bits.setdefault(schedule.lazy_rescale, o.tobytes()) == o.tobytes(), kernel.name


@each_target
@pytest.mark.parametrize("at_end", [True, False], ids=["up to", "from"])
def test_guard_pages(target: Cpu, at_end: bool) -> None:
    """K and V lie beside pages that may not be touched."""
    for kernel in of_all_dims(target):
        for nq, nk in ((1, 1), (1, 15), (1, 64), (3, 101), (1, 0)):
            x = make_inputs(kernel.problem, "plain", (1, 2, 1, nq, nk), 0.25)
            y = replace(x, **{n: place(getattr(x, n), at_end, read_only=True) for n in "qkv"})
            want = call(kernel, x)

            def run(kernel=kernel, y=y, want=want) -> None:
                assert all(a.tobytes() == b.tobytes() for a, b in zip(call(kernel, y), want, strict=True))

            assert exit_status(run) == 0, kernel.name


@each_target
def test_panels_are_the_targets_or_none(target: Cpu) -> None:
    """Half as wide for float64, which has half as many numbers in a vector."""
    for dtype, width, what in (
        ("float32", target.micro[1], ""),
        ("float64", target.micro[1] // 2, " of float64"),
    ):
        problem = Problem(8, dtype=dtype)
        for panel in (0, width):
            assert target.complete(problem, Schedule(panel=panel)).panel == panel
        assert target.complete(problem, Schedule()).panel == width
        allowed = f"panel is 3; target {target.name} packs panels of {width} columns{what}, or with 0 none"
        with pytest.raises(InvalidArgument, match=allowed):
            target.complete(problem, Schedule(panel=3))


@each_target
def test_emitted_kernels_hold_the_layer_that_they_use(target: Cpu) -> None:
    from flashgen.emission import source

    in_place, packed = (source(Problem(8), s, target) for s in (pairwise(panel=0)[0], pairwise()[0]))
    assert "inner_products(" in in_place
    assert "pack_transposed(" not in in_place
    assert "pack_transposed(" in packed
    assert "inner_products(" not in packed


def test_a_transposed_right_side_over_a_part_of_it_is_refused() -> None:
    text = """
    func.func @f(%x: memref<?x4xf32>, %k: memref<?x4xf32>, %y: memref<?x4xf32>) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %n = memref.dim %x, %c0 : memref<?x4xf32>
      "scf.parallel"(%c0, %n, %c1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
      ^bb0(%i: index):
        %span = tile.row_span %i, %c0 {
        ^bb0(%row: index):
          tile.yield %c0, %row : index, index
        } of 4 : index : tensor<2x2xindex>
        %a = tile.load %x[%i, %c0] : memref<?x4xf32> -> tensor<2x4xf32>
        %b = tile.load %k[%i, %c0] : memref<?x4xf32> -> tensor<4x4xf32>
        %s = tile.dot %a, %b transpose over %span : tensor<2x2xindex>
          : tensor<2x4xf32>, tensor<4x4xf32> -> tensor<2x4xf32>
        tile.store %s, %y[%i, %c0] : tensor<2x4xf32>, memref<?x4xf32>
        scf.reduce
      }) : (index, index, index) -> ()
      func.return
    }"""
    plan(parse(text), TileLayout(2, 4), ())
    with pytest.raises(CannotEmit, match="transposed right side, over a part of its columns"):
        plan(parse(text), find("avx2").layout(Problem(4)), ())
