"""group-rows says where it is not legal, and changes nothing then."""

from __future__ import annotations

import pytest

from flashgen.ir.dialect import parse
from flashgen.passes.pipeline import parse_passes, run
from tests.head import changed, example, refused

SMALL = example("group-rows/heads-become-rows")
MASK = "%seen = tile.mask %i, %c0 {"
HEADS = "scf.for %r = %c0 to %group step %c1 {"
QUERIES = "scf.for %i = %c0 to %Nq step %c3 {"
Q = "%qi = tile.load %q[%c0, %h, %i, %c0]"
KJ = "%kj = tile.load %k[%c0, %g, %c0, %c0]"
DOT = "%m = tile.row_max %x"
GROUP = "%group = "
GROUPS = "scf.for %g = %c0 to %Hkv step %c1 {"
END = "      }\n    }\n  }\n  func.return"
STORE_M = "tile.store %m, %a[%i] : tensor<3xf32>, memref<?xf32>"
ONCE = "scf.for %b = %c0 to %c1 step %c1 {"
ROWS_OF_Q = "%q[%c0, %h, %i, %c0] : memref<?x?x?x4xf32>"
COUNTED = "%2 = arith.addi %row, %offset : index"


def carrying(header: str, value: str = "%c0") -> str:
    """A loop's header, to carry %z."""
    return f"%y = {header[:-2]} iter_args(%z = {value}) -> (index) {{"


