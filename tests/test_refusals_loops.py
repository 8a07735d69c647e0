"""sink-loads, interchange, fuse-loops and keep-state say where they are not legal, and change nothing then.

Each case changes one thing of a module on which the pass is legal, so that the reason alone is at work.
"""

from __future__ import annotations

import pytest

from flashgen.ir.dialect import parse
from flashgen.passes.pipeline import parse_passes, run
from tests.head import after, before, head, inside, refused

LOAD_K = "%kj = tile.load %k[%j, %c0] : memref<?x8xf32> -> tensor<4x8xf32>"
LOAD_ACC = "%acc_old = tile.load %acc[%i, %c0] : memref<?x8xf32> -> tensor<4x8xf32>"
LOAD_OUT = "%acc_end = tile.load %acc[%i1, %c0] : memref<?x8xf32> -> tensor<4x8xf32>"
STORE_OUT = "tile.store %acc_end, %o[%i1, %c0] : tensor<4x8xf32>, memref<?x8xf32>"
STORE_L = "tile.store %l_new, %l[%i] : tensor<4xf32>, memref<?xf32>"
STORE_M = "tile.store %m_new, %m[%i] : tensor<4xf32>, memref<?xf32>"
STORE_M_0 = "tile.store %m_start, %m[%i0] : tensor<4xf32>, memref<?xf32>"
UP = "%up = arith.addi %i1, %c4 : index"
EFFECT = "memref.store %one, %l[%c0] : memref<?xf32>"
FRESH = "%fresh = arith.mulf %beta_wide, %pv : tensor<4x8xf32>"
ONES = "%ones = tile.broadcast %one : f32 -> tensor<4xf32>"


def nest(header: str, body: str) -> str:
    """A perfect nest j, i; ``header`` of the inner loop."""
    return f"""
        func.func @f(%a: memref<?xf32>, %n: index, %x: f32) {{
          scf.for %j = %n to %n step %n {{ {header} {{ {body} }} }}
          func.return
        }}"""


SINK_LOADS = {
    "nothing to sink": (
        "sink-loads",
        head(),
        "builtin.module: no loop loads tiles in front of a single inner loop",
    ),
    "a loop without loads": (
        "",
        nest("scf.for %i = %n to %n step %n", ""),
        "builtin.module: no loop loads tiles in front of a single inner loop",
    ),
    "something behind": (
        "",
        head(
            (
                "    }\n  }\n  scf.for %i1",
                "    }\n tile.store %vj, %v[%j, %c0] : tensor<4x8xf32>, memref<?x8xf32> }\n scf.for %i1",
            )
        ),
        "scf.for: something follows the inner loop",
    ),
    "loads what the inner loop stores": (
        "",
        head(inside(LOAD_K, "%k[", "%acc[")),
        "tile.load: the inner loop stores to %acc",
    ),
    "a store in front": (
        "",
        head(after(LOAD_K, "tile.store %kj, %o[%j, %c0] : tensor<4x8xf32>, memref<?x8xf32>")),
        "tile.store: has a side effect, which would be repeated",
    ),
    "an allocation in front": (
        "",
        head(after(LOAD_K, "%t = memref.alloc(%nq) : memref<?xf32>")),
        "memref.alloc: has a side effect, which would be repeated",
    ),
    "bounds from what is sunk": (
        "",
        head(after(LOAD_K, "%end = arith.addi %j, %c4 : index"), ("%i = %c0 to %nq", "%i = %c0 to %end")),
        "arith.addi: the inner loop's bounds depend on it",
    ),
    "an effect inside": (
        "",
        head(after(LOAD_ACC, EFFECT)),
        "memref.store: has an effect that may change what is loaded",
    ),
    "an inner loop that carries": (
        "",
        """
        func.func @f(%a: memref<?xf32>, %n: index, %c: index) {
          scf.for %j = %c to %n step %c {
            %x = tile.load %a[%j] : memref<?xf32> -> tensor<4xf32>
            %r = scf.for %i = %c to %n step %c iter_args(%y = %x) -> (tensor<4xf32>) {
              scf.yield %y : tensor<4xf32>
            }
          }
          func.return
        }""",
        "scf.for: the nest carries values",
    ),
    "an outer loop that carries": (
        "",
        """
        func.func @f(%a: memref<?xf32>, %n: index, %c: index, %z: tensor<4xf32>) {
          %r = scf.for %j = %c to %n step %c iter_args(%y = %z) -> (tensor<4xf32>) {
            %x = tile.load %a[%j] : memref<?xf32> -> tensor<4xf32>
            scf.for %i = %c to %n step %c { }
            scf.yield %x : tensor<4xf32>
          }
          func.return
        }""",
        "scf.for: the nest carries values",
    ),
}

