"""Loads and calls a CUDA kernel through CuPy, which compiles it for the GPU that is here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flashgen.errors import CompileFailure, InvalidArgument, MissingTool, TargetLimit
from flashgen.plan.launch import LaunchPlan, Sizes
from flashgen.problem import Problem
from flashgen.runtime.arrays import (
    View,
    again,
    bits,
    check_apart,
    check_type,
    is_aligned,
    look,
    once,
    to_write,
    turned,
)
from flashgen.runtime.cuda_arrays import CUPY, look_anywhere
from flashgen.runtime.inputs import expect_inputs
from flashgen.runtime.tensors import BHND, ITEMSIZE, Form, Layout, expect_scale, in_order, lay_out, words_of

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
        if problem.layout != "dense":
            allowed = (
                "'dense' is allowed: of another layout the text is emitted, and not yet called from here"
            )
            raise InvalidArgument("layout", repr(problem.layout), allowed)
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

    def __call__(
        self,
        q: Any,
        k: Any,
        v: Any,
        *,
        scale: float | None = None,
        inputs: Mapping[str, Any] | None = None,
        out: Any = None,
        lse: Any = None,
    ) -> tuple[Any, Any]:
        """o and lse of q, k and v: CuPy arrays on the kernel's GPU, or arrays in the processor's memory.

        q: (B, Hq, Nq, D), k: (B, Hkv, Nk, D), v: (B, Hkv, Nk, Dv), of the problem's dtype, Hq a multiple of
            Hkv; any strides, any of B, Hq, Nq and Nk may be 0.
        scale: of the scores; finite in float32; 1 / sqrt(D) if not given.
        inputs: by their names the arrays and numbers that the problem's mask and score read, as for a
            CpuKernel; arrays where q is.
        out: (B, Hq, Nq, Dv), of the problem's dtype, lse: (B, Hq, Nq) float32, where q is: written and
            returned; made if not given.

        Of CuPy arrays o and lse are CuPy arrays, written in the current stream's order. Arrays in the
        processor's memory are copied to the GPU, without repeating what strides of 0 repeat, and what is
        found is copied back. A row that sees no key has o = 0 and lse = -inf. Raises InvalidArgument.
        """
        dtype = self.problem.dtype
        q, k, v = look_anywhere("q", q), look_anywhere("k", k), look_anywhere("v", v)
        for view in (q, k, v):
            check_type(view, dtype)
        o = None if out is None else to_write(look_anywhere("out", out), dtype)
        row = None if lse is None else to_write(look_anywhere("lse", lse), "float32")
        problem = self.problem
        arrays, numbers = expect_inputs(problem.arrays, problem.scalars, dtype, inputs, look_anywhere)
        layout = self.lay_out(q, k, v, o, row, arrays)
        made, made_lse = self.run(layout, q, k, v, o, row, arrays, numbers, scale, None)
        return made if out is None else out, made_lse if lse is None else lse

    def lay_out(
        self,
        q: View,
        k: View,
        v: View,
        out: View | None,
        lse: View | None,
        arrays: tuple[View, ...] = (),
        order: str = BHND,
    ) -> Layout:
        """What ``run`` needs to know of shapes and strides, checked. Raises InvalidArgument."""
        q_form, k_form, v_form, *rest = (Form(x.shape, x.strides) for x in (q, k, v, *arrays))
        o_form, lse_form = (None if x is None else Form(x.shape, x.strides) for x in (out, lse))
        return lay_out(self.problem, q_form, k_form, v_form, o_form, lse_form, order, tuple(rest))

    def run(
        self,
        layout: Layout,
        q: View,
        k: View,
        v: View,
        out: View | None,
        lse: View | None,
        arrays: tuple[View, ...],
        numbers: tuple[float, ...],
        scale: float | None,
        threads: int | None,
    ) -> tuple[Any, Any]:
        """o and lse of arrays whose types are checked and whose forms are laid out; one that is None is made.

        Raises InvalidArgument before anything is written.
        """
        if threads is not None:
            raise InvalidArgument("threads", threads, "target cuda takes none: leave it out")
        read = [q, k, v, *arrays]
        given = [x for x in (out, lse) if x is not None]
        self._check_where(q.kind is CUPY, [*read, *given])
        check_apart(given, read)
        factor = 1 / math.sqrt(self.problem.head_dim) if scale is None else expect_scale(scale, "float32")
        blocks, elements = self._grid(q, k)
        with self._device:
            sent = [self._send(x) for x in read]
            made_o, o = self._output(out, in_order(layout.o, layout.order), layout.order, sent[0][0].dtype)
            made_lse, row_lse = self._output(lse, layout.lse, BHND, np.dtype(np.float32))
            if blocks:  # else o and lse have no element
                tensors = [packed for _, packed in sent]
                kinds = [np.int64 if s.kind == "index" else np.float32 for s in self.problem.scalars]
                told = [kind(number) for kind, number in zip(kinds, numbers, strict=True)]
                workspace = self._cupy.empty(elements, np.float32) if elements else np.uint64(0)
                arguments = (*tensors[:3], o, row_lse, *tensors[3:], np.float32(factor), *told, workspace)
                shared = self.launch.shared_bytes
                self._function((blocks,), (self.launch.threads,), arguments, shared_mem=shared)
            if q.kind is CUPY:
                return made_o, made_lse
            return (
                _fetch(made_o, q, q.dtype, None if out is None else turned(out, layout.order)),
                _fetch(made_lse, q, "float32", lse),
            )

    def _check_where(self, on_gpu: bool, views: Sequence[View]) -> None:
        """Refuse arrays here and there in one call, and what a GPU's loads would stumble over."""
        for view in views:
            if (view.kind is CUPY) != on_gpu:
                here, there = ("a GPU's", "the processor's")[:: 1 if on_gpu else -1]
                raise InvalidArgument(view.name, f"in {there} memory", f"{here} is allowed, as q is")
            if on_gpu and not is_aligned(view):
                allowed = f"elements at multiples of {ITEMSIZE[view.dtype]} bytes are allowed"
                raise InvalidArgument(f"{view.name}.strides", view.strides, allowed)

    def _grid(self, q: View, k: View) -> tuple[int, int]:
        """Blocks to launch, and elements of their workspace. Raises InvalidArgument."""
        sizes = Sizes(q.shape[0], q.shape[1], k.shape[1], q.shape[2], k.shape[2])
        blocks = self.launch.blocks(sizes)
        if blocks > GRID_LIMIT:
            raise InvalidArgument(
                "q.shape", q.shape, f"at most {GRID_LIMIT} blocks are allowed, not {blocks}"
            )
        return blocks, self.launch.workspace_elements(sizes)

    def _send(self, view: View) -> tuple[Any, np.ndarray]:
        """The array on the GPU, and its tensor. What a stride of 0 repeats is sent once."""
        size = ITEMSIZE[view.dtype]
        if view.kind is CUPY:
            return view.value, pack(view.address, view.shape, view.strides, size)
        # bfloat16 moves to the GPU as bits: CuPy need not know the type.
        sent = self._cupy.asarray(once(view))
        return sent, pack(sent.data.ptr, view.shape, again(view, sent.strides), size)

    def _output(
        self, given: View | None, shape: tuple[int, ...], order: str, dtype: np.dtype
    ) -> tuple[Any, np.ndarray]:
        """An output's array on the GPU, in the caller's order, and its tensor, in ours."""
        if given is not None and given.kind is CUPY:
            return given.value, pack(given.address, given.shape, given.strides, dtype.itemsize)
        made = self._cupy.empty(in_order(shape, order), dtype)
        return made, pack(made.data.ptr, shape, in_order(made.strides, order), dtype.itemsize)


def _fetch(found: Any, like: View, dtype: str, given: View | None) -> Any:
    """What was found on the GPU as an array like ``like``, or in the one that was given."""
    if given is None:
        made = like.kind.empty(found.shape, dtype, like)
        to = bits(look("result", made))
    else:
        made, to = None, bits(given)
    np.copyto(to, found.get().view(to.dtype))
    if given is None:
        return like.kind.finish(made, like)
    given.kind.note_write(given)
    return None


def pack(address: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> np.ndarray:
    """A flashgen_tensor: 72 bytes, strides counted in elements, missing dimensions of size 1."""
    words = [address, *words_of(Form(shape, strides), itemsize)[1:]]
    return np.array(words, np.int64).view(TENSOR).reshape(())


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
