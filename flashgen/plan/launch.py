"""How a CUDA kernel is launched: a grid and a workspace that follow from the arrays' sizes.

Emission reads a LaunchPlan off the plan's parallel loops and allocations; the launcher evaluates it for
the sizes of a call: B, Hq, Hkv, Nq, Nk, and group = Hq / Hkv.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

from flashgen.errors import CannotEmit
from flashgen.layouts import LAYOUTS
from flashgen.plan.model import KernelPlan, Operand, Statement

SIZES = ("B", "Hq", "Hkv", "Nq", "Nk")
"""The sizes of a call, as shapes of the kernel's arguments name them."""
Shapes = Mapping[str, tuple[str, ...]]
DENSE: Shapes = LAYOUTS["dense"].shapes


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


def launch_plan(kernel: KernelPlan, threads: int, shapes: Shapes = DENSE) -> LaunchPlan:
    """How the kernel, whose arrays have these shapes, is launched with that many threads a block.

    Raises CannotEmit where a loop or an array has an extent that is not a size of a call.
    """
    sizes = sizes_in(kernel, shapes)
    (parallel,) = (s for s in kernel.body if s.op == "scf_parallel")
    if parallel.attrs["shared"]:
        raise CannotEmit("a grid has no parallel loops inside parallel loops")
    trips = zip(parallel.attrs["extents"], parallel.attrs["steps"], strict=True)
    allocs = [s.attrs["extents"] for s in parallel.body if s.op == "memref_alloc"]
    return LaunchPlan(
        tuple(Trips(str(extent_of(n, sizes)), int(step.value)) for n, step in trips),
        threads,
        kernel.scratch_bytes,
        tuple(tuple(extent_of(n, sizes) for n in extents) for extents in allocs),
    )


def sizes_in(kernel: KernelPlan, shapes: Shapes = DENSE) -> dict[str, str]:
    """For the plan's name of each number that is a size of a call, what Sizes calls it."""
    known: dict[str, str] = {}
    for s in kernel.body:
        match s:
            case Statement(op="memref_dim", ins=[array, Operand(kind="constant", value=int() as n)]):
                size = shapes[array.name][n] if array.name in shapes else None
            case Statement(op="arith_subi", ins=[a, Operand(kind="constant", value=1)]):
                size = "B" if known.get(a.name) == "B + 1" else None
            case Statement(op="arith_floordivsi", ins=[a, b]):
                size = "group" if (known.get(a.name), known.get(b.name)) == ("Hq", "Hkv") else None
            case _:
                continue
        if size:
            known[s.outs[0].name] = size
    return known


def extent_of(n: Operand, sizes: dict[str, str]) -> int | str:
    """A number, or the name of a size."""
    if n.kind == "constant":
        return int(n.value or 0)
    if sizes.get(n.name) not in (*SIZES, "group"):
        raise CannotEmit(f"{n.name} is not a size of a call, which is what grids and workspaces are made of")
    return sizes[n.name]