REFUSALS = {
    "a part of the heads": ([(HEADS, HEADS.replace("%c0", "%c1"))], "scf.for: a loop from 0 in steps of 1"),
    "every second head": ([(HEADS, HEADS.replace("%c1 {", "%c2 {"))], "scf.for: a loop from 0 in steps of 1"),
    "a part of the queries": (
        [(QUERIES, QUERIES.replace("%c0", "%c1"))],
        "scf.for: a loop from 0 that carries",
    ),
    "another range": (
        [(QUERIES, QUERIES.replace("%Nq", "%Hq"))],
        "scf.for: it does not run over the queries",
    ),
    "a fixed row": (
        [(Q, Q.replace("%i", "%c0"))],
        "tile.load: its row is not the position of a loop over queries",
    ),
    "a head as a number": (
        [(DOT, f"%z = tile.load %k[%c0, %g, %h, %c0] : memref<?x?x?x4xf32> -> tensor<3x4xf32>\n{DOT}")],
        "tile.load: uses the number of a head otherwise than to load or store its rows",
    ),
    "a query as a number": (
        [(DOT, f"%z = tile.load %k[%c0, %g, %i, %c0] : memref<?x?x?x4xf32> -> tensor<3x4xf32>\n{DOT}")],
        "tile.load: reads or writes rows of %k, which has no heads",
    ),
    "a query as a column": (
        [(MASK, MASK.replace("%c0", "%i"))],
        "tile.mask: uses the number of a query otherwise",
    ),
    "another access": (
        [
            (
                "%group = ",
                "%z = tile.load %q[%c0, %c0, %c0, %c0] : memref<?x?x?x4xf32> -> tensor<3x4xf32>\n%group = ",
            )
        ],
        "tile.load: touches %q otherwise than by the rows of a head",
    ),
    "rows that meet": (
        [
            (
                DOT,
                "%y = tile.dot %qi, %qi transpose : tensor<3x4xf32>, tensor<3x4xf32> -> tensor<3x3xf32>\n"
                + DOT,
            )
        ],
        "tile.dot: rows of %q meet here",
    ),
    "rows of all heads": (
        [(DOT, f"%y = tile.row_max %kj : tensor<6x4xf32> -> tensor<6xf32>\n{DOT}")],
        "tile.row_max: reads rows of %k, which are the same for all heads",
    ),
    "a mask of fixed rows": (
        [
            (
                MASK,
                f"{MASK.replace('%seen', '%z').replace('%i', '%c1')}\n^bb0(%row: index, %col: index):\n"
                "  %1 = arith.cmpi slt, %row, %col : index\n"
                f"  tile.yield %1 : i1\n}} : tensor<3x6xi1>\n{MASK}",
            )
        ],
        "tile.mask: its rows are not numbered by a loop over queries",
    ),
    "a dependence": (
        [
            (
                "      }\n    }\n  }\n  func.return",
                "      }\n  %z = tile.load %k[%c0, %g, %c0, %c0] : memref<?x?x?x4xf32> -> tensor<6x4xf32>\n"
                "  tile.store %z, %k[%c0, %g, %c0, %c0] : tensor<6x4xf32>, memref<?x?x?x4xf32>\n"
                "    }\n  }\n  func.return",
            )
        ],
        "scf.for: %k carries a dependence from one head to another",
    ),
    "memory of all queries": (
        [("memref.alloc(%Nq)", "memref.alloc(%Hq)")],
        "scf.for: it does not run over the queries of one head",
    ),
    "heads that carry": (
        [(HEADS, carrying(HEADS)), (END, END.replace("\n    }", "\n scf.yield %z : index }"))],
        "scf.for: a loop from 0 in steps of 1 that carries nothing is wanted",
    ),
    "a group of each batch": (
        [(GROUP, f"{ONCE} {GROUP}"), (END, END.replace("  func", "} func"))],
        "scf.for: its range is not known in front of all loops",
    ),
    "a group of the queries": (
        [("arith.floordivsi %Hq,", "arith.floordivsi %Nq,")],
        "scf.for: its range is not known to be the heads of %o a group",
    ),
    "a group of other heads": (
        [("arith.floordivsi %Hq, %Hkv", "arith.floordivsi %Hq, %c2")],
        "scf.for: its range is not known to be the heads of %o a group",
    ),
    "a group of half the heads": (
        [
            ("arith.floordivsi %Hq, %Hkv", "arith.floordivsi %Hq, %c2"),
            (GROUPS, GROUPS.replace("%Hkv", "%c2")),
        ],
        "scf.for: its range is not known to be the heads of %o a group",
    ),
    "a group for each query": (
        [("%Hkv = memref.dim %k, %c1", "%Hkv = memref.dim %k, %c2")],
        "scf.for: its range is not known to be the heads of %o a group",
    ),
    "a group for each column": (
        [
            ("%hidden: f32)", "%hidden: f32, %w: memref<?x?xf32>)"),
            (
                "%Hkv = memref.dim %k, %c1 : memref<?x?x?x4xf32>",
                "%Hkv = memref.dim %w, %c1 : memref<?x?xf32>",
            ),
        ],
        "scf.for: its range is not known to be the heads of %o a group",
    ),
    "a group for each of two heads": (
        [
            ("%k: memref<?x?x?x4xf32>", "%k: memref<?x2x?x4xf32>"),
            ("memref.dim %k, %c1 : memref<?x?x?x4xf32>", "memref.dim %k, %c1 : memref<?x2x?x4xf32>"),
            (f"{KJ} : memref<?x?x?x4xf32>", f"{KJ} : memref<?x2x?x4xf32>"),
        ],
        "scf.for: its range is not known to be the heads of %o a group",
    ),
    "a group of any size": (
        [("%group = arith.floordivsi %Hq, %Hkv", "%group = arith.addi %Hq, %Hkv")],
        "scf.for: its range is not known to be the heads of %o a group",
    ),
    "the next head": (
        [(DOT, f"%next = arith.addi %h, %c1 : index\n{DOT}")],
        "arith.addi: uses the number of a head otherwise than to load or store its rows",
    ),
    "a head of two dimensions": (
        [
            (GROUP, f"%w = memref.alloc(%Hq, %Hq) : memref<?x?xf32> {GROUP}"),
            (DOT, f"%z = tile.load %w[%c0, %h] : memref<?x?xf32> -> tensor<3xf32>\n{DOT}"),
        ],
        "tile.load: uses the number of a head otherwise than to load or store its rows",
    ),
    "no array is touched": (
        [
            (SMALL[SMALL.index(QUERIES) : SMALL.index(END)], ""),
            (END, END.replace("      }\n", "")),
        ],
        "scf.for: no array has a head for each of its positions",
    ),
    "a row that is carried": (
        [
            (QUERIES, carrying(QUERIES)),
            (Q, Q.replace("%i", "%z")),
            (END, END.replace("}", "scf.yield %z : index }", 1)),
        ],
        "tile.load: its row is not the position of a loop over queries",
    ),
    "queries that carry": (
        [(QUERIES, carrying(QUERIES)), (END, END.replace("}", "scf.yield %z : index }", 1))],
        "scf.for: a loop from 0 that carries nothing is wanted",
    ),
    "a number of each row": (
        [(DOT, f"%z = tile.load {ROWS_OF_Q} -> tensor<f32>\n{DOT}")],
        "tile.load: its tile has no row for each query",
    ),
    "a row as a column": (
        [(DOT, f"%z = tile.load {ROWS_OF_Q} -> tensor<4xf32>\n{DOT}")],
        "tile.load: its tile has no row for each query",
    ),
    "all heads of a tile of queries": (
        [(QUERIES, ""), (GROUPS, f"{QUERIES} {GROUPS}")],
        "scf.for: it does not run over the queries of one head",
    ),
    "another number of queries": (
        [
            ('"Nq", "Nk"', '"N", "Nk"'),
            (GROUP, f"%N = memref.dim %o, %c2 : memref<?x?x?x6xf32> {GROUP}"),
            (
                "tile.store %s, %o[%c0, %h, %i, %c0]",
                f"}} {QUERIES.replace('%i', '%n').replace('%Nq', '%N')} "
                f"%s = tile.load %k[%c0, %g, %c0, %c0] : memref<?x?x?x4xf32> -> tensor<3x6xf32> "
                "tile.store %s, %o[%c0, %h, %n, %c0]",
            ),
            ("%s = tile.select", "%t = tile.select"),
        ],
        "scf.for: its range is another one, or not known in front of all loops",
    ),
    "queries of each batch": (
        [
            ("%Nq = memref.dim", "%hint = memref.dim"),
            ("memref.alloc(%Nq)", "memref.alloc(%hint)"),
            (GROUPS, f"{ONCE} %Nq = memref.dim %q, %c2 : memref<?x?x?x4xf32> {GROUPS}"),
            (END, END.replace("  func", "} func")),
        ],
        "scf.for: its range is another one, or not known in front of all loops",
    ),
    "queries by queries": (
        [
            (
                STORE_M,
                f"""{STORE_M} {QUERIES.replace("%i", "%n")}
                %old = tile.load %a[%n] : memref<?xf32> -> tensor<3xf32>
                %new = arith.addf %old, %old : tensor<3xf32>
                tile.store %new, %a[%n] : tensor<3xf32>, memref<?xf32> }}""",
            )
        ],
        "scf.for: holds another loop over queries",
    ),
    "gaps between the tiles": (
        [("%c3 = arith.constant 3", "%c3 = arith.constant 5")],
        "tile.store: has other rows than the loop over queries has in a step",
    ),
    "a step that is not known": (
        [(QUERIES, QUERIES.replace("%c3", "%Hq"))],
        "tile.store: has other rows than the loop over queries has in a step",
    ),
    "rows in two dimensions": (
        [
            ("%a = memref.alloc(%Nq) : memref<?xf32>", "%a = memref.alloc(%Nq, %Nq) : memref<?x?xf32>"),
            (
                STORE_M,
                """tile.store %m, %a[%c0, %i] : tensor<3xf32>, memref<?x?xf32>
                tile.store %x, %a[%i, %c0] : tensor<3x6xf32>, memref<?x?xf32>""",
            ),
        ],
        "memref.alloc: its accesses do not agree on a dimension for queries",
    ),
    "memory of four rows": (
        [
            (GROUP, f"%four = arith.constant 4 : index {GROUP}"),
            ("%a = memref.alloc(%Nq) : memref<?xf32>", "%a = memref.alloc() : memref<4xf32>"),
            (
                STORE_M,
                f"}} {QUERIES.replace('%i', '%n').replace('%Nq', '%four')} "
                "%z = tile.load %a[%n] : memref<4xf32> -> tensor<3xf32> "
                f"}} {QUERIES.replace('%i', '%n')}",
            ),
            ("%seen = tile.mask %i", "%seen = tile.mask %n"),
            ("tile.select %seen, %x", "tile.select %seen, %none"),
            ("tile.store %s, %o[%c0, %h, %i", "tile.store %s, %o[%c0, %h, %n"),
        ],
        "memref.alloc: it has a constant number of rows",
    ),
    "the length of memory": (
        [(COUNTED, "%n = memref.dim %a, %c0 : memref<?xf32>\n%2 = arith.addi %row, %n : index")],
        "memref.dim: uses %a otherwise than to load or store its rows",
    ),
    "memory of one number": (
        [
            (GROUP, f"%zero = arith.constant 0.0 : f32 {GROUP}"),
            (STORE_M, "%z = tile.load %a[%i] : memref<?xf32> -> tensor<f32>"),
        ],
        "tile.load: uses %a otherwise than to load or store its rows",
    ),
    "rows of a mask that meet": (
        [
            ("%s = tile.select %seen, %x,", "%w = tile.select %seen, %none,"),
            (
                "tile.store %s,",
                f"""%q3 = tile.load {ROWS_OF_Q} -> tensor<3x3xf32>
                %s = tile.dot %q3, %w : tensor<3x3xf32>, tensor<3x6xf32> -> tensor<3x6xf32>
                tile.store %s,""",
            ),
        ],
        "tile.dot: rows of %seen meet here",
    ),
    "a query as a number of a column": (
        [(DOT, f"%z = tile.load %k[%c0, %g, %c0, %i] : memref<?x?x?x4xf32> -> tensor<3x4xf32>\n{DOT}")],
        "tile.load: uses the number of a query otherwise than as a row",
    ),
    "a query of which one number is read": (
        [(DOT, f"%z = tile.load %k[%c0, %g, %i, %c0] : memref<?x?x?x4xf32> -> tensor<f32>\n{DOT}")],
        "tile.load: uses the number of a query otherwise than as a row",
    ),
    "a span of fixed rows": (
        [
            (
                MASK,
                f"""%z = tile.row_span %c1, %c0 {{
                ^bb0(%row: index):
                  tile.yield %c0, %row : index, index
                }} of 6 : index : tensor<3x2xindex>
                {MASK}""",
            )
        ],
        "tile.row_span: its rows are not numbered by a loop over queries",
    ),
    "memory of all heads in a loop": (
        [
            (GROUPS, f"{ONCE} %w = memref.alloc(%c1, %Hq, %Nq) : memref<?x?x?xf32> {GROUPS}"),
            (STORE_M, f"{STORE_M} tile.store %m, %w[%c0, %h, %i] : tensor<3xf32>, memref<?x?x?xf32>"),
            (END, END.replace("  func", "} func")),
        ],
        "scf.for: %w is not known in front of all loops",
    ),
    "rows that are made in front": (
        [
            (
                "%first = ",
                """%k3 = tile.load %k[%c0, %g, %c0, %c0] : memref<?x?x?x4xf32> -> tensor<3x4xf32>
                %twice = arith.addf %k3, %k3 : tensor<3x4xf32>
                %first = """,
            ),
            ("%x = tile.dot %qi,", "%sum = arith.addf %qi, %twice : tensor<3x4xf32>\n%x = tile.dot %sum,"),
        ],
        "arith.addf: reads rows of %twice, which are the same for all heads",
    ),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_refusals(why: str) -> None:
    changes, message = REFUSALS[why]
    refused("group-rows", changed(SMALL, *changes), message)


def test_a_constant_number_of_queries_is_refused() -> None:
    text = SMALL
    for old, new in (
        ("%q: memref<?x?x?x4", "%q: memref<?x?x4x4"),
        ("%o: memref<?x?x?x6", "%o: memref<?x?x4x6"),
        ("memref.dim %q, %c2 : memref<?x?x?x4xf32>", "arith.constant 4 : index"),
        ("memref.dim %q, %c1 : memref<?x?x?x4", "memref.dim %q, %c1 : memref<?x?x4x4"),
        (ROWS_OF_Q, ROWS_OF_Q.replace("?x4x", "4x4x")),
        ("tensor<3x6xf32>, memref<?x?x?x6", "tensor<3x6xf32>, memref<?x?x4x6"),
    ):
        assert old in text
        text = text.replace(old, new)
    refused("group-rows", text, "scf.for: %o has a constant number of heads or rows")


def test_two_loops_over_heads_are_refused() -> None:
    start, end = SMALL.index("  scf.for %g"), SMALL.index("  func.return")
    message = "builtin.module: 2 loops over the heads of a group; one is wanted"
    refused("group-rows", SMALL[:end] + SMALL[start:end] + SMALL[end:], message)


def test_legal_without_a_reason() -> None:
    run(parse(SMALL), parse_passes("group-rows"))
