"""Types other than float32 on CPUs: float16's and bfloat16's conversions on every value, and kernels of all.

Sizes and strides are in tests/test_cpp_emission.py, tests/test_layouts.py and tests/test_tile_layer.py.
"""

from __future__ import annotations

import ctypes
import math
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from ml_dtypes import bfloat16, finfo

import flashgen
from flashgen import build, reference, targets
from flashgen.errors import InvalidArgument
from flashgen.problem import DTYPES, Problem
from flashgen.reference import attention, bound
from flashgen.runtime.cpu import CpuKernel
from flashgen.runtime.tensors import ITEMSIZE, SCALES
from flashgen.schedule import ORDERS, Schedule
from flashgen.targets.cpu import Cpu
from tests.compiled import TARGETS, Build, around, call, kernels, library, own_cache
from tests.strategies import KINDS, STORAGE, Inputs, make_inputs

NARROW = ("float16", "bfloat16")
OTHERS = (*NARROW, "float64")
QUIET = {"float16": 0x0200, "bfloat16": 0x0040}
"""The bit of a NaN's that says that it does not signal."""

each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
each_type = pytest.mark.parametrize("dtype", NARROW)
each_other = pytest.mark.parametrize("dtype", OTHERS)

PROGRAM = """
typedef %s Stored;
template <isize N, class To, class From> void each(To *to, const From *from, isize n) {
  for (isize i = 0; i < n; i += N) copy<N>(to + i, from + i);
}
}  // namespace
extern "C" {
void widen_1(float *to, const void *from, int64_t n) { each<1>(to, (const Stored *)from, n); }
void widen_8(float *to, const void *from, int64_t n) { each<8>(to, (const Stored *)from, n); }
void narrow_1(void *to, const float *from, int64_t n) { each<1>((Stored *)to, from, n); }
void narrow_8(void *to, const float *from, int64_t n) { each<8>((Stored *)to, from, n); }
}
"""


