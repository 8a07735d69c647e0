"""The final module is what its schedule says, and nothing else is left in it."""

from __future__ import annotations

import pytest
from xdsl.dialects import arith, func, math, memref, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from flashgen.analysis.linear import inside
from flashgen.ir.compute import DotOp, PackOp, ScaleRowsOp
from flashgen.ir.dialect import parse
from flashgen.ir.memory import LoadOp, StoreOp
from flashgen.ir.provenance import made_by
from flashgen.ir.regions import RowSpanOp, SweepOp
from flashgen.ir.types import shape_of
from flashgen.passes.edit import remove_dead
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.schedule import Schedule
from tests.modules import COMBINATIONS, final

BR, BC, D, DV = 4, 6, 3, 5
PROBLEMS = [Problem(D, DV, causal=causal) for causal in ALIGNMENTS]
SCHEDULES = [
    Schedule(order, BR, BC, lazy, skip, panel, hoist, False, split_keys=0, fetch_ahead=hoist)
    for order, lazy, skip in COMBINATIONS
    for panel, hoist in ((0, False), (4, False), (4, True))
]

every_module = pytest.mark.parametrize(
    ("problem", "schedule"),
    [pytest.param(p, s, id=f"{p.name}-{s.name}") for p in PROBLEMS for s in SCHEDULES],
)

TILE = {"load", "store", "broadcast", "dot", "replace", "row_span", "scale_rows", "sweep", "yield"}
INDEX = {"constant", "addi", "subi", "muli", "floordivsi", "ceildivsi", "minsi", "maxsi", "cmpi", "select"}
FLOAT = {"addf", "subf", "mulf", "divf", "maximumf", "truncf"}


def kinds(module: ModuleOp, dialect: str) -> set[str]:
    """The names of the dialect's operations in a module."""
    return {op.name.split(".")[1] for op in module.walk() if op.name.startswith(f"{dialect}.")}


def all_of(root: Operation, kind: type) -> list:
    return [op for op in root.walk() if isinstance(op, kind)]


def body_loops(module: ModuleOp) -> list[scf.ForOp]:
    """The loops whose steps update the state: they hold products and no loop."""
    loops = all_of(module, scf.ForOp)
    return [loop for loop in loops if all_of(loop, DotOp) and len(all_of(loop, scf.ForOp)) == 1]


@every_module
def test_it_reads_back(problem: Problem, schedule: Schedule) -> None:
    module = final(problem, schedule)
    assert str(parse(str(module))) == str(module)


@every_module
def test_only_these_operations(problem: Problem, schedule: Schedule) -> None:
    """No exp, no mask, no select of tiles, no reduction outside a sweep; panels where they are asked for."""
    module = final(problem, schedule)
    packing = ({"pack"} if schedule.panel else set()) | ({"fetch"} if schedule.hoist_packs else set())
    assert kinds(module, "tile") == TILE | packing
    assert kinds(module, "math") == {"exp2", "log"}
    assert kinds(module, "scf") == {"parallel", "reduce", "for", "yield"}
    arrays = schedule.order == "kv-outer" or schedule.hoist_packs
    assert kinds(module, "memref") == {"dim"} | ({"alloc"} if arrays else set())
    fetched = {"remsi"} if schedule.fetch_ahead else set()
    assert FLOAT <= kinds(module, "arith") <= FLOAT | INDEX | {"andi"} | fetched


@every_module
def test_nothing_is_dead_and_constants_stand_at_the_top(problem: Problem, schedule: Schedule) -> None:
    module = final(problem, schedule)
    cleaned = module.clone()
    remove_dead(cleaned)
    assert str(cleaned) == str(module)
    (function,) = all_of(module, func.FuncOp)
    constants = all_of(module, arith.ConstantOp)
    assert list(function.body.block.ops)[: len(constants)] == constants
    assert len({str(op.value) for op in constants}) == len(constants)


@every_module
def test_the_parallel_loop_is_as_wide_as_the_order_allows(problem: Problem, schedule: Schedule) -> None:
    """Batch, key head, query head of the group; and query tile where the state stays on chip. What is packed
    for a key head is packed in front of the loops over the others."""
    loops = all_of(final(problem, schedule), scf.ParallelOp)
    names = [[arg.name_hint for arg in parallel.body.block.args] for parallel in loops]
    queries = ["r", "i"] if schedule.order == "q-outer" else ["r"]
    assert names == ([["b", "g"], ["t"], queries] if schedule.hoist_packs else [["b", "g", *queries]])