INTERCHANGE = {
    "not perfect": ("", head(), "scf.for: the nest is not perfect; sink-loads first"),
    "something behind": (
        "",
        """
        func.func @f(%a: memref<?xf32>, %x: tensor<4xf32>, %n: index) {
          scf.for %j = %n to %n step %n {
            scf.for %i = %n to %n step %n { }
            tile.store %x, %a[%j] : tensor<4xf32>, memref<?xf32>
          }
          func.return
        }""",
        "scf.for: the nest is not perfect; sink-loads first",
    ),
    "the last position is carried": (
        "",
        """
        func.func @f(%n: index) {
          %last = scf.for %j = %n to %n step %n iter_args(%y = %n) -> (index) {
            scf.for %i = %n to %n step %n { }
            scf.yield %j : index
          }
          func.return
        }""",
        "scf.for: the nest carries values",
    ),
    "no nest": (
        "",
        "func.func @f(%n: index) { scf.for %i = %n to %n step %n { } func.return }",
        "builtin.module: no pairs of one loop in another found; one is wanted",
    ),
    "two nests": (
        "",
        """
        func.func @f(%n: index) {
          scf.for %j = %n to %n step %n { scf.for %i = %n to %n step %n { } }
          scf.for %b = %n to %n step %n { scf.for %a = %n to %n step %n { } }
          func.return
        }""",
        "builtin.module: 2 pairs of one loop in another found; one is wanted",
    ),
    "a step that changes": (
        "",
        nest("scf.for %i = %n to %n step %j", ""),
        "scf.for: its bounds depend on the outer loop",
    ),
    "an end that changes": (
        "",
        nest("scf.for %i = %n to %j step %n", ""),
        "scf.for: its bounds depend on the outer loop",
    ),
    "triangular": (
        "",
        nest("scf.for %i = %j to %n step %n", ""),
        "scf.for: its bounds depend on the outer loop",
    ),
    "an inner loop that carries": (
        "",
        nest("%r = scf.for %i = %n to %n step %n iter_args(%y = %x) -> (f32)", "scf.yield %y : f32"),
        "scf.for: the nest carries values",
    ),
    "an effect inside": (
        "",
        nest("scf.for %i = %n to %n step %n", "memref.store %x, %a[%i] : memref<?xf32>"),
        "memref.store: has an effect whose order must not change",
    ),
    "a dependence across both loops": (
        "sink-loads",
        head(after(LOAD_ACC, "%ij = arith.addi %i, %j : index"), inside(STORE_L, "%l[%i]", "%l[%ij]")),
        "tile.load: %l carries a dependence across iterations of both loops",
    ),
    "every iteration at one place": (
        "sink-loads",
        head(after(LOAD_ACC, "tile.store %qi, %o[%c0, %c0] : tensor<4x8xf32>, memref<?x8xf32>")),
        "tile.store: %o carries a dependence across iterations of both loops",
    ),
    "tiles wider than the step": (
        "sink-loads",
        head(
            after("%c4 = arith.constant 4 : index", "%c3 = arith.constant 3 : index"),
            ("%i = %c0 to %nq step %c4", "%i = %c0 to %nq step %c3"),
        ),
        "tile.load: %acc carries a dependence across iterations of both loops",
    ),
    "slices that differ between accesses": (
        "sink-loads",
        head(after(LOAD_ACC, "%ahead = arith.addi %i, %c4 : index"), inside(STORE_M, "%m[%i]", "%m[%ahead]")),
        "tile.load: %m carries a dependence across iterations of both loops",
    ),
    "a step that is not known": (
        "sink-loads",
        head(("%i = %c0 to %nq step %c4", "%i = %c0 to %nq step %nk")),
        "tile.load: %acc carries a dependence across iterations of both loops",
    ),
}

FUSE_LOOPS = {
    "no neighbours": ("", head(), "builtin.module: no two neighbouring loops run over the same range"),
    "other ranges": (
        "sink-loads,interchange",
        head(("%i0 = %c0 to %nq", "%i0 = %c0 to %nk"), ("%i1 = %c0 to %nq", "%i1 = %c1 to %nq")),
        "builtin.module: no two neighbouring loops run over the same range",
    ),
    "stores between": (
        "sink-loads,interchange",
        head(
            before("  scf.for %j =", ONES, "tile.store %ones, %l[%c0] : tensor<4xf32>, memref<?xf32>"),
            before("  scf.for %i1 =", "tile.store %ones, %l[%c0] : tensor<4xf32>, memref<?xf32>"),
        ),
        "builtin.module: no two neighbouring loops run over the same range",
    ),
    "reads the next iteration's": (
        "sink-loads,interchange",
        head(
            before(LOAD_OUT, UP),
            inside(STORE_OUT, "%i1", "%c0"),
            ("%acc_end = tile.load %acc[%i1", "%acc_end = tile.load %acc[%up"),
        ),
        "tile.load: %acc is not touched in slices that one iteration owns",
    ),
    "an effect inside": (
        "sink-loads,interchange",
        head(after(STORE_OUT, EFFECT)),
        "memref.store: has an effect whose order must not change",
    ),
}

