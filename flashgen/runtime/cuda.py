"""Loads and calls a CUDA kernel through CuPy, which compiles it for the GPU that is here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flashgen.errors import CompileFailure, InvalidArgument, MissingTool, TargetLimit
from flashgen.plan.launch import LaunchPlan, Sizes
from flashgen.problem import Problem
from flashgen.runtime.tensors import Form, expect_scale, lay_out, storage_type

TENSOR = np.dtype([("data", np.uint64), ("size", np.int64, (4,)), ("stride", np.int64, (4,))], align=True)
"""flashgen_tensor of the C interface, as NumPy sees it: CuPy passes a 0-dimensional array by value."""

OPTIONS = ("-std=c++17", "-fmad=false")
"""What an emitted file is compiled with. The compiler fuses nothing of its own accord: what it fuses differs
between kernels, and the same arithmetic is to give the same bits in all of them."""
DEFAULT_SHARED = 48 << 10  # bytes of dynamic shared memory that a kernel has without asking for more
GRID_LIMIT = 2**31 - 1
CAPABILITY = 80
HELP = "emit, and compiling with nvcc or NVRTC, work without"


class CudaKernel:
    """A kernel on the GPU that was current when it was made.

    name: its variant's name.
    problem: what it computes.
    launch: grid, block and memory.

    Raises MissingTool (no CuPy, no GPU, one that is too old), TargetLimit (a GPU with less shared memory)
    or CompileFailure.
    """

    def __init__(self, source: str, name: str, problem: Problem, launch: LaunchPlan):
        self.name, self.problem, self.launch = name, problem, launch
        self._cupy = cupy = find_gpu()
        self._device = cupy.cuda.Device()
        limit = self._device.attributes["MaxSharedMemoryPerBlockOptin"]
        if launch.shared_bytes > limit:
            raise TargetLimit(
                f"{name} needs {launch.shared_bytes} bytes of shared memory a block; this GPU has {limit}: "
                "smaller br and bc fit"
            )
        try:
            self._function = cupy.RawModule(code=source, options=OPTIONS).get_function(name)
            if launch.shared_bytes > DEFAULT_SHARED:
                self._function.max_dynamic_shared_size_bytes = launch.shared_bytes
        except cupy.cuda.compiler.CompileException as error:
            raise CompileFailure(f"NVRTC could not compile {name}: {error}") from error

    def __repr__(self) -> str:
        return f"<CudaKernel {self.name}>"

    def __call__(self, q: Any, k: Any, v: Any, *, scale: float | None = None) -> tuple[Any, Any]:
        """o and lse of q, k and v: all three CuPy arrays on the kernel's GPU, or all three NumPy arrays.

        q: (B, Hq, Nq, D), k: (B, Hkv, Nk, D), v: (B, Hkv, Nk, Dv), of the problem's dtype, Hq a multiple of
            Hkv; any strides, any of B, Hq, Nq and Nk may be 0.
        scale: of the scores; finite in float32; 1 / sqrt(D) if not given.

        o is (B, Hq, Nq, Dv) in the problem's dtype, lse (B, Hq, Nq) float32; of CuPy arrays they are CuPy
        arrays, written in the current stream's order; NumPy arrays are copied to the GPU and back. A row
        that sees no key has o = 0 and lse = -inf. Raises InvalidArgument.
        """
        cupy = self._cupy
        on_host, dtype = not isinstance(q, cupy.ndarray), getattr(q, "dtype", None)
        with self._device:
            q, k, v = (self._input(n, x, on_host) for n, x in (("q", q), ("k", k), ("v", v)))
            q_form, k_form, v_form = (Form(x.shape, x.strides) for x in (q, k, v))
            layout = lay_out(self.problem, q_form, k_form, v_form, None, None)
            given = None if scale is None else expect_scale(scale, self.problem.computed)
            factor = 1 / math.sqrt(self.problem.head_dim) if given is None else given
            o = cupy.empty(layout.o, q.dtype)
            lse = cupy.empty(layout.lse, np.float32)
            self._run(q, k, v, o, lse, factor)
            return (o.get().view(dtype), lse.get()) if on_host else (o, lse)

    def _input(self, name: str, x: Any, on_host: bool) -> Any:
        kind = np.ndarray if on_host else self._cupy.ndarray
        if not isinstance(x, kind):
            allowed = "three NumPy arrays or three CuPy arrays are allowed"
            raise InvalidArgument(name, f"of type {type(x).__name__}", allowed)
        if storage_type(x.dtype) != self.problem.dtype:
            raise InvalidArgument(f"{name}.dtype", x.dtype, f"{self.problem.dtype} is allowed")
        # bfloat16 moves to the GPU as bits: CuPy need not know the type.
        return self._cupy.asarray(x.view(np.uint16) if on_host and x.dtype.kind == "V" else x)

    def _run(self, q: Any, k: Any, v: Any, o: Any, lse: Any, scale: float) -> None:
        sizes = Sizes(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2])
        blocks = self.launch.blocks(sizes)
        if blocks == 0:
            return  # o and lse have no element
        if blocks > GRID_LIMIT:
            raise InvalidArgument(
                "q.shape", q.shape, f"at most {GRID_LIMIT} blocks are allowed, not {blocks}"
            )
        elements = self.launch.workspace_elements(sizes)
        workspace = self._cupy.empty(elements, np.float32) if elements else np.uint64(0)
        tensors = (pack(x.data.ptr, x.shape, x.strides, x.itemsize) for x in (q, k, v, o, lse))
        arguments = (*tensors, np.float32(scale), workspace)
        self._function((blocks,), (self.launch.threads,), arguments, shared_mem=self.launch.shared_bytes)


def pack(address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> np.ndarray:
    """A flashgen_tensor: 72 bytes, strides counted in elements, missing dimensions of size 1."""
    missing = 4 - len(shape)
    size = (*shape, *(1,) * missing)
    stride = (*(s // itemsize for s in strides), *(0,) * missing)
    return np.array((address, size, stride), TENSOR)


def find_gpu() -> Any:
    """CuPy, if there is a GPU that it can use; raises MissingTool."""
    try:
        import cupy  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise MissingTool(
            "CUDA kernels run through CuPy, which does not import "
            f"({error}): pip install 'flashgen[cuda]'; {HELP}"
        ) from error
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise MissingTool(f"CuPy finds no GPU ({error}): it needs NVIDIA's driver; {HELP}") from error
    if count == 0:
        raise MissingTool(f"CuPy finds no GPU; {HELP}")
    capability = cupy.cuda.Device().compute_capability
    if int(capability) < CAPABILITY:
        raise MissingTool(f"this GPU has compute capability {capability}, kernels need {CAPABILITY}; {HELP}")
    return cupy
