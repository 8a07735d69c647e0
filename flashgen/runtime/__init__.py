"""From an emitted file to a kernel that can be called."""

from __future__ import annotations

from typing import Any

from flashgen.plan.launch import LaunchPlan
from flashgen.problem import Problem
from flashgen.targets.base import Target
from flashgen.targets.cpu import Cpu


def load(source: str, name: str, problem: Problem, target: Target, launch: LaunchPlan | None = None) -> Any:
    """The kernel ``name`` of an emitted file, compiled for ``target`` on this machine.

    source: the whole text of the file.
    name: of the variant, and of the function.
    launch: how a CUDA kernel is launched; C++ has none.
    Raises MissingTool, where a compiler or the device is not here, or CompileFailure.
    """
    if isinstance(target, Cpu):
        from flashgen.runtime import cpu

        return cpu.load(source, name, problem, target)
    from flashgen.runtime import cuda

    assert launch is not None, "a CUDA kernel comes with its launch plan"
    return cuda.CudaKernel(source, name, problem, launch)
