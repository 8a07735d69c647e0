"""Barriers in plans: where threads have to meet, which of them, and where they need not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from flashgen.emission import kernel_plan
from flashgen.errors import CannotEmit
from flashgen.plan.barriers import unordered, with_barriers
from flashgen.plan.model import Buffer, KernelPlan, Operand, Statement
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.schedule import Schedule
from flashgen.targets.cuda import Cuda
from tests.cuda_emitted import COMBINATIONS

ROWS, BYTES = 8, 4 * 8 * 9


def tile(name: str, offset: int, stride: int = 9) -> Operand:
    return Operand("tile", name, (ROWS, 8), "f32", offset, stride)


def row(name: str, offset: int) -> Operand:
    return Operand("row", name, (ROWS,), "f32", offset)


def number(n: int) -> Operand:
    return Operand("constant", str(n), value=n, element="index")


def size(name: str) -> Operand:
    return Operand("scalar", name, element="index")


A, B, C, R, T = tile("a", 0), tile("b", 512), tile("c", 1024), row("r", 1536), row("t", 1600)
MEMORY, ZERO = Operand("memory", "k", (8, 8)), number(0)
BUFFERS = [Buffer(BYTES // 4, "f32", o) for o in (0, 512, 1024)] + [Buffer(8, "f32", o) for o in (1536, 1600)]


def load(out: Operand, memory: Operand = MEMORY, index: Operand = ZERO) -> Statement:
    indices = [index] if out.kind == "row" else [index, ZERO]
    return Statement("tile_load", outs=[out], ins=[memory, *indices])


def store(value: Operand, memory: Operand, index: Operand) -> Statement:
    return Statement("tile_store", ins=[value, memory, index, ZERO], attrs={"shape": value.shape})


def compute(out: Operand, *ins: Operand, inline: bool = False) -> Statement:
    return Statement("arith_addf", "elementwise", [out], list(ins), inline=inline)


def dot(out: Operand, left: Operand, right: Operand) -> Statement:
    return Statement("tile_dot", outs=[out], ins=[left, right], attrs={"over": None})


def sweep(outs: list[Operand], ins: list[Operand], over: Operand | None = None) -> Statement:
    return Statement("tile_sweep", outs=outs, ins=ins, attrs={"over": over})


def loop(counter: str, *body: Statement, start: Operand = ZERO, step: int = ROWS) -> Statement:
    return Statement("scf_for", outs=[size(counter)], ins=[start, size("N"), number(step)], body=list(body))


def plan(*body: Statement, buffers: list[Buffer] = BUFFERS) -> KernelPlan:
    return KernelPlan([], buffers, list(body))


def spelled(statements: list[Statement]) -> Iterator[str]:
    for s in statements:
        if s.op == "barrier":
            yield s.attrs["among"]
        elif s.op == "scf_for":
            yield f"{s.outs[0].name}({' '.join(spelled(s.body))})"
        else:
            yield s.outs[0].name if s.outs else s.op


def barriers(*body: Statement, buffers: list[Buffer] = BUFFERS) -> str:
    """What each statement writes, barriers between them, loops in parentheses."""
    done = with_barriers(plan(*body, buffers=buffers))
    assert not unordered(done)
    return " ".join(spelled(done.body))


def test_own_elements_need_none():
    assert barriers(load(A), compute(B, A), compute(A, A, B)) == "a b a"


def test_a_product_reads_its_left_side_from_the_team_and_its_right_side_from_all():
    assert barriers(load(A), dot(C, A, B)) == "a team c"
    assert barriers(load(B), dot(C, A, B)) == "b block c"
    assert barriers(load(A), load(B), dot(C, A, B)) == "a b block c"


def test_read_before_write():
    assert barriers(dot(C, A, B), load(A)) == "c team a"
    assert barriers(dot(C, A, B), load(B)) == "c block b"
    assert barriers(dot(C, A, B), load(C)) == "c c"


def test_values_a_row_are_read_by_the_team_beside_a_tile_and_by_one_elsewhere():
    assert barriers(load(R), compute(T, R)) == "r t"
    assert barriers(load(R), compute(A, B, R)) == "r team a"
    assert barriers(load(R), sweep([T], [A, R])) == "r team t"
    scale = Statement("tile_scale_rows", outs=[A], ins=[R], declares=False)
    assert barriers(load(R), scale) == "r team a"
    span = Statement("tile_row_span", outs=[replace(R, kind="span", element="index")], ins=[ZERO, ZERO])
    assert barriers(span, sweep([T], [A], over=span.outs[0])) == "r team t"


def test_one_barrier_serves_all_that_came_before():
    assert barriers(load(A), load(R), compute(B, A, R), dot(C, B, A)) == "a r team b block c"
    assert barriers(load(A), load(R), dot(C, A, B), compute(C, C, R)) == "a r team c c"


def test_reused_buffers():
    """Another value in the same place has other owners, unless rows are as far apart and of the same kind."""
    assert barriers(load(A), load(tile("x", 0))) == "a x"
    assert barriers(load(A), load(tile("x", 0, stride=5))) == "a block x"
    assert barriers(compute(B, A), load(tile("x", 0, stride=5))) == "b block x"
    assert barriers(compute(B, R), load(tile("x", 1536)), buffers=BUFFERS) == "b block x"


def test_overlap_in_part():
    overlapping = [*BUFFERS, Buffer(BYTES // 4, "f32", 256)]
    assert barriers(load(A), load(tile("x", 256)), buffers=overlapping) == "a block x"
    assert barriers(load(C), load(tile("x", 256)), buffers=overlapping) == "c x"


def test_what_is_spelled_later_is_read_later():
    later = compute(Operand("tile", "later", (ROWS, 8)), A, R, inline=True)
    assert barriers(load(R), later, load(T), compute(B, later.outs[0], C)) == "r later t team b"
    assert barriers(later, compute(B, later.outs[0]), load(R)) == "later b team r"


def test_a_loop_meets_its_own_last_round():
    assert barriers(loop("j", load(A), dot(C, B, A))) == "j(block a block c)"
    assert barriers(loop("j", load(A), compute(C, A))) == "j(a c)"
    assert barriers(loop("j", dot(C, B, A)), load(A)) == "j(c) block a"


def test_what_came_before_a_loop_is_waited_for_before_it():
    assert barriers(load(A), loop("i", dot(C, B, A))) == "a block i(c)"
    nested = loop("j", load(A), loop("i", load(B), dot(C, B, A)))
    assert barriers(nested) == "j(block a block i(team b team c))"


def test_a_loop_may_have_no_round():
    assert barriers(load(A), loop("i", load(B), dot(C, A, B)), dot(C, B, A)) == (
        "a i(block b block c) block c"
    )


def test_a_barrier_that_another_one_makes_superfluous_is_not_there():
    """The product waits for a; but t waits for its readers from round to round, which is enough."""
    body = [load(A), load(T), dot(C, A, B), load(R), compute(C, C, R), compute(C, C, T)]
    assert barriers(*body) == "a t team c r team c c"
    assert barriers(loop("i", *body)) == "i(a team t c r team c c)"


def test_a_sweep_that_overwrites_what_its_team_reads():
    sweeps = [sweep([A, R], [A, R]), sweep([A, T], [A, R]), sweep([A], [A])]
    done = with_barriers(plan(*sweeps)).body
    assert [s.attrs["fence"] for s in done if s.op == "tile_sweep"] == [True, False, False]


WORKSPACE = Operand("memory", "w", (8, 8))


def alloc() -> Statement:
    return Statement("memref_alloc", outs=[WORKSPACE], attrs={"extents": [size("N"), number(8)]})


@pytest.mark.parametrize(
    ("start", "step", "expected"),
    [
        (number(0), 8, "i(a w)"),
        (number(16), 8, "i(a w)"),
        (number(0), 4, "i(block a block w)"),
        (number(4), 8, "i(block a block w)"),
        (size("unknown"), 8, "i(block a block w)"),
        (size("N"), 8, "i(a w)"),
        (size("eights"), 8, "i(a w)"),
        (size("least"), 8, "i(a w)"),
        (size("chosen"), 8, "i(block a block w)"),
    ],
)
def test_tiles_on_one_grid_of_an_array_have_owners(start: Operand, step: int, expected: str):
    """A loop from the array's end on touches nothing of it."""
    scalars = [
        Statement("arith_muli", "scalar", [size("eights")], [size("unknown"), number(24)]),
        Statement("arith_minsi", "scalar", [size("least")], [size("eights"), size("N")]),
        Statement("arith_select", "scalar", [size("chosen")], [size("c"), size("least"), size("unknown")]),
    ]
    i = size("i")
    body = loop("i", load(A, WORKSPACE, i), store(A, WORKSPACE, i), start=start, step=step)
    *_, text = barriers(alloc(), *scalars, body).partition("chosen ")
    assert text.replace("tile_store", "w") == expected


