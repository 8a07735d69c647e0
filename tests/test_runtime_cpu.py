"""Calling a kernel: sizes, layouts, refusals, threads, speed. The kernel is tests/sample_kernel.py's."""

from __future__ import annotations

import concurrent.futures
import re
import timeit
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashgen.errors import InvalidArgument, KernelFailure, MissingTool
from flashgen.problem import Problem
from flashgen.runtime import load
from flashgen.runtime.cpu import CpuKernel
from flashgen.runtime.tensors import FORMS, SCALES
from flashgen.runtime.threads import WORK_PER_THREAD
from flashgen.targets.cpu import Avx2, Avx512
from tests.sample_kernel import attention_expected, attention_source, probe_source, skip_unless_it_runs

PROBLEM = Problem(4, 3)
B, HQ, HKV, NQ, NK = 2, 4, 2, 5, 6


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory):
    skip_unless_it_runs(Avx2())
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLASHGEN_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("OMP_NUM_THREADS", raising=False)
        yield


@pytest.fixture(scope="module")
def kernel() -> CpuKernel:
    return load(attention_source("sample", PROBLEM), "sample", PROBLEM, Avx2())


@pytest.fixture(scope="module")
def probe() -> CpuKernel:
    return load(probe_source("probe"), "probe", Problem(64), Avx2())


def arrays(b: int = B, hq: int = HQ, hkv: int = HKV, nq: int = NQ, nk: int = NK, seed: int = 0, **dims: int):
    """q, k and v of the sample problem."""
    d, dv = dims.get("d", PROBLEM.head_dim), dims.get("dv", PROBLEM.head_dim_v)
    rng = np.random.default_rng(seed)
    shapes = ((b, hq, nq, d), (b, hkv, nk, d), (b, hkv, nk, dv))
    return tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)


def check(result, q, k, v, scale: float = 0.5, causal: str | None = None) -> None:
    """The sample kernel computes in double precision: its results are right to one rounding."""
    for array, expected in zip(result, attention_expected(q, k, v, scale, causal), strict=True):
        assert array.dtype == np.float32
        np.testing.assert_array_max_ulp(array, expected.astype(np.float32), 1)


@pytest.mark.parametrize("causal", [None, "bottom-right", "top-left"])
def test_computes(causal: str | None) -> None:
    problem = Problem(4, 3, causal=causal)
    kernel = load(attention_source("f", problem), "f", problem, Avx2())
    for nq, nk in ((5, 6), (6, 2), (1, 7)):
        q, k, v = arrays(nq=nq, nk=nk)
        check(kernel(q, k, v), q, k, v, causal=causal)
        check(kernel(q, k, v, scale=-2), q, k, v, -2, causal)


def test_repr_and_names(kernel: CpuKernel) -> None:
    assert (kernel.name, kernel.problem, repr(kernel)) == ("sample", PROBLEM, "<CpuKernel sample>")


@given(st.tuples(*[st.integers(0, 3)] * 5), st.booleans())
def test_any_size_may_be_zero(sizes: tuple[int, ...], given_outputs: bool) -> None:
    b, group, hkv, nq, nk = sizes
    kernel = load(attention_source("sample", PROBLEM), "sample", PROBLEM, Avx2())
    q, k, v = arrays(b, group * hkv, hkv, nq, nk)
    outputs = {}
    if given_outputs:
        outputs = {"out": np.empty((b, group * hkv, nq, 3), np.float32)}
        outputs["lse"] = np.empty((b, group * hkv, nq), np.float32)
    check(kernel(q, k, v, **outputs), q, k, v)


def test_kernel_is_not_called_without_heads(probe: CpuKernel) -> None:
    """It would divide Hq by Hkv. The probe fails for 13 threads, if it is called."""
    o, lse = probe(*arrays(2, 0, 0, 3, 4, d=64, dv=64), threads=13)
    assert (o.shape, lse.shape) == ((2, 0, 3, 64), (2, 0, 3))


def test_no_keys(kernel: CpuKernel) -> None:
    o, lse = kernel(*arrays(nk=0))
    assert np.array_equal(o, np.zeros((B, HQ, NQ, 3)))
    assert np.array_equal(lse, np.full((B, HQ, NQ), -np.inf))


