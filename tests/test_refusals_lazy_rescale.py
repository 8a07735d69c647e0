"""lazy-rescale says where it is not legal, and changes nothing then; each case changes one thing."""

from __future__ import annotations

import re

import pytest

from flashgen.ir.dialect import parse
from flashgen.passes.pipeline import parse_passes, run
from tests.head import HEAD, after, before, head, inside, refused

ALLOC_ACC = "%acc = memref.alloc(%nq) : memref<?x8xf32>"
ALLOC_L = "%l = memref.alloc(%nq) : memref<?xf32>"
STORE_ACC_0 = "tile.store %acc_start, %acc[%i0, %c0] : tensor<4x8xf32>, memref<?x8xf32>"
STORE_L_0 = "tile.store %l_start, %l[%i0] : tensor<4xf32>, memref<?xf32>"
LOAD_L = "%l_old = tile.load %l[%i] : memref<?xf32> -> tensor<4xf32>"
LOAD_ACC = "%acc_old = tile.load %acc[%i, %c0] : memref<?x8xf32> -> tensor<4x8xf32>"
STORE_ACC = "tile.store %acc_new, %acc[%i, %c0] : tensor<4x8xf32>, memref<?x8xf32>"
STORE_L = "tile.store %l_new, %l[%i] : tensor<4xf32>, memref<?xf32>"
STORE_M = "tile.store %m_new, %m[%i] : tensor<4xf32>, memref<?xf32>"
LOAD_OUT = "%acc_end = tile.load %acc[%i1, %c0] : memref<?x8xf32> -> tensor<4x8xf32>"
STORE_OUT = "tile.store %acc_end, %o[%i1, %c0] : tensor<4x8xf32>, memref<?x8xf32>"
L_TILE = "%l_tile = tile.row_sum %p : tensor<4x4xf32> -> tensor<4xf32>"
PV = (
    "%pv = tile.dot %p, %vj where %vis : tensor<4x4xi1> : tensor<4x4xf32>, tensor<4x8xf32> -> tensor<4x8xf32>"
)
SPAN = """%span = tile.row_span %i, %j {
^bb0(%any: index):
  tile.yield %c0, %c1 : index, index
} of 4 : index : tensor<4x2xindex>"""
TOTAL = "%total = arith.addf %kept, %fresh : tensor<4x8xf32>"

NONE = "builtin.module: no tiles in memory are divided by a row sum in memory; one is wanted"
START = "tile.load: the output is not known to start as 0"
LATER = "tile.load: reads the output otherwise than tile by tile behind the loop that updates it"
CUT = "tile.load: the row sum's array may cut other rows than the output's"
OLD = "tile.load: the old output is used otherwise than as l * alpha * O"
SUM = "arith.divf: output and row sum are not what is kept plus one factor times what is new"

NEW = "arith.divf: what is new in output and row sum is not p @ v and the row sum of p"

