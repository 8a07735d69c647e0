"""Dependences: who owns which slice, and what carries something from one iteration to another."""

from __future__ import annotations

import pytest
from xdsl.dialects import scf

from flashgen.analysis.dependence import carried, confined, describe, distances, strangers, touching
from flashgen.analysis.extents import extent, length
from flashgen.analysis.linear import Linear, induction, linear
from flashgen.analysis.padding import mixes_rows
from flashgen.build import build
from flashgen.ir.dialect import parse
from flashgen.ir.memory import LoadOp
from flashgen.ir.regions import MaskOp
from flashgen.passes.masked_step import lies_within
from flashgen.passes.pipeline import parse_passes, run
from flashgen.problem import Problem


def loops(text: str) -> dict[str, scf.ForOp]:
    """The loops of a module, by their induction variables' names."""
    found = [op for op in parse(text).walk() if isinstance(op, scf.ForOp)]
    return {induction(loop).name_hint or "?": loop for loop in found}


def names(loop: scf.ForOp) -> list[str]:
    return [describe(what) for what in carried(loop)]


def nest(address: str, step: int = 4, tile: int = 4, other: str = "", bound: str = "%n") -> str:
    """i, and r in it; a tile of %a is stored at an address."""
    return f"""
    func.func @f(%a: memref<?xf32>, %n: index, %group: index, %t: tensor<{tile}xf32>) {{
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %s = arith.constant {step} : index
      scf.for %i = %c0 to %n step %s {{
        %block = arith.muli %i, %group : index
        scf.for %r = %c0 to {bound} step %c1 {{
          %br = arith.addi %block, %r : index
          %ir = arith.addi %i, %r : index
          %double = arith.addi %i, %i : index
          %shifted = arith.addi %i, %n : index
          %back = arith.subi %n, %i : index
          %square = arith.muli %i, %i : index
          tile.store %t, %a[{address}] : tensor<{tile}xf32>, memref<?xf32>
          {other}
        }}
      }}
      func.return
    }}"""


@pytest.mark.parametrize(
    ("address", "step", "tile", "owned"),
    [
        ("%i", 4, 4, True),
        ("%i", 4, 3, True),
        ("%i", 4, 5, False),
        ("%i", 1, 4, False),
        ("%shifted", 4, 4, True),
        ("%back", 4, 4, True),
        ("%back", 4, 5, False),
        ("%double", 2, 4, True),
        ("%double", 2, 5, False),
        ("%ir", 4, 4, False),
        ("%square", 4, 1, False),
        ("%r", 4, 1, False),
        ("%c0", 4, 1, False),
    ],
)
def test_an_iteration_owns_its_slice(address, step, tile, owned):
    loop = loops(nest(address, step, tile))["i"]
    assert names(loop) == ([] if owned else ["%a"])


@pytest.mark.parametrize(
    ("bound", "tile", "owned"),
    [("%group", 1, True), ("%n", 1, False), ("%group", 2, False), ("%c1", 1, False)],
)
def test_heads_of_a_group_are_a_block_of_their_own(bound, tile, owned):
    """i * group + r with r in [0, group): a bound that is another value, or wider tiles, may overlap."""
    found = loops(nest("%br", 1, tile, bound=bound))
    assert names(found["i"]) == ([] if owned else ["%a"])


def test_heads_of_a_group_are_independent_of_each_other():
    assert names(loops(nest("%br", 1, 1, bound="%group"))["r"]) == []


def test_a_group_that_does_not_start_at_0_may_reach_into_the_next():
    text = (
        nest("%br", 1, 1, bound="%group")
        .replace("%r = %c0", "%r = %minus")
        .replace("%c1 =", "%minus = arith.constant -1 : index\n %c1 =")
    )
    assert names(loops(text)["i"]) == ["%a"]


def test_a_group_that_changes_with_the_loop_is_no_block():
    """i * (n - i) + r with r in [0, n - i): the blocks of i = 0 and i = 1 both hold n - 1."""
    text = nest("%br", 1, 1, bound="%group").replace("%group: index, ", "")
    text = text.replace("%block =", "%group = arith.subi %n, %i : index\n %block =")
    assert names(loops(text)["i"]) == ["%a"]


def test_twice_a_block_is_no_block():
    text = nest("%twice", 1, 1, bound="%group").replace(
        "%ir =", "%two = arith.addi %block, %block : index\n %twice = arith.addi %two, %r : index\n %ir ="
    )
    assert names(loops(text)["i"]) == ["%a"]


