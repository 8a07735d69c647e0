"""causal-skip says where it is not legal, and changes nothing then; each case changes one thing."""

from __future__ import annotations

import pytest

from flashgen.ir.dialect import parse
from flashgen.passes.pipeline import parse_passes, run
from tests.head import after, before, head, refused

STORE_M = "tile.store %m_new, %m[%i] : tensor<4xf32>, memref<?xf32>"
NONE = "%none = tile.broadcast %neg_inf : f32 -> tensor<4x4xf32>"
L_NEW = "%l_new = arith.addf %l_kept, %l_add : tensor<4xf32>"
M_NEW = "%m_new = arith.maximumf %m_old, %m_tile : tensor<4xf32>"
CHANGED = "is changed by a tile that shows nothing, or is not known not to be"
MASKS = "tensor<4x4xi1>, tensor<4x4xi1>, tensor<4x4xi1>"
SECOND_MASK = """%vis2 = tile.mask %i, %j {
^bb0(%a: index, %b: index):
  %t = arith.cmpi slt, %b, %nk : index
  tile.yield %t : i1
} : tensor<4x4xi1>"""

CASES = {
    "no mask": ("func.func @f() { func.return }", "builtin.module: there is no mask"),
    "a mask that does not move": (
        head(("%vis = tile.mask %i, %j", "%vis = tile.mask %c0, %c4")),
        "tile.mask: the loop around it does not step through its tiles",
    ),
    "a mask outside loops": (
        """
        func.func @f(%i: index) {
          %vis = tile.mask %i, %i {
          ^bb0(%row: index, %col: index):
            %t = arith.cmpi slt, %col, %row : index
            tile.yield %t : i1
          } : tensor<4x4xi1>
          func.return
        }""",
        "tile.mask: the loop around it does not step through its tiles",
    ),
    "a loop inside": (
        head(after(STORE_M, "scf.for %n = %c0 to %nq step %c4 { }")),
        "scf.for: a loop inside the loop to split",
    ),
    "an effect inside": (
        head(after(STORE_M, "memref.store %one, %o[%c0, %c0] : memref<?x8xf32>")),
        "memref.store: has an effect that is not understood",
    ),
    "the mask stored": (
        head(
            after(
                STORE_M,
                "%b = memref.alloc(%nq) : memref<?x4xi1>",
                "tile.store %vis, %b[%i, %c0] : tensor<4x4xi1>, memref<?x4xi1>",
            )
        ),
        "tile.store: uses the mask otherwise than to select or in a product's where",
    ),
    "the mask as what is selected": (
        head(
            ("    %q: memref", "    %w: tensor<4x4xi1>, %q: memref"),
            before(
                NONE,
                f"%some = tile.select %w, %vis, %w : {MASKS} -> tensor<4x4xi1>",
                "%both = arith.andi %vis, %some : tensor<4x4xi1>",
            ),
            ("tile.select %vis,", "tile.select %both,"),
            ("where %vis :", "where %both :"),
        ),
        "tile.select: uses the mask otherwise than to select or in a product's where",
    ),
    "the mask in an alternative": (
        head(
            before(NONE, SECOND_MASK, "%either = arith.ori %vis, %vis2 : tensor<4x4xi1>"),
            ("tile.select %vis,", "tile.select %either,"),
        ),
        "arith.ori: uses the mask otherwise than to select or in a product's where",
    ),
    "two masks": (
        head(
            before(NONE, SECOND_MASK, "%both = arith.andi %vis, %vis2 : tensor<4x4xi1>"),
            ("tile.select %vis,", "tile.select %both,"),
            ("where %vis :", "where %both :"),
        ),
        "tile.mask: several masks in one loop",
    ),
    "a finite stand-in for -inf": (
        head(("%none = tile.broadcast %neg_inf", "%none = tile.broadcast %zero")),
        f"arith.maximumf: {CHANGED}",
    ),
    "weights that do not vanish": (
        head(("%p = math.exp %d", "%p = math.tanh %d")),
        f"arith.addf: {CHANGED}",
    ),
    "the wrong branch": (
        head(("tile.select %vis, %x, %none", "tile.select %vis, %none, %x")),
        f"arith.maximumf: {CHANGED}",
    ),
    "no guard before the subtraction": (
        head(("%m_wide = tile.broadcast %m_safe", "%m_wide = tile.broadcast %m_tile")),
        f"arith.addf: {CHANGED}",
    ),
    "a product without where": (
        head(("%pv = tile.dot %p, %vj where %vis : tensor<4x4xi1> :", "%pv = tile.dot %p, %vj :")),
        f"arith.divf: {CHANGED}",
    ),
    "a counter of tiles": (
        head(
            (
                L_NEW,
                "%ones = tile.broadcast %one : f32 -> tensor<4xf32>\n"
                "%l_some = arith.addf %l_kept, %l_add : tensor<4xf32>\n"
                "%l_new = arith.addf %l_some, %ones : tensor<4xf32>",
            )
        ),
        f"arith.addf: {CHANGED}",
    ),
    "a constant less a row sum of constants": (
        head(
            before(
                L_NEW,
                "%ones = tile.broadcast %one : f32 -> tensor<4xf32>",
                "%wide_ones = tile.broadcast %one : f32 -> tensor<4x4xf32>",
                "%four = tile.row_sum %wide_ones : tensor<4x4xf32> -> tensor<4xf32>",
                "%three = arith.subf %four, %ones : tensor<4xf32>",
            ),
            ("%l_new = arith.addf %l_kept, %l_add", "%l_new = arith.addf %l_kept, %three"),
        ),
        f"arith.addf: {CHANGED}",
    ),
    "a row sum that doubles": (
        head((L_NEW, "%l_new = arith.addf %l_kept, %l_kept : tensor<4xf32>")),
        f"arith.addf: {CHANGED}",
    ),
    "a division by another sum": (
        head(("%l_safe = tile.replace %l_new, 0.0", "%l_safe = tile.replace %alpha, 0.0")),
        f"arith.divf: {CHANGED}",
    ),
    "a store of something else": (
        head(after(STORE_M, "tile.store %qi, %o[%i, %c0] : tensor<4x8xf32>, memref<?x8xf32>")),
        "tile.store: is stored even where a tile shows nothing",
    ),
    "the state stored elsewhere too": (
        head(after(STORE_M, "tile.store %m_new, %o[%i, %c0] : tensor<4xf32>, memref<?x8xf32>")),
        "tile.store: is stored even where a tile shows nothing",
    ),
    "a store where a condition holds": (
        head(
            after(
                STORE_M,
                "%first = arith.cmpi slt, %i, %c4 : index",
                "scf.if %first { tile.store %m_new, %o[%i, %c0] : tensor<4xf32>, memref<?x8xf32> }",
            )
        ),
        "tile.store: is stored even where a tile shows nothing",
    ),
    "l starts as 1 while m is -inf": (
        head(("%l_start = tile.broadcast %zero", "%l_start = tile.broadcast %one")),
        f"arith.addf: {CHANGED}",
    ),
    "O starts as 1 while m is -inf": (
        head(("%acc_start = tile.broadcast %zero", "%acc_start = tile.broadcast %one")),
        f"arith.divf: {CHANGED}",
    ),
    "m starts unknown": (
        head(
            (
                "%m_start = tile.broadcast %neg_inf : f32 -> tensor<4xf32>",
                "%m_start = tile.load %q[%i0, %c0] : memref<?x8xf32> -> tensor<4xf32>",
            )
        ),
        f"arith.addf: {CHANGED}",
    ),
    "m may fall back": (
        head(
            before(M_NEW, "%nil = tile.broadcast %zero : f32 -> tensor<4xf32>"),
            ("%m_new = arith.maximumf %m_old, %m_tile", "%m_new = arith.addf %m_old, %nil"),
        ),
        "arith.addf: is not max(m, ...), so it may fall back to -inf",
    ),
    "rows that the row sum lacks": (
        head(("%l = memref.alloc(%nq)", "%l = memref.alloc(%nk)")),
        f"arith.divf: {CHANGED}",
    ),
    "O moves while m is -inf": (
        head(("%pv = tile.dot %p, %vj where", "%pv = tile.dot %x, %vj where")),
        "arith.divf: does not stay as it started while no key has been seen",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(case):
    text, message = CASES[case]
    refused("causal-skip", text, message)


Q_OUTER = "sink-loads,interchange,fuse-loops,keep-state"


@pytest.mark.parametrize("first", ["", "lazy-rescale,", f"{Q_OUTER},", f"lazy-rescale,{Q_OUTER},"])
def test_legal_without_a_reason(first):
    run(parse(head()), parse_passes(f"{first}causal-skip"))


def sink() -> str:
    """l * O carried, m and l starting as 1: a logit that every row has from the start."""
    module = parse(head())
    run(module, parse_passes("lazy-rescale"))
    zero = "%zero = arith.constant 0.000000e+00 : f32"
    text = str(module).replace(zero, f"{zero}\n%one = arith.constant 1.0 : f32")
    for old in ("%m_start = tile.broadcast %neg_inf", "%l_start = tile.broadcast %zero"):
        assert old in text
        text = text.replace(old, old.split("broadcast")[0] + "broadcast %one")
    return text


def test_a_sink_needs_no_invariant():
    """Where m starts as a number and never falls, alpha is 1 whenever nothing is seen."""
    run(parse(sink()), parse_passes("causal-skip"))
    without = sink().replace("%m_start = tile.broadcast %one", "%m_start = tile.broadcast %neg_inf")
    refused("causal-skip", without, f"arith.addf: {CHANGED}")


def test_a_maximum_that_may_fall_is_no_sink():
    """max(m + 0, mt) may be what m is, but is not understood to be."""
    text = sink().replace(
        "%m_new = arith.maximumf %m_old, %m_tile",
        "%nil = tile.broadcast %zero : f32 -> tensor<4xf32>\n%m_new = arith.addf %m_old, %nil",
    )
    refused("causal-skip", text, f"arith.addf: {CHANGED}")
