"""Final module -> plan: one walk over the operations, each becoming a statement with named operands."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue

from flashgen.analysis.linear import stored
from flashgen.errors import FlashgenError
from flashgen.ir.compute import BroadcastOp, DotOp, PackOp, ReplaceOp, ScaleRowsOp
from flashgen.ir.memory import LoadOp, StoreOp
from flashgen.ir.regions import RowSpanOp, SweepOp, YieldOp, yielded
from flashgen.ir.types import element_of, shape_of
from flashgen.passes.provenance import made_by
from flashgen.plan.liveness import Liveness, deferred, elementwise, viewed
from flashgen.plan.model import KernelPlan, Operand, Statement
from flashgen.plan.storage import Names, Storage, element_name, kind_of
from flashgen.targets.base import TileLayout


class CannotPlan(FlashgenError):
    """The module has a form that plans do not have; says which pass would give it the right one."""


def plan(module: ModuleOp, layout: TileLayout, reserved: Collection[str]) -> KernelPlan:
    """The plan of a module's one function. ``reserved`` are names that the templates use themselves."""
    (function,) = (op for op in module.walk() if isinstance(op, func.FuncOp))
    if not any(isinstance(op, scf.ParallelOp) for op in function.body.block.ops):
        raise CannotPlan("the module has no parallel loop: run parallel-loops")
    return Planner(function, layout, reserved).plan()


