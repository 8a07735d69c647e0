"""Final module -> plan: one walk over the operations, each becoming a statement with named operands."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue

from flashgen.analysis.linear import stored
from flashgen.errors import CannotEmit
from flashgen.ir.compute import BroadcastOp, DotOp, PackOp, ScaleRowsOp
from flashgen.ir.memory import ExtremesOp, FetchOp, GroupRowsOp, LoadOp, StoreOp
from flashgen.ir.provenance import made_by
from flashgen.ir.regions import MaskOp, RowSpanOp, SweepOp, YieldOp, yielded
from flashgen.ir.sequences import PagesOp, SequenceOp
from flashgen.ir.types import NARROW, element_of, shape_of
from flashgen.plan.layout import TileLayout
from flashgen.plan.liveness import deferred, elementwise, viewed
from flashgen.plan.model import KernelPlan, Operand, Statement
from flashgen.plan.placement import Placement
from flashgen.plan.properties import attributes, crosses, level_of
from flashgen.plan.storage import element_name, kind_of


def plan(module: ModuleOp, layout: TileLayout, reserved: Collection[str]) -> KernelPlan:
    """The plan of a module's one function. ``reserved`` are names that the templates use themselves."""
    (function,) = (op for op in module.walk() if isinstance(op, func.FuncOp))
    if not any(isinstance(op, scf.ParallelOp) for op in function.body.block.ops):
        raise CannotEmit("the module has no parallel loop: run parallel-loops")
    return Planner(function, layout, reserved).plan()


PANELS = ("packed", "pairs")


