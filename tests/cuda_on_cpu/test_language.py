"""What of CUDA C++ the runner understands: each construct computes what a GPU computes."""

from __future__ import annotations

import numpy as np
import pytest
from ml_dtypes import bfloat16

from flashgen.errors import CompileFailure
from tests.cuda_on_cpu.runner import CudaOnCpu


def run(body: str, threads: int | tuple[int, ...] = 64, *, prelude: str = "", shared: int = 0) -> np.ndarray:
    source = f'{prelude}\nextern "C" __global__ void kernel(float *y) {{\n{body}\n}}\n'
    y = np.full(np.prod(threads), np.nan, np.float32)
    report = CudaOnCpu(source, "kernel", ("float *",)).launch(1, threads, (y,), shared, seed=3)
    assert report.clean, report.message
    return y


def test_indices():
    body = (
        "int i = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); y[i] = i + gridDim.x;"
    )
    np.testing.assert_array_equal(run(body, (4, 3, 2)), np.arange(24) + 1)


def test_every_form_of_shared_memory():
    """Static, static and explicit, at namespace scope, and two names of the dynamic array."""
    prelude = "__shared__ float outside[64];"
    body = """
    extern __shared__ __align__(16) unsigned char bytes[];
    extern __shared__ float words[];
    static __shared__ float a[64];
    __shared__ float b[32], c[32];
    const int t = threadIdx.x;
    words[t] = t, a[t] = 100 * t, outside[t] = 10000 * t;
    (t < 32 ? b : c)[t % 32] = 0.5f;
    __syncthreads();
    const int u = 63 - t;
    y[t] = *(float *)(bytes + 4 * u) + a[u] + outside[u] + (u < 32 ? c : b)[u % 32];
    """
    np.testing.assert_array_equal(run(body, prelude=prelude, shared=256), 10101 * np.arange(64)[::-1] + 0.5)


LANES = np.arange(64) % 32


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        ("__shfl_xor_sync(0xffffffffu, v, 5)", LANES ^ 5),
        ("__shfl_sync(0xffffffffu, v, 7)", np.full(64, 7)),
        ("__shfl_down_sync(0xffffffffu, v, 3)", np.where(LANES + 3 < 32, LANES + 3, LANES)),
        ("__shfl_up_sync(0xffffffffu, v, 3)", np.where(LANES >= 3, LANES - 3, LANES)),
        ("__shfl_sync(0xffffffffu, v, 1, 8)", LANES // 8 * 8 + 1),
        ("__shfl_down_sync(0xffffffffu, v, 2, 4)", np.where(LANES % 4 < 2, LANES + 2, LANES)),
    ],
)
def test_shuffles(call: str, expected: np.ndarray):
    body = f"float v = threadIdx.x % 32; y[threadIdx.x] = {call};"
    np.testing.assert_array_equal(run(body), expected)


def test_votes():
    body = """
    const int t = threadIdx.x;
    y[t] = __ballot_sync(~0u, t % 32 < 3) + 8 * __any_sync(~0u, t == 40) + 16 * __all_sync(~0u, t < 32);
    """
    np.testing.assert_array_equal(run(body), np.where(np.arange(64) < 32, 7 + 16, 7 + 8))


def test_a_last_warp_may_be_narrow():
    body = "y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, (float)threadIdx.x, 1);"
    np.testing.assert_array_equal(run(body, 36), np.arange(36) ^ 1)


def test_float32_functions():
    body = """
    if (threadIdx.x) return;
    y[0] = exp2f(3.0f); y[1] = logf(1.0f); y[2] = fmaxf(1.0f, nanf("")); y[3] = fmaf(2.0f, 3.0f, 4.0f);
    y[4] = rsqrtf(4.0f); y[5] = max(1, 2); y[6] = min(1LL, 2LL); y[7] = __int_as_float(0xff800000);
    y[8] = __fdividef(1.0f, 4.0f); y[9] = exp2f(__int_as_float(0xff800000));
    """
    np.testing.assert_array_equal(run(body, 1 + 9)[:10], [8, 0, 1, 10, 0.5, 2, 1, -np.inf, 0.25, 0])


def convert(values: np.ndarray, body: str, kinds: tuple[str, str], out: type) -> np.ndarray:
    source = f"""
    #include <cuda_bf16.h>
    #include <cuda_fp16.h>
    extern "C" __global__ void kernel(const {kinds[0]} *x, {kinds[1]} *y, int n) {{
      for (int i = threadIdx.x; i < n; i += blockDim.x) {body}
    }}
    """
    result = np.zeros(values.shape, out)
    kernel = CudaOnCpu(source, "kernel", (f"const {kinds[0]} *", f"{kinds[1]} *", "int"))
    report = kernel.launch(1, 64, (values, result, values.size))
    assert report.clean, report.message
    return result


def test_every_float16_converts_to_float32():
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    converted = convert(halves, "y[i] = __half2float(x[i]);", ("__half", "float"), np.float32)
    np.testing.assert_array_equal(converted, halves.astype(np.float32))


def test_float32_rounds_to_float16_as_ieee_says():
    """Every float16, its neighbours in float32, and the points half way between two of them."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)
    halves = halves[np.isfinite(halves)]
    middles = (halves[1:] + halves[:-1]) / 2
    exact = np.concatenate([halves, middles, np.float32([65519.996, 65520, 1e30, np.inf, 2**-25, 2**-26])])
    values = np.concatenate(
        [exact, np.nextafter(exact, np.float32(np.inf)), np.nextafter(exact, -np.float32(np.inf))]
    )
    values = np.concatenate([values, -values])
    with np.errstate(over="ignore"):
        expected = values.astype(np.float16)
    for body in ("y[i] = __float2half_rn(x[i]);", "y[i] = __half(x[i]);"):
        converted = convert(values, body, ("float", "__half"), np.float16)
        np.testing.assert_array_equal(converted.view(np.uint16), expected.view(np.uint16))
    assert np.isnan(
        convert(np.float32([np.nan]), "y[i] = __float2half_rn(x[i]);", ("float", "__half"), np.float16)
    )


def test_bfloat16_converts_as_ml_dtypes_does():
    """All of them to float32; back with their neighbours in float32 and what is half way between two."""
    every = np.arange(1 << 16, dtype=np.uint16).view(bfloat16)
    wide = convert(every, "y[i] = __bfloat162float(x[i]);", ("__nv_bfloat16", "float"), np.float32)
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    near = np.concatenate(
        [(wide.view(np.uint32) + step).view(np.float32) for step in (0, 1, 0x7FFF, 0x8000, 0x8001)]
    )
    near = np.append(near[~np.isnan(near)], np.float32(np.nan))
    got = convert(near, "y[i] = __float2bfloat16_rn(x[i]);", ("float", "__nv_bfloat16"), bfloat16)
    np.testing.assert_array_equal(got.astype(np.float32), near.astype(bfloat16).astype(np.float32))


def test_a_signature_that_the_source_does_not_have_is_refused():
    kernel = CudaOnCpu('extern "C" __global__ void kernel(float *y) { y[0] = 1.0f; }', "kernel", ("int",))
    with pytest.raises(CompileFailure, match="kernel"):
        kernel.launch(1, 1, (1,))


def test_warnings_are_refused():
    kernel = CudaOnCpu('extern "C" __global__ void kernel(float *y) { int unused; }', "kernel", ("float *",))
    with pytest.raises(CompileFailure, match="unused"):
        kernel.launch(1, 1, (None,))
