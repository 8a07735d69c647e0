"""rescale-threshold says which softmaxes it does not know, for split-keys too, and changes nothing then."""

from __future__ import annotations

import re

import pytest

from flashgen.build import build
from flashgen.ir.dialect import parse
from flashgen.passes.pipeline import parse_passes, run
from flashgen.problem import Problem
from tests.head import carried, changed, refused

HOLD = "rescale-threshold{threshold=8}"
READS = "reads the state otherwise than for acc / l and m + ln l"
SUM = "    scf.yield %m_new,"
ROW = "tensor<4xf32>"
STATE = "iter_args(%m_old = %m0, %l_old = %l0, %acc_old = %acc0)"
TYPES = "tensor<4xf32>, tensor<4xf32>, tensor<4x8xf32>"
TWO = "tensor<4xf32>, tensor<4x8xf32>"
LAST = f"scf.yield %m_new, %l_new, %acc_new : {TYPES}"
WIDE, FOUR = "tensor<4x6xf32>", "memref<4xf32>"


def fourth(start: str, type: str, new: str) -> tuple[tuple[str, str], ...]:
    """A fourth value that is carried: %z of %y, and what becomes of it."""
    return (
        ("%m, %l, %acc = scf.for", "%m, %l, %acc, %y = scf.for"),
        (STATE, STATE.replace(")", f", %z = {start})")),
        (f"-> ({TYPES}) {{", f"-> ({TYPES}, {type}) {{"),
        (LAST, f"{new}\n{LAST.replace(' :', ', %z_new :')}, {type}"),
    )


