"""Where values live: each gets a name, and scratch memory if it needs any.

A result is placed, in order of preference,
- where the carried value is that it becomes, once that one's old value is dead: no copy at the loop's end;

      for j carrying l { l_new = l * alpha + l_tile; yield l_new }      l_new lives where l does

- where an operand of its type dies, if each element needs the same element alone;

      p = exp2(s - top)                                                 p lives where s did

- in a buffer of its size that is free, or in a new one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from xdsl.dialects import func, scf
from xdsl.ir import Operation, SSAValue

from flashgen.ir.compute import DotOp, ScaleRowsOp
from flashgen.ir.regions import SweepOp
from flashgen.ir.types import element_of, shape_of
from flashgen.plan.layout import TileLayout
from flashgen.plan.liveness import Liveness, deferred, elementwise
from flashgen.plan.model import Buffer, Operand
from flashgen.plan.storage import Names, Storage, element_name, kind_of

TEAM = "team"
"""The name, in templates, of the team of threads that runs the whole kernel."""


class Placement:
    """The operands of a function's values, and the buffers that hold them."""

    def __init__(self, function: func.FuncOp, layout: TileLayout, reserved: Collection[str]):
        self._live = Liveness(function)
        self._names = Names(reserved)
        self._storage = Storage(layout)
        self._operands: dict[SSAValue, Operand] = {}
        self._buffer: dict[SSAValue, int] = {}
        self.team = TEAM
        """The team in whose scratch memory values are placed at present."""

    def __getitem__(self, v: SSAValue) -> Operand:
        return self._operands[v]

    def __setitem__(self, v: SSAValue, operand: Operand) -> None:
        """Of a value that needs no memory: a constant, a view."""
        self._operands[v] = operand

    def all(self, values: Iterable[SSAValue]) -> list[Operand]:
        return [self._operands[v] for v in values]

    @property
    def buffers(self) -> list[Buffer]:
        return self._storage.buffers

    def name(self, v: SSAValue, default: str) -> str:
        """A name of its own for v, after the IR's."""
        return self._names.unique(v.name_hint or default)

    def word(self, wanted: str) -> str:
        """A name of its own for what is no value."""
        return self._names.unique(wanted)

    def local(self, v: SSAValue) -> Operand:
        """A number with a name, or an array."""
        return self._unplaced(v, self.name(v, "n"))

    def spelled_later(self, v: SSAValue) -> Operand:
        """A value that is written down where it is used: it needs no name that anyone reads."""
        return self._unplaced(v, self._names.hidden())

    def _unplaced(self, v: SSAValue, name: str) -> Operand:
        self._operands[v] = Operand(kind_of(v), name, shape_of(v), element_name(element_of(v)))
        return self._operands[v]

    def result(self, op: Operation, v: SSAValue) -> Operand:
        """Places a result; where the operation updates an operand in place, under that operand's name."""
        buffer, until = self._choose(op, v), self._live.last_use(v)
        for old in updated(op):
            if self._buffer.get(old) == buffer:
                return self._continue(v, old, until)
        return self._place(v, buffer, until)

    def carry(self, loop: scf.ForOp, init: SSAValue, arg: SSAValue, result: SSAValue) -> bool:
        """Places a carried value: in its initial value's buffer if that dies. Whether it has to be copied."""
        until = max(self._live.end[loop], self._live.last_use(result))
        now, buffer = self._live.begin[loop], self._buffer.get(init)
        moves = buffer is None or init.type != arg.type or not self._storage.dies_at(buffer, now)
        if moves:
            self._place(arg, self._storage.take(arg, now), until)
        else:
            self._continue(arg, init, until)
        self._buffer[result], self._operands[result] = self._buffer[arg], self._operands[arg]
        return moves

    def pass_on(self, result: SSAValue) -> bool:
        """Places what a branch passes on where the carried value is that it becomes; whether there is one."""
        carried = self._becomes(result)
        if carried is None or carried not in self._buffer:
            return False
        self._buffer[result], self._operands[result] = self._buffer[carried], self._operands[carried]
        return True

    def together(self, a: SSAValue, b: SSAValue) -> bool:
        """Whether two values live in one place."""
        return a in self._buffer and self._buffer[a] == self._buffer.get(b)

    def _place(self, v: SSAValue, buffer: int, until: int) -> Operand:
        self._storage.hold(buffer, until)
        self._buffer[v] = buffer
        held, stride = self._storage.buffers[buffer], self._storage.stride(v)
        name = self.name(v, "t")
        self._operands[v] = Operand(
            kind_of(v), name, shape_of(v), held.element, held.offset, stride, team=self.team
        )
        return self._operands[v]

    def _continue(self, v: SSAValue, old: SSAValue, until: int) -> Operand:
        """v replaces old where it is, under old's name."""
        self._storage.hold(self._buffer[old], until)
        self._buffer[v], self._operands[v] = self._buffer[old], self._operands[old]
        return self._operands[v]

    def _choose(self, op: Operation, v: SSAValue) -> int:
        """The buffer for a result, by the preferences of this file's head."""
        now = self._live.begin[op]
        carried = self._becomes(v)
        if carried is not None and carried in self._buffer:
            last = self._live.last_use_with(carried, op)
            if last < now or (last == now and carried in overwritable(op)):
                return self._buffer[carried]
        for old in overwritable(op):
            buffer = self._buffer.get(old)
            if buffer is not None and old.type == v.type and self._storage.dies_at(buffer, now):
                return buffer
        return self._storage.take(v, now)

    def _becomes(self, v: SSAValue) -> SSAValue | None:
        """The carried value that v is passed on as, perhaps through operations that update it in place."""
        for use in v.uses:
            op = use.operation
            loop = op.parent_op()
            if isinstance(op, scf.YieldOp) and isinstance(loop, scf.ForOp):
                return loop.body.block.args[1 + use.index]
            if isinstance(op, scf.YieldOp) and isinstance(loop, scf.IfOp):
                return self._becomes(loop.results[use.index])
            if v in updated(op) and self._live.last_use(v) == self._live.begin[op]:
                return self._becomes(op.results[0])
        return None


def updated(op: Operation) -> Collection[SSAValue]:
    """The operand whose place the result takes by the operation's meaning."""
    match op:
        case DotOp():
            return [op.acc] if op.acc else []
        case ScaleRowsOp():
            return [op.operand]
    return []


def overwritable(op: Operation) -> Collection[SSAValue]:
    """Operands that a result may overwrite while it is computed: element by element, or row by row."""
    if isinstance(op, SweepOp):
        return op.inputs
    if not elementwise(op):
        return updated(op)
    through = [
        overwritable(v.owner) for v in op.operands if isinstance(v.owner, Operation) and deferred(v.owner)
    ]
    return [*op.operands, *(v for operands in through for v in operands)]