def test_all_accesses_have_to_be_to_the_same_slice():
    same = "%y = tile.load %a[%i] : memref<?xf32> -> tensor<4xf32>"
    ahead = "%y = tile.load %a[%ahead] : memref<?xf32> -> tensor<4xf32>"
    move = "%ahead = arith.addi %i, %s : index\n"
    assert names(loops(nest("%i", other=same))["i"]) == []
    assert names(loops(nest("%i", other=move + ahead))["i"]) == ["%a"]


def test_what_is_only_read_carries_nothing():
    text = nest("%i").replace(
        "tile.store %t, %a[%i] : tensor<4xf32>, memref<?xf32>",
        "%y = tile.load %a[%c0] : memref<?xf32> -> tensor<4xf32>",
    )
    assert names(loops(text)["i"]) == []


def test_carried_values_and_strangers_are_named():
    found = loops("""
    func.func @f(%a: memref<?xf32>, %n: index, %x: f32) {
      %y = scf.for %i = %n to %n step %n iter_args(%sum = %x) -> (f32) {
        memref.store %sum, %a[%i] : memref<?xf32>
        scf.yield %sum : f32
      }
      func.return
    }""")
    assert names(found["i"]) == ["%sum", "memref.store"]


def test_an_array_allocated_inside_belongs_to_one_iteration():
    found = loops("""
    func.func @f(%n: index, %t: tensor<4xf32>) {
      scf.for %i = %n to %n step %n {
        %a = memref.alloc(%n) : memref<?xf32>
        tile.store %t, %a[%n] : tensor<4xf32>, memref<?xf32>
      }
      func.return
    }""")
    assert names(found["i"]) == []


@pytest.mark.parametrize("order", ["kv-outer", "q-outer"])
def test_the_parallel_loops_of_attention(order):
    """b, g, r, and the query loop where it is outside; the key loop carries the state."""
    module = build(Problem(8, causal="bottom-right"), 4, 4)
    if order == "q-outer":
        run(module, parse_passes("sink-loads,interchange,fuse-loops"))
    found = [op for op in module.walk() if isinstance(op, scf.ForOp)]
    by_name = {induction(loop).name_hint: names(loop) for loop in found}
    assert [by_name[n] for n in "bgr"] == [[], [], []]
    assert by_name["i"] == []
    assert by_name["j"] == ["%acc", "%l", "%m"]


def test_distances_of_the_forward_pass():
    module = build(Problem(8), 4, 4)
    run(module, parse_passes("sink-loads"))
    outer = next(op for op in module.walk() if isinstance(op, scf.ForOp) and induction(op).name_hint == "j")
    inner = next(op for op in outer.body.block.ops if isinstance(op, scf.ForOp))
    found = {describe(array): vector for array, vector in distances(outer, inner).items()}
    assert found == {"%acc": ("+", "0"), "%l": ("+", "0"), "%m": ("+", "0")}


def test_distances_of_a_backward_pass():
    """dK at the key tile has (0, +), dQ at the query tile (+, 0), a diagonal neither."""
    found = loops("""
    func.func @f(%dk: memref<?xf32>, %dq: memref<?xf32>, %d: memref<?xf32>, %n: index, %t: tensor<4xf32>) {
      %c4 = arith.constant 4 : index
      scf.for %j = %n to %n step %c4 {
        scf.for %i = %n to %n step %c4 {
          %ij = arith.addi %i, %j : index
          tile.store %t, %dk[%j] : tensor<4xf32>, memref<?xf32>
          tile.store %t, %dq[%i] : tensor<4xf32>, memref<?xf32>
          tile.store %t, %d[%ij] : tensor<4xf32>, memref<?xf32>
        }
      }
      func.return
    }""")
    vectors = {describe(array): v for array, v in distances(found["j"], found["i"]).items()}
    assert vectors == {"%dk": ("0", "+"), "%dq": ("+", "0"), "%d": ("*", "*")}


def test_confined_to_nothing_in_common():
    """Two loops over one range whose accesses are cut in different dimensions."""
    found = loops("""
    func.func @f(%a: memref<?x?xf32>, %n: index, %t: tensor<1x1xf32>) {
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      scf.for %i = %c0 to %n step %c1 {
        tile.store %t, %a[%i, %c0] : tensor<1x1xf32>, memref<?x?xf32>
      }
      scf.for %k = %c0 to %n step %c1 {
        tile.store %t, %a[%c0, %k] : tensor<1x1xf32>, memref<?x?xf32>
      }
      func.return
    }""")
    groups = [(a, loop) for loop in found.values() for a in touching(loop, array_of(loop))]
    assert all(confined([group]) for group in groups)
    assert not confined(groups)