def test_arrays_of_other_shapes_have_other_owners():
    narrow = replace(A, shape=(4, 8))
    stores = store(A, WORKSPACE, ZERO), store(narrow, WORKSPACE, ZERO)
    assert barriers(alloc(), *stores) == "w tile_store block tile_store"


def test_an_unknown_operation_is_refused():
    with pytest.raises(CannotEmit, match="tile_pack: which threads touch what is not known"):
        with_barriers(plan(Statement("tile_pack", outs=[A], ins=[B])))
    packed = Operand("packed", "p", (1, 8, 8))
    with pytest.raises(CannotEmit, match="p: threads do not share values of kind packed"):
        with_barriers(plan(dot(C, A, packed)))


def without(statements: list[Statement], barrier: Statement) -> list[Statement]:
    return [replace(s, body=without(s.body, barrier)) for s in statements if s is not barrier]


def all_barriers(statements: list[Statement]) -> Iterator[Statement]:
    for s in statements:
        if s.op == "barrier":
            yield s
        yield from all_barriers(s.body)


def lacking_one(done: KernelPlan) -> list[Statement]:
    """The barriers that nobody misses."""
    return [b for b in all_barriers(done.body) if not unordered(replace(done, body=without(done.body, b)))]


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
@pytest.mark.parametrize("causal", ALIGNMENTS)
def test_kernels_have_as_many_as_they_need(causal: str | None, combination: tuple[str, bool, bool]):
    order, *choices = combination
    target, problem = Cuda(), Problem(64, 40, causal=causal)
    schedule = target.complete(problem, Schedule(order, 16, 32, *choices))
    done = kernel_plan(problem, schedule, target)
    assert not unordered(done)
    assert lacking_one(done) == []
    assert 2 <= sum(b.attrs["among"] == "block" for b in all_barriers(done.body)) <= 4
