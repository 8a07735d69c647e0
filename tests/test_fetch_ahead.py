"""fetch-ahead: what is fetched is what the next head reads, and no value is another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashgen import interpret
from flashgen.emission import emit
from flashgen.errors import CannotEmit, InvalidArgument
from flashgen.interpret import Violation
from flashgen.interpret_arrays import window
from flashgen.ir.dialect import parse
from flashgen.ir.memory import FetchOp
from flashgen.passes.pipeline import pipeline
from flashgen.plan.planner import plan
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.schedule import ORDERS, Schedule
from flashgen.targets import find
from flashgen.targets.cpu import Avx2
from tests import sequences
from tests.head import refused
from tests.modules import call, final
from tests.strategies import make_inputs

D, DV, BR, BC = 3, 5, 4, 6

Where = tuple[str, int, int]


def schedule(order: str = "q-outer", grouped: bool = False, parts: int = 0) -> Schedule:
    return Schedule(order, BR, BC, True, True, 4, True, grouped, 0.0, parts, True)


def fetched(module, problem: Problem, sizes: tuple[int, ...], monkeypatch) -> dict[Where, set[int]]:
    """The rows that a run fetches: of each array, batch and head."""
    found: dict[Where, set[int]] = {}

    def spy(frame, op: FetchOp, array, *indices: int):
        b, h, first, _ = map(int, indices)
        last = min(first + op.tile_type.get_shape()[0], array.shape[2])
        found.setdefault((op.source.name_hint or "?", b, h), set()).update(range(first, last))
        return interpret.fetch(frame, op, array, *indices)

    monkeypatch.setitem(interpret.EFFECTS, FetchOp, spy)
    call(module, problem, make_inputs(problem, "plain", sizes, 0.7))  # pyright: ignore[reportArgumentType]
    return found


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("causal", ALIGNMENTS)
def test_all_that_later_heads_read_is_fetched(order: str, causal: str | None, monkeypatch) -> None:
    """Where there are as many queries as keys: all rows of K, V and Q but those of the first head, and O."""
    problem = Problem(D, DV, causal=causal)
    got = fetched(final(problem, schedule(order)), problem, (2, 6, 3, 13, 13), monkeypatch)
    every = set(range(13))
    groups = [(b, g) for b in range(2) for g in range(3)]
    for b, g in groups[1:]:
        assert got["k", b, g] == got["v", b, g] == every
        assert got["q", b, 2 * g] == got["q", b, 2 * g + 1] == every
    written = {key for key in got if key[0] == "o"}
    assert written == ({("o", b, h) for b in range(2) for h in range(6)} if order == "q-outer" else set())


def test_grouped_rows_and_parts_are_fetched(monkeypatch) -> None:
    problem = Problem(D, DV)
    for found in (schedule(grouped=True), schedule(parts=BC)):
        with monkeypatch.context() as patch:
            got = fetched(final(problem, found), problem, (1, 4, 2, 7, 7), patch)
        assert got["k", 0, 1] == got["v", 0, 1] == set(range(7))


@pytest.mark.parametrize("layout", sequences.EACH)
def test_the_next_sequences_arrays_are_fetched(layout: str, monkeypatch) -> None:
    """Where each has one key head, so that what comes next is another sequence."""
    problem = Problem(D, DV, layout=layout)
    x = sequences.make(problem, [(13, 13), (13, 7), (13, 11)], heads=(2, 1), computed=np.float64)
    found: dict[str, set[bytes]] = {}

    def spy(frame, op: FetchOp, array, *indices: int):
        there, _ = window(array, indices, op.tile_type.get_shape())
        found.setdefault(op.source.name_hint or "?", set()).update(row.tobytes() for row in array[there])
        return interpret.fetch(frame, op, array, *indices)

    monkeypatch.setitem(interpret.EFFECTS, FetchOp, spy)
    sequences.run(final(problem, schedule()), x)
    for part in x.parts[1:]:
        for name, array in (("k", part.k), ("v", part.v)):
            assert {row.tobytes() for row in array[0, 0]} <= found[f"{name}_b_next"]


@given(
    sizes=st.tuples(*[st.integers(0, 3)] * 2, st.integers(1, 3), *[st.integers(0, 14)] * 2),
    order=st.sampled_from(ORDERS),
    grouped=st.booleans(),
)
def test_only_tiles_of_the_arrays_are_fetched(sizes, order: str, grouped: bool) -> None:
    """The interpreter raises Violation for others; see below."""
    batch, hkv, group, nq, nk = sizes
    problem = Problem(D, DV, causal="top-left")
    module = final(problem, schedule(order, grouped and order == "q-outer"))
    call(module, problem, make_inputs(problem, "plain", (batch, hkv * group, hkv, nq, nk), 0.7))


FETCH = """
func.func @f(%x: memref<?x?x8xf32>, %n: index) {{
  %c0 = arith.constant 0 : index
  tile.fetch %x[{at}] of {tile} : memref<?x?x8xf32>
  func.return
}}
"""


def test_the_interpreter_sees_a_fetch_of_what_is_no_tile() -> None:
    x = np.zeros((2, 3, 8))
    module = parse(FETCH.format(at="%n, %c0, %c0", tile="tensor<4x8xf32>"))
    interpret.interpret(module, x, 1)
    with pytest.raises(Violation, match=r"index \(2, 0, 0\) lies outside"):
        interpret.interpret(module, x, 2)


@pytest.mark.parametrize(
    ("at", "tile", "message"),
    [
        ("%c0, %c0", "tensor<4x8xf32>", "tile.fetch: 3 indices wanted, 2 given"),
        ("%c0, %c0, %c0", "tensor<8xf32>", "tile.fetch: a matrix of an array"),
    ],
)
def test_fetches_that_are_none(at: str, tile: str, message: str) -> None:
    from flashgen.errors import ParseFailure

    with pytest.raises(ParseFailure, match=message):
        parse(FETCH.format(at=at, tile=tile))


def test_a_fetch_beside_nothing_has_no_plan() -> None:
    text = """
