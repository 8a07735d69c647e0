"""Loads and calls a compiled CPU kernel."""

from __future__ import annotations

import ctypes
import functools
import math
from pathlib import Path
from typing import Any

import numpy as np

from flashgen.errors import CompileFailure, KernelFailure
from flashgen.problem import Problem
from flashgen.runtime.cache import discard, fetch, make_key
from flashgen.runtime.compiler import BASE_FLAGS, HEADERS, find_compiler
from flashgen.runtime.cpu_features import require
from flashgen.runtime.headers import precompiled
from flashgen.runtime.tensors import (
    TENSOR_BYTES,
    TENSOR_WORDS,
    Form,
    address,
    check_apart,
    expect_input,
    expect_output,
    expect_scale,
    lay_out,
)
from flashgen.runtime.threads import choose_threads
from flashgen.targets.cpu import Cpu

# A decoding loop has a new Nk, and so a new layout, at every step.
LAYOUTS = 256


class CpuKernel:
    """A kernel that is loaded and can be called, from any number of Python threads at once.

    name: its variant's name.
    problem: what it computes.
    """

    def __init__(self, name: str, problem: Problem, library: Path):
        self.name, self.problem = name, problem
        self._function = open_function(library, name)
        scale = {"float32": ctypes.c_float, "float64": ctypes.c_double}[problem.computed]
        self._function.argtypes = [ctypes.c_void_p] * 5 + [scale, ctypes.c_int]
        self._function.restype = ctypes.c_int
        self._computed, self._default_scale = np.dtype(problem.computed), 1 / math.sqrt(problem.head_dim)
        self._lay_out = functools.lru_cache(LAYOUTS)(functools.partial(lay_out, problem))

    def __repr__(self) -> str:
        return f"<CpuKernel {self.name}>"

    def __call__(
        self,
        q: np.ndarray,
        k: np.ndarray,
        v: np.ndarray,
        *,
        scale: float | None = None,
        out: np.ndarray | None = None,
        lse: np.ndarray | None = None,
        threads: int | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """o and lse of q, k and v.

        q: (B, Hq, Nq, D), k: (B, Hkv, Nk, D), v: (B, Hkv, Nk, Dv), of the problem's dtype, Hq a multiple of
            Hkv; any strides, any of B, Hq, Nq and Nk may be 0. An array whose elements do not lie at
            multiples of their size is copied first.
        scale: of the scores; 0, or of a size that SCALES (tensors.py) allows; 1 / sqrt(D) if not given.
        out: (B, Hq, Nq, Dv), of the problem's dtype, lse: (B, Hq, Nq), of the type computed in (float64 with
            float64, else float32): written and returned; made if not given. Their memory is apart from the
            inputs' and each other's (compared by first and last address).
        threads: at most so many, from 1 to 1024; if not given, what the work is worth, up to
            $OMP_NUM_THREADS or the processors that this process may run on.

        A row that sees no key has o = 0 and lse = -inf. Raises InvalidArgument before anything is
        written, and KernelFailure, after which o and lse hold nothing of use.
        """
        dtype = self.problem.dtype
        q, k, v = expect_input("q", q, dtype), expect_input("k", k, dtype), expect_input("v", v, dtype)
        out_form = lse_form = None
        given: dict[str, np.ndarray] = {}
        if out is not None:
            given["out"] = out = expect_output("out", out, dtype)
            out_form = Form(out.shape, out.strides)
        if lse is not None:
            given["lse"] = lse = expect_output("lse", lse, self.problem.computed)
            lse_form = Form(lse.shape, lse.strides)
        layout = self._lay_out(
            Form(q.shape, q.strides), Form(k.shape, k.strides), Form(v.shape, v.strides), out_form, lse_form
        )
        if given:
            check_apart(given, {"q": q, "k": k, "v": v})
        factor = self._default_scale if scale is None else expect_scale(scale, self.problem.computed)
        count = choose_threads(threads, layout.work)

        if out is None:
            out = np.empty(layout.o, q.dtype)
        if lse is None:
            lse = np.empty(layout.lse, self._computed)
        if layout.no_heads:
            return out, lse
        # A block of its own for each call: ctypes lets other Python threads run while the kernel does.
        block = type(layout.block).from_buffer_copy(layout.block)
        block[0] = address(q)
        block[TENSOR_WORDS] = address(k)
        block[2 * TENSOR_WORDS] = address(v)
        block[3 * TENSOR_WORDS] = address(out)
        block[4 * TENSOR_WORDS] = address(lse)
        at = ctypes.addressof(block)
        status = self._function(
            at,
            at + TENSOR_BYTES,
            at + 2 * TENSOR_BYTES,
            at + 3 * TENSOR_BYTES,
            at + 4 * TENSOR_BYTES,
            factor,
            count,
        )
        if status != 0:
            raise KernelFailure(
                f"{self.name} returned {status}: there is not the memory it needs; fewer threads need less"
            )
        return out, lse


def load(source: str, name: str, problem: Problem, target: Cpu) -> CpuKernel:
    """Compile an emitted C++ file, or find it compiled, and load its function ``name``.

    Raises MissingTool (no compiler, a processor that cannot run it) or CompileFailure.
    """
    require(target)
    return CpuKernel(name, problem, library(source, name, target))


def open_function(library: Path, name: str) -> Any:
    """A function of a shared library from the cache. Raises CompileFailure; the cache is then without it."""
    try:
        loaded = ctypes.CDLL(str(library))
    except OSError as error:
        discard(library)
        raise CompileFailure(f"what the compiler made of {name} does not load ({error})") from error
    return loaded[name]


def library(source: str, name: str, target: Cpu) -> Path:
    """The shared library that ``source`` makes for ``target``, compiled unless the cache has it.

    ``name`` is what the compiler calls the file. Raises MissingTool or CompileFailure.
    """
    compiler = find_compiler()
    flags = (*target.flags, *BASE_FLAGS)
    key = make_key(source, flags, compiler.identity, target.name)

    def build(made: Path) -> None:
        headers = precompiled(compiler, flags) if HEADERS in source else None
        try:
            compiler.compile(source, made, flags, name, headers)
        except CompileFailure:
            if headers is None:
                raise
            # Without links in the folder, or with a g++ before 12. A fault of the source is told by this one.
            compiler.compile(source, made, flags, name)

    return fetch(key, build)
