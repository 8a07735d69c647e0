"""How a CUDA kernel is launched: a grid and a workspace that follow from the arrays' sizes.

Emission reads a LaunchPlan off the plan's parallel loops and allocations; the launcher evaluates it for
the sizes of a call. Names of sizes are the module's own: B, Hq, Hkv, group, Nq and Nk.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from flashgen.plan.model import KernelPlan, Operand, Statement

NAMES = ("B", "Hq", "Hkv", "group", "Nq", "Nk")


@dataclass(frozen=True)
class Sizes:
    """The run-time sizes of a call: q is (B, Hq, Nq, D), k is (B, Hkv, Nk, D). Any of them may be 0."""

    batch: int
    query_heads: int
    kv_heads: int
    query_len: int
    key_len: int

    def __getitem__(self, name: str) -> int:
        """The size that the module calls ``name``; raises KeyError for any other name."""
        group = self.query_heads // self.kv_heads if self.kv_heads else 0
        return {
            "B": self.batch,
            "Hq": self.query_heads,
            "Hkv": self.kv_heads,
            "group": group,
            "Nq": self.query_len,
            "Nk": self.key_len,
        }[name]


@dataclass(frozen=True)
class Trips:
    """The trip count of a loop from 0 to ``extent`` (a size's name) in steps of ``step``."""

    extent: str
    step: int = 1

    def __str__(self) -> str:
        return self.extent if self.step == 1 else f"ceil({self.extent} / {self.step})"

    def count(self, sizes: Sizes) -> int:
        return -(-sizes[self.extent] // self.step)


@dataclass(frozen=True)
class LaunchPlan:
    """Grid, block and memory of a kernel.

    grid: the parallel loops, outermost first; the grid is one-dimensional, their trip counts multiplied.
    threads: threads in a block.
    shared_bytes: dynamic shared memory of a block.
    workspace: shapes of the float32 arrays that each block keeps in global memory, one after the other;
        an extent is a number or a size's name.
    """

    grid: tuple[Trips, ...]
    threads: int
    shared_bytes: int
    workspace: tuple[tuple[int | str, ...], ...] = ()

    def blocks(self, sizes: Sizes) -> int:
        """Blocks to launch; 0 where a size makes the work empty, and then nothing may be launched."""
        return prod(trips.count(sizes) for trips in self.grid)

    def workspace_elements(self, sizes: Sizes) -> int:
        """float32 elements of workspace for all blocks together."""
        return self.blocks(sizes) * sum(
            prod(extent if isinstance(extent, int) else sizes[extent] for extent in shape)
            for shape in self.workspace
        )


def launch_plan(kernel: KernelPlan, threads: int) -> LaunchPlan:
    """How the kernel is launched with that many threads a block.

    Raises ValueError where a loop or an array has an extent that is not one of NAMES.
    """
    (parallel,) = (s for s in kernel.body if s.op == "scf_parallel")
    trips = zip(parallel.attrs["extents"], parallel.attrs["steps"], strict=True)
    return LaunchPlan(
        tuple(Trips(size_name(extent), int(step.value)) for extent, step in trips),
        threads,
        kernel.scratch_bytes,
        tuple(workspace_shape(s) for s in parallel.body if s.op == "memref_alloc"),
    )


def workspace_shape(alloc: Statement) -> tuple[int | str, ...]:
    """The extents of an array in the workspace."""
    extents: list[Any] = alloc.attrs["extents"]
    return tuple(int(n.value) if n.kind == "constant" else size_name(n) for n in extents)


def size_name(extent: Operand) -> str:
    """The name of the size that an extent is."""
    if extent.name not in NAMES:
        raise ValueError(f"{extent.name} is not a size of a call: {', '.join(NAMES)} are")
    return extent.name
