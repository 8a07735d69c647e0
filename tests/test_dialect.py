"""The tile dialect: every operation's text comes back, and every verifier refuses what is not well formed."""

from __future__ import annotations

import re

import pytest
from xdsl.transforms.common_subexpression_elimination import CommonSubexpressionElimination
from xdsl.transforms.dead_code_elimination import dce
from xdsl.utils.exceptions import VerifyException

from flashgen.build import build
from flashgen.errors import ParseFailure
from flashgen.ir.compute import DotOp, ReplaceOp, RowMaxOp
from flashgen.ir.dialect import Tile, context, parse, verify
from flashgen.ir.regions import SweepOp
from flashgen.problem import Problem
from tests.head import HEAD

ARGS = """%x: tensor<4x6xf32>, %y: tensor<6x8xf32>, %k: tensor<8x6xf32>, %acc: tensor<4x8xf32>,
    %r: tensor<4xf32>, %s: f32, %vis: tensor<4x6xi1>, %b: tensor<4x8xi1>, %over: tensor<4x2xindex>,
    %i: index, %j: index, %m: memref<?x6xf32>, %h: memref<?x6xf16>, %t: tensor<4x6xf16>,
    %p: tensor<2x6x4xf32>, %q: memref<?x?x?x6xf32>, %ids: memref<?xi32>, %g: memref<?x?xi32>"""

Q = "memref<?x?x?x6xf32>"
MASK = """%o = tile.mask %i, %j {
    ^bb0(%row: index, %col: index):
      %c = arith.cmpi slt, %col, %row : index
      tile.yield %c : i1
    } : tensor<4x6xi1>"""
BIAS = """%o = tile.mask %i, %j {
    ^bb0(%row: index, %col: index):
      tile.yield %s : f32
    } : tensor<4x6xf32>"""
SPAN = """%o = tile.row_span %i, %j {
    ^bb0(%row: index):
      tile.yield %j, %row : index, index
    } of 6 : index : tensor<4x2xindex>"""
SWEEP = """%e, %o = tile.sweep %x, %r over %over : tensor<4x2xindex> reduce "maxnum" {
    ^bb0(%a: f32, %c: f32):
      %d = arith.subf %a, %c : f32
      tile.yield %d, %d : f32, f32
    } : (tensor<4x6xf32>, tensor<4xf32>) -> (tensor<4x6xf32>, tensor<4xf32>)"""
SUM = """%o = tile.sweep %x reduce "add" {
    ^bb0(%a: f32):
      tile.yield %a : f32
    } : (tensor<4x6xf32>) -> (tensor<4xf32>)"""