@every_module
def test_state_is_in_memory_or_carried(problem: Problem, schedule: Schedule) -> None:
    """FlashAttention-1's order reads and writes O, m and l in every step; FlashAttention-2's carries them."""
    for loop in body_loops(final(problem, schedule)):
        loads, stores = all_of(loop, LoadOp), all_of(loop, StoreOp)
        if schedule.order == "q-outer":
            assert len(loop.iter_args) == 3
            arrays = ["k_panels", "v_panels"] if schedule.hoist_packs else ["k", "v"]
            assert [op.memref.name_hint for op in loads] == arrays
            assert not stores
        else:
            assert not loop.iter_args
            state = [op for op in loads if op.memref.name_hint in ("acc", "l", "m")]
            assert [op.memref.name_hint for op in loads] == ["q", *(op.memref.name_hint for op in state)]
            assert {op.memref for op in state} == {op.memref for op in stores}
            assert len(stores) == 3


@every_module
def test_two_products_and_two_sweeps_a_step(problem: Problem, schedule: Schedule) -> None:
    for loop in body_loops(final(problem, schedule)):
        dots = all_of(loop, DotOp)
        assert [shape_of(dot.result) for dot in dots] == [(BR, BC), (BR, DV)]
        assert [len(shape_of(dot.rhs)) for dot in dots] == [3 if schedule.panel else 2] * 2
        assert (dots[0].transpose is None) == bool(schedule.panel)
        assert [sweep.kinds[-1] for sweep in all_of(loop, SweepOp)] == ["maxnum", "add"]
        assert (dots[1].acc is not None) == schedule.lazy_rescale
        scaled = 1 if schedule.lazy_rescale else 2
        assert len(all_of(loop, ScaleRowsOp)) == scaled


@every_module
def test_spans_stand_where_the_mask_cuts(problem: Problem, schedule: Schedule) -> None:
    """With causal-skip some loop needs none, and loads its keys without a look at the bound."""
    loops = body_loops(final(problem, schedule))
    spans = [all_of(loop, RowSpanOp) for loop in loops]
    assert all(len(found) <= 1 for found in spans)
    assert any(spans)
    assert all(spans) != schedule.causal_skip
    for loop, found in zip(loops, spans, strict=True):
        for op in (*all_of(loop, DotOp), *all_of(loop, SweepOp)):
            spanned = op.over if isinstance(op, SweepOp) or op.only is None else op.only
            assert spanned is (found[0].result if found else None)


@every_module
def test_one_division_behind_the_keys_where_rescaling_is_lazy(problem: Problem, schedule: Schedule) -> None:
    module = final(problem, schedule)
    divisions, loops = all_of(module, arith.DivfOp), body_loops(module)
    within = [op for op in divisions if any(loop.is_ancestor(op) for loop in loops)]
    assert (len(within), len(divisions)) == ((0, 1) if schedule.lazy_rescale else (len(loops), len(loops)))


@every_module
def test_a_logarithm_only_for_lse(problem: Problem, schedule: Schedule) -> None:
    module = final(problem, schedule)
    (log,) = all_of(module, math.LogOp)
    assert log.parent is not None
    assert any(isinstance(op, StoreOp) and op.memref.name_hint == "lse" for op in log.parent.ops)
    assert not any(loop.is_ancestor(log) for loop in body_loops(module))
    exponentials = all_of(module, math.Exp2Op)
    assert all(any(loop.is_ancestor(op) for loop in body_loops(module)) for op in exponentials)


@every_module
def test_workspaces_belong_to_one_iteration(problem: Problem, schedule: Schedule) -> None:
    module = final(problem, schedule)
    parallel, *_ = all_of(module, scf.ParallelOp)
    assert all(inside(op.memref, parallel) for op in all_of(module, memref.AllocOp))


@every_module
@pytest.mark.parametrize(
    ("kind", "maker"),
    [
        (SweepOp, "fuse-sweeps"),
        (RowSpanOp, "mask-to-spans"),
        (ScaleRowsOp, "accumulate"),
        (scf.ParallelOp, "parallel-loops"),
    ],
)
def test_each_operation_says_who_made_it(
    problem: Problem, schedule: Schedule, kind: type, maker: str
) -> None:
    """The last of its makers is the pass that gave it this form."""
    assert all(made_by(op)[-1] == maker for op in all_of(final(problem, schedule), kind))


@every_module
def test_a_pack_says_whether_it_was_hoisted(problem: Problem, schedule: Schedule) -> None:
    makers = {made_by(op)[-1] for op in all_of(final(problem, schedule), PackOp)}
    hoisted = {"hoist-packs"} if schedule.hoist_packs else {"pack"}
    assert makers == (hoisted if schedule.panel else set())