func.func @f(%x: memref<?x?xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  "scf.parallel"(%c0, %n, %c1) <{operandSegmentSizes = array<i32: 1, 1, 1, 0>}> ({
  ^bb0(%i: index):
    tile.fetch %x[%i, %c0] of tensor<4x8xf32> : memref<?x?xf32>
    scf.reduce
  }) : (index, index, index) -> ()
  func.return
}
"""
    with pytest.raises(CannotEmit, match="stands before what is no product"):
        plan(parse(text), Avx2().layout(Problem(8)), ())


@pytest.mark.parametrize(
    ("order", "panel", "message"),
    [
        ("q-outer", 4, "scf.parallel: its steps are not all 1"),
        ("kv-outer", 4, "tile.pack: packs what is not loaded, or stands beside the products"),
        ("kv-outer", 0, "scf.parallel: nothing is packed in front of the products: run hoist-packs before"),
    ],
)
def test_refusals(order: str, panel: int, message: str) -> None:
    without = replace(schedule(order), panel=panel, hoist_packs=False, fetch_ahead=False)
    refused("fetch-ahead", str(final(Problem(D, DV), without)), message)


def test_a_kernel_without_it_is_another_with_the_same_arithmetic() -> None:
    target = Avx2()
    problem, whole = Problem(16, 8), target.complete(Problem(16, 8), Schedule(br=12, bc=16, fetch_ahead=True))
    kept = emit(problem, whole, target).source
    without = emit(problem, whole, target, passes=pipeline(whole, problem)[:-1]).source
    assert pipeline(whole, problem)[-1].name == "fetch-ahead"
    assert kept.count(", fetch<12, 16>(k, ") == kept.count(", fetch<12, 8>(v, ") == 2
    assert ", fetch<" not in without


def test_a_target_asks_for_it_where_keys_are_few() -> None:
    def chosen(key_len: int, asked: Schedule) -> bool | None:
        found = Avx2().suit(Problem(64), asked, 128, key_len, 128)
        return Avx2().complete(Problem(64), found).fetch_ahead

    assert [chosen(n, Schedule()) for n in (64, 256, 257, 4096)] == [True, True, False, False]
    assert chosen(512, Schedule(fetch_ahead=True))
    for without in (Schedule(fetch_ahead=False), Schedule("kv-outer"), Schedule(panel=0)):
        assert chosen(64, without) is False


def test_what_is_allowed() -> None:
    for without in ({"hoist_packs": False}, {"panel": 0}):
        with pytest.raises(InvalidArgument, match="fetch_ahead is True; it needs hoist_packs"):
            Schedule(fetch_ahead=True, **without)  # pyright: ignore[reportArgumentType]
    with pytest.raises(InvalidArgument, match="fetch_ahead is True; target cuda has blocks that run while"):
        find("cuda").complete(Problem(64), Schedule(fetch_ahead=True))
