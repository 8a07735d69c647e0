"""Products of bfloat16 pairs in C++: the layer on any spans and odd lengths, and kernels that are right.

Emulated as Intel's manual has the instructions (tests/simde_headers) where the processor lacks them.
"""

from __future__ import annotations

import ctypes
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from ml_dtypes import bfloat16

from flashgen.interpret import flushed, steps
from flashgen.problem import Problem
from flashgen.reference import attention, bound
from flashgen.runtime.cpu import CpuKernel
from flashgen.schedule import Schedule
from flashgen.targets.avx512bf16 import Avx512Bf16
from tests import sequences
from tests.compiled import Build, around, call, kernel, library
from tests.strategies import KINDS, Inputs, make_inputs
from tests.tensor import Tensor
from tests.test_storage_types import hard_to_round
from tests.test_tile_layer import FIRST, C, K, R, arrays, c_argument, inside, spans_of

BUILD = Build(Avx512Bf16(), emulated=True)
"""To the bit: that a processor does what the manual says is for its maker to promise."""

PROGRAM = """
typedef flashgen_tensor Tensor;
constexpr isize R = 31, K = 47, C = 75, W = 32, P = (C + W - 1) / W, whole = unroll * lanes;
typedef Tile<R, C, round_up(C, whole)> Result;
typedef NarrowTile<R, K, round_up(K, whole)> Left;
typedef Pairs<P, (K + 1) / 2, W> Right;
template <bool accumulate> void multiply(Result out, Left a, Right b, Spans<R> s, int part) {
  if (part == 0) product<accumulate>(out, a, b, Everything());
  if (part == 1) product<accumulate>(out, a, b, Only<R>(s));
  if (part == 2) product<accumulate>(out, a, b, Over<R>(s));
}
}
extern "C" {
void set_spans(void *spans, const isize *lo, const isize *hi, isize width) {
  const Spans<R> s(spans);
  for (isize r = 0; r < R; ++r) s.set(r, 0, lo[r], hi[r], width);
}
void multiply_onto(void *out, void *a, void *b, void *spans, int part) {
  multiply<true>(Result(out), Left(a), Right(b), Spans<R>(spans), part);
}
void multiply_anew(void *out, void *a, void *b, void *spans, int part) {
  multiply<false>(Result(out), Left(a), Right(b), Spans<R>(spans), part);
}
void pack_keys(void *pairs, const Tensor *t, isize first) {
  pack_transposed<K>(Right(pairs), view(array<bfloat16, 2>(t), {first, 0}, C));
}
void pack_values(void *pairs, const Tensor *t, isize first) {
  pack<C>(Right(pairs), view(array<bfloat16, 2>(t), {first, 0}, K));
}
void read_left(void *to, const Tensor *t, isize first) { read(Left(to), array<bfloat16, 2>(t), {first, 0}); }
void narrow_all(bfloat16 *to, const float *from, isize n) {
  for (isize i = 0; i < n; i += lanes) store(to + i, narrow(load(from + i)));
}
}
"""


@cache
def loaded() -> ctypes.CDLL:
    text = around(PROGRAM, BUILD.target, "bfloat16", products="bfloat16")
    return ctypes.CDLL(str(library(text, BUILD)))


def run(name: str, *arguments: object) -> None:
    loaded()[name](*map(c_argument, arguments))  # pyright: ignore[reportArgumentType]


