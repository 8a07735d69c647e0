"""Names and scratch memory for the values of a kernel."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    IndexType,
    IntegerType,
    MemRefType,
    TensorType,
    i1,
)
from xdsl.ir import Attribute, SSAValue

from flashgen.ir.types import NARROW, element_of, shape_of
from flashgen.plan.layout import TileLayout, round_up
from flashgen.plan.model import Buffer, Kind

ALIGNMENT = 64  # bytes: a cache line


class Names:
    """Gives each value a name that no other value, macro or keyword has."""

    def __init__(self, reserved: Collection[str]):
        self._taken = set(reserved)
        self._hidden = 0

    def unique(self, wanted: str) -> str:
        """``wanted``, with a number behind it if it is taken, or spelled as macros are: INFINITY."""
        name, n = wanted, 1
        while name in self._taken or (len(name) > 1 and name == wanted == wanted.upper()):
            name, n = f"{wanted}_{n}", n + 1
        self._taken.add(name)
        return name

    def hidden(self) -> str:
        """A name that no text shows, for a value that is spelled where it is used."""
        self._hidden += 1
        return f"%{self._hidden}"


class Storage:
    """Scratch buffers, reused once the value in them is dead."""

    def __init__(self, layout: TileLayout):
        self._layout = layout
        self._busy_until: list[int] = []
        self.buffers: list[Buffer] = []

    def take(self, v: SSAValue, now: int) -> int:
        """A buffer for v, free at operation ``now``; returns its number."""
        size, element = self.size(v), element_name(element_of(v))
        for n, buffer in enumerate(self.buffers):
            if (buffer.size, buffer.element) == (size, element) and self._busy_until[n] < now:
                return n
        start = max((b.offset + b.bytes for b in self.buffers), default=0)
        self.buffers.append(Buffer(size, element, round_up(start, ALIGNMENT)))
        self._busy_until.append(-1)
        return len(self.buffers) - 1

    def hold(self, buffer: int, until: int) -> None:
        """The buffer is in use until operation ``until``."""
        self._busy_until[buffer] = max(self._busy_until[buffer], until)

    def dies_at(self, buffer: int, now: int) -> bool:
        """Whether what the buffer holds is used at ``now`` for the last time."""
        return self._busy_until[buffer] == now

    def stride(self, v: SSAValue) -> int:
        """Elements from one row of a tile to the next."""
        if kind_of(v) not in ("tile", "narrow", "mask"):
            return 0
        columns = round_up(shape_of(v)[1], self._layout.cols)
        return columns | 1 if self._layout.odd else columns

    def size(self, v: SSAValue) -> int:
        """Elements that v's buffer needs, padding included."""
        shape = shape_of(v)
        match kind_of(v):
            case "row":
                return round_up(shape[0], self._layout.cols)
            case "span":
                return 2 * round_up(shape[0], self._layout.rows)
            case "tile" | "narrow" | "mask":
                return round_up(shape[0], self._layout.rows) * self.stride(v)
            case _:
                return prod(shape)


def kind_of(v: SSAValue) -> Kind:
    """What kind of operand a value of this type is."""
    if isinstance(v.type, MemRefType):
        return "memory"
    if not isinstance(v.type, TensorType):
        return "scalar"
    if element_of(v) == IndexType():
        return "span"
    if element_of(v) == i1:
        return "mask"
    matrix = "narrow" if element_of(v) in NARROW else "tile"
    return {1: "row", 2: matrix, 3: "packed", 4: "pairs"}[len(shape_of(v))]  # pyright: ignore[reportReturnType]


def element_name(t: Attribute) -> str:
    """The plan's word for an element type."""
    match t:
        case IndexType():
            return "index"
        case IntegerType():
            return f"i{t.width.data}"
        case Float16Type():
            return "f16"
        case BFloat16Type():
            return "bf16"
        case Float32Type():
            return "f32"
        case Float64Type():
            return "f64"
    raise TypeError(f"{t} has no place in a plan")


__all__ = ["Names", "Storage", "element_name", "kind_of"]