WELL_FORMED = {
    "load": "%o = tile.load %m[%i, %j] : memref<?x6xf32> -> tensor<4x6xf32>",
    "load in bounds": "%o = tile.load %m[%i, %j] in_bounds : memref<?x6xf32> -> tensor<4x6xf32>",
    "load a row": "%o = tile.load %m[%i, %j] : memref<?x6xf32> -> tensor<4xf32>",
    "load half": "%o = tile.load %h[%i, %j] : memref<?x6xf16> -> tensor<4x6xf32>",
    "load half as it is": "%o = tile.load %h[%i, %j] : memref<?x6xf16> -> tensor<4x6xf16>",
    "store": "tile.store %x, %m[%i, %j] : tensor<4x6xf32>, memref<?x6xf32>",
    "store half": "tile.store %x, %h[%i, %j] : tensor<4x6xf32>, memref<?x6xf16>",
    "grouped rows of a workspace": """%w = memref.alloc(%i, %i, %i) : memref<?x?x?xf32>
        %w_rows = tile.group_rows %w[%i, %j] : memref<?x?x?xf32> -> memref<?x?x?xf32>
        %o = tile.load %w_rows[%i, %i, %j] : memref<?x?x?xf32> -> tensor<4xf32>""",
    "load from a workspace": """%w = memref.alloc(%i) : memref<?x6xf32>
    %o = tile.load %w[%i, %j] : memref<?x6xf32> -> tensor<4x6xf32>""",
    "group rows": """%o = tile.group_rows %q[%i, %j] : memref<?x?x?x6xf32> -> memref<?x?x?x6xf32>""",
    "fetch": "tile.fetch %m[%i, %j] of tensor<4x6xf32> : memref<?x6xf32>",
    "sequence": f"%o = tile.sequence %q, %ids[%i] : {Q}, memref<?xi32> -> memref<1x?x?x?x6xf32>",
    "pages": f"%o = tile.pages %q, %g, %ids[%i] : {Q}, memref<?x?xi32>, memref<?xi32> -> memref<1x?x?x6xf32>",
    "broadcast rows": "%o = tile.broadcast %r : tensor<4xf32> -> tensor<4x6xf32>",
    "fill": "%o = tile.broadcast %s : f32 -> tensor<4x6xf32>",
    "dot": "%o = tile.dot %x, %y : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>",
    "dot transpose": "%o = tile.dot %x, %k transpose : tensor<4x6xf32>, tensor<8x6xf32> -> tensor<4x8xf32>",
    "dot where": "%o = tile.dot %x, %y where %vis : tensor<4x6xi1>"
    " : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>",
    "dot over only": "%o = tile.dot %x, %y over %over : tensor<4x2xindex> only %over : tensor<4x2xindex>"
    " : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>",
    "dot acc": "%o = tile.dot %x, %y acc %acc : tensor<4x8xf32>"
    " : tensor<4x6xf32>, tensor<6x8xf32> -> tensor<4x8xf32>",
    "dot packed": "%o = tile.dot %x, %p : tensor<4x6xf32>, tensor<2x6x4xf32> -> tensor<4x8xf32>",
    "dot padded": "%o = tile.dot %x, %p : tensor<4x6xf32>, tensor<2x6x4xf32> -> tensor<4x5xf32>",
    "pack": "%o = tile.pack %y : tensor<6x8xf32> -> tensor<3x6x3xf32>",
    "pack transpose": "%o = tile.pack %x transpose : tensor<4x6xf32> -> tensor<2x6x3xf32>",
    "scale_rows": "%o = tile.scale_rows %x, %r : tensor<4x6xf32>, tensor<4xf32> -> tensor<4x6xf32>",
    "row_max": "%o = tile.row_max %x : tensor<4x6xf32> -> tensor<4xf32>",
    "row_max of a span": "%o = tile.row_max %x over %over : tensor<4x2xindex> drop_nan"
    " : tensor<4x6xf32> -> tensor<4xf32>",
    "row_sum": "%o = tile.row_sum %x over %over : tensor<4x2xindex> : tensor<4x6xf32> -> tensor<4xf32>",
    "hold": "%o = tile.hold %r, %r, 8.000000e+00 : f32 : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>",
    "replace": "%o = tile.replace %r, 0xff800000 : f32, 0.000000e+00 : f32 : tensor<4xf32> -> tensor<4xf32>",
    "select": "%o = tile.select %vis, %x, %x : tensor<4x6xi1>, tensor<4x6xf32>, tensor<4x6xf32>"
    " -> tensor<4x6xf32>",
    "mask": MASK,
    "compare": "%o = tile.compare olt, %x, %x : tensor<4x6xf32> -> tensor<4x6xi1>",
    "element": "%o = tile.element %ids[%i] : memref<?xi32> -> index",
    "extremes": "%o, %u = tile.extremes %ids[%i] to [%j] : memref<?xi32> -> index, index",
    "bias": BIAS,
    "row_span": SPAN,
    "sweep": SWEEP,
    "sweep of one": SUM,
}


def function(body: str) -> str:
    return f"func.func @f({ARGS}) {{\n{body}\nfunc.return\n}}"


@pytest.mark.parametrize("case", WELL_FORMED)
def test_round_trip(case):
    module = parse(function(WELL_FORMED[case]))
    text = str(module)
    again = parse(text)
    assert str(again) == text
    assert again.is_structurally_equivalent(module)


def test_every_operation_has_a_round_trip():
    tried = {op.name for text in WELL_FORMED.values() for op in parse(function(text)).walk()}
    assert {op.name for op in Tile.operations} <= tried


def change(case: str, old: str, new: str) -> str:
    text = WELL_FORMED[case]
    assert old in text, f"{old!r} is not in {text!r}"
    return text.replace(old, new)


