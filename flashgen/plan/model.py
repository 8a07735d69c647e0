"""The plan: what a template sees. Names, buffers and operations in order; no IR and no schedule.

A template spells an Operand, a Statement or a Buffer in its language and decides nothing. The plan is
made from the final module alone, so a kernel's text follows from its IR.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["scalar", "constant", "row", "tile", "packed", "span", "memory", "view"]


@dataclass
class Buffer:
    """Scratch memory of one thread (of one block, on a GPU): ``size`` elements, reused by several values."""

    name: str
    size: int
    element: str = "f32"


@dataclass(frozen=True)
class Operand:
    """A value as templates see it.

    kind: "scalar" a local number; "constant" a literal, its Python value in ``value``; "row" one value
        a row of a tile; "tile" rows x columns; "packed" panel x contraction x width; "span" an interval
        of columns a row; "memory" an argument or a workspace; "view" a tile that is used where it lies
        in ``memory`` at ``indices``.
    name: unique in the kernel, after the IR's value.
    shape: extents without padding; of memory its rank many extents, with scalars' names for run-time ones.
    element: "f32", "f16", "index" or "i1".
    buffer: the name of the scratch buffer that holds it, "" if it has none.
    stride: elements from one row to the next (tile), from one contraction step to the next (packed).
    fresh: whether this statement is the first to use ``name``, so that it must be declared.
    """

    kind: Kind
    name: str
    shape: tuple[int | str, ...] = ()
    element: str = "f32"
    buffer: str = ""
    stride: int = 0
    value: float | int | None = None
    memory: Operand | None = None
    indices: tuple[Operand, ...] = ()


@dataclass
class Statement:
    """One operation, in order.

    op: the IR operation's name with _ for the dot: it chooses the template's macro.
    outs, ins: results and operands.
    attrs: what else the operation says of itself, by its IR names (its operands' roles, predicates, ...).
    body: the operations of its region.
    made_by: the pass that made it ("build" for what FlashAttention-1 had from the start).
    """

    op: str
    outs: list[Operand] = field(default_factory=list)
    ins: list[Operand] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)
    body: list[Statement] = field(default_factory=list)
    made_by: str = "build"


@dataclass
class KernelPlan:
    """A kernel: its arguments, its scratch buffers, its workspaces, and its statements."""

    params: list[Operand]
    buffers: list[Buffer]
    body: list[Statement]