STATE = {
    "twice": ("lazy-rescale", head(), NONE),
    "carried state": ("sink-loads,interchange,fuse-loops,keep-state", head(), NONE),
    "another guard": ("", head(("0.0 : f32, 1.0 : f32", "0.0 : f32, 2.0 : f32")), NONE),
    "no guard": ("", head(("%l_wide = tile.broadcast %l_safe", "%l_wide = tile.broadcast %l_new")), NONE),
    "O starts as 1": (
        "",
        head(("%acc_start = tile.broadcast %zero", "%acc_start = tile.broadcast %one")),
        START,
    ),
    "O starts in part": ("", head(("%i0 = %c0 to %nq", "%i0 = %c4 to %nq")), START),
    "O starts at other tiles": (
        "",
        head(
            before(STORE_ACC_0, "%up = arith.addi %i0, %c4 : index"), ("%acc[%i0, %c0] :", "%acc[%up, %c0] :")
        ),
        START,
    ),
    "half of each tile starts as 0": (
        "",
        head(
            (
                "%acc_start = tile.broadcast %zero : f32 -> tensor<4x8xf32>",
                "%acc_start = tile.broadcast %zero : f32 -> tensor<2x8xf32>",
            ),
            inside(STORE_ACC_0, "tensor<4x8xf32>", "tensor<2x8xf32>"),
        ),
        START,
    ),
    "a start inside another loop": (
        "",
        head((STORE_ACC_0, f"scf.for %n = %c0 to %nk step %c4 {{ {STORE_ACC_0} }}")),
        START,
    ),
    "two starts": ("", head(after(STORE_ACC_0, STORE_ACC_0)), START),
    "a start behind the loop": (
        "",
        head(
            (STORE_ACC_0, ""),
            after(
                LOAD_OUT,
                "%late = tile.broadcast %zero : f32 -> tensor<4x8xf32>",
                "tile.store %late, %acc[%i1, %c0] : tensor<4x8xf32>, memref<?x8xf32>",
            ),
        ),
        START,
    ),
    "O is an argument": (
        "",
        head((ALLOC_ACC, ""), ("%o: memref", "%acc: memref<?x8xf32>, %o: memref")),
        START,
    ),
    "O is seen by a stranger": (
        "",
        head(after(STORE_OUT, "memref.store %one, %acc[%c0, %c0] : memref<?x8xf32>")),
        START,
    ),
    "l starts as 1": (
        "",
        head(("%l_start = tile.broadcast %zero", "%l_start = tile.broadcast %one")),
        "tile.load: the row sum is not known to start as 0",
    ),
    "a second read of O": (
        "",
        head(after(STORE_ACC, "%again = tile.load %acc[%i, %c0] : memref<?x8xf32> -> tensor<4x8xf32>")),
        "tile.load: a second access to the output in the loop that updates it",
    ),
    "O in half precision": (
        "",
        head(
            *(
                inside(line, "memref<?x8xf32>", "memref<?x8xf16>")
                for line in (ALLOC_ACC, STORE_ACC_0, LOAD_ACC, STORE_ACC, LOAD_OUT)
            )
        ),
        "tile.store: l * O may exceed the range of the type O is kept in; float32 is wanted",
    ),
    "O read in front of the loop": (
        "",
        head(
            after(
                STORE_ACC_0,
                "%early = tile.load %acc[%i0, %c0] : memref<?x8xf32> -> tensor<4x8xf32>",
                "tile.store %early, %o[%i0, %c0] : tensor<4x8xf32>, memref<?x8xf32>",
            )
        ),
        LATER,
    ),
    "O read at other tiles": (
        "",
        head(
            before(LOAD_OUT, "%up = arith.addi %i1, %c4 : index"),
            ("%acc_end = tile.load %acc[%i1", "%acc_end = tile.load %acc[%up"),
        ),
        LATER,
    ),
    "O read in other steps": ("", head(("%i1 = %c0 to %nq step %c4", "%i1 = %c0 to %nq step %c1")), LATER),
    "rows of l that are not O's": (
        "",
        head(
            before(LOAD_ACC, "%up = arith.addi %i, %c4 : index"),
            ("%l_old = tile.load %l[%i]", "%l_old = tile.load %l[%up]"),
            inside(STORE_L, "%l[%i]", "%l[%up]"),
        ),
        "tile.load: the row sum's rows are not the output's",
    ),
    "O at another place for each tile of keys": (
        "",
        head(
            before(LOAD_ACC, "%ij = arith.addi %i, %j : index"),
            ("%acc_old = tile.load %acc[%i,", "%acc_old = tile.load %acc[%ij,"),
            inside(STORE_ACC, "%acc[%i,", "%acc[%ij,"),
        ),
        "arith.divf: no loop updates both the output and its row sum",
    ),
    "one l of all rows": (
        "",
        head(
            ("%l_old = tile.load %l[%i]", "%l_old = tile.load %l[%c0]"), inside(STORE_L, "%l[%i]", "%l[%c0]")
        ),
        "arith.divf: no loop updates both the output and its row sum",
    ),
    "l as the columns of a matrix": (
        "",
        head(
            inside(ALLOC_L, "memref<?xf32>", "memref<?x4xf32>"),
            *(
                (line, line.replace("]", ", %c0]").replace("?xf32", "?x4xf32"))
                for line in (STORE_L_0, LOAD_L, STORE_L)
            ),
        ),
        "tile.load: the row sum's rows are not the output's",
    ),
    "a row that is computed in the loop": (
        "",
        head(
            before(LOAD_ACC, "%at = arith.addi %i, %c0 : index"),
            ("%l_old = tile.load %l[%i]", "%l_old = tile.load %l[%at]"),
            inside(STORE_L, "%l[%i]", "%l[%at]"),
        ),
        "tile.load: its address is not known behind the loop; plain indices are wanted",
    ),
    "l of other extents": ("", head(inside(ALLOC_L, "%nq", "%nk")), CUT),
    "O of other extents": ("", head(inside(ALLOC_ACC, "%nq", "%nk")), CUT),
    "l of a length that is a number": (
        "",
        head(
            (ALLOC_L, "%l = memref.alloc() : memref<4xf32>"),
            *(inside(line, "memref<?xf32>", "memref<4xf32>") for line in (STORE_L_0, LOAD_L, STORE_L)),
        ),
        CUT,
    ),
    "an effect inside": (
        "",
        head(after(LOAD_ACC, "memref.store %one, %o[%c0, %c0] : memref<?x8xf32>")),
        "memref.store: has an effect that is not understood",
    ),
}

