"""The launcher, on a machine that need not have a GPU: what it hands to CuPy, and what it refuses.

The kernel is the hand-written one of cuda_on_cpu, run on the CPU behind a stand-in for CuPy.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys

import numpy as np
import pytest
from ml_dtypes import bfloat16

import flashgen
from flashgen import api, runtime
from flashgen.errors import CompileFailure, FlashgenError, InvalidArgument, MissingTool, TargetLimit
from flashgen.expression import Array, Expression, Scalar
from flashgen.plan.launch import LaunchPlan, Trips
from flashgen.problem import Problem
from flashgen.runtime.cuda import TENSOR, CudaKernel, pack
from flashgen.runtime.cuda_arrays import look_anywhere
from flashgen.targets import find
from tests.cuda_on_cpu.cupy_double import Double
from tests.cuda_on_cpu.test_attention import BR, DV, SHARED_BYTES, SOURCE, D, check
from tests.tensor import Tensor

PROBLEM = Problem(D, DV)
HEADS = (Trips("B"), Trips("Hkv"), Trips("group"))
LAUNCH = LaunchPlan((*HEADS, Trips("Nq", BR)), threads=128, shared_bytes=SHARED_BYTES)


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Double:
    double = Double()
    monkeypatch.setitem(sys.modules, "cupy", double)
    return double


def arrays(b: int = 1, hq: int = 4, hkv: int = 2, nq: int = 33, nk: int = 50) -> list[np.ndarray]:
    rng = np.random.default_rng(5)
    return [
        rng.standard_normal(shape).astype(np.float32)
        for shape in ((b, hq, nq, D), (b, hkv, nk, D), (b, hkv, nk, DV))
    ]


def test_numpy_arrays_go_to_the_gpu_and_back(cupy: Double):
    q, k, v = arrays()
    o, lse = CudaKernel(SOURCE, "attention", PROBLEM, LAUNCH)(q, k, v, scale=0.3)
    assert type(o) is np.ndarray and type(lse) is np.ndarray
    (report,) = cupy.reports
    assert report.clean, report.message
    check((q, k, v), (o, lse))


def test_cupy_arrays_are_used_where_they_are_with_their_strides(cupy: Double):
    q, k, v = map(cupy.asarray, arrays())
    views = q.swapaxes(1, 2).copy().swapaxes(1, 2), k[:, :, ::-1], v[:, ::-1][:, ::-1]
    kernel = runtime.load(SOURCE, "attention", PROBLEM, find("cuda"), LAUNCH)
    o, lse = kernel(*views, scale=0.3)
    assert isinstance(o, cupy.ndarray) and cupy.reports[0].clean
    check(tuple(x.get() for x in views), (o.get(), lse.get()))


def test_the_default_scale_is_one_over_the_root_of_d(cupy: Double):
    kernel = CudaKernel(SOURCE, "attention", PROBLEM, LAUNCH)
    np.testing.assert_array_equal(kernel(*arrays())[0], kernel(*arrays(), scale=D**-0.5)[0])


@pytest.mark.parametrize("zero", [{"b": 0}, {"hq": 0}, {"hq": 0, "hkv": 0}, {"nq": 0}])
def test_no_block_is_launched_where_the_outputs_are_empty(cupy: Double, zero: dict[str, int]):
    q, k, v = arrays(**zero)
    o, lse = CudaKernel(SOURCE, "attention", PROBLEM, LAUNCH)(q, k, v)
    assert o.shape == (*q.shape[:3], DV) and lse.shape == q.shape[:3] and not cupy.reports


def test_no_keys_give_zeros(cupy: Double):
    o, lse = CudaKernel(SOURCE, "attention", PROBLEM, LAUNCH)(*arrays(nk=0))
    assert (o == 0).all() and (lse == -np.inf).all()


def test_a_workspace_has_what_the_plan_says(cupy: Double):
    """A kernel that fills its block's part of the workspace, and would overrun a smaller one."""
    body = (
        SOURCE.rstrip().rstrip("}")
        + "  for (int x = tid; x < nq * 3; x += THREADS) workspace[blockIdx.x * nq * 3 + x] = 1;\n}\n"
    )
    assert not cupy.reports
    for columns, clean in ((3, True), (2, False)):
        launch = LaunchPlan(LAUNCH.grid, 128, SHARED_BYTES, workspace=(("Nq", columns),))
        CudaKernel(body, "attention", PROBLEM, launch)(*arrays())
        assert cupy.reports[-1].clean == clean


