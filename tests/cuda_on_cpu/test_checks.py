"""Every fault that the runner reports, as the smallest kernel that has it, beside one that does not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.cuda_on_cpu.runner import POLICIES, CudaOnCpu, Report

THREADS = 64


def run(body: str, *, shared_bytes: int = 0, grid: int = 1, **options) -> tuple[np.ndarray, Report]:
    """y, poisoned before, and the report of a kernel (const float *x, float *y, int n); n = 64, x[i] = i."""
    source = f'extern "C" __global__ void kernel(const float *x, float *y, int n) {{\n{body}\n}}\n'
    x, y = np.arange(THREADS, dtype=np.float32), np.full(THREADS, np.nan, np.float32)
    kernel = CudaOnCpu(source, "kernel", ("const float *", "float *", "int"))
    return y, kernel.launch(grid, THREADS, (x, y, THREADS), shared_bytes, **options)


ROTATE = """
__shared__ float tile[64];
const int t = threadIdx.x;
tile[t] = x[t];
{barrier}
y[t] = tile[(t + {by}) % n];
"""
EXPECTED = np.roll(np.arange(THREADS, dtype=np.float32), -1)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_barrier_orders(policy: str, seed: int):
    y, report = run(ROTATE.format(barrier="__syncthreads();", by=1), policy=policy, seed=seed)
    assert report == Report(0, 0, 0, 0, "")
    np.testing.assert_array_equal(y, EXPECTED)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_missing_barrier_is_a_race_in_every_order(policy: str):
    _, report = run(ROTATE.format(barrier="", by=1), policy=policy)
    assert report.races > 0 or report.uninitialised == THREADS
    _, report = run("y[0] = x[threadIdx.x];", policy=policy)
    assert report.races == THREADS - 1
    assert (
        "write of 4 bytes races with another thread, offset 0 of a global buffer (kernel.cu:2)"
        in report.message
    )


def test_a_race_is_seen_where_the_result_is_right():
    """In order, each thread reads what an earlier one wrote."""
    body = "__shared__ float tile[64];\nconst int t = threadIdx.x;\ntile[t] = x[t];\ny[t] = tile[0];"
    y, report = run(body, policy="in-order")
    np.testing.assert_array_equal(y, np.zeros(THREADS))
    assert report.races == THREADS - 1
    assert "race" in report.message and "static shared memory (kernel.cu:5)" in report.message


def test_a_write_after_a_read_is_a_race():
    body = ROTATE.format(barrier="__syncthreads();", by=1) + "tile[t] = 0.0f;"
    _, report = run(body, policy="in-order")
    assert report.races == THREADS and "write of 4 bytes races" in report.message
    assert run(body.replace("tile[t] = 0", "__syncthreads(); tile[t] = 0"))[1].clean


def test_a_warp_barrier_orders_one_warp():
    within = ROTATE.replace("(t + {by}) % n", "t ^ 1").format(barrier="__syncwarp();")
    y, report = run(within)
    assert report.clean
    np.testing.assert_array_equal(y, np.arange(THREADS, dtype=np.float32).reshape(-1, 2)[:, ::-1].ravel())
    across = ROTATE.replace("(t + {by}) % n", "t ^ 32").format(barrier="__syncwarp();")
    assert run(across, policy="in-order")[1].races > 0


def test_a_shuffle_orders_no_memory():
    body = ROTATE.replace("(t + {by}) % n", "t ^ 1").format(barrier="__shfl_xor_sync(0xffffffffu, 0, 1);")
    assert run(body)[1].races > 0


def test_parts_of_a_word_do_not_race():
    body = """
    __shared__ unsigned char bytes[64];
    const int t = threadIdx.x;
    bytes[t] = t;
    __syncthreads();
    y[t] = bytes[t ^ 1];
    """
    assert run(body)[1].clean
    assert run(body.replace("bytes[t] =", "bytes[t / 2] ="))[1].races > 0
    word = body.replace("__syncthreads();", "if (t % 4 == 0) *(unsigned *)(bytes + t) = 0;\n__syncthreads();")
    assert run(word)[1].races > 0


def test_blocks_are_never_ordered():
    body = "__syncthreads();\nif (threadIdx.x == 0) {expression};"
    assert run(body.format(expression="y[blockIdx.x] = 1.0f"), grid=3)[1].clean
    _, report = run(body.format(expression="y[0] = 1.0f"), grid=3)
    assert report.races == 2
    _, report = run(body.format(expression="y[blockIdx.x] = y[1]"), grid=3)
    assert report.races > 0


def test_atomics_race_with_what_is_not_atomic_alone():
    y, report = run("if (threadIdx.x == 0) y[0] = 0.0f;\n__syncthreads();\natomicAdd(&y[0], 1.0f);")
    assert report.clean and y[0] == THREADS
    assert run("atomicAdd(&y[0], 1.0f);", grid=2)[1].clean
    assert run("if (threadIdx.x == 0) y[0] = 0.0f;\natomicAdd(&y[0], 1.0f);")[1].races > 0


def test_uninitialised_shared_memory_is_seen_and_is_nan():
    body = (
        "__shared__ float tile[64];\nconst int t = threadIdx.x;\nif (n < 64) tile[t] = 1.0f;\ny[t] = tile[t];"
    )
    y, report = run(body)
    assert report.uninitialised == THREADS and np.isnan(y).all()
    assert "that nothing wrote, offset" in report.message
    reused = "extern __shared__ float tile[];\nif (blockIdx.x == 0) tile[0] = 1.0f;\nelse y[0] = tile[0];"
    _, report = run(reused, shared_bytes=4, grid=2, policy="in-order")
    assert report.uninitialised == THREADS, "a block does not see what another one left"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("y[t] = x[t + 1];", "thread 63: read of 4 bytes outside every buffer"),
        ("y[t - 1] = 0.0f;", "thread 0: write of 4 bytes outside every buffer"),
        ("y[t] = x[n << 24];", "thread 0: read of 4 bytes outside every buffer"),
        ("((float *)x)[t] = 0.0f;", "thread 0: write of 4 bytes to an input"),
        (
            "shared[t] = 0.0f;",
            "thread 63: write of 4 bytes at offset 252 of 252 bytes of dynamic shared memory",
        ),
        ("y[t] = shared[1 << 15];", "thread 0: read of 4 bytes at offset 131072 of 252 bytes"),
    ],
)
def test_out_of_bounds(statement: str, message: str):
    """x lies apart from y, so that an overrun meets no other buffer."""
    body = (
        f"extern __shared__ float shared[];\nconst int t = threadIdx.x + 0 * sizeof shared[0];\n{statement}"
    )
    _, report = run(body, shared_bytes=4 * THREADS - 4, policy="in-order")
    assert report.out_of_bounds == 1
    assert message in report.message and "(kernel.cu:4)" in report.message


def test_another_threads_local_memory_is_out_of_bounds():
    body = """
    __shared__ float *pointer;
    float local[2] = {x[0], x[1]};
    if (threadIdx.x == 0) pointer = local;
    __syncthreads();
    y[threadIdx.x] = pointer[n & 1];
    """
    assert "read of 4 bytes outside every buffer" in run(body)[1].message


def test_misaligned():
    _, report = run("y[threadIdx.x] = *(const float *)((const char *)x + 2);")
    assert report.errors == 1 and "misaligned access of 4 bytes" in report.message


def test_divergent_barriers():
    _, report = run("if (threadIdx.x < 40)\n  __syncthreads();\nelse\n  __syncthreads();", policy="in-order")
    assert report.errors == 1
    assert "divergent __syncthreads: some threads wait at line 3, thread 40 at line 5" in report.message


def test_divergent_warp_operations():
    _, report = run("if (threadIdx.x & 1)\n  __syncwarp();\nelse\n  __shfl_sync(0xffffffffu, 0, 0);")
    assert report.errors == 1 and "divergent warp operations" in report.message
    body = "const unsigned mask = threadIdx.x & 1 ? 0xaaaaaaaau : 0x55555555u;\n__syncwarp(mask);"
    assert run(body)[1].clean
    assert "leaves the caller out" in run(body.replace("(mask)", "(~mask)"))[1].message


def test_deadlock():
    _, report = run("if (threadIdx.x % 32 < 5)\n  __syncwarp();\n__syncthreads();")
    assert report.errors == 1
    assert (
        "deadlock: 54 threads wait at __syncthreads (line 4), 10 at a warp operation (line 3)"
        in report.message
    )


def test_leaving_a_warp_that_waits():
    _, report = run("if (threadIdx.x == 0) return;\n__syncwarp();", policy="warp-priority")
    assert report.errors == 1
    assert "exit" in report.message
    assert run("if (threadIdx.x < 32) return;\n__syncthreads();")[1].clean, "a barrier is for those alive"


def test_livelock():
    body = "volatile float *flag = y;\nif (threadIdx.x == 0) while (*flag != 7.0f) { }\n*flag = 7.0f;"
    _, report = run(body, policy="in-order")
    assert report.errors == 1 and "livelock: thread 0" in report.message


def test_a_fault_of_one_launch_is_not_seen_in_the_next():
    assert not run("y[threadIdx.x - 1] = 0.0f;")[1].clean
    assert run("y[threadIdx.x] = 0.0f;")[1].clean


def test_what_cuda_cannot_launch_is_refused():
    for grid, block, shared in ((0, 32, 0), (1, 1025, 0), (1, (32, 33), 0), (1, 32, 300 << 10)):
        kernel = CudaOnCpu("", "kernel", ())
        with pytest.raises(ValueError, match="CUDA cannot launch"):
            kernel.launch(grid, block, (), shared)
