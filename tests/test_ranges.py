"""Index ranges: what a split loop visits contains what is visible; unmasked tiles are visible as a whole."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.dialects import scf

from flashgen.analysis.keys import visible, visited
from flashgen.analysis.linear import Linear, induction
from flashgen.analysis.ranges import (
    Choice,
    Most,
    Range,
    Rounded,
    at_most,
    classify,
    evaluate,
    largest,
    smallest,
)
from flashgen.ir.dialect import parse
from flashgen.ir.regions import MaskOp


@dataclass(frozen=True)
class Atom:
    """row * a + col * b + n * c + k, at most 0 where it holds; n is one of the function's three lengths."""

    a: int
    b: int
    c: int
    k: int
    n: str = "n"

    def holds(self, row, col, lengths):
        return self.a * row + self.b * col + self.c * lengths[self.n] + self.k <= 0

    def text(self, name: str) -> str:
        terms = [("row", self.a), ("col", self.b), (self.n, self.c)]
        lines = [f"%{name}_k = arith.constant {-self.k} : index", f"%{name}_z = arith.constant 0 : index"]
        total = f"%{name}_z"
        for symbol, factor in terms:
            lines += [
                f"%{name}_{symbol}_f = arith.constant {factor} : index",
                f"%{name}_{symbol}_t = arith.muli %{symbol}, %{name}_{symbol}_f : index",
                f"%{name}_{symbol}_s = arith.addi {total}, %{name}_{symbol}_t : index",
            ]
            total = f"%{name}_{symbol}_s"
        return "\n".join([*lines, f"%{name} = arith.cmpi sle, {total}, %{name}_k : index"])


@dataclass(frozen=True)
class Joined:
    """Two predicates, joined by and or or."""

    both: bool
    left: Atom | Joined
    right: Atom | Joined

    def holds(self, row, col, lengths):
        left, right = self.left.holds(row, col, lengths), self.right.holds(row, col, lengths)
        return left & right if self.both else left | right

    def text(self, name: str) -> str:
        join = "andi" if self.both else "ori"
        sides = [self.left.text(f"{name}l"), self.right.text(f"{name}r")]
        return "\n".join([*sides, f"%{name} = arith.{join} %{name}l, %{name}r : i1"])


small = st.integers(-3, 3)
lengths = st.sampled_from(("n", "nq", "nk"))
atoms = st.builds(Atom, small, small, st.integers(-1, 1), st.integers(-12, 12), lengths)
predicates = st.recursive(atoms, lambda inner: st.builds(Joined, st.booleans(), inner, inner), max_leaves=4)


@dataclass(frozen=True)
class Space:
    """Loops i over rows and j over columns from their starts to n, and tiles of br x bc."""

    br: int
    bc: int
    row_start: int
    col_start: int
    nq: int
    nk: int


spaces = st.builds(
    Space,
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 17),
    st.integers(0, 17),
)


def mask_in_loop(text: str) -> tuple[MaskOp, scf.ForOp]:
    """The one mask of a module, and the loop that it stands in."""
    (mask,) = [op for op in parse(text).walk() if isinstance(op, MaskOp)]
    loop = mask.parent_op()
    assert isinstance(loop, scf.ForOp)
    return mask, loop


def module(predicate: Atom | Joined, s: Space, inner: str) -> tuple[MaskOp, scf.ForOp]:
    """The mask and the loop that would be split: j within i, or i within j."""
    loops = ["scf.for %i = %row_start to %nq step %br", "scf.for %j = %col_start to %nk step %bc"]
    outer, split = loops if inner == "j" else loops[::-1]
    text = f"""
    func.func @f(%n: index, %nq: index, %nk: index) {{
      %br = arith.constant {s.br} : index
      %bc = arith.constant {s.bc} : index
      %row_start = arith.constant {s.row_start} : index
      %col_start = arith.constant {s.col_start} : index
      {outer} {{ {split} {{
        %vis = tile.mask %i, %j {{
        ^bb0(%row: index, %col: index):
          {predicate.text("p")}
          tile.yield %p : i1
        }} : tensor<{s.br}x{s.bc}xi1>
      }} }}
      func.return
    }}"""
    return mask_in_loop(text)


def outer_of(loop: scf.ForOp) -> scf.ForOp:
    outer = loop.parent_op()
    assert isinstance(outer, scf.ForOp)
    return outer