ALIAS = "its array is neither an argument nor an allocation, so it may overlap others"
COMPOSE = "does not compose"
ILL_FORMED = {
    "load: too few indices": (change("load", "[%i, %j]", "[%i]"), "tile.load: 2 indices wanted, 1 given"),
    "load: a tile of higher rank": (
        "%o = tile.load %m[%i, %j] : memref<?x6xf32> -> tensor<1x4x6xf32>",
        "tile.load: a rank-3 tile does not fit a rank-2 array",
    ),
    "load: to half": (
        "%o = tile.load %m[%i, %j] : memref<?x6xf32> -> tensor<4x6xf16>",
        "tile.load: f32 in memory does not convert to f16 in a tile",
    ),
    "store: too many indices": (change("store", "%j]", "%j, %j]"), "tile.store: 2 indices wanted, 3 given"),
    "store: from half": (
        "tile.store %t, %m[%i, %j] : tensor<4x6xf16>, memref<?x6xf32>",
        "tile.store: f32 in memory does not convert to f16 in a tile",
    ),
    "load: a view": (
        """%v = "memref.cast"(%m) : (memref<?x6xf32>) -> memref<?x6xf32>
        %o = tile.load %v[%i, %j] : memref<?x6xf32> -> tensor<4x6xf32>""",
        f"tile.load: {ALIAS}",
    ),
    "store: a view": (
        """%v = "memref.cast"(%m) : (memref<?x6xf32>) -> memref<?x6xf32>
        tile.store %x, %v[%i, %j] : tensor<4x6xf32>, memref<?x6xf32>""",
        f"tile.store: {ALIAS}",
    ),
    "load: one of two arrays": (
        """%a = memref.alloc(%i) : memref<?x6xf32>
        %c = arith.cmpi slt, %i, %j : index
        %v = arith.select %c, %m, %a : memref<?x6xf32>
        %o = tile.load %v[%i, %j] : memref<?x6xf32> -> tensor<4x6xf32>""",
        f"tile.load: {ALIAS}",
    ),
    "load: a carried array": (
        """%a = memref.alloc(%i) : memref<?x6xf32>
        %w = scf.for %n = %i to %j step %j iter_args(%v = %m) -> (memref<?x6xf32>) {
          %o = tile.load %v[%i, %j] : memref<?x6xf32> -> tensor<4x6xf32>
          scf.yield %a : memref<?x6xf32>
        }""",
        f"tile.load: {ALIAS}",
    ),
    "load: a block's argument": (
        """func.return
        ^bb1(%w: memref<?x6xf32>):
        %z = arith.constant 0 : index
        %o = tile.load %w[%z, %z] : memref<?x6xf32> -> tensor<4x6xf32>""",
        f"tile.load: {ALIAS}",
    ),
    "broadcast: rows": (
        change("broadcast rows", "-> tensor<4x6", "-> tensor<6x4"),
        "leading dimensions differ",
    ),
    "broadcast: elements": (
        change("fill", "-> tensor<4x6xf32>", "-> tensor<4x6xf16>"),
        "element types differ",
    ),
    "dot: contraction": (change("dot", "%x, %y : tensor<4x6xf32>", "%acc, %y : tensor<4x8xf32>"), COMPOSE),
    "dot: rows": (change("dot", "-> tensor<4x8", "-> tensor<5x8"), COMPOSE),
    "dot: columns": (change("dot", "-> tensor<4x8", "-> tensor<4x7"), COMPOSE),
    "dot: rank of the left side": (
        change("dot", "%x, %y : tensor<4x6xf32>", "%r, %y : tensor<4xf32>"),
        "a matrix",
    ),
    "dot: rank of the right side": (
        change("dot", "%y : tensor<4x6xf32>, tensor<6x8xf32>", "%r : tensor<4x6xf32>, tensor<4xf32>"),
        "a matrix, or panels of one",
    ),
    "dot: padded by a panel": (change("dot padded", "-> tensor<4x5", "-> tensor<4x4"), COMPOSE),
    "dot: panels transposed": (
        change("dot packed", "%p :", "%p transpose :"),
        "panels are as the product wants",
    ),
    "dot: where": (
        change("dot where", "%vis : tensor<4x6xi1>", "%b : tensor<4x8xi1>"),
        "where is an i1 tile",
    ),
    "dot: where of numbers": (
        change("dot where", "%vis : tensor<4x6xi1>", "%x : tensor<4x6xf32>"),
        "where is an i1 tile",
    ),
    "dot: over": (
        change("dot over only", "over %over : tensor<4x2xindex>", "over %vis : tensor<4x6xi1>"),
        "a span of one interval a row",
    ),
    "dot: only": (
        change("dot over only", "only %over : tensor<4x2xindex>", "only %r : tensor<4xf32>"),
        "a span of one interval a row",
    ),
    "dot: acc": (
        change("dot acc", "acc %acc : tensor<4x8xf32>", "acc %x : tensor<4x6xf32>"),
        "acc is typed as the result",
    ),
    "pack: panels": (change("pack", "tensor<3x6x3", "tensor<2x6x3"), "the panels do not cover the tile"),
    "pack: contraction": (change("pack", "tensor<3x6x3", "tensor<3x5x3"), "the panels do not cover the tile"),
    "pack: of a row": (change("pack", "%y : tensor<6x8xf32>", "%r : tensor<4xf32>"), "a matrix wanted"),
    "pack: to a matrix": (change("pack", "tensor<3x6x3xf32>", "tensor<6x8xf32>"), "panels wanted"),
    "scale_rows: factors": (
        change("scale_rows", "%x, %r : tensor<4x6xf32>", "%y, %r : tensor<6x8xf32>").replace(
            "-> tensor<4x6", "-> tensor<6x8"
        ),
        "one factor a row",
    ),
    "scale_rows: result": (
        change("scale_rows", "-> tensor<4x6", "-> tensor<4x5"),
        "the result is typed as the tile",
    ),
    "row_max: result": (change("row_max", "-> tensor<4x", "-> tensor<6x"), "tile.row_max: one result a row"),
    "row_sum: result": (change("row_sum", "-> tensor<4x", "-> tensor<6x"), "tile.row_sum: one result a row"),
    "row_sum: over": (
        change("row_sum", "%over : tensor<4x2xindex>", "%vis : tensor<4x6xi1>"),
        "a span of one interval a row",
    ),
    "hold: result": (
        change("hold", "-> tensor<4x", "-> tensor<6x"),
        "tile.hold: operand types differ",
    ),
    "replace: result": (
        change("replace", "-> tensor<4x", "-> tensor<6x"),
        "the result is typed as the operand",
    ),
    "select: branches": (
        change(
            "select", "%x, %x : tensor<4x6xi1>, tensor<4x6xf32>", "%acc, %x : tensor<4x6xi1>, tensor<4x8xf32>"
        ),
        "operand types differ",
    ),
    "select: condition": (
        change("select", "%vis, %x, %x : tensor<4x6xi1>", "%b, %x, %x : tensor<4x8xi1>"),
        "the condition is an i1 tile of the same shape",
    ),
    "select: a number as condition": (
        change("select", "%vis, %x, %x : tensor<4x6xi1>", "%x, %x, %x : tensor<4x6xf32>"),
        "the condition is an i1 tile",
    ),
    "mask: of rank 3": (
        change("mask", ": tensor<4x6xi1>", ": tensor<4x6x2xi1>"),
        "a tile of rows and columns wanted",
    ),
    "mask: one position": (
        change("mask", "%row: index, %col: index", "%row: index").replace("%col", "%row"),
        "the region takes index, index",
    ),
    "mask: what it yields": (
        change("mask", ": tensor<4x6xi1>", ": tensor<4x6xf32>"),
        "the region yields f32",
    ),
    "row_span: two positions": (
        change("row_span", "%row: index", "%row: index, %col: index"),
        "the region takes index",
    ),
    "row_span: one end": (
        change("row_span", "%j, %row : index, index", "%j : index"),
        "the region yields index, index",
    ),
    "row_span: shape": (change("row_span", "tensor<4x2xindex>", "tensor<4x3xindex>"), "an interval a row"),
    "row_span: elements": (
        change("row_span", "tensor<4x2xindex>", "tensor<4x2xf32>"),
        "positions are of type index",
    ),
    "sweep: reduction": (change("sweep", '"maxnum"', '"mul"'), "reductions are max, maxnum, add"),
    "sweep: reductions": (
        change("sweep", '"maxnum"', '"maxnum,add"'),
        "one reduction for each result of rank 1",
    ),
    "sweep: rows only": (
        SUM.replace("%x reduce", "%r reduce").replace("(tensor<4x6xf32>)", "(tensor<4xf32>)"),
        "goes over a tile of rows and columns",
    ),
    "sweep: shapes": (
        SWEEP.replace("%x, %r over", "%x, %acc over").replace(
            "(tensor<4x6xf32>, tensor<4xf32>) ->", "(tensor<4x6xf32>, tensor<4x8xf32>) ->"
        ),
        "shapes differ",
    ),
    "sweep: over": (
        change("sweep", "over %over : tensor<4x2xindex>", "over %vis : tensor<4x6xi1>"),
        "a span of one interval a row",
    ),
    "sweep: takes": (
        change("sweep", "%c: f32", "%c: index").replace("%a, %c : f32", "%a, %a : f32"),
        "the region takes f32, f32",
    ),
    "sweep: yields": (
        change("sweep", "tile.yield %d, %d : f32, f32", "tile.yield %d : f32"),
        "the region yields f32, f32",
    ),
}


