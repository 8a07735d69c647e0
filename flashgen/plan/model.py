"""The plan: what a template sees. Names, buffers and operations in order; no IR and no schedule.

A template spells an Operand, a Statement or a Buffer in its language and decides nothing. The plan is
made from the final module alone, so a kernel's text follows from its IR.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal[
    "scalar",
    "constant",
    "spread",
    "row",
    "tile",
    "narrow",
    "mask",
    "packed",
    "pairs",
    "span",
    "memory",
    "view",
]
Form = Literal["operation", "elementwise", "scalar"]


@dataclass
class Buffer:
    """Scratch memory of one thread (of one block, on a GPU), shared by values that never live at once.

    size: elements. element: "f32", "f64", "bf16", "index" or "i1" (a byte). offset: bytes from the start of
        scratch memory.
    """

    size: int
    element: str
    offset: int = 0

    @property
    def bytes(self) -> int:
        """Its size in bytes."""
        return self.size * {"f32": 4, "f64": 8, "bf16": 2, "index": 8, "i1": 1}[self.element]


@dataclass(frozen=True)
class Operand:
    """A value as templates see it.

    kind: "scalar" a local number; "constant" a literal, its Python value in ``value``; "spread" either of
        them, for every element that a sweep goes over; "row" one value a row of a tile; "tile" rows x
        columns; "narrow" and "mask" the same of a storage type, and of truth values; "packed" panel x
        contraction x width; "pairs" panel x pair of the contraction x width x 2; "span" an interval of
        columns a row; "memory" an argument or a workspace; "view" a tile that is used where it lies
        in ``memory`` at ``indices``, as panels may be too.
    name: unique in the kernel, after the IR's value.
    shape: extents without padding; of memory only its rank is meant.
    element: "f32", "f64", "f16", "bf16", "index" or "i1" (of memory also "i32" and "i64").
    offset: bytes from the start of the scratch memory (of all that lies there).
    stride: elements from one row of a tile to the next.
    team: whose scratch memory that is: the name of the threads that share an iteration of the parallel loop
        around it.
    """

    kind: Kind
    name: str
    shape: tuple[int, ...] = ()
    element: str = "f32"
    offset: int = 0
    stride: int = 0
    value: float | int | None = None
    memory: Operand | None = None
    indices: tuple[Operand, ...] = ()
    team: str = ""


@dataclass
class Statement:
    """One operation, in order.

    op: the IR operation's name with _ for the dot ("tile_dot"), or what the plan adds: "copy", "tile_fill"
        for a store of one value, "tile_place" for a load of panels, which are used where they lie,
        "tile_dot_in_place" for a product whose right side is a view, "tile_pack_pairs" and "tile_dot_pairs"
        for those that make pairs, or have them as their right side, "_where" behind the name of a product
        with a mask, and of a tile.mask "tile_mask_columns" for what is done for each column of a row,
        "tile_mask_rows" where it has one value a row.
    form: "operation" has a macro of its own; "elementwise" is an expression for every element of outs[0];
        "scalar" an expression that defines outs[0].
    outs, ins: results and operands.
    attrs: what else the operation says of itself; see the planner's method for it.
    body: the operations of its region.
    made_by: the passes that made it, in order; () of what FlashAttention-1 had from the start. None until
        the planner has said.
    declares: whether outs[0] lives in memory that no earlier statement gave that name to.
    inline: whether it is spelled where it is used: a number or an elementwise operation with one use.
    """

    op: str
    form: Form = "operation"
    outs: list[Operand] = field(default_factory=list)
    ins: list[Operand] = field(default_factory=list)
    attrs: dict[str, Any] = field(default_factory=dict)
    body: list[Statement] = field(default_factory=list)
    made_by: tuple[str, ...] | None = None
    declares: bool = True
    inline: bool = False


@dataclass
class KernelPlan:
    """A kernel: its arguments, its scratch buffers, and its statements.

    unread: the numbers among its arguments that nothing reads.
    """

    params: list[Operand]
    buffers: list[Buffer]
    body: list[Statement]
    unread: list[Operand] = field(default_factory=list)

    @property
    def operations(self) -> frozenset[str]:
        """The names of its statements' operations."""
        return frozenset(statement.op for statement in walk(self.body))

    @property
    def numbers(self) -> frozenset[str]:
        """The names of operations on single numbers, where they do not make an index: a truth value, a float.

        A sweep's are not among them: they are done to its elements.
        """
        return spelled_as("scalar", walk_outside_sweeps(self.body))

    @property
    def elements(self) -> frozenset[str]:
        """The names of operations on elements of tiles, in a sweep or alone."""
        sweeps = (s for sweep in walk(self.body) if sweep.op == "tile_sweep" for s in walk(sweep.body))
        alone = spelled_as("elementwise", walk(self.body))
        return alone | spelled_as("scalar", sweeps)

    @property
    def arrays(self) -> list[Statement]:
        """Those that make an array."""
        return [statement for statement in walk(self.body) if statement.op == "memref_alloc"]

    @property
    def extents(self) -> list[Statement]:
        """Those that compute what extents of arrays are made of, in order, down to sizes of arguments."""
        wanted = {extent.name for array in self.arrays for extent in array.attrs["extents"]}
        found = []
        for s in reversed(list(walk(self.body))):  # so that a number's own operands are found behind it
            if s.form == "scalar" and s.op != "memref_dim" and s.outs[0].name in wanted:
                wanted |= {operand.name for operand in s.ins}
                found.append(s)
        return found[::-1]

    @property
    def scratch_bytes(self) -> int:
        """Scratch memory of one thread, or of one block."""
        return max((b.offset + b.bytes for b in self.buffers), default=0)


def spelled_as(form: Form, statements: Iterable[Statement]) -> frozenset[str]:
    """The names of the operations of this form whose result is no index."""
    return frozenset(s.op for s in statements if s.form == form and s.outs[0].element != "index")


def walk_outside_sweeps(statements: list[Statement]) -> Iterator[Statement]:
    """Every statement but those of the regions of sweeps."""
    for s in statements:
        yield s
        if s.op != "tile_sweep":
            yield from walk_outside_sweeps(s.body)


def walk(statements: list[Statement]) -> Iterator[Statement]:
    """Every statement, those of regions included."""
    for s in statements:
        yield s
        yield from walk(s.body)
