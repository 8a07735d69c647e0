"""tile.sequence and tile.pages: what they mean, what the verifier refuses, what analyses make of them."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects import memref, scf

from flashgen.analysis.dependence import carried
from flashgen.analysis.extents import extent, length
from flashgen.errors import ParseFailure
from flashgen.interpret import Violation, interpret
from flashgen.ir.dialect import parse
from flashgen.ir.memory import LoadOp, StoreOp

PACKED = """
func.func @f(%q: memref<?x?x2xf32> {tile.extents = ["H", "total", "D"]}, %starts: memref<?xi32>,
             %o: memref<?x?x2xf32> {tile.extents = ["H", "total", "D"]}, %B: index) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %c3 = arith.constant 3 : index
  scf.for %b = %c0 to %B step %c1 {
    %q_b = tile.sequence %q, %starts[%b] : memref<?x?x2xf32>, memref<?xi32> -> memref<1x?x?x2xf32>
    %o_b = tile.sequence %o, %starts[%b] : memref<?x?x2xf32>, memref<?xi32> -> memref<1x?x?x2xf32>
    %n = memref.dim %q_b, %c2 : memref<1x?x?x2xf32>
    scf.for %i = %c0 to %n step %c3 {
      %t = tile.load %q_b[%c0, %c1, %i, %c0] : memref<1x?x?x2xf32> -> tensor<3x2xf32>
      tile.store %t, %o_b[%c0, %c1, %i, %c0] : tensor<3x2xf32>, memref<1x?x?x2xf32>
    }
  }
  func.return
}
"""
PAGED = """
func.func @f(%k: memref<?x?x?x2xf32>, %table: memref<?x?xi32>, %lengths: memref<?xi32>, %b: index, %i: index,
             %o: memref<?x2xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %k_b = tile.pages %k, %table, %lengths[%b]
    : memref<?x?x?x2xf32>, memref<?x?xi32>, memref<?xi32> -> memref<1x?x?x2xf32>
  %t = tile.load %k_b[%c0, %c1, %i, %c0] : memref<1x?x?x2xf32> -> tensor<4x2xf32>
  tile.store %t, %o[%c0, %c0] : tensor<4x2xf32>, memref<?x2xf32>
  func.return
}
"""
STARTS = np.array([0, 4, 4, 5, 11], np.int32)
SECOND = "%x = tile.sequence %q, %starts[%c0] : memref<?x?x2xf32>, memref<?xi32> -> memref<1x?x?x2xf32>\n"
LOAD = "%t = tile.load %q_b[%c0, %c1, %i, %c0]"
TABLE = "%x = tile.load %starts[%c0] : memref<?xi32> -> tensor<1xi32>\n"
STORE = "tile.store %t, %k_b[%c0, %c1, %i, %c0] : tensor<4x2xf32>, memref<1x?x?x2xf32>\n"


def test_a_sequence_is_all_that_is_touched() -> None:
    """Tiles of three rows in sequences of 4, 0, 1 and 6: the rest is 0, and no other's row is written."""
    q = np.arange(2 * 11 * 2, dtype=float).reshape(11, 2, 2).swapaxes(0, 1)
    o = np.full((2, 11, 2), np.nan)
    interpret(parse(PACKED), q, STARTS, o, 4)
    np.testing.assert_array_equal(o[1], q[1])
    assert np.isnan(o[0]).all()
    o = np.full((2, 11, 2), np.nan)
    interpret(parse(PACKED), q, STARTS, o, 3)
    np.testing.assert_array_equal(o[1, :5], q[1, :5])
    assert np.isnan(o[1, 5:]).all()


@pytest.mark.parametrize("starts", [[-1, 11], [0, 12], [3, 2]])
def test_a_sequence_beyond_the_array_is_a_violation(starts: list[int]) -> None:
    message = f"sequence 0 has rows {starts[0]} to {starts[1]} of an array of 11"
    with pytest.raises(Violation, match=message):
        interpret(parse(PACKED), np.zeros((2, 11, 2)), np.array(starts, np.int32), np.zeros((2, 11, 2)), 1)