@pytest.mark.parametrize("case", ILL_FORMED)
def test_ill_formed(case):
    text, message = ILL_FORMED[case]
    with pytest.raises(ParseFailure, match=re.escape(message)):
        parse(function(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("func.func @f(", "m.mlir"),
        ("%x = tile.frobnicate", "m.mlir"),
        ("func.func @f() { tile.yield func.return }", "m.mlir"),
        ("func.func @f() { %a = arith.addi %b, %b : index func.return }", "used but not defined"),
    ],
)
def test_text_that_is_no_module(text, message):
    with pytest.raises(ParseFailure, match=re.escape(message)):
        parse(text, "m.mlir")


def test_a_use_above_its_definition():
    """xDSL's own verifier does not look at the order."""
    module = build(Problem(8), 4, 4)
    (row_max,) = [op for op in module.walk() if isinstance(op, RowMaxOp)]
    block = row_max.parent
    assert block is not None
    assert block.last_op is not None
    row_max.detach()
    block.insert_op_before(row_max, block.last_op)
    module.verify()
    with pytest.raises(VerifyException, match=r"tile.replace: operand 0 \(%m_tile\) does not dominate"):
        verify(module)


def test_a_use_outside_the_region_of_its_definition():
    module = build(Problem(8), 4, 4)
    (row_max,) = [op for op in module.walk() if isinstance(op, RowMaxOp)]
    function = next(iter(module.ops))
    end = function.regions[0].block.last_op
    assert end is not None
    function.regions[0].block.insert_op_before(ReplaceOp(row_max.result, 0.0, 1.0), end)
    module.verify()
    with pytest.raises(VerifyException, match="does not dominate its use"):
        verify(module)