def test_shared_memory_beyond_the_default_is_asked_for(cupy: Double):
    launch = LaunchPlan(LAUNCH.grid, 128, 100 << 10)
    CudaKernel(SOURCE, "attention", PROBLEM, launch)(*arrays())
    assert cupy.reports[0].clean


def test_bfloat16_moves_as_bits(cupy: Double, monkeypatch: pytest.MonkeyPatch):
    """CuPy need not know the type; what comes back is of the caller's."""
    kernel = CudaKernel(SOURCE, "attention", Problem(D, DV, "bfloat16"), LAUNCH)
    q, k, v = (x.astype(bfloat16) for x in arrays())
    sent = []
    upload, launched = kernel._cupy.asarray, []
    monkeypatch.setattr(kernel._cupy, "asarray", lambda x: sent.append(upload(x)) or sent[-1])
    monkeypatch.setattr(kernel, "_function", lambda *arguments, **_: launched.append(arguments))
    monkeypatch.setattr(kernel._cupy, "empty", lambda shape, dtype: upload(np.full(shape, 0x3F80, dtype)))
    o, lse = kernel(q, k, v)
    assert launched and o.dtype == bfloat16 and (o == 1).all()
    assert lse.dtype == np.float32 and (lse == 0x3F80).all()
    for x, bits in zip((q, k, v), sent, strict=True):
        np.testing.assert_array_equal(bits, x.view(np.uint16))
    with pytest.raises(InvalidArgument, match=r"k\.dtype is '<f4'; native bfloat16 is allowed"):
        kernel(q, k.astype(np.float32), v)


def test_outputs_are_written_and_returned(cupy: Double):
    """On the GPU where they are; in the processor's memory, in any strides."""
    q, k, v = arrays()
    kernel = CudaKernel(SOURCE, "attention", PROBLEM, LAUNCH)
    wide, lse = np.full((1, 33, 4, 2 * DV), np.nan, np.float32), np.full((33, 4, 1), np.nan, np.float32).T
    out = wide[..., ::2].swapaxes(1, 2)
    o, row = kernel(q, k, v, scale=0.3, out=out, lse=lse)
    assert o is out and row is lse and np.isnan(wide[..., 1::2]).all()
    check((q, k, v), (out, np.ascontiguousarray(lse)))
    there, row_there = cupy.asarray(np.full_like(out, np.nan)), cupy.asarray(np.full_like(lse, np.nan))
    o, row = kernel(*map(cupy.asarray, (q, k, v)), scale=0.3, out=there, lse=row_there)
    assert o is there and row is row_there
    check((q, k, v), (there.get(), row_there.get()))


@pytest.mark.parametrize("on_gpu", [True, False])
def test_the_other_layout(cupy: Double, on_gpu: bool):
    """What is made lies in it."""
    q, k, v = arrays()
    kernel = CudaKernel(SOURCE, "attention", PROBLEM, LAUNCH)
    views = [look_anywhere("x", cupy.asarray(x) if on_gpu else x) for x in (q, k, v)]
    layout = kernel.lay_out(*views, None, None, (), "BNHD")
    o, lse = kernel.run(layout, *views, None, None, (), (), 0.3, None)
    assert o.shape == (1, 33, 4, DV) and o.flags.c_contiguous
    check((q, k, v), (np.ascontiguousarray(np.asarray(o).swapaxes(1, 2)), np.asarray(lse)))