ARITHMETIC = {
    "old O used twice": (
        "",
        head(
            before(TOTAL, "%more = arith.addf %fresh, %acc_old : tensor<4x8xf32>"),
            ("%total = arith.addf %kept, %fresh", "%total = arith.addf %kept, %more"),
        ),
        OLD,
    ),
    "old O not times l": (
        "",
        head(("%kept_wide = tile.broadcast %l_kept", "%kept_wide = tile.broadcast %alpha")),
        OLD,
    ),
    "old O added": ("", head(("%kept = arith.mulf %kept_wide", "%kept = arith.addf %kept_wide")), OLD),
    "new O used inside": (
        "",
        head(after(STORE_ACC, "tile.store %acc_new, %o[%i, %c0] : tensor<4x8xf32>, memref<?x8xf32>")),
        "arith.divf: the normalised output is used before the loop ends",
    ),
    "a difference": ("", head(("%total = arith.addf %kept", "%total = arith.subf %kept")), SUM),
    "a row sum that forgets": ("", head(("%l_new = arith.addf %l_kept", "%l_new = arith.addf %l_old")), SUM),
    "two factors": (
        "",
        head(("%beta_wide = tile.broadcast %beta", "%beta_wide = tile.broadcast %alpha")),
        SUM,
    ),
    "no product": (
        "",
        head(("%fresh = arith.mulf %beta_wide, %pv", "%fresh = arith.mulf %beta_wide, %vj")),
        NEW,
    ),
    "a maximum in place of a row sum": (
        "",
        head(("%l_tile = tile.row_sum %p", "%l_tile = tile.row_max %p")),
        NEW,
    ),
    "a row sum of a part": (
        "",
        head(
            before(L_TILE, SPAN),
            (
                L_TILE,
                "%l_tile = tile.row_sum %p over %span : tensor<4x2xindex> : tensor<4x4xf32> -> tensor<4xf32>",
            ),
        ),
        NEW,
    ),
    "a product of a part": (
        "",
        head(
            before(L_TILE, SPAN), inside(PV, "where %vis : tensor<4x4xi1>", "over %span : tensor<4x2xindex>")
        ),
        NEW,
    ),
    "a product that adds": (
        "",
        head(inside(PV, "where %vis : tensor<4x4xi1>", "acc %vj : tensor<4x8xf32>")),
        NEW,
    ),
    "p used elsewhere": (
        "",
        head(after(STORE_M, "tile.store %p, %o[%i, %c0] : tensor<4x4xf32>, memref<?x8xf32>")),
        "tile.dot: product and row sum are not of one p, or p is used elsewhere",
    ),
    "the row sum of something else": (
        "",
        head(("%l_tile = tile.row_sum %p", "%l_tile = tile.row_sum %d")),
        "tile.dot: product and row sum are not of one p, or p is used elsewhere",
    ),
    "a row sum that is used as it is": (
        "",
        head(after(STORE_M, "tile.store %l_tile, %o[%i, %c0] : tensor<4xf32>, memref<?x8xf32>")),
        "tile.dot: what is new is used before it is rescaled",
    ),
    "a product that is used as it is": (
        "",
        head(after(STORE_M, "tile.store %pv, %o[%i, %c0] : tensor<4x8xf32>, memref<?x8xf32>")),
        "tile.dot: what is new is used before it is rescaled",
    ),
    "an exponent that is used as it is": (
        "",
        head(after(STORE_M, "tile.store %d, %o[%i, %c0] : tensor<4x4xf32>, memref<?x8xf32>")),
        "arith.subf: p is not relative to the maximum that beta rescales from",
    ),
    "the maximum of a part": (
        "",
        head(
            (
                "%m_tile = tile.row_max %s :",
                f"{SPAN} %m_tile = tile.row_max %s over %span : tensor<4x2xindex> :",
            )
        ),
        "arith.subf: beta does not rescale from the maximum of p's own scores",
    ),
    "the old maximum": (
        "",
        head(("%lag = arith.subf %m_tile,", "%lag = arith.subf %m_old,")),
        "arith.subf: beta does not rescale from the maximum of p's own scores",
    ),
    "an alpha that is no exponential": (
        "",
        head(("%alpha = math.exp %fall", "%alpha = math.tanh %fall")),
        "tile.dot: p, alpha and beta are not exponentials of differences",
    ),
    "no exponential": (
        "",
        head(("%p = math.exp %d", "%p = math.tanh %d")),
        "tile.dot: p, alpha and beta are not exponentials of differences",
    ),
    "a power of two": (
        "",
        head(("%beta = math.exp %lag", "%beta = math.exp2 %lag")),
        "tile.dot: p, alpha and beta are not exponentials of differences",
    ),
    "the maximum of something else": (
        "",
        head(("%m_tile = tile.row_max %s", "%m_tile = tile.row_max %x")),
        "arith.subf: beta does not rescale from the maximum of p's own scores",
    ),
    "p relative to something else": (
        "",
        head(("%m_wide = tile.broadcast %m_safe", "%m_wide = tile.broadcast %m_tile")),
        "arith.subf: p is not relative to the maximum that beta rescales from",
    ),
    "a maximum that forgets": (
        "",
        head(("%m_new = arith.maximumf %m_old, %m_tile", "%m_new = arith.maximumf %m_tile, %m_tile")),
        "arith.subf: is not relative to max(m, mt), so the merged exponent could be positive",
    ),
    "a minimum": (
        "",
        head(("%m_new = arith.maximumf %m_old, %m_tile", "%m_new = arith.minimumf %m_old, %m_tile")),
        "arith.subf: is not relative to max(m, mt), so the merged exponent could be positive",
    ),
    "alpha relative to something else": (
        "",
        head(("%fall = arith.subf %m_old, %top", "%fall = arith.subf %m_old, %m_new")),
        "arith.subf: alpha and beta are not relative to the same maximum",
    ),
}


