"""`flashgen targets`: what this machine can compile for and run, and what is missing."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from flashgen.errors import FlashgenError, MissingTool
from flashgen.targets import TARGETS
from flashgen.targets.base import Target
from flashgen.targets.cpu import Cpu
from flashgen.targets.cuda import Cuda


def targets() -> None:
    """Say what this machine compiles for and runs.

    What it does not, it does once something is installed; the table says what.

    \b
    Examples:
      flashgen targets
      CXX=clang++ flashgen targets
    """
    from rich.table import Table

    from flashgen.cli.terminal import console

    table = Table("target", "for", "emit", "compile", "run")
    for target in TARGETS.values():
        compiling, running = (answer(ask, target) for ask in (ask_compile, ask_run))
        table.add_row(target.name, machine(target), "yes", compiling, running)
    console().print(table)


def answer(ask: Callable[[Target], str], target: Target) -> str:
    """ "yes", with what does it, or "no", with what is missing."""
    try:
        return f"yes: {ask(target)}"
    except FlashgenError as refusal:
        return f"no: {refusal}"


def machine(target: Target) -> str:
    """What the target is."""
    if isinstance(target, Cpu):
        return f"x86-64, vectors of {target.lanes} floats" + "".join(
            f", products of {t}" for t in target.products[1:]
        )
    assert isinstance(target, Cuda)
    return f"NVIDIA GPUs, {target.architectures[0]} and later"


def ask_compile(target: Target) -> str:
    """What compiles for the target. Raises MissingTool."""
    if isinstance(target, Cpu):
        from flashgen.runtime.compiler import find_compiler

        return find_compiler().version
    if nvcc := shutil.which("nvcc"):
        return nvcc
    from importlib.util import find_spec

    if find_spec("cupy"):
        return "NVRTC, through CuPy"
    raise MissingTool(
        "install NVIDIA's CUDA toolkit (nvcc), or pip install 'flashgen[cuda]' (CuPy with NVRTC)"
    )


def ask_run(target: Target) -> str:
    """What runs the target's kernels. Raises MissingTool."""
    if isinstance(target, Cpu):
        from flashgen.runtime.compiler import find_compiler
        from flashgen.runtime.cpu_features import require

        require(target)
        find_compiler()
        return "this processor"
    from flashgen.runtime.cuda import find_gpu

    cupy = find_gpu()
    return cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