def test_inputs_follow_lse_and_the_scale(cupy: Double, monkeypatch: pytest.MonkeyPatch):
    """In the problem's order; what a stride of 0 repeats is sent once."""
    at = [Expression("position", value=name) for name in "hqk"]
    mask = Expression("element", tuple(at), Array("keep", 3, "bool"))
    numbers = [Expression("scalar", value=Scalar(*s)) for s in (("shift", "index"), ("cap", "float"))]
    score = Expression("mul", (numbers[1], Expression("float", (numbers[0],))))
    problem = Problem(D, DV, mask=mask, score=score, sink=True)
    kernel = CudaKernel(SOURCE, "attention", problem, LAUNCH)
    sent, launched = [], []
    upload = kernel._cupy.asarray
    monkeypatch.setattr(kernel._cupy, "asarray", lambda x: sent.append(upload(x)) or sent[-1])
    monkeypatch.setattr(kernel, "_function", lambda grid, block, arguments, **_: launched.append(arguments))
    keep = np.broadcast_to(np.ones((4, 1, 50), bool), (4, 33, 50))
    inputs = {"cap": 2.5, "shift": -3, "sink": np.zeros(4, np.float32), "keep": keep}
    kernel(*arrays(), inputs=inputs, scale=0.3)
    (arguments,) = launched
    assert len(arguments) == 5 + 2 + 1 + 2 + 1
    assert sent[3].shape == (4, 1, 50) and arguments[5]["size"].tolist() == [4, 33, 50, 1]
    assert arguments[5]["stride"].tolist() == [50, 0, 1, 0] and arguments[6]["size"].tolist() == [4, 1, 1, 1]
    told = [(type(x), x) for x in arguments[7:10]]
    assert told == [(np.float32, np.float32(0.3)), (np.float32, 2.5), (np.int64, -3)]
    with pytest.raises(
        InvalidArgument, match="keep is in a GPU's memory; the processor's is allowed, as q is"
    ):
        kernel(*arrays(), inputs=inputs | {"keep": upload(keep)})
    with pytest.raises(
        InvalidArgument, match="inputs is without 'cap'; the kernel reads keep, sink, cap, shift"
    ):
        kernel(*arrays(), inputs={n: x for n, x in inputs.items() if n != "cap"})


def test_threads_are_refused(cupy: Double):
    kernel = CudaKernel(SOURCE, "attention", PROBLEM, LAUNCH)
    views = [look_anywhere("x", x) for x in arrays()]
    with pytest.raises(InvalidArgument, match="threads is 2; target cuda takes none"):
        kernel.run(kernel.lay_out(*views, None, None), *views, None, None, (), (), None, 2)
    assert not cupy.reports


def test_cupy_arrays_are_for_the_gpu_alone(cupy: Double, monkeypatch: pytest.MonkeyPatch):
    """attention() takes its target from q."""
    monkeypatch.setattr(api, "suited", lambda *_: CudaKernel(SOURCE, "attention", PROBLEM, LAUNCH))
    api._plan.cache_clear()
    q, k, v = arrays()
    there = [cupy.asarray(x) for x in (q, k, v)]
    o, lse = flashgen.attention(*there, scale=0.3, enable_gqa=True, return_lse=True)
    assert isinstance(o, cupy.ndarray)
    check((q, k, v), (o.get(), lse.get()))
    for target in ("avx2", find("avx512")):
        with pytest.raises(
            InvalidArgument, match="q is in the memory of a GPU; the processor's memory is allowed"
        ):
            flashgen.attention(*there, enable_gqa=True, target=target)
    with pytest.raises(InvalidArgument, match="v is in the memory of a GPU"):
        flashgen.attention(q, k, there[2], enable_gqa=True)
    with pytest.raises(InvalidArgument, match="threads is 2"):
        flashgen.attention(*there, enable_gqa=True, threads=2)
    with pytest.raises(InvalidArgument, match="o2 is in the memory of a GPU"):
        flashgen.merge(q, lse.get(), there[0], lse.get())
    api._plan.cache_clear()