def padded(values: np.ndarray) -> np.ndarray:
    """In the layout of tiles; the padding holds NaN."""
    tile = np.full((42, -(-values.shape[1] // 64) * 64), np.nan, values.dtype)
    tile[:R, : values.shape[1]] = values
    return tile


def pairs(values: np.ndarray) -> np.ndarray:
    """(K, columns) as panels of pairs, 0 in all that there is more."""
    whole = np.zeros((48, 96), bfloat16)
    whole[:K, : values.shape[1]] = values
    return np.ascontiguousarray(whole.reshape(24, 2, 3, 32).transpose(2, 0, 3, 1))


def spans(lo: np.ndarray, hi: np.ndarray, width: int) -> np.ndarray:
    made = np.full((42, 2), 1 << 40, np.int64)
    run("set_spans", made, lo, hi, width)
    return made


def in_turn(a: np.ndarray, b: np.ndarray, seen: np.ndarray, start: np.ndarray) -> np.ndarray:
    """The sum of products that are seen, in the instruction's order and rounding."""
    a, b = a.astype(np.float32), b.astype(np.float32)
    for k in steps(K, pairs=True):
        with np.errstate(invalid="ignore"):
            start = start + np.where(seen[:, k : k + 1], a[:, k : k + 1] * b[k], np.float32(0))
        start = flushed(start)
    return start


def operands(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    a, b = (rng.normal(size=shape).astype(bfloat16) for shape in ((R, K), (K, C)))
    return a, b, rng.normal(size=(R, C)).astype(np.float32)


def multiplied(
    a: np.ndarray, b: np.ndarray, start: np.ndarray | None, span: np.ndarray, part: int
) -> np.ndarray:
    out = padded(np.full((R, C), np.nan, np.float32) if start is None else start)
    run("multiply_anew" if start is None else "multiply_onto", out, padded(a), pairs(b), span, part)
    return out[:R, :C]


@pytest.mark.parametrize("onto", [False, True], ids=["anew", "onto"])
def test_products(onto: bool) -> None:
    """Whole, and of columns that are wanted; NaN in the padding of the left side is not read."""
    a, b, start = operands(0)
    want = in_turn(a, b, np.ones((R, K), bool), start if onto else np.zeros_like(start))
    for part, (lo, hi) in [(0, spans_of(C)[0]), *product([1], spans_of(C))]:
        got, wanted = multiplied(a, b, start if onto else None, spans(lo, hi, C), part), inside(lo, hi, C)
        np.testing.assert_array_equal(got[wanted], want[wanted])


@pytest.mark.parametrize("onto", [False, True], ids=["anew", "onto"])
def test_products_over_spans_of_any_parity(onto: bool) -> None:
    """What is outside is NaN on the left, and on the right where no row of it is seen."""
    a, b, start = operands(1)
    for lo, hi in spans_of(K):
        seen = inside(lo, hi, K)
        want = in_turn(a, b, seen, start if onto else np.zeros_like(start))
        left, right = np.where(seen, a, bfloat16(np.nan)), b.copy()
        right[~seen.any(axis=0)] = np.nan
        got = multiplied(left, right, start if onto else None, spans(lo, hi, K), 2)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("at", [16, 17, 46], ids=["first of a pair", "second of a pair", "odd end"])
def test_a_nan_on_the_right_reaches_the_rows_that_see_it_alone(at: int) -> None:
    a, b, start = operands(2)
    b[at] = np.nan
    for lo, hi in spans_of(K):
        got, seen = np.isnan(multiplied(a, b, start, spans(lo, hi, K), 2)), inside(lo, hi, K)
        np.testing.assert_array_equal(got.all(axis=1), seen[:, at])
        np.testing.assert_array_equal(got.any(axis=1), seen[:, at])


def test_packing_and_reading() -> None:
    """From arrays of any strides; rows outside the array, and columns behind the last, are 0."""
    for first in FIRST:
        for keys, values in zip(arrays(bfloat16, 80, K), arrays(bfloat16, 80, C), strict=True):
            for name, array, rows in (("pack_keys", keys, C), ("pack_values", values, K)):
                inner = np.zeros((rows, array.shape[1]), bfloat16)
                inner[: len(array[first : first + rows])] = array[first : first + rows]
                want = pairs(inner.T if name == "pack_keys" else inner).view(np.uint16)
                got = np.full(want.size + 99, 0x7FFF, np.uint16)
                run(name, got, Tensor.of(array), first)
                np.testing.assert_array_equal(got[: want.size], want.ravel())
                assert (got[want.size :] == 0x7FFF).all()
            left = padded(np.full((R, K), 5, bfloat16))
            run("read_left", left, Tensor.of(keys), first)
            count = min(80 - first, R)
            np.testing.assert_array_equal(left[:count, :K], keys[first : first + R])
            np.testing.assert_array_equal(left[count:R, :K], 0)


def test_rows_of_keys_an_even_number_apart_go_by_squares() -> None:
    """47 numbers to a row, as above, keep to single ones; 48 do not."""
    keys = np.random.default_rng(4).normal(size=(80, K + 1)).astype(bfloat16)[:, :K]
    got = np.zeros((3, 24, 32, 2), bfloat16)
    run("pack_keys", got, Tensor.of(keys), 1)
    np.testing.assert_array_equal(got, pairs(keys[1 : 1 + C].T))


def test_weights_round_to_nearest_even() -> None:
    """Subnormal ones become 0, which no weight is; a NaN stays one."""
    x = hard_to_round("bfloat16")
    x = x[: x.size // 16 * 16]
    got = np.empty(x.shape, bfloat16)
    run("narrow_all", got, x, x.size)
    with np.errstate(over="ignore", invalid="ignore"):
        want = flushed(x).astype(bfloat16)
    nan = np.isnan(x)
    np.testing.assert_array_equal(got[~nan].view(np.uint16) & 0x7FFF, want[~nan].view(np.uint16) & 0x7FFF)
    assert np.isnan(got[nan]).all()


D, DV, BR, BC, NQ, NK = 23, 33, 20, 39, 47, 95
"""Odd contractions: the last pair of each is half a pair."""
PROBLEM = Problem(D, DV, "bfloat16", "bottom-right")
ALIKE = (
    Schedule("q-outer", BR, BC, True, True, products="bfloat16"),
    Schedule("kv-outer", BR, BC, True, False, products="bfloat16"),
)
OTHERS = (
    Schedule("kv-outer", BR, BC, False, False, products="bfloat16"),
    Schedule("q-outer", BR, BC, group_rows=True, split_keys=BC, rescale_threshold=8, products="bfloat16"),
)


@cache
def made() -> list[CpuKernel]:
    """Each compiled by itself: through the emulation one takes as long as several elsewhere."""
    return [kernel(BUILD, PROBLEM, schedule) for schedule in (*ALIKE, *OTHERS)]


def checked(tested: CpuKernel, x: Inputs, threads: int = 1) -> bytes:
    """O and lse, which are within the one bound."""
    with np.errstate(invalid="ignore"):
        limit = bound(PROBLEM, x.q, x.k, x.v, x.scale, products="bfloat16")
        o, lse = call(tested, x, threads)
        limit.check(o, lse, *attention(PROBLEM, x.q, x.k, x.v, x.scale))
    return np.nan_to_num(o.astype(np.float32), nan=7e7).tobytes() + lse.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_values(kind: str) -> None:
    """Order, skip and the number of threads change no bit."""
    x = make_inputs(PROBLEM, kind, (2, 4, 2, NQ, NK), 0.25, seed=7)
    alike, others = made()[: len(ALIKE)], made()[len(ALIKE) :]
    assert len({checked(tested, x, threads) for tested in alike for threads in (1, 3)}) == 1
    for tested in others:
        assert len({checked(tested, x, threads) for threads in (1, 3)}) == 1


@pytest.mark.parametrize(("nq", "nk"), [(0, 5), (5, 0), (1, 1), (20, 39), (21, 40), (19, 38), (3, 127)])
def test_hostile_sizes(nq: int, nk: int) -> None:
    x = make_inputs(PROBLEM, "plain", (1, 2, 1, nq, nk), 0.25, seed=8)
    for tested in made():
        checked(tested, x)


@pytest.mark.parametrize("layout", sequences.EACH)
def test_sequences(layout: str) -> None:
    """Packed and in pages: those of 3 rows are never evenly spaced for a square, those of 16 always."""
    tested = kernel(BUILD, replace(PROBLEM, layout=layout), ALIKE[0])
    for page in (3, 16):
        x = sequences.make(tested.problem, [(NQ, NK), (NQ, 0), (NQ, 1), (NQ, 40)], kind="hidden", page=page)
        sequences.call(tested, x)
        x.check(products="bfloat16")


def test_one_visible_key_gives_its_value_to_the_bit() -> None:
    x = make_inputs(PROBLEM, "plain", (2, 4, 2, 1, 1), 0.25, seed=9)
    for tested, size in product(made(), (1.0, 2.0**-20, 2.0**12)):
        y = replace(x, q=(x.q.astype(np.float32) * size).astype(bfloat16))
        np.testing.assert_array_equal(call(tested, y)[0], np.repeat(x.v, 2, axis=1))


def test_kernels_that_do_not_ask_are_those_of_avx512() -> None:
    """But for the flags: nothing of pairs is in them."""
    from flashgen.emission import source
    from flashgen.targets.cpu import Avx512

    texts = [source(PROBLEM, Schedule(br=BR, bc=BC), target) for target in (Avx512(), Avx512Bf16())]
    assert texts[0] == texts[1].replace("avx512bf16", "avx512").replace(" -mavx512 ", " ")