@pytest.mark.parametrize("slots", [1, 2, 3, 16])
@pytest.mark.parametrize("i", [0, 1, 5, 6, 7, 9])
def test_pages(slots: int, i: int) -> None:
    """Row n is in slot n mod slots of page table[b, n div slots]; what is not of the sequence is NaN."""
    rng, n = np.random.default_rng(0), 7
    count = -(-n // slots)
    rows, k = rng.normal(size=(n, 2)), np.full((9, 2, slots, 2), np.nan)
    table = np.full((3, 8), 99, np.int32)
    table[2, :count] = pages = rng.permutation(9)[:count]
    for r in range(n):
        k[pages[r // slots], 1, r % slots] = rows[r]
    o, want = np.full((4, 2), np.nan), np.zeros((4, 2))
    want[: max(n - i, 0)] = rows[i : i + 4]
    interpret(parse(PAGED), k, table, np.array([0, 0, n], np.int32), 2, i, o)
    np.testing.assert_array_equal(o, want)


@pytest.mark.parametrize(("entry", "length"), [(-1, 1), (9, 1), (0, -1), (0, 9)])
def test_pages_that_are_not_there_are_a_violation(entry: int, length: int) -> None:
    table, lengths = np.full((1, 2), entry, np.int32), np.array([length], np.int32)
    with pytest.raises(Violation, match=f"a sequence of {length} rows in pages"):
        interpret(parse(PAGED), np.zeros((9, 2, 4, 2)), table, lengths, 0, 0, np.zeros((4, 2)))


@pytest.mark.parametrize(
    ("text", "old", "new", "message"),
    [
        (PACKED, LOAD, SECOND + LOAD, "tile.sequence: its array is touched in another way too"),
        (PACKED, LOAD, TABLE + LOAD, "its starts, table or lengths are touched in another way too"),
        (PACKED, "memref<?x?x2xf32>", "memref<?x7x2xf32>", "its total known at run time"),
        (PACKED, "memref<?xi32>", "memref<?xi64>", "arguments of type i32, of rank 1"),
        (PACKED, "memref<1x?x?x2xf32>", "memref<?x?x?x2xf32>", "the result is a batch of one"),
        (PAGED, "func.return", STORE + "func.return", "made of pages, which other sequences may have too"),
        (PAGED, "memref<?x?xi32>", "memref<?xi32>", "arguments of type i32, of rank 2"),
        (PAGED, "memref<?x?x?x2xf32>", "memref<?x?x4x2xf32>", "both known at run time"),
    ],
)
def test_verifier(text: str, old: str, new: str, message: str) -> None:
    assert old in text
    with pytest.raises(ParseFailure, match=message):
        parse(text.replace(old, new))


@pytest.mark.parametrize("text", [PACKED, PAGED])
def test_printing_and_parsing(text: str) -> None:
    module = parse(text)
    assert str(parse(str(module))) == str(module)


def test_extents() -> None:
    """Sequences of equal starts and numbers have equal lengths; each has the heads of the whole array."""
    module = parse(PACKED)
    (load,) = (op for op in module.walk() if isinstance(op, LoadOp))
    (store,) = (op for op in module.walk() if isinstance(op, StoreOp))
    (rows,) = (op for op in module.walk() if isinstance(op, memref.DimOp))
    assert [extent(load.memref, n) == extent(store.memref, n) for n in range(4)] == [True] * 4
    assert length(rows.result) == extent(store.memref, 2)
    assert extent(load.memref, 1) == "H"


@pytest.mark.parametrize("number", ["%b", "%c0"])
def test_iterations_own_their_sequences(number: str) -> None:
    """The loop over sequences carries nothing, unless all of its iterations have the same one."""
    outer, inner = (
        op for op in parse(PACKED.replace("[%b]", f"[{number}]")).walk() if isinstance(op, scf.ForOp)
    )
    assert bool(carried(outer)) == (number == "%c0")
    assert not carried(inner)