def test_a_tensor_is_packed_as_c_lays_it_out():
    array = np.zeros((2, 3, 5, 7), np.float16)[:, ::-1, :, ::2]
    packed = pack(array.ctypes.data, array.shape, array.strides, array.itemsize)
    assert TENSOR.itemsize == ctypes.sizeof(Tensor) == 72 and packed.shape == ()
    assert packed.tobytes() == bytes(Tensor.of(array))
    lse = np.zeros((2, 3, 5), np.float32)
    assert pack(lse.ctypes.data, lse.shape, lse.strides, 4).tobytes() == bytes(Tensor.of(lse))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda q, k, v: (q.astype(np.float64), k, v), r"q\.dtype is '<f8'; native float32 is allowed"),
        (lambda q, k, v: (q, k.view("i4"), v), r"k\.dtype is '<i4'; native float32"),
        (lambda q, k, v: (q[:, :3], k, v), r"q\.shape is .*multiple of k's 2"),
        (lambda q, k, v: (q, k[..., 1:], v), r"k\.shape"),
        (lambda q, k, v: (q, k, v.tolist()), r"v is of type list; a NumPy array"),
        (lambda q, k, v: (q[0], k, v), r"q\.shape is .*four dimensions"),
    ],
)
def test_wrong_arrays_are_refused(cupy: Double, change, message: str):
    kernel = CudaKernel(SOURCE, "attention", PROBLEM, LAUNCH)
    with pytest.raises(InvalidArgument, match=message):
        kernel(*change(*arrays()))
    assert not cupy.reports


def test_host_and_gpu_arrays_do_not_mix(cupy: Double):
    q, k, v = arrays()
    kernel = CudaKernel(SOURCE, "attention", PROBLEM, LAUNCH)
    with pytest.raises(InvalidArgument, match="k is in the processor's memory; a GPU's is allowed, as q is"):
        kernel(cupy.asarray(q), k, v)
    with pytest.raises(InvalidArgument, match="v is in a GPU's memory; the processor's is allowed, as q is"):
        kernel(q, k, cupy.asarray(v))


@pytest.mark.parametrize("scale", [np.nan, np.inf, 1e39, "1", True])
def test_wrong_scales_are_refused(cupy: Double, scale: object):
    with pytest.raises(InvalidArgument, match=r"scale is .*finite float32"):
        CudaKernel(SOURCE, "attention", PROBLEM, LAUNCH)(*arrays(), scale=scale)


def test_too_many_blocks_are_refused(cupy: Double):
    q = np.broadcast_to(np.float32(0), (1 << 31, 1, 1, D))
    kv = (np.broadcast_to(np.float32(0), (1 << 31, 1, 1, d)) for d in (D, DV))
    kernel = CudaKernel(SOURCE, "attention", PROBLEM, LAUNCH)
    kernel._cupy.asarray = lambda x: x
    kernel._cupy.empty = lambda shape, dtype: np.broadcast_to(dtype(0) if callable(dtype) else 0, shape)
    with pytest.raises(InvalidArgument, match="at most 2147483647 blocks"):
        kernel(q, *kv)


def unavailable(
    monkeypatch: pytest.MonkeyPatch, module: Double | None, kind: type[FlashgenError], message: str
):
    monkeypatch.setitem(sys.modules, "cupy", module)
    with pytest.raises(kind, match=message):
        CudaKernel(SOURCE, "attention", PROBLEM, LAUNCH)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch):
    without = "emit, and compiling with nvcc or NVRTC, work without"
    unavailable(monkeypatch, None, MissingTool, rf"pip install 'flashgen\[cuda\]'; {without}")
    unavailable(monkeypatch, Double(count=0), MissingTool, f"CuPy finds no GPU; {without}")
    driver = Double(error="cudaErrorInsufficientDriver")
    unavailable(
        monkeypatch, driver, MissingTool, "no GPU .cudaErrorInsufficientDriver.: it needs NVIDIA's driver"
    )
    unavailable(monkeypatch, Double(capability="75"), MissingTool, "compute capability 75, kernels need 80")
    unavailable(
        monkeypatch, Double(shared=6 << 10), TargetLimit, f"{SHARED_BYTES} bytes .* this GPU has 6144"
    )


def test_a_compiler_error_is_passed_on(cupy: Double):
    with pytest.raises(CompileFailure, match="missing is undefined"):
        CudaKernel(SOURCE, "missing", PROBLEM, LAUNCH)


def test_importing_the_launcher_imports_no_cupy():
    code = "import sys; import flashgen.runtime.cuda; sys.exit('cupy' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