class Planner:
    """Gives every value an operand, and every operation a statement."""

    def __init__(self, function: func.FuncOp, layout: TileLayout, reserved: Collection[str]):
        self._function = function
        self._live = Liveness(function)
        self._names = Names(reserved)
        self._storage = Storage(layout)
        self._operands: dict[SSAValue, Operand] = {}
        self._buffer: dict[SSAValue, int] = {}
        self._stored = stored(function)

    def plan(self) -> KernelPlan:
        params = [self._local(arg) for arg in self._function.body.block.args]
        body = self._block(self._function.body.block)
        return KernelPlan(params, self._storage.buffers, body)

    # -- values

    def _local(self, v: SSAValue, default: str = "n") -> Operand:
        """An operand with a name and no buffer."""
        name = self._names.unique(v.name_hint or default)
        self._operands[v] = Operand(kind_of(v), name, shape_of(v), element_name(element_of(v)))
        return self._operands[v]

    def _place(self, v: SSAValue, buffer: int, until: int) -> Operand:
        """An operand that lives in a buffer."""
        self._storage.hold(buffer, until)
        self._buffer[v] = buffer
        held = self._storage.buffers[buffer]
        self._operands[v] = Operand(
            kind_of(v),
            self._names.unique(v.name_hint or "t"),
            shape_of(v),
            held.element,
            held.offset,
            self._storage.stride(v),
        )
        return self._operands[v]

    def _continue(self, v: SSAValue, old: SSAValue, until: int) -> Operand:
        """v replaces old where it is, under old's name."""
        self._storage.hold(self._buffer[old], until)
        self._buffer[v], self._operands[v] = self._buffer[old], self._operands[old]
        return self._operands[v]

    def _result(self, op: Operation, v: SSAValue) -> Operand:
        """Places a result; where the operation updates an operand in place, under that operand's name."""
        buffer, until = self._choose(op, v), self._live.last_use(v)
        for old in updated(op):
            if self._buffer.get(old) == buffer:
                return self._continue(v, old, until)
        return self._place(v, buffer, until)

    def _choose(self, op: Operation, v: SSAValue) -> int:
        """The buffer of the carried value that v becomes, of an operand that dies here, or a free one."""
        now = self._live.begin[op]
        carried = self._becomes(v)
        if carried is not None and carried in self._buffer:
            last = self._live.last_use(carried)
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
            if v in updated(op) and self._live.last_use(v) == self._live.begin[op]:
                return self._becomes(op.results[0])
        return None

    def _all(self, values: Collection[SSAValue]) -> list[Operand]:
        return [self._operands[v] for v in values]

    # -- statements

    def _block(self, block: Block) -> list[Statement]:
        return [s for op in block.ops for s in self._stamped(op)]

    def _stamped(self, op: Operation) -> list[Statement]:
        statements = self._operation(op)
        for s in statements:
            s.made_by = made_by(op)
        return statements

    def _operation(self, op: Operation) -> list[Statement]:
        handle = HANDLERS.get(type(op))
        return handle(self, op) if handle else [self._plain(op)]

    def _nothing(self, op: Operation) -> list[Statement]:
        """What a loop or a region ends with; its operands are read where the region is planned."""
        return []

    def _constant(self, op: arith.ConstantOp) -> list[Statement]:
        value = op.value.value.data  # pyright: ignore[reportAttributeAccessIssue]
        element = element_name(op.result.type)
        self._operands[op.result] = Operand("constant", str(value), (), element, value=value)
        return []

    def _rounded(self, op: arith.TruncFOp) -> list[Statement]:
        """A constant that the IR states in float64, rounded to the type computed in."""
        wide = self._operands[op.operands[0]]
        if wide.kind != "constant":
            raise CannotPlan(f"{op.name} of something else than a constant")
        self._operands[op.results[0]] = replace(wide, element=element_name(op.results[0].type))
        return []

    def _broadcast(self, op: BroadcastOp) -> list[Statement]:
        self._operands[op.result] = self._operands[op.operand]
        return []

    def _plain(self, op: Operation) -> Statement:
        """What has one result and nothing else to say but a predicate or the like."""
        (result,) = op.results
        ins = self._all(op.operands)
        name = op.name.replace(".", "_")
        if not isinstance(result.type, TensorType):
            uses = len(list(result.uses))
            return Statement(name, "scalar", [self._local(result)], ins, attributes(op), uses=uses)
        if deferred(op):
            return Statement(name, "elementwise", [self._local(result)], ins, attributes(op), uses=1)
        form = "elementwise" if elementwise(op) else "operation"
        return Statement(name, form, [self._result(op, result)], ins, attributes(op))

    def _parallel(self, op: scf.ParallelOp) -> list[Statement]:
        """attrs: extents and steps of the loops, outermost first; all start at 0."""
        if any(self._operands[lb].value != 0 for lb in op.lowerBound):
            raise CannotPlan("a parallel loop that does not start at 0")
        indices = [self._local(arg) for arg in op.body.block.args]
        attrs = {"extents": self._all(op.upperBound), "steps": self._all(op.step)}
        return [Statement("scf_parallel", outs=indices, attrs=attrs, body=self._block(op.body.block))]

    def _loop(self, op: scf.ForOp) -> list[Statement]:
        """ins: start, stop and step. A carried value starts in its initial value's buffer if that dies."""
        before, now = [], self._live.begin[op]
        index, *carried = op.body.block.args
        counter = self._local(index)
        for init, arg, result in zip(op.iter_args, carried, op.results, strict=True):
            until = max(self._live.end[op], self._live.last_use(result))
            buffer = self._buffer.get(init)
            if buffer is not None and init.type == arg.type and self._storage.dies_at(buffer, now):
                self._continue(arg, init, until)
            else:
                start = self._operands[init]
                place = self._place(arg, self._storage.take(arg, now), until)
                before.append(Statement("copy", "elementwise", [place], [start]))
            self._buffer[result], self._operands[result] = self._buffer[arg], self._operands[arg]
        bounds = self._all((op.lb, op.ub, op.step))
        loop = Statement("scf_for", outs=[counter], ins=bounds, body=self._block(op.body.block))
        return [*before, loop]

    def _carry(self, op: scf.YieldOp) -> list[Statement]:
        """Copies into the carried buffers what was not computed there."""
        loop = op.parent_op()
        assert isinstance(loop, scf.ForOp)
        args = loop.body.block.args[1:]
        moves = [
            (v, a) for v, a in zip(op.operands, args, strict=True) if self._buffer.get(v) != self._buffer[a]
        ]
        if {self._buffer.get(v) for v, _ in moves} & {self._buffer[a] for _, a in moves}:
            raise CannotPlan("a loop that permutes its carried values")
        return [
            Statement("copy", "elementwise", [self._operands[a]], [self._operands[v]], declares=False)
            for v, a in moves
        ]

    def _workspace(self, op: memref.AllocOp) -> list[Statement]:
        """attrs: extents, a constant or a scalar each."""
        sizes = iter(self._all(op.dynamic_sizes))
        shape = shape_of(op.memref)
        extents = [
            next(sizes) if n < 0 else Operand("constant", str(n), value=n, element="index") for n in shape
        ]
        return [Statement("memref_alloc", outs=[self._local(op.memref)], attrs={"extents": extents})]

    def _load(self, op: LoadOp) -> list[Statement]:
        source, *indices = self._all(op.operands)
        if viewed(op, self._stored):
            element = element_name(element_of(op.memref))
            name = self._names.unique(op.result.name_hint or "view")
            self._operands[op.result] = Operand(
                "view", name, shape_of(op.result), element, memory=source, indices=tuple(indices)
            )
            return []
        return [Statement("tile_load", outs=[self._result(op, op.result)], ins=[source, *indices])]

    def _store(self, op: StoreOp) -> list[Statement]:
        """attrs: the tile's shape (of a fill, the only thing that states it)."""
        value, target, *indices = self._all(op.operands)
        name = "tile_fill" if value.kind in ("constant", "scalar") else "tile_store"
        return [Statement(name, ins=[value, target, *indices], attrs={"shape": shape_of(op.value)})]

    def _span(self, op: RowSpanOp) -> list[Statement]:
        """attrs: row, the region's argument; lo and hi, what it yields; cols, the tile's width."""
        place, ins = self._result(op, op.result), self._all(op.operands)
        row = self._local(op.body.block.args[0])
        body = self._block(op.body.block)
        lo, hi = self._all(yielded(op))
        attrs = {"row": row, "lo": lo, "hi": hi, "cols": op.width}
        return [Statement("tile_row_span", outs=[place], ins=ins, attrs=attrs, body=body)]

    def _sweep(self, op: SweepOp) -> list[Statement]:
        """attrs: elements, (argument, input) pairs; results, (out, reduction or None, what is yielded);
        over, the span or None; shape."""
        ins = self._all(op.inputs)
        outs = [self._result(op, v) for v in op.outs]
        elements = [(self._local(arg), v) for arg, v in zip(op.body.block.args, ins, strict=True)]
        body = self._block(op.body.block)
        results = list(zip(outs, op.kinds, self._all(yielded(op)), strict=True))
        over = self._operands[op.over] if op.over else None
        attrs = {"elements": elements, "results": results, "over": over, "shape": op.shape}
        return [Statement("tile_sweep", outs=outs, ins=ins, attrs=attrs, body=body)]

    def _dot(self, op: DotOp) -> list[Statement]:
        """ins: left and right side. attrs: over, only and where, operands or None; transpose, accumulate."""
        ins = self._all((op.lhs, op.rhs))
        roles = {n: self._operands[v] if (v := getattr(op, n)) else None for n in ("over", "only", "where")}
        attrs = roles | {"transpose": op.transpose is not None, "accumulate": op.acc is not None}
        before = self._in_place(op, op.acc)
        declares = op.acc is None
        return [
            *before,
            Statement("tile_dot", outs=[self._operands[op.result]], ins=ins, attrs=attrs, declares=declares),
        ]

    def _scale_rows(self, op: ScaleRowsOp) -> list[Statement]:
        """ins: one factor a row. outs[0] is scaled where it is."""
        before = self._in_place(op, op.operand)
        ins = [self._operands[op.factor]]
        return [
            *before,
            Statement("tile_scale_rows", outs=[self._operands[op.result]], ins=ins, declares=False),
        ]

    def _in_place(self, op: Operation, old: SSAValue | None) -> list[Statement]:
        """Places op's result; where it updates ``old`` and cannot do so in place, copies old there first."""
        place = self._result(op, op.results[0])
        if old is None or self._buffer.get(old) == self._buffer[op.results[0]]:
            return []
        return [Statement("copy", "elementwise", [place], [self._operands[old]])]


HANDLERS: dict[type[Operation], Callable[[Planner, Any], list[Statement]]] = {
    func.ReturnOp: Planner._nothing,
    scf.ReduceOp: Planner._nothing,
    YieldOp: Planner._nothing,
    arith.ConstantOp: Planner._constant,
    arith.TruncFOp: Planner._rounded,
    BroadcastOp: Planner._broadcast,
    scf.ParallelOp: Planner._parallel,
    scf.ForOp: Planner._loop,
    scf.YieldOp: Planner._carry,
    memref.AllocOp: Planner._workspace,
    LoadOp: Planner._load,
    StoreOp: Planner._store,
    RowSpanOp: Planner._span,
    SweepOp: Planner._sweep,
    DotOp: Planner._dot,
    ScaleRowsOp: Planner._scale_rows,
}


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


def attributes(op: Operation) -> dict[str, object]:
    """What an operation says of itself in its properties, as plain values."""
    match op:
        case arith.CmpiOp():
            return {"predicate": op.predicate.value.data}
        case ReplaceOp():
            return {"from_": op.from_.value.data, "to": op.to.value.data}
        case PackOp():
            return {"transpose": op.transpose is not None}
    return {}


__all__ = ["CannotPlan", "plan"]