def array_of(loop: scf.ForOp):
    return next(iter(loop.body.block.ops)).operands[1]


def test_strangers_are_what_is_not_understood():
    text = """
    func.func @f(%a: memref<?xf32>, %n: index, %x: f32) {
      scf.for %i = %n to %n step %n {
        %b = memref.alloc(%n) : memref<?xf32>
        %y = tile.load %a[%n] : memref<?xf32> -> tensor<4xf32>
        tile.store %y, %b[%n] : tensor<4xf32>, memref<?xf32>
        scf.for %j = %n to %n step %n { memref.store %x, %b[%n] : memref<?xf32> }
        func.call @g() : () -> ()
      }
      func.return
    }
    func.func private @g() -> ()
    """
    assert [op.name for op in strangers(loops(text)["i"])] == ["memref.store", "func.call"]


EXTENTS = """
func.func @f(%a: memref<?x8xf32> {tile.extents = ["N", "D"]}, %b: memref<?xf32> {tile.extents = ["N"]},
    %c: memref<?xf32> {tile.extents = ["M"]}, %d: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %n = memref.dim %a, %c0 : memref<?x8xf32>
  %m = memref.dim %d, %c0 : memref<?xf32>
  %sum = arith.addi %n, %c1 : index
  %w = memref.alloc(%n) : memref<3x?xf32>
  %x = memref.alloc(%sum) : memref<?xf32>
  func.return
}"""


def test_extents_are_equal_by_name_or_by_allocation():
    module = parse(EXTENTS)
    function = next(iter(module.ops))
    a, b, c, d = function.body.block.args
    by_name = {r.name_hint: r for op in function.body.block.ops for r in op.results}
    n, w, x = by_name["n"], by_name["w"], by_name["x"]
    assert extent(a, 0) == extent(b, 0) == length(n) == extent(w, 1)
    assert extent(a, 1) == Linear({}, 8)
    assert extent(w, 0) == Linear({}, 3)
    assert extent(x, 0) == linear(by_name["sum"])
    assert extent(c, 0) != extent(a, 0)
    assert extent(d, 0) == length(by_name["m"])
    assert extent(d, 0) not in (extent(a, 0), extent(c, 0))


@pytest.mark.parametrize(
    ("use", "mixes"),
    [
        ("tile.store %x, %o[%i, %c0] : tensor<4x4xf32>, memref<?x4xf32>", False),
        ("tile.store %x, %o[%c0, %c0] : tensor<4x4xf32>, memref<?x4xf32>", True),
        ("tile.store %x, %p[%i, %c0] : tensor<4x4xf32>, memref<?x4xf32>", True),
        ("%y = tile.row_sum %x : tensor<4x4xf32> -> tensor<4xf32>", False),
        ("%y = tile.dot %x, %t : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>", False),
        ("%y = tile.dot %t, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>", True),
        ("%y = tile.dot %x, %x : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>", True),
        ("%y = tile.pack %x : tensor<4x4xf32> -> tensor<1x4x4xf32>", True),
    ],
)
def test_who_sees_rows_beyond_the_bound(use, mixes):
    module = parse(f"""
    func.func @f(
        %a: memref<?x4xf32> {{tile.extents = ["N", "D"]}}, %o: memref<?x4xf32> {{tile.extents = ["N", "D"]}},
        %p: memref<?x4xf32>, %t: tensor<4x4xf32>, %i: index) {{
      %c0 = arith.constant 0 : index
      %x = tile.load %a[%i, %c0] : memref<?x4xf32> -> tensor<4x4xf32>
      {use}
      func.return
    }}""")
    (load,) = [op for op in module.walk() if isinstance(op, LoadOp)]
    assert (mixes_rows(load) is not None) == mixes