Q_OUTER = "sink-loads,interchange,fuse-loops"
KEEP_STATE = {
    "state that moves": (
        "",
        head(),
        "builtin.module: no loop loads and stores a tile at an address that it does not change",
    ),
    "a second access": (
        Q_OUTER,
        head(
            after(
                STORE_L,
                "%again = tile.load %l[%i] : memref<?xf32> -> tensor<4xf32>",
                "tile.store %again, %m[%i] : tensor<4xf32>, memref<?xf32>",
            )
        ),
        "tile.load: a second access to %l in the loop",
    ),
    "storage that rounds": (
        Q_OUTER,
        head(
            ("%m = memref.alloc(%nq) : memref<?xf32>", "%m = memref.alloc(%nq) : memref<?xf16>"),
            inside(STORE_M_0, "memref<?xf32>", "memref<?xf16>"),
            ("%m_old = tile.load %m[%i] : memref<?xf32>", "%m_old = tile.load %m[%i] : memref<?xf16>"),
            inside(STORE_M, "memref<?xf32>", "memref<?xf16>"),
        ),
        "tile.store: %m rounds what it stores; a carried value would not",
    ),
    "rows that meet in a product": (
        Q_OUTER,
        head(
            before(
                FRESH,
                "%mix = tile.dot %p, %acc_old : tensor<4x4xf32>, tensor<4x8xf32> -> tensor<4x8xf32>",
                "tile.store %mix, %o[%i, %c0] : tensor<4x8xf32>, memref<?x8xf32>",
            )
        ),
        "tile.dot: reads rows of %acc that may lie beyond its bound",
    ),
    "rows that meet further down": (
        Q_OUTER,
        head(
            before(
                FRESH,
                "%twice = arith.addf %acc_old, %acc_old : tensor<4x8xf32>",
                "%mix = tile.dot %p, %twice : tensor<4x4xf32>, tensor<4x8xf32> -> tensor<4x8xf32>",
                "tile.store %mix, %o[%i, %c0] : tensor<4x8xf32>, memref<?x8xf32>",
            )
        ),
        "tile.dot: reads rows of %acc that may lie beyond its bound",
    ),
    "an output that may be longer": (
        Q_OUTER,
        head(('%o: memref<?x8xf32> {tile.extents = ["Nq", "D"]}', "%o: memref<?x8xf32>")),
        "tile.store: reads rows of %acc that may lie beyond its bound",
    ),
    "an output at other rows": (
        Q_OUTER,
        head(before(STORE_OUT, UP), ("tile.store %acc_end, %o[%i1", "tile.store %acc_end, %o[%up")),
        "tile.store: reads rows of %acc that may lie beyond its bound",
    ),
    "columns that may be cut": (
        "",
        """
        func.func @f(%a: memref<?x?xf32>, %n: index, %c: index) {
          scf.for %j = %c to %n step %c {
            %y = tile.load %a[%c, %c] : memref<?x?xf32> -> tensor<4x4xf32>
            tile.store %y, %a[%c, %c] : tensor<4x4xf32>, memref<?x?xf32>
          }
          func.return
        }""",
        "tile.load: reads rows of %a that may lie beyond its bound",
    ),
    "an effect inside": (
        "",
        """
        func.func @f(%a: memref<?xf32>, %b: memref<?xf32>, %x: f32, %n: index, %c: index) {
          scf.for %j = %c to %n step %c {
            %y = tile.load %a[%c] : memref<?xf32> -> tensor<4xf32>
            memref.store %x, %b[%c] : memref<?xf32>
            tile.store %y, %a[%c] : tensor<4xf32>, memref<?xf32>
          }
          func.return
        }""",
        "memref.store: has an effect that is not understood",
    ),
    "stored before it is loaded": (
        "",
        """
        func.func @f(%a: memref<?xf32>, %n: index, %c: index, %x: tensor<4xf32>) {
          scf.for %j = %c to %n step %c {
            tile.store %x, %a[%c] : tensor<4xf32>, memref<?xf32>
            %y = tile.load %a[%c] : memref<?xf32> -> tensor<4xf32>
          }
          func.return
        }""",
        "builtin.module: no loop loads and stores a tile at an address that it does not change",
    ),
}

EVERY = {
    "sink-loads": SINK_LOADS,
    "interchange": INTERCHANGE,
    "fuse-loops": FUSE_LOOPS,
    "keep-state": KEEP_STATE,
}


@pytest.mark.parametrize(("name", "case"), [(name, case) for name, cases in EVERY.items() for case in cases])
def test_refused(name, case):
    first, text, message = EVERY[name][case]
    refused(f"{first},{name}" if first else name, text, message)


def test_legal_without_a_reason():
    run(parse(head()), parse_passes(",".join(EVERY)))
