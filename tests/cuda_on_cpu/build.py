"""Compiles an emitted CUDA file for the CPU: the file as it is, a stub behind it, the runtime beside it."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from flashgen.errors import CompileFailure, MissingTool
from flashgen.runtime.cache import fetch, make_key
from flashgen.runtime.compiler import Compiler, find_compiler

HERE = Path(__file__).parent
RUNTIME = ("runtime.cpp", "memory.cpp", "fiber.cpp")
COMMON_FLAGS = ("-std=c++17", "-fPIC", "-fvisibility=hidden", "-Wall", "-c")
# -O1: the kernel's accesses stay as they are written; -O2 merges some into vectors and into calls of memset,
# which the sanitizer does not see. DWARF 4: addr2line of binutils 2.40 misreads the file names of 5.
KERNEL_FLAGS = ("-O1", "-g1", "-gdwarf-4", "-ffp-contract=off", "-Wno-unknown-pragmas")

TENSOR = "flashgen_tensor"
TENSOR_BYTES = 72
DYNAMIC_CAPACITY = 256 << 10
"""Bytes of dynamic shared memory that a launch may ask for; no GPU has more."""


def build_library(source: str, name: str, signature: Sequence[str], *, detect_races: bool) -> Path:
    """The library of the kernel ``name``, from the cache if it is there.

    Raises MissingTool without g++ or clang++, CompileFailure with a compiler's words, warnings included.
    """
    compiler = find_compiler()
    if compiler.is_zig:
        raise MissingTool(
            "CUDA on the CPU needs g++ or clang++; zig has no thread sanitizer's hooks to offer"
        )
    unit = '#include "kernel.cu"\n' + _stub(source, name, signature)
    flags = (*COMMON_FLAGS, *KERNEL_FLAGS, *(["-fsanitize=thread"] if detect_races else []))
    runtime = fetch(
        make_key("cuda_on_cpu runtime", compiler.identity, _harness()),
        lambda made: _build_runtime(compiler, made),
    )

    def build(made: Path) -> None:
        folder = made.parent
        (folder / "kernel.cu").write_text(source, encoding="utf-8")
        (folder / "unit.cpp").write_text(unit, encoding="utf-8")
        include = ("-include", str(HERE / "cuda_cpu.hpp"), "-I", str(HERE), "-I", str(HERE / "include"))
        _run(compiler, folder, *flags, *include, "unit.cpp", "-o", "unit.o")
        # Linked without -fsanitize: the runtime stands in for the sanitizer's own library.
        _run(compiler, folder, "-shared", "-Wl,-z,defs", "unit.o", str(runtime), "-o", str(made))

    return fetch(make_key("cuda_on_cpu kernel", compiler.identity, _harness(), flags, source, unit), build)


def line_of(library: Path, offset: int) -> str:
    """Source line of an instruction, such as "kernel.cu:12"; its offset, where addr2line is missing."""
    tool = shutil.which("addr2line")
    if tool is None:
        return f"instruction {offset:#x}"
    command = [tool, "-s", "-e", str(library), hex(offset)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(" (")[0].strip()


def _stub(source: str, name: str, signature: Sequence[str]) -> str:
    """What follows the kernel in its translation unit, so that the compiler checks the signature.

    It unpacks the arguments, calls the kernel, and defines the dynamic shared memory, under every name that
    the source declares it with.
    """
    arguments = ", ".join(f"*static_cast<{kind} *>(arguments[{i}])" for i, kind in enumerate(signature))
    arrays = dict.fromkeys(re.findall(r"extern\s+__shared__[^;\[]*?(\w+)\s*\[\s*\]", source))
    labels = "\n".join(f".hidden {array}\n.globl {array}\n{array}:" for array in arrays)
    layout = f'static_assert(sizeof({TENSOR}) == {TENSOR_BYTES}, "as the contract has it");'
    return f"""
#include "interface.hpp"
{layout if any(TENSOR in kind for kind in signature) else ""}
asm(R"(
.section .tbss, "awT", @nobits
.balign 1024
{labels}
.hidden cuda_cpu_dynamic
.globl cuda_cpu_dynamic
cuda_cpu_dynamic:
.zero {DYNAMIC_CAPACITY}
.text
)");
extern __thread unsigned char cuda_cpu_dynamic[];
__attribute__((no_sanitize("thread"))) static void cuda_cpu_call(void *const *arguments) {{
  {name}({arguments});
}}
extern "C" __attribute__((visibility("default"), no_sanitize("thread"))) void cuda_cpu_run(
    const cuda_cpu::Launch *launch, void *const *arguments, cuda_cpu::Result *result) {{
  cuda_cpu::run({{cuda_cpu_call, cuda_cpu_dynamic, {DYNAMIC_CAPACITY}}}, *launch, arguments, *result);
}}
"""


@cache
def _harness() -> str:
    """The text of this folder's C++, which every library is made with."""
    paths = [p for p in sorted(HERE.rglob("*")) if p.suffix in (".h", ".hpp", ".cpp")]
    return "\0".join(p.read_text(encoding="utf-8") for p in paths)


def _build_runtime(compiler: Compiler, made: Path) -> None:
    objects = [f"{Path(name).stem}.o" for name in RUNTIME]
    for name, output in zip(RUNTIME, objects, strict=True):
        _run(compiler, made.parent, *COMMON_FLAGS, "-Wextra", "-O2", str(HERE / name), "-o", output)
    _run(compiler, made.parent, "-r", "-nostdlib", *objects, "-o", str(made))


def _run(compiler: Compiler, folder: Path, *arguments: str) -> None:
    command = [*compiler.command, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode or done.stderr:
        raise CompileFailure(f"{' '.join(command)}: {done.stderr.strip()}")