class Planner:
    """Gives every value an operand, and every operation a statement."""

    def __init__(self, function: func.FuncOp, layout: TileLayout, reserved: Collection[str]):
        self._function = function
        self._at = Placement(function, layout, reserved)
        self._stored, self._reads_in_place = stored(function), layout.in_place

    def plan(self) -> KernelPlan:
        args = self._function.body.block.args
        params = [self._at.local(arg) for arg in args]
        body = self._block(self._function.body.block)
        unread = [self._at[arg] for arg in args if self._at[arg].kind == "scalar" and not list(arg.uses)]
        return KernelPlan(params, self._at.buffers, body, unread)

    def _block(self, block: Block) -> list[Statement]:
        return [s for op in block.ops for s in self._stamped(op)]

    def _stamped(self, op: Operation) -> list[Statement]:
        statements = self._operation(op)
        for s in statements:
            s.made_by = made_by(op) if s.made_by is None else s.made_by
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
        self._at[op.result] = Operand("constant", str(value), (), element, value=value)
        return []

    def _rounded(self, op: arith.TruncFOp) -> list[Statement]:
        """A constant that the IR states in float64, rounded to the type computed in; or what is narrowed."""
        wide = self._at[op.operands[0]]
        if element_of(op.results[0]) in NARROW:
            return [self._plain(op)]
        if wide.kind != "constant":
            raise CannotEmit(f"{op.name} of something else than a constant")
        self._at[op.results[0]] = replace(wide, element=element_name(op.results[0].type))
        return []

    def _broadcast(self, op: BroadcastOp) -> list[Statement]:
        self._at[op.result] = self._at[op.operand]
        return []

    def _plain(self, op: Operation) -> Statement:
        """What has one result and nothing else to say but a predicate or the like."""
        (result,) = op.results
        ins = self._at.all(op.operands)
        name = op.name.replace(".", "_")
        if not isinstance(result.type, TensorType):
            inline = result.name_hint is None and len(list(result.uses)) == 1 and not crosses(op)
            place = self._at.spelled_later(result) if inline else self._at.local(result)
            return Statement(name, "scalar", [place], ins, attributes(op), inline=inline)
        if deferred(op):
            place = self._at.spelled_later(result)
            return Statement(name, "elementwise", [place], ins, attributes(op), inline=True)
        form = "elementwise" if elementwise(op) else "operation"
        return Statement(name, form, [self._at.result(op, result)], ins, attributes(op))

    def _parallel(self, op: scf.ParallelOp) -> list[Statement]:
        """attrs: extents and steps of the loops, outermost first; all start at 0. Names: `team` of the
        threads that share an iteration, `among` of the team that iterations are dealt to, `at` of its
        position. `shared`: an iteration has parallel loops of its own, which several threads can work on.
        """
        if any(self._at[lb].value != 0 for lb in op.lowerBound):
            raise CannotEmit("a parallel loop that does not start at 0")
        indices = [self._at.local(arg) for arg in op.body.block.args]
        among, team = self._at.team, self._at.word("team")
        self._at.team = team
        body = self._block(op.body.block)
        self._at.team = among
        attrs = {
            "extents": self._at.all(op.upperBound),
            "steps": self._at.all(op.step),
            "among": among,
            "team": team,
            "at": self._at.word("at"),
            "shared": any(isinstance(inner, scf.ParallelOp) for inner in op.body.block.ops),
        }
        return [Statement("scf_parallel", outs=indices, attrs=attrs, body=body)]

    def _loop(self, op: scf.ForOp) -> list[Statement]:
        """ins: start, stop and step. attrs: carried, pairs of a value and what becomes it, in one place.

        A carried value starts in its initial value's buffer if that dies.
        """
        before = []
        index, *carried = op.body.block.args
        counter = self._at.local(index)
        for init, arg, result in zip(op.iter_args, carried, op.results, strict=True):
            start = self._at[init]
            if self._at.carry(op, init, arg, result):
                maker = made_by(init.owner) if isinstance(init.owner, Operation) else ()
                before.append(Statement("copy", "elementwise", [self._at[arg]], [start], made_by=maker))
        bounds = self._at.all((op.lb, op.ub, op.step))
        body = self._block(op.body.block)
        last = op.body.block.last_op
        assert last is not None
        together = [(a, v) for a, v in zip(carried, last.operands, strict=True) if self._at.together(a, v)]
        attrs = {"carried": [(self._at[a], self._at[v]) for a, v in together]}
        return [*before, Statement("scf_for", outs=[counter], ins=bounds, attrs=attrs, body=body)]

    def _branch(self, op: scf.IfOp) -> list[Statement]:
        """ins of scf_if: the condition. What is done where it does not hold is an scf_else behind it.

        What a branch passes on goes into the place of the carried value that it becomes.
        """
        if not all(map(self._at.pass_on, op.results)):
            raise CannotEmit("scf.if with a result that no loop carries on")
        condition = self._at[op.cond]
        sides = [self._block(region.block) if region.blocks else [] for region in op.regions]
        found = [Statement("scf_if", ins=[condition], body=sides[0])]
        return [*found, Statement("scf_else", body=sides[1])] if sides[1] else found

    def _extremes(self, op: ExtremesOp) -> list[Statement]:
        """ins: the array. attrs: first and last, the indices of the box."""
        first, last = self._at.all(op.first), self._at.all(op.last)
        outs, ins = [self._at.local(v) for v in op.results], [self._at[op.source]]
        return [Statement("tile_extremes", outs=outs, ins=ins, attrs={"first": first, "last": last})]

    def _carry(self, op: scf.YieldOp) -> list[Statement]:
        """Copies into the carried buffers what was not computed there."""
        up = op.parent_op()
        assert isinstance(up, scf.ForOp | scf.IfOp)
        places = up.body.block.args[1:] if isinstance(up, scf.ForOp) else up.results
        pairs = zip(op.operands, places, strict=True)
        moves = [(v, a) for v, a in pairs if not self._at.together(v, a)]
        if any(self._at.together(v, a) for v, _ in moves for _, a in moves):
            raise CannotEmit("a loop that permutes its carried values has no plan")
        return [
            Statement("copy", "elementwise", [self._at[a]], [self._at[v]], declares=False) for v, a in moves
        ]

    def _workspace(self, op: memref.AllocOp) -> list[Statement]:
        """attrs: extents, a constant or a scalar each."""
        sizes = iter(self._at.all(op.dynamic_sizes))
        shape = shape_of(op.memref)
        extents = [
            next(sizes) if n < 0 else Operand("constant", str(n), value=n, element="index") for n in shape
        ]
        array = replace(self._at.local(op.memref), team=self._at.team)
        return [Statement("memref_alloc", outs=[array], attrs={"extents": extents})]

    def _numbered(self, op: GroupRowsOp | SequenceOp | PagesOp) -> list[Statement]:
        """An array in another way. ins: the array, and what says how: numbers, tables."""
        name, ins = op.name.replace(".", "_"), self._at.all(op.operands)
        return [Statement(name, outs=[self._at.local(op.result)], ins=ins)]

    def _load(self, op: LoadOp) -> list[Statement]:
        source, *indices = self._at.all(op.operands)
        if viewed(op, self._stored, self._reads_in_place):
            element = element_name(element_of(op.memref))
            name = self._at.name(op.result, "view")
            self._at[op.result] = Operand(
                "view", name, shape_of(op.result), element, memory=source, indices=tuple(indices)
            )
            return []
        if kind_of(op.result) in PANELS:
            self._at[op.result] = self._in_memory(op.result, source, indices)
            return [Statement("tile_place", outs=[self._at[op.result]])]
        return [Statement("tile_load", outs=[self._at.result(op, op.result)], ins=[source, *indices])]

    def _in_memory(self, v: SSAValue, memory: Operand, indices: Sequence[Operand]) -> Operand:
        """A packed tile that lies in an array, which holds nothing else there."""
        name, element = self._at.name(v, "t"), element_name(element_of(v))
        return Operand(kind_of(v), name, shape_of(v), element, memory=memory, indices=tuple(indices))

    def _pack(self, op: PackOp) -> list[Statement]:
        """attrs: transpose. What is stored right behind it is packed where it goes."""
        store = op.next_op
        if isinstance(store, StoreOp) and store.value is op.result:
            target, *indices = self._at.all(store.operands[1:])
            self._at[op.result] = self._in_memory(op.result, target, indices)
        else:
            self._at.result(op, op.result)
        ins, attrs = self._at.all(op.operands), {"transpose": op.transpose is not None}
        name = "tile_pack_pairs" if kind_of(op.result) == "pairs" else "tile_pack"
        return [Statement(name, outs=[self._at[op.result]], ins=ins, attrs=attrs)]

    def _store(self, op: StoreOp) -> list[Statement]:
        """attrs: the tile's shape (of a fill, the only thing that states it)."""
        value, target, *indices = self._at.all(op.operands)
        if value.kind in PANELS:
            if value.memory is not target:
                raise CannotEmit("panels are stored where they are packed, right behind it")
            return []
        name = "tile_fill" if value.kind in ("constant", "scalar") else "tile_store"
        return [Statement(name, ins=[value, target, *indices], attrs={"shape": shape_of(op.value)})]

    def _fetch(self, op: FetchOp) -> list[Statement]:
        """Done beside the product that comes behind, whose attrs hold it."""
        last: Operation | None = op
        while isinstance(last, FetchOp):
            last = last.next_op
        if not isinstance(last, DotOp):
            raise CannotEmit("tile.fetch stands before what is no product")
        return []

    def _ahead(self, dot: DotOp) -> list[Operand]:
        """The tiles that are fetched beside a product, as views."""
        found, op = [], dot.prev_op
        while isinstance(op, FetchOp):
            source, *indices = self._at.all(op.operands)
            shape, element = tuple(op.tile_type.get_shape()), element_name(element_of(op.source))
            found.append(Operand("view", "", shape, element, memory=source, indices=tuple(indices)))
            op = op.prev_op
        return found[::-1]

    def _span(self, op: RowSpanOp) -> list[Statement]:
        """attrs: row, the region's argument; lo and hi, what it yields; cols, the tile's width."""
        place, ins = self._at.result(op, op.result), self._at.all(op.operands)
        row = self._at.local(op.body.block.args[0])
        body = self._block(op.body.block)
        lo, hi = self._at.all(yielded(op))
        attrs = {"row": row, "lo": lo, "hi": hi, "cols": op.width}
        return [Statement("tile_row_span", outs=[place], ins=ins, attrs=attrs, body=body)]

    def _mask(self, op: MaskOp) -> list[Statement]:
        """What needs neither row nor column stands in front; what needs the row alone, in a body that is done
        for each row `y` of the tile. Behind it there stands tile_mask_columns, done for each column `x`.

        attrs of that: out, the mask; value, what an element is; over, the span or None.
        Of one value a row: tile_mask_rows, with the attribute value.
        """
        row, col = op.body.block.args
        place, (i, j) = self._at.result(op, op.result), self._at.all((op.row, op.col))
        bodies: list[list[Statement]] = [[], [], []]
        for v, level, first, counter in ((row, 1, i, "y"), (col, 2, j, "x")):
            if list(v.uses):
                here = Operand("scalar", counter, element="index")
                bodies[level].append(Statement("arith_addi", "scalar", [self._at.local(v)], [first, here]))
        for inner in op.body.block.ops:
            bodies[level_of(inner)] += self._operation(inner)
        (value,) = self._at.all(yielded(op))
        above, body, columns = bodies
        for s in above:
            s.made_by = made_by(op)
        if place.kind == "row":
            return [
                *above,
                Statement("tile_mask_rows", outs=[place], attrs={"value": value}, body=body + columns),
            ]
        attrs = {"out": place, "value": value, "over": self._at[op.over] if op.over else None}
        body.append(Statement("tile_mask_columns", attrs=attrs, body=columns))
        return [*above, Statement("tile_mask", outs=[place], attrs={"over": attrs["over"]}, body=body)]

    def _sweep(self, op: SweepOp) -> list[Statement]:
        """attrs: elements, (argument, input) pairs; results, (out, reduction or None, what is yielded);
        over, the span or None; shape."""
        ins = self._at.all(op.inputs)
        outs = [self._at.result(op, v) for v in op.outs]
        elements = [(self._at.local(arg), v) for arg, v in zip(op.body.block.args, ins, strict=True)]
        body = self._block(op.body.block)
        own = {o.name for s in body for o in s.outs} | {argument.name for argument, _ in elements}
        for s in body:
            s.ins = [
                o if o.name in own or o.element not in ("f32", "f64") else replace(o, kind="spread")
                for o in s.ins
            ]
        results = list(zip(outs, op.kinds, self._at.all(yielded(op)), strict=True))
        over = self._at[op.over] if op.over else None
        attrs = {"elements": elements, "results": results, "over": over, "shape": op.shape}
        return [Statement("tile_sweep", outs=outs, ins=ins, attrs=attrs, body=body)]

    def _dot(self, op: DotOp) -> list[Statement]:
        """ins: left and right side. attrs: over, only and where, operands or None; transpose, accumulate;
        ahead, tiles that are fetched beside it.

        Of a right side that is a view: tile_dot_in_place, whose attrs have for over and only the span of the
        view's rows, or None.
        """
        if op.where is not None and op.zeros is None:
            raise CannotEmit("tile.dot where what takes no part may be something else than 0")

        ins = self._at.all((op.lhs, op.rhs))
        roles = {n: self._at[v] if (v := getattr(op, n)) else None for n in ("over", "only", "where")}
        attrs: dict[str, Any] = {"transpose": op.transpose is not None, "accumulate": op.acc is not None}
        attrs["ahead"] = self._ahead(op)
        name = "tile_dot_pairs" if ins[1].kind == "pairs" else "tile_dot"
        if ins[1].kind == "view":
            span = roles["only" if attrs["transpose"] else "over"]
            name, roles = "tile_dot_in_place", {"span": span, "where": roles["where"]}
            if attrs["ahead"]:
                raise CannotEmit("tile.fetch beside a product that fetches itself what it reads in place")
            if attrs["transpose"] and op.over is not None:
                raise CannotEmit("tile.dot with a loaded, transposed right side, over a part of its columns")
            if attrs["transpose"] and op.where is not None:
                raise CannotEmit("tile.dot with a loaded, transposed right side, where a mask holds")
        if op.where is not None:
            name += "_where"
        before = self._in_place(op, op.acc)
        place = self._at[op.result]
        dot = Statement(name, outs=[place], ins=ins, attrs=roles | attrs, declares=op.acc is None)
        return [*before, dot]

    def _scale_rows(self, op: ScaleRowsOp) -> list[Statement]:
        """ins: one factor a row. outs[0] is scaled where it is."""
        before = self._in_place(op, op.operand)
        ins = [self._at[op.factor]]
        return [
            *before,
            Statement("tile_scale_rows", outs=[self._at[op.result]], ins=ins, declares=False),
        ]

    def _in_place(self, op: Operation, old: SSAValue | None) -> list[Statement]:
        """Places op's result; where it updates ``old`` and cannot do so in place, copies old there first."""
        place = self._at.result(op, op.results[0])
        if old is None or self._at.together(old, op.results[0]):
            return []
        return [Statement("copy", "elementwise", [place], [self._at[old]])]


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
    scf.IfOp: Planner._branch,
    ExtremesOp: Planner._extremes,
    memref.AllocOp: Planner._workspace,
    GroupRowsOp: Planner._numbered,
    SequenceOp: Planner._numbered,
    PagesOp: Planner._numbered,
    LoadOp: Planner._load,
    PackOp: Planner._pack,
    StoreOp: Planner._store,
    FetchOp: Planner._fetch,
    RowSpanOp: Planner._span,
    MaskOp: Planner._mask,
    SweepOp: Planner._sweep,
    DotOp: Planner._dot,
    ScaleRowsOp: Planner._scale_rows,
}
