"""Rows of all heads of a group in one tile: what it means, and compiled kernels."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from flashgen.analysis.keys import visible
from flashgen.errors import InvalidArgument, ParseFailure
from flashgen.interpret import Violation, interpret
from flashgen.ir.dialect import parse
from flashgen.ir.memory import LoadOp
from flashgen.ir.regions import MaskOp
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.reference import attention, bound
from flashgen.reference import visible as visible_keys
from flashgen.runtime.cpu import CpuKernel
from flashgen.schedule import Schedule
from flashgen.targets import find
from flashgen.targets.cpu import Cpu
from tests.compiled import TARGETS, Build, call, combinations, kernels, pairwise
from tests.guarded import exit_status, place
from tests.modules import COMBINATIONS, check, stages
from tests.modules import call as interpreted
from tests.strategies import make_inputs
from tests.test_layouts import LAYOUTS, every_second

NUMBERED = """
func.func @f(%q: memref<?x?x?x2xf32>, %heads: index, %rows: index, %o: memref<?x2xf32>, %i: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %q, %c1 : memref<?x?x?x2xf32>
  %a = tile.group_rows %q[%heads, %rows] : memref<?x?x?x2xf32> -> memref<?x?x?x2xf32>
  %t = tile.load %a[%c0, %c1, %i, %c0] : memref<?x?x?x2xf32> -> tensor<4x2xf32>
  tile.store %t, %o[%c0, %c0] : tensor<4x2xf32>, memref<?x2xf32>
  tile.store %t, %a[%c1, %c1, %i, %c0] : tensor<4x2xf32>, memref<?x?x?x2xf32>
  func.return
}
"""
each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
GQA = [(4, 2), (3, 1), (2, 2), (8, 2)]
"""Query heads and key heads."""


@pytest.mark.parametrize("i", [0, 3, 4, 7, 8, 11])
def test_numbering(i: int) -> None:
    """Row n of group g is row n mod Nq of head g * group + n div Nq, in arrays of any strides."""
    q = np.arange(2 * 6 * 4 * 2, dtype=float).reshape(2, 4, 6, 2).swapaxes(1, 2)  # (B, Hq, Nq, D), Nq 4
    o, want = np.full((4, 2), np.nan), np.zeros((4, 2))
    rows = q.copy().reshape(2, 2, 12, 2)
    want[: 12 - i] = rows[0, 1, i : i + 4]
    interpret(parse(NUMBERED), q, 2, 12, o, i)
    np.testing.assert_array_equal(o, want)
    rows[1, 1, i : i + 4] = want[: 12 - i]
    np.testing.assert_array_equal(q, rows.reshape(q.shape))


def test_numbering_of_some_rows_alone_is_a_violation() -> None:
    with pytest.raises(Violation, match=r"2 groups of 8 rows are not all rows of shape \(2, 6, 4, 2\)"):
        interpret(parse(NUMBERED), np.zeros((2, 6, 4, 2)), 2, 8, np.zeros((4, 2)), 0)


LOAD = "%t = tile.load %a[%c0, %c1, %i, %c0]"
SECOND = "%b = tile.group_rows %q[%heads, %rows] : memref<?x?x?x2xf32> -> memref<?x?x?x2xf32>\n"
THIRD = "%b = tile.group_rows %a[%heads, %rows] : memref<?x?x?x2xf32> -> memref<?x?x?x2xf32>\n"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (LOAD, LOAD.replace("%a", "%q"), "its array is touched in another way too"),
        (LOAD, SECOND + LOAD, "its array is touched in another way too"),
        (LOAD, THIRD + LOAD, "its array is neither an argument nor an allocation"),
        ("memref<?x?x?x2xf32>", "memref<?x4x?x2xf32>", "Hq and Nq known at run time"),
    ],
)
def test_verifier(old: str, new: str, message: str) -> None:
    assert old in NUMBERED
    with pytest.raises(ParseFailure, match=message):
        parse(NUMBERED.replace(old, new))


def test_a_numbering_changes_no_type() -> None:
    text = """func.func @f(%q: memref<?x?x?x2xf32>, %n: index) {
      %a = tile.group_rows %q[%n, %n] : memref<?x?x?x2xf32> -> memref<?x?x?x3xf32>
      func.return
    }"""
    with pytest.raises(ParseFailure, match="the result is typed as the array"):
        parse(text)


def test_printing_and_parsing() -> None:
    module = parse(NUMBERED)
    assert str(parse(str(module))) == str(module)


@pytest.mark.parametrize("causal", ALIGNMENTS)
@pytest.mark.parametrize(("order", "lazy", "skip"), COMBINATIONS)
def test_every_pass_keeps_the_meaning(order: str, lazy: bool, skip: bool, causal: str | None) -> None:
    """Tiles of rows that begin in one head and end in another; NaN at keys that nobody sees."""
    problem = Problem(4, 3, causal=causal)
    found = stages(problem, Schedule(order, 3, 4, lazy, skip, 0, False, True, split_keys=0))
    for sizes in ((2, 4, 2, 1, 9), (1, 6, 2, 3, 11), (1, 3, 1, 5, 3), (1, 2, 1, 0, 3), (1, 3, 1, 2, 0)):
        check(found["final"], problem, make_inputs(problem, "plain", sizes, 0.5))
    x = make_inputs(problem, "hidden", (1, 4, 2, 5, 9), 0.5)
    for module in found.values():
        check(module, problem, x)


def test_tiles_visited_are_those_of_the_first_and_the_last_query() -> None:
    """A tile is whole where the first query sees all of it, and visited where the last sees any of it."""
    problem = Problem(4, causal="bottom-right")
    module = stages(problem, Schedule("q-outer", 4, 4, True, True, 0, False, True, split_keys=0))["final"]
    for nq, nk, tiles, masked in ((1, 16, 4, 0), (1, 17, 5, 1), (2, 16, 4, 1), (4, 14, 4, 2), (4, 16, 4, 1)):
        x = make_inputs(problem, "plain", (1, 4, 1, nq, nk), 0.5)
        counts = interpreted(module, problem, x)[2]
        assert (counts["tile.dot"] // 2, counts["tile.row_span"]) == (tiles * nq, masked * nq), (nq, nk)


def test_keys_are_read_once_for_all_heads() -> None:
    problem, x = Problem(4), make_inputs(Problem(4), "plain", (1, 8, 2, 1, 12), 0.5)
    for grouped, reads in ((False, 8), (True, 2)):
        module = stages(problem, Schedule("q-outer", 4, 4, True, True, 0, False, grouped, split_keys=0))[
            "final"
        ]
        assert interpreted(module, problem, x)[2]["tile.dot"] == reads * 3 * 2
        loads = [op for op in module.walk() if isinstance(op, LoadOp)]
        assert {op.memref.name_hint for op in loads} == {"q_rows" if grouped else "q", "k", "v"}


@pytest.mark.parametrize("causal", ALIGNMENTS)
def test_the_masks_predicate_is_understood(causal: str | None) -> None:
    problem, nq, nk = Problem(4, causal=causal), 3, 7
    module = stages(problem, Schedule("q-outer", 4, 4, True, False, 0, False, True, split_keys=0))[
        "group-rows"
    ]
    (mask,) = (op for op in module.walk() if isinstance(op, MaskOp))
    sizes = {"Nq": nq, "Nk": nk, "rows": 2 * nq, "offset": nk - nq}
    values = [v for op in module.walk() for v in op.results if v.name_hint in sizes]
    symbols = {v: sizes[v.name_hint or ""] for v in values}
    rows = np.arange(2 * nq)
    want = visible_keys(problem, rows % nq, nq, nk)
    np.testing.assert_array_equal(visible(mask, rows, np.arange(nk), symbols), want)


@cache
def grouped(target: Cpu, panel: int | None, causal: str | None) -> list[tuple[CpuKernel, CpuKernel]]:
    """Kernels of every combination, with and without grouped rows."""
    wanted = [
        (Problem(24, 40, causal=causal), replace(s, panel=panel, group_rows=g))
        for s in (pairwise(5, 40) if panel == 0 else combinations(5, 40)[::5])
        for g in (True, False)
    ]
    found = kernels(Build(target), tuple(wanted))
    return list(zip(found[::2], found[1::2], strict=True))


@each_target
@pytest.mark.parametrize("panel", [0, None])
@pytest.mark.parametrize("causal", ALIGNMENTS[:2])
def test_compiled_kernels(target: Cpu, panel: int | None, causal: str | None) -> None:
    """Within the bound of the reference, and to the bit what a tile a head gives."""
    for n, (kernel, apart) in enumerate(grouped(target, panel, causal)):
        p = kernel.problem
        for (hq, hkv), nq, nk in [(GQA[n % 4], 1, 95), (GQA[(n + 1) % 4], 3, 41), (GQA[n % 4], 11, 80)]:
            x = make_inputs(p, "hidden" if nq == 3 else "plain", (2, hq, hkv, nq, nk), 0.25, seed=n)
            o, lse = call(kernel, x, threads=1 + n % 2)
            bound(p, x.q, x.k, x.v, 0.25).check(o, lse, *attention(p, x.q, x.k, x.v, 0.25))
            for a, b in zip((o, lse), call(apart, x), strict=True):
                assert a.tobytes() == b.tobytes(), kernel.name


@each_target
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(target: Cpu, layout: str) -> None:
    """Rows of heads lie anywhere; what lies between the elements of an output stays as it was."""
    kernel, _ = grouped(target, 0, "bottom-right")[3]
    x = make_inputs(kernel.problem, "plain", (2, 4, 2, 3, 45), 0.25)
    y = replace(x, **{name: LAYOUTS[layout](getattr(x, name)) for name in "qkv"})
    want = call(kernel, x)
    out, lse = LAYOUTS[layout](np.full_like(want[0], 7)), every_second(np.full_like(want[1], 7))
    for a, b in zip(call(kernel, y, out=out, lse=lse), want, strict=True):
        assert np.array_equal(a, b)
        between = a.base if a.base is not None else a
        assert np.isnan(between).sum() == between.size - a.size


@each_target
@pytest.mark.parametrize("at_end", [True, False], ids=["up to", "from"])
def test_guard_pages(target: Cpu, at_end: bool) -> None:
    for kernel, _ in grouped(target, 0, "bottom-right"):
        for hq, nq, nk in ((4, 1, 7), (2, 3, 95), (4, 0, 3), (4, 2, 0)):
            x = make_inputs(kernel.problem, "plain", (1, hq, 2, nq, nk), 0.25)
            y = replace(x, **{n: place(getattr(x, n), at_end, read_only=True) for n in "qkv"})
            want = call(kernel, x)
            out, lse = (place(np.full_like(a, np.nan), at_end) for a in want)

            def run(kernel=kernel, y=y, want=want, out=out, lse=lse) -> None:
                call(kernel, y, out=out, lse=lse)
                assert (out.tobytes(), lse.tobytes()) == tuple(a.tobytes() for a in want)

            assert exit_status(run) == 0, kernel.name


def test_cuda_has_none() -> None:
    with pytest.raises(InvalidArgument, match="group_rows is True; target cuda has blocks for each head"):
        find("cuda").complete(Problem(64), Schedule(group_rows=True))