def check(predicate: Atom | Joined, s: Space, n: int, inner: str, exact: bool = False) -> None:
    """Every tile of the plane against the predicate, element by element."""
    mask, loop = module(predicate, s, inner)
    function = outer_of(loop).parent
    assert function is not None
    sizes = {"n": n, "nq": s.nq, "nk": s.nk}
    symbols = dict(zip(function.args, sizes.values(), strict=True))
    rows, cols = range(s.row_start, s.nq, s.br), range(s.col_start, s.nk, s.bc)
    for position in rows if inner == "j" else cols:
        symbols[induction(outer_of(loop))] = position
        visits = visited(mask, loop, symbols)
        order = [p for visit in visits for p in visit.positions]
        every = cols if inner == "j" else rows
        assert order == sorted(set(order))
        assert set(order) <= set(every)
        masked = {p: visit.masked for visit in visits for p in visit.positions}
        for p in every:
            i, j = (position, p) if inner == "j" else (p, position)
            row, col = np.arange(i, i + s.br), np.arange(j, j + s.bc)
            shown = predicate.holds(row[:, None], col[None, :], sizes)
            assert np.array_equal(visible(mask, row, col, symbols), shown)
            assert p in masked or not shown.any(), "a visible element is not visited"
            assert masked.get(p, True) or shown.all(), "an invisible element is not masked"
            if exact:
                assert (p in masked) == shown.any(), "a tile without a visible element is visited"
                assert p not in masked or masked[p] == (not shown.all()), "a whole tile is masked"


@settings(max_examples=400)
@given(predicates, spaces, st.integers(-9, 9), st.sampled_from("ij"))
def test_visited_contains_visible(predicate, space, n, inner):
    check(predicate, space, n, inner)


def causal(offset: int) -> Joined:
    """col < nk and row < nq and col <= row + offset."""
    inside = Joined(True, Atom(0, 1, -1, 1, "nk"), Atom(1, 0, -1, 1, "nq"))
    return Joined(True, inside, Atom(-1, 1, 0, -offset))


def test_a_length_within_a_tile_of_the_loops_end():
    """col + k < nk: what follows from the loop's range alone, one position before that, and one behind."""
    for k in range(-6, 7):
        for tile in (1, 3, 4):
            for inner in "ij":
                check(Atom(0, 1, -1, k, "nk"), Space(tile, tile, 0, 0, 9, 9), 0, inner, exact=True)
                check(Atom(1, 0, -1, k, "nq"), Space(tile, tile, 0, 0, 9, 9), 0, inner, exact=True)


@settings(max_examples=150)
@given(
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 17),
    st.integers(1, 17),
    st.sampled_from("ij"),
    st.booleans(),
)
def test_causal_masks_lose_nothing(br, bc, nq, nk, inner, bottom_right):
    """Exactly the tiles with a visible element are visited, and exactly the whole ones are not masked.

    For whole row tiles: of a cut one, a row beyond nq may be all that would see a tile.
    """
    offset = nk - nq if bottom_right else 0
    check(causal(offset), Space(br, bc, 0, 0, nq, nk), 0, inner, exact=nq % br == 0)


@settings(max_examples=150)
@given(
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 15),
    st.integers(0, 9),
    st.integers(0, 9),
    st.sampled_from("ij"),
)
def test_windows_lose_nothing(br, bc, n, left, right, inner):
    """row - left <= col <= row + right, inside both lengths.

    Not masked is what is visible in one run; a window may leave single tiles whole without a run of them.
    """
    inside = Joined(True, Atom(0, 1, 0, 1 - n), Atom(1, 0, 0, 1 - n))
    window = Joined(True, Atom(1, -1, 0, -left), Atom(-1, 1, 0, -right))
    check(Joined(True, inside, window), Space(br, bc, 0, 0, n, n), 0, inner)


def test_a_prefix_beside_a_causal_mask():
    """col < 6 or col <= row: whole tiles of either, in one run."""
    predicate = Joined(False, Atom(0, 1, 0, -5), Atom(-1, 1, 0, 0))
    for inner in "ij":
        check(predicate, Space(4, 4, 0, 0, 16, 16), 0, inner)


def test_what_is_not_understood_is_masked_and_visited():
    text = """
    func.func @f(%n: index) {
      %c4 = arith.constant 4 : index
      scf.for %j = %c4 to %n step %c4 {
        %vis = tile.mask %n, %j {
        ^bb0(%row: index, %col: index):
          %odd = arith.muli %row, %col : index
          %p = arith.cmpi slt, %odd, %n : index
          tile.yield %p : i1
        } : tensor<4x4xi1>
      }
      func.return
    }"""
    mask, loop = mask_in_loop(text)
    assert classify(mask, loop, whole=False) == Range()
    assert classify(mask, loop, whole=True).empty
    n = np.arange(2)
    np.testing.assert_array_equal(visible(mask, n, n, {loop.ub: 1}), np.outer(n, n) < 1)