@pytest.mark.parametrize(
    ("dimensions", "address", "mixes"),
    [
        ('"B", "N", "D"', "%b, %i, %c0", False),
        ('"C", "N", "D"', "%b, %i, %c0", True),
        ('"B", "N", "D"', "%c0, %i, %c0", True),
        ('"X", "B", "N", "D"', "%c0, %b, %i, %c0", False),
        ('"N", "D"', "%i, %c0", True),
        ('"N", "B"', "%i, %b", True),
    ],
)
def test_rows_are_cut_in_the_dimensions_in_front_of_them_too(dimensions, address, mixes):
    """What is loaded at [b, i] reads as 0 beyond either bound; the output may have other bounds."""
    output = f"memref<{'?x' * address.count(',')}?xf32>"
    module = parse(f"""
    func.func @f(%a: memref<?x?x4xf32> {{tile.extents = ["B", "N", "D"]}},
        %o: {output} {{tile.extents = [{dimensions}]}}, %b: index, %i: index) {{
      %c0 = arith.constant 0 : index
      %x = tile.load %a[%b, %i, %c0] : memref<?x?x4xf32> -> tensor<4x4xf32>
      tile.store %x, %o[{address}] : tensor<4x4xf32>, {output}
      func.return
    }}""")
    (load,) = [op for op in module.walk() if isinstance(op, LoadOp)]
    assert (mixes_rows(load) is not None) == mixes


def test_a_row_is_followed_around_a_loop():
    """Carried to the next iteration, where a product contracts over it."""
    module = parse("""
    func.func @f(%a: memref<?x4xf32>, %t: tensor<4x4xf32>, %i: index) {
      %c0 = arith.constant 0 : index
      %x = tile.load %a[%i, %c0] : memref<?x4xf32> -> tensor<4x4xf32>
      %r = scf.for %n = %c0 to %i step %i iter_args(%y = %t) -> (tensor<4x4xf32>) {
        %z = tile.dot %t, %y : tensor<4x4xf32>, tensor<4x4xf32> -> tensor<4x4xf32>
        scf.yield %x : tensor<4x4xf32>
      }
      func.return
    }""")
    (load,) = [op for op in module.walk() if isinstance(op, LoadOp)]
    found = mixes_rows(load)
    assert found is not None
    assert found.name == "tile.dot"


@pytest.mark.parametrize(
    ("load", "bound", "within"),
    [
        ("%k[%j, %c0]", "slt, %col, %nk", True),
        ("%k[%j, %c0]", "sle, %col, %nk", False),
        ("%k[%j, %c0]", "sle, %col, %last", True),
        ("%k[%j, %c0]", "slt, %col, %last", True),
        ("%k[%j, %c0]", "slt, %col, %next", False),
        ("%k[%j, %c0]", "sgt, %nk, %col", True),
        ("%k[%j, %c0]", "slt, %row, %nk", False),
        ("%k[%j, %c0]", "slt, %col, %nq", False),
        ("%k[%j, %c0]", "slt, %nk, %col", False),
        ("%k[%i, %c0]", "slt, %col, %nk", False),
        ("%k[%i, %c0]", "slt, %row, %nk", True),
        ("%k[%j, %i]", "slt, %col, %nk", False),
        ("%v[%j, %c0]", "slt, %col, %nk", True),
        ("%w[%j, %c0]", "slt, %col, %nk", False),
    ],
)
@pytest.mark.parametrize("rows", [4, 3, 5])
def test_a_tile_that_a_mask_shows_whole_lies_within_its_array(load, bound, within, rows):
    """By a conjunct position < extent of that array and dimension; where it is no larger than the mask."""
    array = '%{}: memref<?x8xf32> {{tile.extents = ["{}", "D"]}}'
    module = parse(f"""
    func.func @f({array.format("q", "Nq")}, {array.format("k", "Nk")}, {array.format("v", "Nk")},
        %w: memref<?x8xf32>, %i: index, %j: index) {{
      %c0 = arith.constant 0 : index
      %nq = memref.dim %q, %c0 : memref<?x8xf32>
      %nk = memref.dim %k, %c0 : memref<?x8xf32>
      %c1 = arith.constant 1 : index
      %t = tile.load {load} : memref<?x8xf32> -> tensor<{rows}x8xf32>
      %vis = tile.mask %i, %j {{
      ^bb0(%row: index, %col: index):
        %last = arith.subi %nk, %c1 : index
        %next = arith.addi %nk, %c1 : index
        %below = arith.cmpi {bound} : index
        %causal = arith.cmpi sle, %col, %row : index
        %both = arith.andi %causal, %below : i1
        tile.yield %both : i1
      }} : tensor<4x4xi1>
      func.return
    }}""")
    (load_op,) = [op for op in module.walk() if isinstance(op, LoadOp)]
    (mask,) = [op for op in module.walk() if isinstance(op, MaskOp)]
    assert lies_within(load_op, mask) == (within and rows <= 4)