class Conversions:
    """What templates/cpp converts with, one number at a time or eight."""

    def __init__(self, target: Cpu, dtype: str):
        self.dtype, self.stored = dtype, STORAGE[dtype]
        text = around(PROGRAM % dtype, target, dtype)
        self._library = ctypes.CDLL(str(library(text, Build(target))))

    def widen(self, x: np.ndarray, at_a_time: int) -> np.ndarray:
        return self._call(f"widen_{at_a_time}", x, np.empty(x.shape, np.float32))

    def narrow(self, x: np.ndarray, at_a_time: int) -> np.ndarray:
        return self._call(f"narrow_{at_a_time}", x, np.empty(x.shape, self.stored))

    def _call(self, name: str, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        assert x.size % 8 == 0
        self._library[name](*(ctypes.c_void_p(a.ctypes.data) for a in (y, x)), ctypes.c_int64(x.size))
        return y


made = cache(Conversions)


@pytest.fixture(params=[1, 8], ids=["one", "eight"])
def at_a_time(request: pytest.FixtureRequest) -> int:
    return request.param


@each_target
@each_type
def test_every_value_comes_back(target: Cpu, dtype: str, at_a_time: int) -> None:
    """All 65536: to the float32 that NumPy, or ml_dtypes, says, and back to the same bits.

    A NaN stays one, with its sign and payload; one that signals becomes quiet.
    """
    convert = made(target, dtype)
    bits = np.arange(1 << 16, dtype=np.uint16)
    stored = bits.view(convert.stored)
    wide = convert.widen(stored, at_a_time)
    nan = np.isnan(wide)
    assert nan.sum() == 2 * ({"float16": 1 << 10, "bfloat16": 1 << 7}[dtype] - 1)
    np.testing.assert_array_equal(wide[~nan].view(np.uint32), stored[~nan].astype(np.float32).view(np.uint32))
    back = convert.narrow(wide, at_a_time).view(np.uint16)
    np.testing.assert_array_equal(back, np.where(nan, bits | QUIET[dtype], bits))


def hard_to_round(dtype: str) -> np.ndarray:
    """Every number of the type, the points half way between two, what is an ulp of float32 off either, and
    2^20 numbers of any bits; of both signs, NaN and infinity and what overflows included."""
    stored = STORAGE[dtype]
    above = np.arange(1 << 15, dtype=np.uint16).view(stored).astype(np.float32)
    above = above[np.isfinite(above)].astype(np.float64)
    ends = np.append(above, 2 * above[-1] - above[-2])  # the first that is too large
    exact = np.concatenate([ends, (ends[1:] + ends[:-1]) / 2])
    with np.errstate(over="ignore"):
        exact = exact.astype(np.float32).view(np.int32)
    near = np.concatenate([exact - 1, exact, exact + 1])[1:].view(np.float32)
    random = np.random.default_rng(16).integers(0, 1 << 32, 1 << 20, dtype=np.uint32).view(np.float32)
    every = np.concatenate([near, -near, random])
    return every[: every.size // 8 * 8]


@each_target
@each_type
def test_rounds_to_nearest_even(target: Cpu, dtype: str, at_a_time: int) -> None:
    """Overflow gives infinity, and a NaN whose payload lies in the lost bits is still one."""
    convert, x = made(target, dtype), hard_to_round(dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        want = x.astype(convert.stored)
    got, nan = convert.narrow(x, at_a_time), np.isnan(x)
    assert nan.any() and np.isinf(want.astype(np.float32)).sum() > 2
    np.testing.assert_array_equal(got.view(np.uint16)[~nan], want.view(np.uint16)[~nan])
    assert np.isnan(got[nan]).all()


D, DV, BR, BC, NQ, NK = 24, 40, 20, 40, 47, 95
"""As in tests/test_hostile.py."""
MASK = dict(zip(OTHERS, ("bottom-right", "top-left", "bottom-right"), strict=True))


def alike(target: Cpu, dtype: str) -> list[CpuKernel]:
    """The four with lazy rescaling; one mask for each type."""
    problem = Problem(D, DV, dtype, MASK[dtype])
    schedules = [Schedule(order, BR, BC, True, skip) for order in ORDERS for skip in (False, True)]
    return kernels(Build(target), tuple((problem, schedule) for schedule in schedules))


def inputs(dtype: str, kind: str = "plain", nq: int = NQ, nk: int = NK) -> Inputs:
    problem = Problem(D, DV, dtype, MASK[dtype])
    return make_inputs(problem, kind, (2, 4, 2, nq, nk), 0.25, seed=7)


@each_target
@each_other
@pytest.mark.parametrize("kind", KINDS)
def test_hostile_values(target: Cpu, dtype: str, kind: str) -> None:
    """Within the one bound of the reference; order, skip and the number of threads change no bit."""
    x, results = inputs(dtype, kind), set()
    for kernel in alike(target, dtype):
        p = kernel.problem
        with np.errstate(invalid="ignore"):
            limit, want = bound(p, x.q, x.k, x.v, x.scale), attention(p, x.q, x.k, x.v, x.scale)
        for threads in (1, 3):
            o, lse = call(kernel, x, threads)
            assert o.dtype == STORAGE[dtype] and lse.dtype == STORAGE[p.computed]
            limit.check(o, lse, *want)
            results.add((np.nan_to_num(o.astype(lse.dtype), nan=7e7).tobytes(), lse.tobytes()))
    assert len(results) == 1


@each_target
@each_type
def test_o_is_float32s_rounded_once(target: Cpu, dtype: str) -> None:
    """A kernel of float32 on the same numbers gives the same lse, and an O that rounds to the same O."""
    x = inputs(dtype)
    wide = replace(x, **{name: getattr(x, name).astype(np.float32) for name in "qkv"})
    for kernel in alike(target, dtype)[::3]:
        problem = replace(kernel.problem, dtype="float32")
        schedule = Schedule(ORDERS[kernel.name.count("q_outer")], BR, BC)
        (same,) = kernels(Build(target), ((problem, schedule),))
        o, lse = call(kernel, x)
        want_o, want_lse = call(same, wide)
        assert lse.tobytes() == want_lse.tobytes()
        assert o.tobytes() == want_o.astype(STORAGE[dtype]).tobytes()


@each_target
@each_other
def test_one_visible_key_gives_its_value_to_the_bit(target: Cpu, dtype: str) -> None:
    """However far its logit."""
    x = inputs(dtype, nq=1, nk=1)
    for kernel in alike(target, dtype):
        for size in (1.0, 2.0**-20, 2.0**12):
            y = replace(x, q=(x.q.astype(STORAGE[kernel.problem.computed]) * size).astype(STORAGE[dtype]))
            o, _ = call(kernel, y)
            np.testing.assert_array_equal(o, np.repeat(x.v, 2, axis=1))


@each_target
@each_type
def test_equal_values_stay_what_they_are(target: Cpu, dtype: str) -> None:
    """For any weights: what float32 adds in rounding is lost in the last one."""
    x = inputs(dtype)
    for kernel in alike(target, dtype):
        for value in (-3.703125, {"float16": 65504.0, "bfloat16": 2.0**120}[dtype]):
            o, lse = call(kernel, replace(x, v=np.full_like(x.v, value)))
            np.testing.assert_array_equal(o[~np.isinf(lse)], x.v.dtype.type(value))


@each_target
@each_type
@pytest.mark.parametrize("signal", [True, False], ids=["signalling", "quiet"])
def test_a_nan_of_any_payload_spreads_as_far_as_it_should(target: Cpu, dtype: str, signal: bool) -> None:
    x = inputs(dtype)
    x.v.view(np.uint16)[1, 1, 0, 33] = {"float16": 0x7C01, "bfloat16": 0x7F81}[dtype] | (
        0 if signal else QUIET[dtype]
    )
    for kernel in alike(target, dtype):
        o, lse = call(kernel, x)
        assert not np.isnan(lse).any()
        sees = ~np.isinf(lse[1, 2:])
        assert np.isnan(o[1, 2:, :, 33][sees]).all()
        assert np.isnan(o).sum() == sees.sum()


@each_other
def test_attention_takes_and_returns_the_type(dtype: str) -> None:
    stored, rng = STORAGE[dtype], np.random.default_rng(2)
    q, k, v = (rng.standard_normal((1, 2, 9, 8)).astype(stored) for _ in range(3))
    schedule = Schedule(br=14, bc=32, group_rows=False)  # so attention() chooses no other
    with own_cache():
        o, lse = flashgen.attention(q, k, v, return_lse=True, is_causal=True, schedule=schedule)
        kernel = flashgen.compile(Problem(8, dtype=dtype, causal="bottom-right"), schedule)
        out = np.empty((1, 2, 8, 18), stored).swapaxes(2, 3)[..., ::2, :]
        shifted = np.empty(q.nbytes + 1, np.uint8)[1:].view(stored).reshape(q.shape)
        shifted[...] = q
        assert not shifted.flags.aligned
        returned, _ = kernel(shifted, k, v, out=out)
        nothing = flashgen.attention(q, k, v[..., :0])
    problem = kernel.problem
    assert o.dtype == stored and lse.dtype == STORAGE[problem.computed]
    bound(problem, q, k, v, 8**-0.5).check(o, lse, *attention(problem, q, k, v, 8**-0.5))
    assert returned is out
    assert np.array_equal(out, o)
    assert nothing.shape == (1, 2, 9, 0) and nothing.dtype == stored


HALVES = np.ones((1, 1, 3, 8), np.float16)
REFUSED = [
    ({"k": HALVES.astype(np.float32)}, "k.dtype is '<f4'; native float16 is allowed"),
    ({"v": HALVES.astype(bfloat16)}, "v.dtype is 'bfloat16'; native float16 is allowed"),
    ({"q": HALVES.astype(bfloat16)}, "k.dtype is '<f2'; native bfloat16 is allowed"),
    (
        {"q": HALVES.astype(">f2")},
        "q.dtype is '>f2'; native float32 or float16 or bfloat16 or float64 is allowed",
    ),
    ({"q": HALVES.astype(np.float64)}, "k.dtype is '<f2'; native float64 is allowed"),
    ({"k": HALVES.astype(np.float64)}, "k.dtype is '<f8'; native float16 is allowed"),
    (
        {"q": HALVES.astype(">f8")},
        "q.dtype is '>f8'; native float32 or float16 or bfloat16 or float64 is allowed",
    ),
    ({"q": HALVES.astype(np.longdouble)}, "q.dtype is '<f16'; native float32 or float16 or bfloat16 or"),
    (
        {"q": HALVES.view("V2")},
        "q.dtype is 'void16'; native float32 or float16 or bfloat16 or float64 is allowed",
    ),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[message[:30] for _, message in REFUSED])
def test_types_that_do_not_fit_are_refused(change: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        flashgen.attention(**{"q": HALVES, "k": HALVES, "v": HALVES} | change)


def test_outputs_of_another_type_are_refused_before_anything_is_written() -> None:
    (kernel,) = kernels(Build(TARGETS[0]), ((Problem(8, dtype="float16"), Schedule(br=12, bc=32)),))
    out, lse = np.full((1, 1, 3, 8), 7, np.float32), np.full((1, 1, 3), 7, np.float16)
    for outputs, message in (
        ({"out": out}, "out.dtype is '<f4'; native float16 is allowed"),
        ({"lse": lse}, "lse.dtype is '<f2'; native float32 is allowed"),
    ):
        with pytest.raises(InvalidArgument, match=re.escape(message)):
            kernel(HALVES, HALVES, HALVES, **outputs)
    assert (out == 7).all() and (lse == 7).all()


def test_the_package_of_bfloat16_is_not_asked_for() -> None:
    """It is never imported, not even for such an array: whoever has one has imported it."""
    code = (
        "import sys, numpy as np, flashgen\n"
        "for dtype in (np.float32, np.float16):\n"
        "    flashgen.attention(*[np.ones((1, 1, 3, 8), dtype)] * 3)\n"
        "flashgen.emit(flashgen.Problem(8, dtype='bfloat16'))\n"
        "print('ml_dtypes' in sys.modules)\n"
    )
    with own_cache():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@each_target
def test_tiny_values_of_float64(target: Cpu) -> None:
    """Subnormal numbers and -0.0, as of float32 in tests/test_hostile.py."""
    x, rng = inputs("float64"), np.random.default_rng(3)
    for power in (-1074, -1060, -1022):
        tiny = replace(x, q=np.ldexp(x.q, power))
        mixed = replace(
            x, k=np.where(rng.random(x.k.shape) < 0.5, np.ldexp(x.k, power), x.k), v=np.ldexp(x.v, -1022)
        )
        zeros = replace(x, q=np.copysign(0 * x.q, x.q), v=np.copysign(0 * x.v, x.v))
        for kernel in alike(target, "float64"):
            for y in (tiny, mixed, zeros):
                p, arrays = kernel.problem, (y.q, y.k, y.v, y.scale)
                bound(p, *arrays).check(*call(kernel, y), *attention(p, *arrays))


@each_target
def test_scales_of_float64(target: Cpu) -> None:
    """Their product with log2 e is finite up to the largest; what is too large, or subnormal, is refused."""
    smallest, largest = SCALES["float64"]
    log2e = math.log2(math.e)
    assert smallest == np.finfo(float).smallest_normal
    assert math.isfinite(largest * log2e) and math.isinf(math.nextafter(largest, math.inf) * log2e)
    x, kernel = inputs("float64"), alike(target, "float64")[0]
    one = replace(x, q=np.ldexp(x.q, -1000), k=np.ldexp(x.k, -1000))
    o, lse = call(kernel, replace(x, scale=2.0**-977))
    for scale, y in ((2.0**1023, one), (2.0**-977, x)):
        for a, b in zip(call(kernel, replace(y, scale=scale)), (o, lse), strict=True):
            np.testing.assert_array_equal(a, b)
    for scale in (2 * smallest / 3, -1.3e308, math.inf):
        with pytest.raises(InvalidArgument, match=r"scale is .*; 0 is allowed, or a finite float64 of size"):
            kernel(x.q, x.k, x.v, scale=scale)


def test_every_part_knows_every_type() -> None:
    for table in (
        build.STORAGE,
        reference.ROUNDOFF,
        reference.SMALLEST,
        ITEMSIZE,
        STORAGE,
        *(target.dtypes for target in targets.TARGETS.values() if isinstance(target, Cpu)),
    ):
        assert set(DTYPES) <= set(table)
    for dtype, numpy_type in STORAGE.items():
        assert reference.ROUNDOFF[dtype] == float(finfo(numpy_type).eps) / 2
        smallest = float(finfo(numpy_type).smallest_subnormal)
        assert reference.SMALLEST[dtype] == (smallest / 2 or smallest)


def test_a_target_refuses_what_it_does_not_have() -> None:
    for dtype in ("float32", *NARROW):
        assert flashgen.emit(Problem(8, dtype=dtype), target="cuda")
    with pytest.raises(
        InvalidArgument, match=r"dtype is 'float64'; target cuda has float32, float16, bfloat16$"
    ):
        flashgen.emit(Problem(8, dtype="float64"), target="cuda")


def test_float32_kernels_hold_nothing_of_the_others() -> None:
    for target in ("avx2", "avx512", "cuda"):
        text = flashgen.emit(Problem(8), target=target)
        code = re.sub(r"//.*", "", text)
        assert not re.search(r"16\.h|bfloat|__half|float16|cvtph|\bdouble\b", code)
    for dtype, other in (NARROW, NARROW[::-1]):
        text = flashgen.emit(Problem(8, dtype=dtype), target="avx2")
        assert f"struct {dtype} {{" in text and f"struct {other} {{" not in text


@each_target
def test_float64_kernels_compute_in_nothing_narrower(target: Cpu) -> None:
    """No float, and no instruction on floats but those that move the halves of doubles."""
    text = flashgen.emit(Problem(8, dtype="float64"), target=target)
    code = re.sub(r"//.*", "", text)
    assert not re.search(r"\bfloat\b|\d\.?f\b|__m(256|512)\b", code)
    used = set(re.findall(r"_mm\w+_[ps]s\b", code))
    moves = {"_mm256_permutevar8x32_ps", "_mm512_maskz_extractf32x4_ps"}
    assert used <= {*moves, "_mm256_castpd_ps", "_mm512_castpd_ps"}, used


@each_target
def test_float64_is_more_than_float32(target: Cpu) -> None:
    """What float32 cannot hold: numbers too close together, and exponents too far apart."""
    x, kernel = inputs("float64"), alike(target, "float64")[0]
    o, lse = call(kernel, x)
    near = replace(x, k=x.k * (1 + 2.0**-45))
    assert (call(kernel, near)[1] != lse)[~np.isinf(lse)].any()
    for power in (-600, 600):
        far = replace(x, q=np.ldexp(x.q, power), k=np.ldexp(x.k, -power), v=np.ldexp(x.v, power))
        got_o, got_lse = call(kernel, far)
        assert np.array_equal(got_o, np.ldexp(o, power)) and np.array_equal(got_lse, lse)