def test_a_bound_that_moves_with_the_loop_is_not_understood():
    """%m is computed in the loop, from its position, by more than linear arithmetic."""
    text = """
    func.func @f(%n: index) {
      %c4 = arith.constant 4 : index
      scf.for %j = %c4 to %n step %c4 {
        %m = arith.muli %j, %j : index
        %vis = tile.mask %n, %j {
        ^bb0(%row: index, %col: index):
          %p = arith.cmpi slt, %col, %m : index
          tile.yield %p : i1
        } : tensor<4x4xi1>
      }
      func.return
    }"""
    mask, loop = mask_in_loop(text)
    assert classify(mask, loop, whole=False) == Range()
    assert classify(mask, loop, whole=True).empty


N = Linear({}, 7)


@pytest.mark.parametrize(
    ("edge", "value"),
    [
        (N, 7),
        (Rounded(Linear({}, 1), 4, N, 3, up=False), 9),
        (Rounded(Linear({}, 1), 4, N, 3, up=True), 13),
        (Rounded(Linear(), 4, Linear({}, -7), 3, up=False), -12),
        (Rounded(Linear(), 4, Linear({}, -7), 3, up=True), -8),
        (Choice(Linear(), N, Linear()), 7),
        (Choice(Linear({}, 1), N, Linear()), 0),
        (Most(True, (N, Linear())), 7),
        (Most(False, (N, Linear())), 0),
    ],
)
def test_edges_mean_what_they_say(edge, value):
    assert evaluate(edge, {}) == value


@pytest.mark.parametrize(
    ("small", "large", "surely"),
    [
        (Rounded(Linear(), 4, N, 4, up=False), N, True),
        (Rounded(Linear(), 4, N, 4, up=False), N.offset(-1), False),
        (Rounded(Linear(), 4, N, 4, up=True), N, False),
        (Rounded(Linear(), 4, N, 8, up=False), N, False),  # of a negative N the half is larger
        (Rounded(Linear(), 4, N, 4, up=False), Rounded(Linear(), 4, N, 8, up=False), False),
        (N, N.offset(1), True),
        (N, N.offset(-1), False),
        (N, Rounded(Linear(), 4, N, 4, up=True), False),  # true, but not looked for
    ],
)
def test_at_most(small, large, surely):
    assert at_most(small, large) == surely


def test_what_another_edge_surely_exceeds_is_left_out():
    step = Rounded(Linear(), 4, N, 4, up=False)
    later = Rounded(Linear(), 4, N.offset(3), 4, up=False)
    assert smallest(step, later, N) == step
    assert largest(step, later) == later
    assert smallest(None, None) is None
    assert isinstance(smallest(step, Choice(N, N, N)), Most)


@pytest.mark.parametrize(("end", "known"), [("minsi", True), ("maxsi", False)])
def test_a_loop_to_the_smaller_of_two_ends_before_both(end: str, known: bool) -> None:
    text = f"""
    func.func @f(%first: index, %last: index, %nk: index) {{
      %c4 = arith.constant 4 : index
      %end = arith.{end} %last, %nk : index
      scf.for %j = %first to %end step %c4 {{
        %vis = tile.mask %j, %j {{
        ^bb0(%row: index, %col: index):
          %p = arith.cmpi slt, %col, %nk : index
          tile.yield %p : i1
        }} : tensor<4x4xi1>
      }}
      func.return
    }}"""
    mask, loop = mask_in_loop(text)
    assert (classify(mask, loop, whole=False) == Range()) == known


def test_from_a_whole_step_on_whole_steps_are_counted_from_0() -> None:
    """4 n + 4 floor((nk - 4 n) / 4)  ~>  4 floor(nk / 4)"""
    text = """
    func.func @f(%n: index, %nk: index) {
      %c4 = arith.constant 4 : index
      %first = arith.muli %n, %c4 : index
      scf.for %j = %first to %nk step %c4 {
        %vis = tile.mask %j, %j {
        ^bb0(%row: index, %col: index):
          %p = arith.cmpi slt, %col, %nk : index
          tile.yield %p : i1
        } : tensor<4x4xi1>
      }
      func.return
    }"""
    mask, loop = mask_in_loop(text)
    hi = classify(mask, loop, whole=True).hi
    assert hi == Rounded(Linear(), 4, Linear({loop.ub: 1}), 4, up=False)