def layouts(array: np.ndarray) -> dict[str, np.ndarray]:
    """Arrays equal to ``array`` that lie otherwise in memory."""
    wide = np.full((*array.shape[:-1], 2 * array.shape[-1]), np.nan, np.float32)
    wide[..., ::2] = array
    shifted = np.empty(array.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(array.shape)
    shifted[...] = array
    packed = np.zeros(array.shape, np.dtype([("value", "f4"), ("pad", "u1")]))
    packed["value"] = array
    reversed_rows = array[:, ::-1, ::-1, ::-1].copy()[:, ::-1, ::-1, ::-1]
    read_only = array.copy()
    read_only.flags.writeable = False
    return {
        "every second column": wide[..., ::2],
        "transposed": array.transpose(3, 1, 0, 2).copy().transpose(2, 1, 3, 0),
        "negative strides": reversed_rows,
        "at an odd address": shifted,
        "at multiples of five bytes": packed["value"],
        "read-only": read_only,
        "memory map": array.view(np.memmap),
    }


@pytest.mark.parametrize("layout", list(layouts(np.zeros((1, 1, 1, 1), np.float32))))
@pytest.mark.parametrize("which", [0, 1, 2])
def test_layouts_of_inputs(kernel: CpuKernel, layout: str, which: int) -> None:
    given_arrays = list(arrays())
    expected = kernel(*given_arrays)
    given_arrays[which] = layouts(given_arrays[which])[layout]
    for array, right in zip(kernel(*given_arrays), expected, strict=True):
        assert np.array_equal(array, right)


def test_inputs_broadcast_and_shared(kernel: CpuKernel) -> None:
    q, k, _ = arrays()
    k = np.broadcast_to(k[:, :1], k.shape)
    v = k[..., :3]
    check(kernel(q, k, v), q, k, v)


@pytest.mark.parametrize("layout", ["every second column", "transposed", "negative strides"])
def test_outputs_given(kernel: CpuKernel, layout: str) -> None:
    q, k, v = arrays()
    out = layouts(np.full((B, HQ, NQ, 3), np.nan, np.float32))[layout]
    lse = np.full((NQ, HQ, B), np.nan, np.float32).T
    o, returned = kernel(q, k, v, out=out, lse=lse)
    assert o is out
    assert returned is lse
    check((out, lse), q, k, v)
    assert np.array_equal(kernel(q, k, v, out=out)[1], lse)
    assert np.array_equal(kernel(q, k, v, lse=lse)[0], out)


def test_scale_reaches_the_kernel_as_float32(probe: CpuKernel) -> None:
    q, k, v = arrays(1, 1, 1, 1, 1, d=64, dv=64)

    def scale(value: object) -> np.float32:
        return probe(q, k, v, scale=value)[0][0, 0, 0, 0]  # pyright: ignore[reportArgumentType]

    assert scale(None) == 0.125
    for value in (0, 0.0, -3, 0.1, np.float32(0.1), np.float16(0.1), np.int64(7)):
        assert scale(value) == np.float32(value)


def test_limits_of_scale(probe: CpuKernel) -> None:
    """The product with log2 e, which kernels form, is normal and finite up to both limits and not behind."""
    q, k, v = arrays(1, 1, 1, 1, 1, d=64, dv=64)
    log2e, infinity = np.float32(np.log2(np.e)), np.float32(np.inf)
    limits = SCALES["float32"]
    smallest, largest = map(np.float32, limits)
    assert (float(smallest), float(largest)) == (2.0**-126, limits[1])
    above, below = np.nextafter(largest, infinity), np.nextafter(smallest, np.float32(0))
    with np.errstate(over="ignore"):
        assert np.isfinite(largest * log2e)
        assert np.isinf(above * log2e)
    for sign in (1, -1):
        for scale in (smallest, largest, *limits):
            assert probe(q, k, v, scale=sign * scale)[0][0, 0, 0, 0] == np.float32(sign * scale)
        for scale in (below, above, 2.0**-149, 1e-60, np.finfo(np.float32).max):
            with pytest.raises(InvalidArgument, match=r"scale is .*; 0 is allowed, or a finite float32"):
                probe(q, k, v, scale=sign * scale)


def test_threads_reach_the_kernel(probe: CpuKernel, monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = arrays(1, 1, 1, 1, 1, d=64, dv=64)
    assert probe(q, k, v)[1][0, 0, 0] == 1
    assert probe(q, k, v, threads=7)[1][0, 0, 0] == 7
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    q, k, v = arrays(1, 2, 1, 2, 10 * WORK_PER_THREAD // 512, d=64, dv=64)
    assert probe(q, k, v)[1][0, 0, 0] == 3


def test_failure_is_an_error(probe: CpuKernel) -> None:
    with pytest.raises(KernelFailure, match="probe returned 1: there is not the memory it needs"):
        probe(*arrays(1, 1, 1, 1, 1, d=64, dv=64), threads=13)


Q, K, V = arrays()
OUT, LSE = np.full((B, HQ, NQ, 3), 7, np.float32), np.full((B, HQ, NQ), 7, np.float32)
ODD_OUT = layouts(OUT)["at multiples of five bytes"]
LARGE = np.zeros(10_000, np.float32)
IN_LARGE = LARGE[: OUT.size].reshape(OUT.shape)


REFUSED = [
    ({"q": Q.tolist()}, "q is of type list; a NumPy array without mask is allowed"),
    ({"k": None}, "k is of type NoneType"),
    ({"v": np.ma.masked_array(V)}, "v is of type MaskedArray; a NumPy array without mask"),
    ({"q": Q.astype(np.float64)}, "q.dtype is '<f8'; native float32 is allowed"),
    ({"k": K.astype(np.float16)}, "k.dtype is '<f2'"),
    ({"v": V.astype(">f4")}, "v.dtype is '>f4'; native float32"),
    ({"out": OUT.astype(np.float64)}, "out.dtype is '<f8'"),
    ({"lse": LSE.astype(">f4")}, "lse.dtype is '>f4'"),
    ({"lse": LSE.tolist()}, "lse is of type list"),
    ({"q": Q[0]}, "q.shape is (4, 5, 4); four dimensions are allowed: (B, H, N, D)"),
    ({"v": V[None]}, "v.shape is (1, 2, 2, 6, 3); four dimensions"),
    ({"q": Q[..., :3]}, "q.shape is (2, 4, 5, 3); (2, 4, 5, 4) is allowed: D is the head dimension"),
    ({"q": Q[..., :0]}, "q.shape is (2, 4, 5, 0); (2, 4, 5, 4) is allowed"),
    ({"k": K[:1]}, "k.shape is (1, 2, 6, 4); (2, 2, 6, 4) is allowed: B as q has it"),
    ({"k": K[..., :2]}, "k.shape is (2, 2, 6, 2); (2, 2, 6, 4) is allowed"),
    ({"v": V[:, :1]}, "v.shape is (2, 1, 6, 3); (2, 2, 6, 3) is allowed: B, H and N"),
    ({"v": V[:, :, 1:]}, "v.shape is (2, 2, 5, 3); (2, 2, 6, 3) is allowed"),
    ({"v": K}, "v.shape is (2, 2, 6, 4); (2, 2, 6, 3) is allowed"),
    ({"q": Q[:, :3]}, "q.shape is (2, 3, 5, 4); heads that are a multiple of k's 2 are allowed"),
    ({"k": K[:, :0], "v": V[:, :0]}, "q.shape is (2, 4, 5, 4); heads that are a multiple of k's 0"),
    ({"out": OUT[..., :2]}, "out.shape is (2, 4, 5, 2); (2, 4, 5, 3) is allowed: the output's shape"),
    ({"out": OUT[None]}, "out.shape is (1, 2, 4, 5, 3); (2, 4, 5, 3) is allowed"),
    (
        {"lse": LSE[..., None]},
        "lse.shape is (2, 4, 5, 1); (2, 4, 5) is allowed: one value for each query row",
    ),
    ({"out": np.broadcast_to(OUT[:1], OUT.shape)}, "out is read-only; an array that can be written"),
    ({"out": ODD_OUT}, f"out.strides is {ODD_OUT.strides}; elements at multiples of 4 bytes are allowed"),
    (
        {"out": np.lib.stride_tricks.as_strided(OUT, OUT.shape, (0, 60, 12, 4))},
        "out.strides is (0, 60, 12, 4); strides that give every element an address of its own",
    ),
    (
        {"lse": np.lib.stride_tricks.as_strided(LSE, LSE.shape, (80, 12, 4))},
        "lse.strides is (80, 12, 4); strides that give every element an address of its own",
    ),
    ({"out": Q[..., :3]}, "out is in memory that q uses; memory of its own is allowed"),
    ({"k": LARGE[:96].reshape(K.shape), "out": IN_LARGE}, "out is in memory that k uses"),
    ({"v": LARGE[100:172].reshape(V.shape), "out": IN_LARGE}, "out is in memory that v uses"),
    ({"lse": Q[..., 3]}, "lse is in memory that q uses"),
    ({"out": IN_LARGE, "lse": LARGE[119:159].reshape(LSE.shape)}, "lse is in memory that out uses"),
    (
        {"scale": np.nan},
        "scale is nan; 0 is allowed, or a finite float32 of size 1.1754944e-38 to 2.3586574e+38",
    ),
    ({"scale": np.inf}, "scale is inf; 0 is allowed, or a finite float32"),
    ({"scale": -np.inf}, "scale is -inf; 0 is allowed, or a finite float32"),
    ({"scale": 1e39}, "scale is 1e+39; 0 is allowed, or a finite float32"),
    ({"scale": 10**400}, "; 0 is allowed, or a finite float32"),
    ({"scale": "1"}, "scale is '1'; 0 is allowed, or a finite float32"),
    ({"scale": True}, "scale is True; 0 is allowed, or a finite float32"),
    ({"scale": 1j}, "scale is 1j; 0 is allowed, or a finite float32"),
    ({"threads": 0}, "threads is 0; a whole number from 1 to 1024 is allowed"),
    ({"threads": 1.5}, "threads is 1.5; a whole number"),
]


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=[message[:50] for _, message in REFUSED])
def test_refused_before_anything_is_written(kernel: CpuKernel, change: dict, message: str) -> None:
    arguments = {"q": Q, "k": K, "v": V, "out": OUT, "lse": LSE} | change
    before = {name: np.array(value) for name, value in arguments.items() if isinstance(value, np.ndarray)}
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        kernel(**arguments)
    for name, value in before.items():
        assert np.array_equal(arguments[name], value), name


def test_outputs_beside_inputs_are_fine(kernel: CpuKernel) -> None:
    memory = np.full(10_000, np.nan, np.float32)
    out, lse = (
        memory[: OUT.size].reshape(OUT.shape),
        memory[OUT.size : OUT.size + LSE.size].reshape(LSE.shape),
    )
    q = memory[OUT.size + LSE.size :][: Q.size].reshape(Q.shape)
    q[...] = Q
    check(kernel(q, K, V, out=out, lse=lse), Q, K, V)


def test_calls_from_many_python_threads(kernel: CpuKernel) -> None:
    """ctypes lets other threads run during a call: each call has arguments of its own, of one layout too."""
    problems = [arrays(1, 2, 1, 20, 30, seed=seed) for seed in range(4)]
    expected = [kernel(*problem) for problem in problems]

    def work(which: int) -> bool:
        results = [kernel(*problems[which]) for _ in range(200)]
        return all(np.array_equal(a, b) for r in results for a, b in zip(r, expected[which], strict=True))

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(4))) == [True] * 4


def test_cached_call_is_quick(probe: CpuKernel) -> None:
    """30 microseconds a call is the promise; a loaded machine may take a few tries to show it."""
    q, k, v = arrays(1, 1, 1, 8, 8, d=64, dv=64)
    best = min(timeit.repeat(lambda: probe(q, k, v), number=20, repeat=300)) / 20
    assert best < 30e-6


def test_many_layouts_are_not_kept(probe: CpuKernel) -> None:
    for nk in range(FORMS + 10):
        probe(*arrays(1, 1, 1, 1, nk, d=64, dv=64))
    assert probe._lay_out.cache_info().currsize <= FORMS


def test_processor_is_asked_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from flashgen.runtime import cpu_features

    monkeypatch.setattr(cpu_features, "cpu_features", lambda: frozenset(Avx2.features))
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(MissingTool, match="cannot run target avx512"):
        load("", "f", PROBLEM, Avx512())
