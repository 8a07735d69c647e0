"""Loads and calls a compiled CPU kernel."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flashgen.errors import CompileFailure, KernelFailure
from flashgen.problem import Problem, computed
from flashgen.runtime.arrays import View, aligned, check_apart, check_type, is_aligned, look, to_write
from flashgen.runtime.cache import discard, fetch, make_key
from flashgen.runtime.compiler import BASE_FLAGS, HEADERS, find_compiler
from flashgen.runtime.cpu_features import require
from flashgen.runtime.headers import precompiled
from flashgen.runtime.inputs import expect_inputs
from flashgen.runtime.sequences import check_tables, in_front, lay_out_sequences
from flashgen.runtime.tensors import (
    BHND,
    FORMS,
    TENSOR_WORDS,
    TENSORS,
    Form,
    Layout,
    expect_scale,
    lay_out,
)
from flashgen.runtime.threads import choose_threads
from flashgen.targets.cpu import Cpu


class CpuKernel:
    """A kernel that is loaded and can be called, from any number of Python threads at once.

    name: its variant's name.
    problem: what it computes.
    """

    def __init__(self, name: str, problem: Problem, library: Path):
        self.name, self.problem = name, problem
        self.arrays, self.scalars = problem.arrays, problem.scalars
        self._computed = computed(problem.dtype)
        real = ctypes.c_double if self._computed == "float64" else ctypes.c_float
        kinds = [ctypes.c_int64 if scalar.kind == "index" else real for scalar in self.scalars]
        tensors = len(TENSORS) + len(self.arrays)
        self._function = open_function(library, name)
        self._function.argtypes = [ctypes.c_void_p] * tensors + [real, *kinds, ctypes.c_int]
        self._function.restype = ctypes.c_int
        self._default_scale = 1 / math.sqrt(problem.head_dim)
        self._sequences = problem.layout != "dense"
        lay = lay_out_sequences if self._sequences else lay_out
        self._lay_out = functools.lru_cache(FORMS)(functools.partial(lay, problem))

    def __repr__(self) -> str:
        return f"<CpuKernel {self.name}>"

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
        threads: int | None = None,
    ) -> tuple[Any, Any]:
        """o and lse of q, k and v.

        q: (B, Hq, Nq, D), k: (B, Hkv, Nk, D), v: (B, Hkv, Nk, Dv), of the problem's dtype, Hq a multiple of
            Hkv; any strides, any of B, Hq, Nq and Nk may be 0. Arrays of NumPy, PyTorch, JAX or what else
            runtime/arrays.py reads; o and lse are of the library of q. None is copied, but one whose elements
            do not lie at multiples of their size.
            Of a problem with packed sequences q is (total_q, Hq, D), k (total_k, Hkv, D), v (total_k, Hkv,
            Dv); with keys in pages k is (pages, page_size, Hkv, D), v (pages, page_size, Hkv, Dv).
        scale: of the scores; 0, or of a size that SCALES (tensors.py) allows; 1 / sqrt(D) if not given.
        inputs: by their names the arrays and numbers that the problem's mask and score read
            (``problem.arrays``, ``problem.scalars``), each of the rank and the type stated there, of any
            sizes and strides; what lies beyond an array's bounds reads as 0. The array "sink" is (Hq,). Those
            that tell sequences apart (flashgen.layouts) are int32 and have the shapes stated there.
        out: (B, Hq, Nq, Dv), of the problem's dtype, lse: (B, Hq, Nq), of the type computed in: written and
            returned; made if not given. Their memory is apart from the inputs' and each other's (compared by
            first and last address). Where q is packed, out is (total_q, Hq, Dv), lse (Hq, total_q).
        threads: at most so many, from 1 to 1024; if not given, what the work is worth, up to
            $OMP_NUM_THREADS or the processors that this process may run on.

        A row that sees no key has o = 0 and lse = -inf. Raises InvalidArgument before anything is
        written, and KernelFailure, after which o and lse hold nothing of use.
        """
        dtype = self.problem.dtype
        q, k, v = look("q", q), look("k", k), look("v", v)
        for view in (q, k, v):
            check_type(view, dtype)
        o = None if out is None else to_write(look("out", out), dtype)
        row = None if lse is None else to_write(look("lse", lse), self._computed)
        arrays, numbers = expect_inputs(self.arrays, self.scalars, dtype, inputs)
        if self._sequences:
            q, k, v, o = in_front(self.problem.layout, q, k, v, o)
        layout = self.lay_out(q, k, v, o, row, arrays)
        if self._sequences:
            check_tables(self.problem.layout, q, k, arrays)
        made, made_lse = self.run(layout, q, k, v, o, row, arrays, numbers, scale, threads)
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
        return self._lay_out(
            Form(q.shape, q.strides),
            Form(k.shape, k.strides),
            Form(v.shape, v.strides),
            None if out is None else Form(out.shape, out.strides),
            None if lse is None else Form(lse.shape, lse.strides),
            order,
            tuple([Form(x.shape, x.strides) for x in arrays]),
        )

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
        """o and lse of arrays whose types are checked and whose forms are laid out.

        An output that is None is made like q. Raises InvalidArgument before anything is written, and
        KernelFailure.
        """
        given: list[View] = []
        if out is not None or lse is not None:
            given = [x for x in (out, lse) if x is not None]
            check_apart(given, (q, k, v, *arrays))
        factor = self._default_scale if scale is None else expect_scale(scale, self._computed)
        count = choose_threads(threads, layout.work)
        low = (q.address | k.address | v.address) & layout.low
        if low or layout.odd or (arrays and not all(map(is_aligned, arrays))):
            q, k, v, *rest = [aligned(x) for x in (q, k, v, *arrays)]
            arrays = tuple(rest)
            layout = self.lay_out(q, k, v, out, lse, arrays, layout.order)
        kind = q.kind
        made: Any = kind.empty(layout.o, q.dtype, q) if out is None else None
        made_lse: Any = kind.empty(layout.lse, self._computed, q) if lse is None else None
        if not layout.no_heads:
            at_o = kind.address(made) if out is None else out.address
            at_lse = kind.address(made_lse) if lse is None else lse.address
            starts = (q.address, k.address, v.address, at_o, at_lse, *[x.address for x in arrays])
            self._call(layout, starts, factor, numbers, count)
        for view in given:
            view.kind.note_write(view)
        return (
            None if out is not None else kind.finish(made, q),
            None if lse is not None else kind.finish(made_lse, q),
        )

    def _call(
        self,
        layout: Layout,
        starts: tuple[int, ...],
        scale: float,
        numbers: tuple[float, ...],
        threads: int,
    ) -> None:
        """Call the compiled function with the tensors that begin at these addresses. Raises KernelFailure."""
        # A block of its own for each call: ctypes lets other Python threads run while the kernel does.
        try:
            block = layout.spare.pop()
        except IndexError:
            block = layout.new_block()
        words = block.words
        for n, start in enumerate(starts):
            words[n * TENSOR_WORDS] = start
        status = self._function(*block.tensors, scale, *numbers, threads)
        layout.spare.append(block)
        if status != 0:
            raise KernelFailure(
                f"{self.name} returned {status}: there is not the memory it needs; fewer threads need less"
            )


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