@pytest.mark.parametrize("case", STATE | ARITHMETIC)
def test_refused(case):
    first, text, message = (STATE | ARITHMETIC)[case]
    refused(f"{first},lazy-rescale" if first else "lazy-rescale", text, message)


@pytest.mark.parametrize("first", ["", "sink-loads,interchange,fuse-loops,"])
def test_legal_without_a_reason(first):
    run(parse(head()), parse_passes(f"{first}lazy-rescale"))


@pytest.mark.parametrize(
    "change",
    [
        ("%m_new = arith.maximumf %m_old, %m_tile", "%m_new = arith.maximumf %m_tile, %m_old"),
        ("%l_new = arith.addf %l_kept, %l_add", "%l_new = arith.addf %l_add, %l_kept"),
        ("%kept = arith.mulf %kept_wide, %acc_old", "%kept = arith.mulf %acc_old, %kept_wide"),
        ("%total = arith.addf %kept, %fresh", "%total = arith.addf %fresh, %kept"),
        ("%l_add = arith.mulf %beta, %l_tile", "%l_add = arith.mulf %l_tile, %beta"),
    ],
)
def test_operands_may_come_in_either_order(change):
    run(parse(head(change)), parse_passes("lazy-rescale"))


def one_tile(acc_rows: int, l_rows: int) -> str:
    """The head for a single query tile, at row 0 of arrays of these lengths."""
    text = re.sub(r"\n *scf\.for %i\d? .*\{", "", HEAD)
    text = text.replace("  }\n  scf.for %j", "  scf.for %j").replace("    }\n  }\n", "  }\n")
    text = re.sub(r"%i[01]?\b", "%c0", text.replace("  }\n  func.return", "  func.return"))
    lines = text.splitlines()
    for name, rows in (("%acc", acc_rows), ("%l", l_rows)):
        own = re.compile(rf"{name}(\[| = memref)")
        lines = [line.replace("memref<?x", f"memref<{rows}x") if own.search(line) else line for line in lines]
    return re.sub(r"(%acc|%l) = memref.alloc\(%nq\)", r"\1 = memref.alloc()", "\n".join(lines))


@pytest.mark.parametrize(("acc_rows", "l_rows"), [(4, 2), (2, 4), (2, 3)])
def test_tiles_of_which_one_is_cut(acc_rows, l_rows):
    """Each way round: the other reads what is kept in memory where this one reads 0."""
    run(parse(one_tile(4, 4)), parse_passes("lazy-rescale"))
    run(parse(one_tile(2, 2)), parse_passes("lazy-rescale"))
    refused("lazy-rescale", one_tile(acc_rows, l_rows), CUT)
