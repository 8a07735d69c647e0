"""Run an emitted CUDA file on the CPU: its text unchanged, each thread a fiber, every access checked.

    kernel = CudaOnCpu(source, "softmax", ("const float *", "float *", "int"))
    report = kernel.launch(grid=3, block=128, args=(x, y, n), shared_bytes=512, seed=1)
    assert report.clean, report.message

What is reported: races in shared and in global memory (between threads of a block and between blocks),
accesses outside every buffer or beyond the shared memory asked for, writes to inputs, misaligned accesses,
reads of shared memory that nothing wrote (it holds NaN), barriers that threads meet at different lines,
deadlock, livelock. A launch stops at the first of them that is not a race or an uninitialised read.

Not modelled: tensor-core and asynchronous-copy instructions, named barriers, inline PTX; a warp runs in no
lockstep. An access that leaves its buffer and lands in another is seen only by its wrong result.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.array_utils import byte_bounds

from tests.cuda_on_cpu.build import DYNAMIC_CAPACITY, TENSOR, build_library, line_of
from tests.tensor import Tensor

POLICIES = ("in-order", "random", "warp-priority")
# The contract of an emitted attention kernel: q, k, v are read, o, lse and the workspace written.
ATTENTION = (f"const {TENSOR}",) * 3 + (TENSOR,) * 2 + ("float", "float *")
_one_launch_at_a_time = threading.Lock()
SCALARS = {"float": ctypes.c_float, "int": ctypes.c_int, "long long": ctypes.c_longlong}


class _Buffer(ctypes.Structure):
    _fields_ = (("first", ctypes.c_uint64), ("last", ctypes.c_uint64), ("writable", ctypes.c_int64))


class _Launch(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("shared_bytes", ctypes.c_uint64),
        ("seed", ctypes.c_uint64),
        ("policy", ctypes.c_int32),
        ("buffer_count", ctypes.c_int32),
        ("buffers", ctypes.POINTER(_Buffer)),
    )


class _Result(ctypes.Structure):
    _fields_ = (
        ("races", ctypes.c_int64),
        ("errors", ctypes.c_int64),
        ("out_of_bounds", ctypes.c_int64),
        ("uninitialised", ctypes.c_int64),
        ("code_offset", ctypes.c_uint64),
        ("message", ctypes.c_char * 256),
    )


@dataclass(frozen=True)
class Report:
    """What a launch did wrong, as counts; ``message`` describes the first thing seen, "" if there is none."""

    races: int
    errors: int
    out_of_bounds: int
    uninitialised: int
    message: str

    @property
    def clean(self) -> bool:
        return not (self.races or self.errors or self.out_of_bounds or self.uninitialised)


class CudaOnCpu:
    """A kernel of a CUDA source text, compiled for the CPU.

    signature: the C types of its parameters. A pointer or a tensor that is not ``const`` may be written.

    It is compiled at the first launch, which raises MissingTool or CompileFailure.
    """

    def __init__(self, source: str, name: str, signature: Sequence[str] = ATTENTION):
        self.source, self.name, self.signature = source, name, tuple(signature)
        self._libraries: dict[bool, Path] = {}

    def launch(
        self,
        grid: int | tuple[int, ...],
        block: int | tuple[int, ...],
        args: Sequence[object],
        shared_bytes: int = 0,
        *,
        seed: int = 0,
        policy: str = "random",
        detect_races: bool = True,
    ) -> Report:
        """Run the grid, one block after the other, on NumPy arrays (or None), numbers, as in ``signature``.

        policy: the order in which threads run between barriers: "in-order", "random" or "warp-priority"
            (one warp as far as it gets, then another). Blocks run in a random order but for "in-order".
        detect_races: without it no memory access is checked: less sure, and faster.
        """
        config = _Launch(_three(grid), _three(block), shared_bytes, seed, POLICIES.index(policy))
        threads = int(np.prod(list(config.block)))
        if not 1 <= threads <= 1024 or 0 in config.grid or not 0 <= shared_bytes <= DYNAMIC_CAPACITY:
            raise ValueError(f"CUDA cannot launch grid {grid}, block {block}, {shared_bytes} shared bytes")
        values, buffers = self._pack(args)
        config.buffer_count, config.buffers = len(buffers), (_Buffer * len(buffers))(*buffers)
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        if detect_races not in self._libraries:
            self._libraries[detect_races] = build_library(
                self.source, self.name, self.signature, detect_races=detect_races
            )
        path = self._libraries[detect_races]
        library = ctypes.CDLL(str(path))
        result = _Result()
        with _one_launch_at_a_time:
            library.cuda_cpu_run(ctypes.byref(config), pointers, ctypes.byref(result))
        message = result.message.decode()
        if result.code_offset:
            message += f" ({line_of(path, result.code_offset)})"
        return Report(result.races, result.errors, result.out_of_bounds, result.uninitialised, message)

    def _pack(self, args: Sequence[object]) -> tuple[list, list[_Buffer]]:
        values, buffers = [], []
        for kind, arg in zip(self.signature, args, strict=True):
            if kind in SCALARS:
                values.append(SCALARS[kind](arg))
                continue
            if arg is None:
                values.append(ctypes.c_void_p())
                continue
            assert isinstance(arg, np.ndarray), f"{kind} takes an array, not {arg!r}"
            values.append(Tensor.of(arg) if TENSOR in kind else ctypes.c_void_p(arg.ctypes.data))
            if arg.size:
                buffers.append(_Buffer(*byte_bounds(arg), not kind.startswith("const ")))
        return values, buffers


def _three(extents: int | tuple[int, ...]) -> ctypes.Array:
    given = (extents,) if isinstance(extents, int) else extents
    return (ctypes.c_uint32 * 3)(*given, *(1,) * (3 - len(given)))
