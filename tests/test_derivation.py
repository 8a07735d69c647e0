"""What the derivation's passes leave in the IR: FlashAttention-2, and every combination in between."""

from __future__ import annotations

import pytest
from xdsl.dialects import arith, math, memref, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from flashgen.analysis.dependence import strangers
from flashgen.analysis.linear import accesses, induction
from flashgen.build import build
from flashgen.ir.compute import DotOp
from flashgen.ir.dialect import parse
from flashgen.ir.memory import LoadOp, StoreOp
from flashgen.ir.provenance import made_by
from flashgen.ir.regions import MaskOp
from flashgen.passes.pipeline import REGISTRY, derivation, parse_passes, pipeline, run
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.schedule import FA1, Schedule
from tests.modules import COMBINATIONS, stages

PROBLEM = Problem(8, 5, causal="bottom-right")
DERIVATION = "lazy-rescale,sink-loads,interchange,fuse-loops,keep-state"


def score_loops(module: ModuleOp) -> list[scf.ForOp]:
    """The loops that compute scores, and that hold no other loop."""
    loops = [op for op in module.walk() if isinstance(op, scf.ForOp)]
    return [loop for loop in loops if any(isinstance(op, DotOp) for op in loop.body.block.ops)]


def state(module: ModuleOp) -> list[SSAValue]:
    """The workspaces: accumulator, row maximum and row sum."""
    return [op.memref for op in module.walk() if isinstance(op, memref.AllocOp)]


def count(root, *kinds: type) -> int:
    return sum(isinstance(op, kinds) for op in root.walk())


@pytest.mark.parametrize("causal", ALIGNMENTS)
def test_five_passes_make_flash_attention_2_of_flash_attention_1(causal):
    """On the printed module, as `flashgen opt` runs them."""
    module = parse(str(build(Problem(8, 5, causal=causal), 4, 4)))
    run(module, parse_passes(DERIVATION))
    (loop,) = score_loops(module)
    touched = [op.memref.name_hint for op in accesses(loop)]
    assert touched == ["k", "v"], "the key loop loads K and V and stores nothing"
    assert not state(module), "no workspace is left"
    assert [str(v.type) for v in loop.res] == ["tensor<4x5xf32>", "tensor<4xf32>", "tensor<4xf32>"]
    (division,) = [op for op in module.walk() if isinstance(op, arith.DivfOp)]
    assert division.parent is loop.parent
    assert loop.is_before_in_block(division)
    assert count(loop, math.ExpOp) == 2, "one exponential a score, one a row"
    outer = loop.parent_op()
    assert isinstance(outer, scf.ForOp)
    assert induction(outer).name_hint == "i"


def test_flash_attention_1_updates_its_state_in_memory():
    module = build(PROBLEM, 4, 4)
    (loop,) = score_loops(module)
    own = state(module)
    assert {op.memref for op in accesses(loop) if isinstance(op, StoreOp)} == set(own)
    assert {op.memref for op in accesses(loop) if isinstance(op, LoadOp)} > set(own)
    assert count(loop, arith.DivfOp) == 1
    assert count(loop, math.ExpOp) == 3
    outer = loop.parent_op()
    assert isinstance(outer, scf.ForOp)
    assert [op.memref.name_hint for op in outer.body.block.ops if isinstance(op, LoadOp)] == ["k", "v"]


def derived(order: str, lazy: bool, skip: bool) -> ModuleOp:
    """The module behind causal-skip, or where causal-skip would be."""
    schedule = Schedule(order, 4, 4, lazy, skip, 0, False, False, split_keys=0)
    return stages(PROBLEM, schedule)["causal-skip" if skip else "nan-in-sum"]


@pytest.mark.parametrize(("order", "lazy", "skip"), COMBINATIONS)
def test_combinations_differ_as_their_names_say(order, lazy, skip):
    module = derived(order, lazy, skip)
    loops = score_loops(module)
    # with the query loop inside, causality bounds it from below, and Nq cuts it at its end
    skipped = [0, 1] if order == "q-outer" else [1, 0, 1]
    assert [count(loop, MaskOp) for loop in loops] == (skipped if skip else [1])
    for loop in loops:
        check_loop(loop, module, order, lazy)
    assert count(module, arith.DivfOp) == (1 if lazy else len(loops)), "lazy: one division in all"
    clipped = [
        v for loop in loops for v in (loop.lb, loop.ub) if v.name_hint in ("whole_to", "seen_to", "seen_from")
    ]
    assert bool(clipped) == skip, "bounds that follow from the mask"


def check_loop(loop: scf.ForOp, module: ModuleOp, order: str, lazy: bool) -> None:
    outer = loop.parent_op()
    assert isinstance(outer, scf.ForOp)
    names = induction(outer).name_hint, (induction(loop).name_hint or "")[:1]
    own = [op for op in accesses(loop) if op.memref in state(module)]
    if order == "q-outer":
        assert names == ("i", "j")
        assert not own
        assert len(loop.res) == 3
    else:
        assert names == ("j", "i")
        assert [type(op) for op in own] == [LoadOp] * 3 + [StoreOp] * 3
        assert len(loop.res) == 0
    assert count(loop, math.Exp2Op) == (2 if lazy else 3)
    assert count(loop, arith.DivfOp) == (0 if lazy else 1)