@pytest.mark.parametrize("case", [c for c in WELL_FORMED if not c.startswith(("store", "fetch"))])
def test_what_nobody_reads_is_removed(case):
    """Region operations too: their terminator is pure."""
    module = parse(function(WELL_FORMED[case]))
    dce(module)
    assert not any(op.name.startswith("tile.") for op in module.walk())


def test_common_subexpressions_do_not_reach_across_a_store():
    load = "tile.load %m[%i, %j] : memref<?x6xf32> -> tensor<4x6xf32>"
    store = "tile.store %{}, %m[%i, %j] : tensor<4x6xf32>, memref<?x6xf32>"
    lines = [f"%a = {load}", store.format("x"), f"%c = {load}", f"%e = {load}", *map(store.format, "ace")]
    module = parse(function("\n".join(lines)))
    CommonSubexpressionElimination().apply(context(), module)
    assert str(module).count("tile.load") == 2


def test_a_copy_of_a_product_keeps_what_is_not_changed():
    module = parse(function(WELL_FORMED["dot padded"]))
    (dot,) = [op for op in module.walk() if isinstance(op, DotOp)]
    copy = dot.but(where=None)
    assert copy.result.type == dot.result.type
    assert list(copy.operands) == list(dot.operands)


def test_docstrings_show_each_operation_s_text():
    for op in Tile.operations:
        assert op.name in (op.__doc__ or ""), op.name


def test_a_sweep_knows_its_shape_and_its_reductions():
    module = parse(function(SWEEP))
    (sweep,) = [op for op in module.walk() if isinstance(op, SweepOp)]
    assert sweep.shape == (4, 6)
    assert sweep.kinds == [None, "maxnum"]


def test_the_head_that_tests_change_is_well_formed():
    assert str(parse(HEAD)) == str(parse(str(parse(HEAD))))
