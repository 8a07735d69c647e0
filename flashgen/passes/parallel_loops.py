"""parallel-loops: the outermost loops, where no iteration waits for another, become one parallel loop.

    for b { for g { first = g * group; for r { h = first + r; body } } }
        ~>   parallel (b, g, r) { first = g * group; h = first + r; body }

The chain starts at the function's one outermost loop and goes on for as long as a loop holds nothing but
pure operations, allocations and one loop. What stands between two loops moves into the body; a workspace
then belongs to one iteration. A CPU deals the iterations to threads, a GPU's grid is made of them.

Where the chain's body is a sequence of loops that are all parallel, each becomes a parallel loop too, one
after the other: threads may share an iteration.

    for g { panels = alloc; for t { ... } for r { for i { ... } } }
        ~>   parallel (g) { panels = alloc; parallel (t) { ... } parallel (r, i) { ... } }

Legal when no loop of a chain carries a dependence, so that two iterations that differ in any of the
positions share no element that is stored. A chain ends before a loop that carries something, whose
range depends on the chain, does not start at 0, or has a step that is not constant.

Not handled: several outermost loops; reductions over iterations; parallel loops in three levels.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, Region
from xdsl.traits import is_side_effect_free

from flashgen.analysis.dependence import carried, describe
from flashgen.analysis.linear import Linear, induction, inside, linear, step_of
from flashgen.ir.provenance import inherit
from flashgen.ir.types import index
from flashgen.passes.base import TilePass
from flashgen.passes.edit import erase, insert_before
from flashgen.passes.patterns import outermost_loops


@dataclass(frozen=True)
class Nest:
    """Loops from the outermost inwards, and the operations between their headers."""

    loops: list[scf.ForOp]
    between: list[Operation]


@dataclass(frozen=True)
class ParallelLoopsPass(TilePass[list[Nest]]):
    name = "parallel-loops"

    def match(self, module: ModuleOp) -> list[Nest]:
        """Nests, those inside others first."""
        tops = outermost_loops(module)
        if len(tops) != 1:
            self.refuse(module, f"{len(tops) or 'no'} outermost loops; one is wanted")
        if reason := obstacle(tops[0], tops[0]):
            self.refuse(tops[0], reason)
        outer = chain(tops[0])
        return [*map(chain, sequence(outer.loops[-1])), outer]

    def rewrite(self, module: ModuleOp, match: list[Nest]) -> None:
        for nest in match:
            make_parallel(nest)


def chain(first: scf.ForOp) -> Nest:
    """The parallel loops from the first one inwards."""
    nest = Nest([first], [])
    while (inner := inner_loop(nest.loops[-1])) is not None and obstacle(inner, first) is None:
        nest.between.extend(
            op for op in nest.loops[-1].body.block.ops if op.next_op is not None and op is not inner
        )
        nest.loops.append(inner)
    return nest


def make_parallel(nest: Nest) -> None:
    body = Block(arg_types=[index] * len(nest.loops))
    for arg, loop in zip(body.args, nest.loops, strict=True):
        arg.name_hint = induction(loop).name_hint
        induction(loop).replace_all_uses_with(arg)
    *ops, _ = nest.loops[-1].body.block.ops
    for op in (*nest.between, *ops):
        op.detach()
        body.add_op(op)
    body.add_op(scf.ReduceOp())
    starts, stops, steps = ([loop.operands[n] for loop in nest.loops] for n in range(3))
    parallel = scf.ParallelOp(starts, stops, steps, Region(body))
    insert_before(nest.loops[0], parallel)
    inherit(parallel, nest.loops)
    erase(nest.loops[0])


def sequence(loop: scf.ForOp) -> list[scf.ForOp]:
    """The loops that a body consists of, if there are several and all may be parallel; else none.

    Between them stand numbers and allocations alone: a tile would belong to one of the threads.
    """
    *body, _ = loop.body.block.ops
    loops = [op for op in body if isinstance(op, scf.ForOp)]
    others = [op for op in body if not isinstance(op, scf.ForOp)]
    if len(loops) < 2 or any(obstacle(inner, inner) for inner in loops):
        return []
    shared = all(movable(op) and not any(isinstance(v.type, TensorType) for v in op.results) for op in others)
    return loops if shared else []


def movable(op: Operation) -> bool:
    """Whether it may be done in any iteration of a loop behind it."""
    return is_side_effect_free(op) or isinstance(op, memref.AllocOp)


def inner_loop(loop: scf.ForOp) -> scf.ForOp | None:
    """The loop that ends a body in which all else may stand in any iteration of it."""
    *before, inner, _ = [None, *loop.body.block.ops]
    if not isinstance(inner, scf.ForOp):
        return None
    return inner if all(op is None or movable(op) for op in before) else None


def obstacle(loop: scf.ForOp, outermost: scf.ForOp) -> str | None:
    """Why a loop cannot be one of the parallel ones; None if it can."""
    if linear(loop.lb) != Linear():
        return "does not start at 0"
    if step_of(loop) is None:
        return "its step is not a constant"
    if any(inside(v, outermost) for v in (loop.lb, loop.ub, loop.step)):
        return "its range depends on the loops around it"
    if what := carried(loop):
        return f"{describe(what[0])} carries a dependence from one iteration to another"
    return None