@pytest.mark.parametrize("causal", [None, "bottom-right"])
def test_whole_tiles_are_loaded_in_bounds(causal):
    """Both K and V: the predicate bounds the column by K's extent, and V's is named the same."""
    module = stages(
        Problem(8, 5, causal=causal), Schedule("q-outer", 4, 4, panel=0, group_rows=False, split_keys=0)
    )["causal-skip"]
    whole, masked = score_loops(module)
    for loop, expected in ((whole, True), (masked, False)):
        marks = {
            op.memref.name_hint: op.in_bounds is not None for op in accesses(loop) if isinstance(op, LoadOp)
        }
        assert marks == {"k": expected, "v": expected}


def test_a_window_has_masked_tiles_at_both_ends():
    """A conjunct that bounds the column from below gives three loops, the middle one without a mask."""
    text = str(build(PROBLEM, 4, 4))
    yielded = text[text.index("tile.yield %") :].split()[1]
    window = f"""%lowest = arith.subi %row, %c2 : index
        %near = arith.cmpi sge, %col, %lowest : index
        %both = arith.andi {yielded}, %near : i1
        tile.yield %both"""
    module = parse(text.replace(f"tile.yield {yielded}", window))
    run(module, parse_passes(f"{DERIVATION},causal-skip"))
    assert [count(loop, MaskOp) for loop in score_loops(module)] == [1, 0, 1]


def strip_names(module: ModuleOp) -> ModuleOp:
    for op in module.walk():
        for v in (*op.results, *(a for r in op.regions for b in r.blocks for a in b.args)):
            v.name_hint = None
    return module


@pytest.mark.parametrize(("order", "lazy", "skip"), COMBINATIONS)
def test_names_mean_nothing(order, lazy, skip):
    """A module whose values have no names is lowered to the same module."""
    schedule = Schedule(order, 4, 4, lazy, skip, 16, True, False, split_keys=0, fetch_ahead=True)
    module = parse(str(strip_names(build(PROBLEM, 4, 4))))
    run(module, pipeline(schedule, PROBLEM))
    assert module.is_structurally_equivalent(stages(PROBLEM, schedule)["final"])


def test_interchange_twice_is_nothing():
    module = parse(str(build(PROBLEM, 4, 4)))
    run(module, parse_passes("sink-loads"))
    before = strip_stamps(module.clone())
    run(module, parse_passes("interchange,interchange"))
    assert strip_stamps(module).is_structurally_equivalent(before)


def strip_stamps(module: ModuleOp) -> ModuleOp:
    for op in module.walk():
        op.attributes.pop("made_by", None)
    return module


def test_both_orders_are_one_case_for_lazy_rescale():
    """Memory form: the pass may come first, or behind the interchange."""
    first, behind = (parse(str(build(PROBLEM, 4, 4))) for _ in range(2))
    run(first, parse_passes("lazy-rescale,sink-loads,interchange,fuse-loops"))
    run(behind, parse_passes("sink-loads,interchange,fuse-loops,lazy-rescale"))
    assert strip_stamps(first).is_structurally_equivalent(strip_stamps(behind))


def test_cleanup_passes_of_xdsl_keep_the_meaning():
    module = parse(str(build(PROBLEM, 4, 4)))
    run(module, parse_passes(f"{DERIVATION},canonicalize,cse,dce,causal-skip,canonicalize,cse"))
    assert [count(loop, MaskOp) for loop in score_loops(module)] == [0, 1]


def test_every_pass_signs_what_it_makes():
    schedule = Schedule("q-outer", 4, 4, True, True, 16, True, False, split_keys=0, fetch_ahead=False)
    for name, module in stages(PROBLEM, schedule).items():
        makers = {name for op in module.walk() for name in made_by(op)}
        assert name in makers or name in ("build", "final")
    assert {made_by(op) for op in build(PROBLEM, 4, 4).walk()} == {()}


def test_copies_keep_their_makers():
    """causal-skip's copies of a loop are signed alike, but for what it changed in one of them."""
    module = stages(PROBLEM, Schedule("q-outer", 4, 4, panel=0, group_rows=False, split_keys=0))[
        "causal-skip"
    ]
    whole, cut = (op for op in module.walk() if isinstance(op, scf.ForOp) and op.iter_args)
    changed = []
    theirs = {op.results[0].name_hint: op for op in cut.body.block.ops if op.results}
    for op in whole.body.block.ops:
        twin = theirs.get(op.results[0].name_hint) if op.results else None
        if op.results and op.results[0].name_hint and twin and made_by(op) != made_by(twin):
            changed.append((op.results[0].name_hint, made_by(op)))
    assert changed == [("pv", (*made_by(theirs["pv"]), "causal-skip"))]
    assert made_by(theirs["m_new"]) == ()


def test_makers_stand_in_the_order_in_which_they_acted():
    schedule = Schedule("q-outer", 4, 4, True, True, 16, True, False, split_keys=0, fetch_ahead=False)
    module = stages(PROBLEM, schedule)["final"]
    order = list(REGISTRY)
    for op in module.walk():
        assert list(made_by(op)) == sorted(made_by(op), key=order.index)


def test_the_builder_needs_no_pass():
    """FA1 is what is built: its derivation is empty."""
    assert derivation(FA1) == []


def test_no_stranger_in_what_is_built():
    assert not list(strangers(build(PROBLEM, 4, 4)))