REFUSED = {
    "two maxima": (
        [("%m_new = arith.maximumf %m_old,", "%m_new = arith.maximumf %l_old,")],
        "arith.maximumf: is not the state that it is compared with",
    ),
    "the maximum is stored": (
        [(SUM, f"    tile.store %m_new, %lse[%c0] : {ROW}, memref<4xf32>\n{SUM}")],
        "tile.store: reads the maximum otherwise than to subtract it",
    ),
    "the row sum is not rescaled": (
        [("%l_kept = arith.mulf %l_old, %alpha", "%l_kept = arith.mulf %l_old, %l_old")],
        "tile.row_sum: is not both made of the weights and added to what is rescaled",
    ),
    "another sum is added": (
        [("%l_tile = tile.row_sum %p", "%l_tile = tile.row_sum %s")],
        "tile.row_sum: is not both made of the weights and added to what is rescaled",
    ),
    "something else is rescaled": (
        [("%l_kept = arith.mulf %l_old, %alpha", "%l_kept = arith.mulf %m_tile, %alpha")],
        "arith.addf: is not state times a factor plus a sum of weights",
    ),
    "the factor itself is added": (
        [("%l_new = arith.addf %l_kept, %l_tile", "%l_new = arith.addf %alpha, %l_tile")],
        "arith.addf: is scaled otherwise than to be added to",
    ),
    "a product onto the accumulator": (
        [("%pv = tile.dot %p, %vj :", "%pv = tile.dot %p, %vj acc %acc_old : tensor<4x8xf32> :")],
        "tile.dot: is not a product of the weights alone",
    ),
    "the accumulator is not divided": (
        [("tile.store %out, %o", "tile.store %acc, %o")],
        f"tile.store: {READS}",
    ),
    "the row sum is stored": (
        [("tile.store %sum, %lse", "tile.store %l, %lse")],
        f"tile.store: {READS}",
    ),
    "the maximum is stored behind the loop": (
        [("tile.store %sum, %lse", "tile.store %m, %lse")],
        f"tile.store: {READS}",
    ),
    "the old maximum is stored": (
        [(SUM, f"    tile.store %m_old, %lse[%c0] : {ROW}, memref<4xf32>\n{SUM}")],
        "tile.store: reads the state in the midst of a loop",
    ),
    "the old row sum is stored": (
        [(SUM, f"    tile.store %l_old, %lse[%c0] : {ROW}, memref<4xf32>\n{SUM}")],
        "tile.store: reads the state in the midst of a loop",
    ),
    "the new row sum is stored": (
        [(SUM, f"    tile.store %l_new, %lse[%c0] : {ROW}, memref<4xf32>\n{SUM}")],
        "tile.store: reads the state in the midst of a loop",
    ),
    "the accumulator is stored": (
        [(SUM, f"    tile.store %acc_new, %o[%c0, %c0] : tensor<4x8xf32>, memref<4x8xf32>\n{SUM}")],
        "tile.store: reads the state in the midst of a loop",
    ),
    "the old accumulator is stored": (
        [(SUM, f"    tile.store %acc_old, %o[%c0, %c0] : tensor<4x8xf32>, memref<4x8xf32>\n{SUM}")],
        "tile.store: reads the state in the midst of a loop",
    ),
    "another factor than ln 2": ([("0.69314718055994529", "0.7")], f"tile.replace: {READS}"),
    "another divisor": (
        [("%divisor = tile.replace %l, 0.0 : f32, 1.0", "%divisor = tile.replace %l, 0.0 : f32, 2.0")],
        f"tile.replace: {READS}",
    ),
    "a second reference": (
        [("%fall = arith.subf %m_old, %top", "%fall = arith.subf %m_tile, %top")],
        "arith.subf: rescales what is new, too: run lazy-rescale before",
    ),
    "a second product, stored as it is": (
        (
            *fourth(
                "%acc0",
                "tensor<4x8xf32>",
                f"""%z_fresh = tile.dot %p, %vj : {WIDE}, tensor<6x8xf32> -> tensor<4x8xf32>
                %z_kept = arith.mulf %alpha_wide, %z : tensor<4x8xf32>
                %z_new = arith.addf %z_kept, %z_fresh : tensor<4x8xf32>""",
            ),
            (
                "tile.store %out",
                "tile.store %y, %v[%c0, %c0] : tensor<4x8xf32>, memref<?x8xf32> tile.store %out",
            ),
        ),
        "arith.maximumf: one row sum and one product are wanted that its weights go into",
    ),
    "a second row sum, stored as it is": (
        (
            *fourth(
                "%l0",
                ROW,
                f"""%z_fresh = tile.row_sum %p : {WIDE} -> {ROW}
                %z_kept = arith.mulf %alpha, %z : {ROW}
                %z_new = arith.addf %z_kept, %z_fresh : {ROW}""",
            ),
            ("tile.store %out", f"tile.store %y, %lse[%c0] : {ROW}, memref<4xf32> tile.store %out"),
        ),
        "arith.maximumf: one row sum and one product are wanted that its weights go into",
    ),
    "the largest weight, stored as it is": (
        (
            *fourth(
                "%l0",
                ROW,
                f"""%z_fresh = tile.row_max %p : {WIDE} -> {ROW}
                %z_kept = arith.mulf %alpha, %z : {ROW}
                %z_new = arith.addf %z_kept, %z_fresh : {ROW}""",
            ),
            ("tile.store %out", f"tile.store %y, %lse[%c0] : {ROW}, memref<4xf32> tile.store %out"),
        ),
        "arith.addf: is not state times a factor plus a sum of weights",
    ),
    "a row sum in memory, the rest carried": (
        (
            (
                "%m, %l, %acc =",
                f"%a = memref.alloc() : {FOUR} tile.store %l0, %a[%c0] : {ROW}, {FOUR} %m, %acc =",
            ),
            (STATE, STATE.replace("%l_old = %l0, ", "")),
            (
                f"-> ({TYPES}) {{",
                f"-> ({ROW}, tensor<4x8xf32>) {{ %l_old = tile.load %a[%c0] : {FOUR} -> {ROW}",
            ),
            (LAST, f"tile.store %l_new, %a[%c0] : {ROW}, {FOUR} scf.yield %m_new, %acc_new : {TWO}"),
            ("%divisor =", f"%l = tile.load %a[%c0] : {FOUR} -> {ROW} %divisor ="),
        ),
        "arith.maximumf: row sum and product are not kept beside it, for the same rows",
    ),
    "the maximum is added": (
        (("%d = arith.subf %s, %wide", "%d = arith.addf %s, %wide"),),
        "arith.addf: reads the maximum otherwise than to subtract it",
    ),
    "the maximum is subtracted from": (
        (("%d = arith.subf %s, %wide", "%d = arith.subf %wide, %s"),),
        "arith.subf: reads the maximum otherwise than to subtract it",
    ),
    "another guard": (
        (
            (
                "%top = tile.replace %m_new, 0xff800000 : f32, 0.0",
                "%top = tile.replace %m_new, 0xff800000 : f32, 1.0",
            ),
        ),
        "tile.replace: reads the maximum otherwise than to subtract it",
    ),
    "other weights, stored": (
        (
            (
                LAST,
                f"""%d2 = arith.subf %s, %wide : {WIDE}
                %p2 = math.exp2 %d2 : {WIDE}
                tile.store %p2, %x[%j, %c0] : {WIDE}, memref<?x6xf32>
                {LAST}""",
            ),
        ),
        "arith.maximumf: one exponential of scores and one of the old maximum are wanted",
    ),
    "another factor, stored": (
        (
            (
                LAST,
                f"""%fall2 = arith.subf %m_old, %top : {ROW}
                %alpha2 = math.exp2 %fall2 : {ROW}
                tile.store %alpha2, %lse[%c0] : {ROW}, memref<4xf32>
                {LAST}""",
            ),
        ),
        "arith.maximumf: one exponential of scores and one of the old maximum are wanted",
    ),
    "twice the weights in the product": (
        (("%pv = tile.dot %p, %vj :", f"%ps = arith.addf %p, %p : {WIDE} %pv = tile.dot %ps, %vj :"),),
        "arith.addf: is not both made of the weights and added to what is rescaled",
    ),
    "something else times the weights": (
        (
            (
                "%pv = tile.dot %p, %vj :",
                f"%z = tile.dot %s, %p transpose : {WIDE}, {WIDE} -> tensor<4x4xf32>\n"
                "%pv = tile.dot %p, %vj :",
            ),
        ),
        "tile.dot: is not both made of the weights and added to what is rescaled",
    ),
    "a product of row sums": (
        (("%l_new = arith.addf", "%l_new = arith.mulf"),),
        "arith.mulf: is scaled otherwise than to be added to",
    ),
    "an exponent, stored": (
        ((LAST, f"tile.store %d, %x[%j, %c0] : {WIDE}, memref<?x6xf32> {LAST}"),),
        "arith.subf: is no exponent of base 2",
    ),
    "a fresh sum, stored": (
        ((LAST, f"tile.store %l_tile, %lse[%c0] : {ROW}, memref<4xf32> {LAST}"),),
        "arith.addf: is not state times a factor plus a sum of weights",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case: str) -> None:
    changes, message = REFUSED[case]
    refused(HOLD, carried(*changes), message)


def in_memory(passes: str, *changes: tuple[str, str]) -> str:
    """FlashAttention-1 behind these passes, as text without makers; what is changed occurs once."""
    module = build(Problem(8), 4, 4)
    run(module, parse_passes(passes))
    return changed(re.sub(r' \{made_by = "[^"]*"\}', "", str(module)), *changes)


ROW_IN = f"{ROW}, memref<?xf32>"
STORE_L = f"tile.store %l_new, %l[%i_1] : {ROW_IN}\n"
STORE_M = f"tile.store %m_new, %m[%i_1] : {ROW_IN}\n"
STORE_ACC = "tile.store %acc_new, %acc[%i_1, %c0] : tensor<4x8xf32>, memref<?x8xf32>\n"
LOAD_M = f"%m_i_1 = tile.load %m[%i] : memref<?xf32> -> {ROW}\n"
MEMORY = "lazy-rescale,base-2"
FUSED = "lazy-rescale,sink-loads,interchange,fuse-loops,base-2"
BESIDE = "touches the state beside the step, in the loop that updates it"
IN_MEMORY = {
    "the row sum forgotten in each step": (
        MEMORY,
        [(STORE_L, f"{STORE_L} tile.store %m_tile, %l[%i_1] : {ROW_IN}")],
        f"tile.store: {BESIDE}",
    ),
    "the maximum of the next rows": (
        MEMORY,
        [(STORE_M, f"{STORE_M} %up = arith.addi %i_1, %br : index tile.store %m_new, %m[%up] : {ROW_IN}")],
        f"tile.store: {BESIDE}",
    ),
    "the row sum forgotten for each tile of keys": (
        MEMORY,
        [
            (
                f"{STORE_M}            }}",
                f"""{STORE_M} }} scf.for %n = %c0 to %Nq step %br {{
                  %z = tile.broadcast %ln2 : f32 -> {ROW}
                  tile.store %z, %l[%n] : {ROW_IN} }}""",
            )
        ],
        f"tile.store: {BESIDE}",
    ),
    "the state of an earlier tile": (
        MEMORY,
        [
            (
                "scf.for %j = %c0 to %Nk step %bc {",
                f"""scf.for %j = %c0 to %Nk step %bc {{
                %z = tile.load %l[%c0] : memref<?xf32> -> {ROW}""",
            )
        ],
        f"tile.load: {BESIDE}",
    ),
    "a row sum of each number": (
        MEMORY,
        [("scf.for %j =", "%z = memref.load %l[%c0] : memref<?xf32>\nscf.for %j =")],
        "memref.load: uses the state otherwise than tile by tile",
    ),
    "two starts": (
        MEMORY,
        [
            (
                "scf.for %i_2 = %c0 to %Nq step %br {",
                f"""scf.for %i_2 = %c0 to %Nq step %br {{
                %z = tile.broadcast %ln2 : f32 -> {ROW}
                tile.store %z, %l[%i_2] : {ROW_IN}""",
            )
        ],
        "tile.load: its state is not stored once, in front of the loop that updates it",
    ),
    "a maximum of no rows yet": (
        FUSED,
        [(LOAD_M, ""), ("scf.for %j =", f"{LOAD_M} scf.for %j =")],
        "tile.load: reads the state in front of the loop that updates it",
    ),
    "rows that the row sum lacks": (
        MEMORY,
        [("%l = memref.alloc(%Nq)", "%l = memref.alloc(%Nk)")],
        "tile.load: its array may cut other rows than the maximum's",
    ),
    "one maximum of all rows": (
        MEMORY,
        [
            (
                f"%m_i = tile.load %m[%i_1] : memref<?xf32> -> {ROW}",
                f"%m_i = tile.load %m[%c0] : memref<?xf32> -> {ROW}",
            ),
            (STORE_M, STORE_M.replace("%i_1", "%c0")),
        ],
        "arith.maximumf: row sum and product are not kept beside it, for the same rows",
    ),
}


@pytest.mark.parametrize("case", IN_MEMORY)
def test_refused_in_memory(case: str) -> None:
    passes, changes, message = IN_MEMORY[case]
    refused(HOLD, in_memory(passes, *changes), message)


@pytest.mark.parametrize("state", ["m", "l", "acc"])
def test_state_in_an_array_of_the_caller_is_refused(state: str) -> None:
    """The caller would see another reference, and sums that are relative to it."""
    text = in_memory(MEMORY)
    alloc = re.search(rf"%{state} = memref.alloc\(%Nq\) : (\S+)\n", text)
    assert alloc
    dimensions = '["Nq", "Dv"]' if state == "acc" else '["Nq"]'
    argument = f"%scale: f32, %{state}: {alloc[1]} {{tile.extents = {dimensions}}})"
    given = changed(text, (alloc[0], ""), ("%scale: f32)", argument))
    refused(HOLD, given, "tile.load: loads state from an array that is not the kernel's own")


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ("lazy-rescale", "arith.subf: is no exponent of base 2: run base-2 before"),
        ("base-2", "arith.subf: rescales what is new, too: run lazy-rescale before"),
        ("lazy-rescale,sink-loads,interchange,fuse-loops,keep-state,base-2,causal-skip", f"scf.for: {READS}"),
        ("lazy-rescale,base-2,mask-to-spans,fuse-sweeps", "builtin.module: no running maximum of row maxima"),
        (
            "lazy-rescale,base-2,rescale-threshold{threshold=8}",
            "arith.maximumf: is not the state that it is compared with, but is held already",
        ),
    ],
)
def test_refused_out_of_order(passes: str, message: str) -> None:
    refused(f"{passes},{HOLD}", str(build(Problem(8, causal="top-left"), 4, 4)), message)


@pytest.mark.parametrize("passes", [MEMORY, FUSED])
def test_legal_without_a_reason(passes: str) -> None:
    run(parse(in_memory(passes)), parse_passes(HOLD))
