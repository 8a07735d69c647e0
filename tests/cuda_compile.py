"""Compile CUDA sources for real GPUs, on a machine that need not have one; a warning is a failure.

NVRTC, in this process, takes 0.05 to 0.4 seconds a source and architecture; nvcc takes over half a second
to start. So NVRTC goes first (pip install 'flashgen[nvrtc]'), then nvcc.
"""

from __future__ import annotations

import ctypes
import importlib.metadata
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from flashgen.errors import CompileFailure
from flashgen.runtime.cuda import OPTIONS
from flashgen.targets.cuda import Cuda

MISSING = "neither NVRTC (pip install 'flashgen[nvrtc]') nor nvcc is here"


@dataclass(frozen=True)
class Usage:
    """What one thread, or one block's static shared memory, takes: registers, and bytes of the others."""

    registers: int
    spill_stores: int
    spill_loads: int
    static_shared: int


Compile = Callable[[str, str], str]
"""Source and architecture to the compiler's log, ptxas -v included; raises CompileFailure."""


def check(source: str, architectures: Sequence[str] = Cuda.architectures) -> dict[str, Usage]:
    """Compile ``source``, which holds one kernel, for each architecture; what it uses on each.

    Raises CompileFailure with the log where there is an error or a warning. Skips the test where there is
    no compiler.
    """
    compile = default_compiler()
    if compile is None:
        pytest.skip(MISSING)
    return {architecture: usage(compile(source, architecture)) for architecture in architectures}


def default_compiler() -> Compile | None:
    return nvrtc() or nvcc()


def usage(log: str) -> Usage:
    """The figures of ptxas; raises CompileFailure where the log holds anything but what -v prints."""
    said = [line for line in log.splitlines() if line.strip() and not line.startswith("ptxas info")]
    spills = r"ptxas\s*\.?\s+\d+ bytes stack frame, |\s+\d+ bytes stack frame, "
    if rest := [line for line in said if not re.match(spills, line)]:
        raise CompileFailure("\n".join(rest))

    def figure(pattern: str) -> int:
        return sum(int(found) for found in re.findall(pattern, log))

    return Usage(
        figure(r"Used (\d+) registers"),
        figure(r"(\d+) bytes spill stores"),
        figure(r"(\d+) bytes spill loads"),
        figure(r"(\d+) bytes smem"),
    )


@cache
def nvrtc() -> Compile | None:
    """NVRTC of the wheel nvidia-cuda-nvrtc, with the headers of nvidia-cuda-runtime."""
    library = _wheel_file("nvidia-cuda-nvrtc", r"libnvrtc\.so\.\d+")
    header = _wheel_file("nvidia-cuda-runtime", r"cuda_fp16\.h")
    if library is None or header is None:
        return None
    api = ctypes.CDLL(str(library))
    api.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(name: str, *arguments: object) -> None:
        if status := getattr(api, name)(*arguments):
            raise CompileFailure(f"{name}: {api.nvrtcGetErrorString(status).decode()}")

    def compile(source: str, architecture: str) -> str:
        options = [
            f"--gpu-architecture={architecture}",
            *OPTIONS,
            "--ptxas-options=-v",
            f"-I{header.parent}",
        ]
        words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        program, size = ctypes.c_void_p(), ctypes.c_size_t()
        call("nvrtcCreateProgram", ctypes.byref(program), source.encode(), b"kernel.cu", 0, None, None)
        try:
            status = api.nvrtcCompileProgram(program, len(options), words)
            call("nvrtcGetProgramLogSize", program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            call("nvrtcGetProgramLog", program, log)
        finally:
            call("nvrtcDestroyProgram", ctypes.byref(program))
        if status:
            raise CompileFailure(f"{api.nvrtcGetErrorString(status).decode()}: {log.value.decode()}")
        return log.value.decode()

    return compile


@cache
def nvcc() -> Compile | None:
    """nvcc on PATH."""
    path = shutil.which("nvcc")
    if path is None:
        return None

    def compile(source: str, architecture: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            text = Path(folder, "kernel.cu")
            text.write_text(source, encoding="utf-8")
            command = [path, *OPTIONS, f"-arch={architecture}", "-cubin", "-Xptxas=-v"]
            command += [
                "--Werror=all-warnings",
                "-Xcompiler=-Wall,-Wextra",
                str(text),
                "-o",
                f"{folder}/kernel.cubin",
            ]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileFailure(done.stdout + done.stderr)
        return done.stdout + done.stderr

    return compile


def _wheel_file(distribution: str, name: str) -> Path | None:
    try:
        files = importlib.metadata.files(distribution) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    return next((Path(str(f.locate())) for f in files if re.fullmatch(name, f.name)), None)
