"""split-keys: what it keeps, interpreted and compiled, and where it is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from xdsl.dialects import scf

from flashgen.build import build
from flashgen.errors import InvalidArgument
from flashgen.ir.dialect import parse
from flashgen.passes.pipeline import parse_passes, run
from flashgen.problem import ALIGNMENTS, DTYPES, Problem
from flashgen.reference import attention, bound
from flashgen.runtime.cpu import CpuKernel
from flashgen.schedule import FA1, MAX_PART, Schedule
from flashgen.targets import find
from flashgen.targets.cpu import PART, Cpu
from tests.compiled import TARGETS, Build, call, kernels
from tests.guarded import exit_status, place
from tests.head import changed, example, refused
from tests.modules import call as interpreted
from tests.modules import check, stages
from tests.strategies import KINDS, Inputs, make_inputs, rounded

D, DV, BR, BC, P = 4, 3, 3, 4, 8
LENGTHS = (0, 1, P - 1, P, P + 1, 2 * P + 1)
HEADS = example("split-keys/heads")
SPLIT = "split-keys{keys=12}"

each_mask = pytest.mark.parametrize("causal", ALIGNMENTS)
each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)


def schedule(skip: bool = True, grouped: bool = True, threshold: float = 0.0, packs: str = "") -> Schedule:
    """For the interpreter. packs: "" for none, "packed" or "hoisted"."""
    panel, hoist = 3 if packs else 0, packs == "hoisted"
    return Schedule("q-outer", BR, BC, True, skip, panel, hoist, grouped, threshold, P, fetch_ahead=False)


SCHEDULES = [
    schedule(),
    schedule(skip=False, threshold=8.0),
    schedule(grouped=False, packs="hoisted"),
    schedule(skip=False, grouped=False),
    schedule(packs="packed", threshold=0.5),
]


@each_mask
@pytest.mark.parametrize("choice", SCHEDULES, ids=lambda s: s.name)
def test_every_pass_keeps_the_meaning(choice: Schedule, causal: str | None) -> None:
    """NaN at keys that nobody sees, and parts in which a row, or no row, sees any."""
    problem = Problem(D, DV, causal=causal)
    found = stages(problem, choice)
    late = list(found)[list(found).index("split-keys") :]
    for nk in LENGTHS:
        check(found["final"], problem, make_inputs(problem, "plain", (1, 4, 2, 5, nk), 0.5), np.float32)
    for kind in ("hidden", "rising", "falling", "nan_k", "nan_v", "farthest"):
        x = make_inputs(problem, kind, (2, 4, 2, 5, 2 * P + 3), 0.5, seed=2)
        for name in late if kind == "hidden" else ["final"]:
            check(found[name], problem, x)


@each_mask
def test_skipping_and_the_order_of_the_parts_change_no_bit(causal: str | None) -> None:
    problem = Problem(D, DV, causal=causal)
    skips, visits = (stages(problem, schedule(skip))["final"] for skip in (True, False))
    for nq, nk in ((1, 3 * P), (9, 2 * P + 1), (2 * P, 7)):
        x = make_inputs(problem, "plain", (1, 4, 2, nq, nk), 0.5)
        want = interpreted(skips, problem, x, np.float32)
        for module, shuffle in ((skips, 5), (visits, None)):
            other = interpreted(module, problem, x, np.float32, shuffle)
            assert all(a.tobytes() == b.tobytes() for a, b in zip(want[:2], other[:2], strict=True))


def test_one_part_is_all_there_is_without_parts() -> None:
    """A merge of one part multiplies by 1 and adds 0."""
    problem = Problem(D, DV, causal="bottom-right")
    split, whole = (stages(problem, s)["final"] for s in (schedule(), replace(schedule(), split_keys=0)))
    x = make_inputs(problem, "plain", (1, 4, 2, 5, P), 0.5)
    for a, b in zip(*(interpreted(m, problem, x, np.float32)[:2] for m in (split, whole)), strict=True):
        assert a.tobytes() == b.tobytes()
    y = make_inputs(problem, "plain", (1, 4, 2, 5, 3 * P), 0.5)
    two = [interpreted(m, problem, y, np.float32)[0].tobytes() for m in (split, whole)]
    assert two[0] != two[1]  # else nothing would have been split


def test_tiles_are_visited_once() -> None:
    """Parts have the bounds of all keys: of 4 x 4 tiles 10 are seen, and 4 of these are cut."""
    problem = Problem(D, causal="top-left")
    for keys in (0, 4, 8, 12):
        choice = Schedule("q-outer", 4, 4, True, True, 0, False, False, 0.0, keys)
        x = make_inputs(problem, "plain", (1, 1, 1, 16, 16), 0.5)
        counts = interpreted(stages(problem, choice)["final"], problem, x)[2]
        assert (counts["tile.dot"] // 2, counts["tile.row_span"]) == (10, 4), keys


@pytest.mark.parametrize("packs", ["", "hoisted"])
def test_parts_and_rows_are_parallel(packs: str) -> None:
    """Threads share the parts of one head; what is hoisted is packed in front of them."""
    module = stages(Problem(D), schedule(grouped=False, packs=packs))["final"]
    (outer,) = (op for op in module.walk() if isinstance(op, scf.ParallelOp) and op.parent_op() is not None
                and not isinstance(op.parent_op(), scf.ParallelOp))  # fmt: skip
    inner = [op for op in outer.body.block.ops if isinstance(op, scf.ParallelOp)]
    names = [[arg.name_hint for arg in op.body.block.args] for op in (outer, *inner)]
    assert names == [["b", "g"], *([["t"]] if packs else []), ["part", "r", "i"], ["r", "i"]]


STEP = "scf.for %j = %c0 to %Nk step %c6"
ROWS = "scf.for %i = %c0 to %Nq step %c4 {"
K = "%kj = tile.load %k[%j, %c0]"
DIVISOR = "      %divisor = tile.replace"


TYPES = "tensor<4xf32>, tensor<4xf32>, tensor<4x8xf32>"
OVER_HEADS = "%y = scf.for %r = %c0 to %R step %c1 iter_args(%z = %zero) -> (f32)"
STORED = "tile.store %m_tile, %lse[%r, %i] : tensor<4xf32>, memref<?x?xf32>\n"
TWICE = HEADS[HEADS.index("  scf.for %r") : HEADS.index("  func.return")]
OLD = (
    "        %m_tile = ",
    """        %e = memref.load %lse[%r, %c0] : memref<?x?xf32>
        %es = tile.broadcast %e : f32 -> tensor<4x6xf32>
        %s_e = arith.addf %s, %es : tensor<4x6xf32>
        %m_tile = """,
)
CARRIED = (
    ("%m, %l, %acc = scf.for", "%m, %l, %acc, %z = scf.for"),
    ("%acc_old = %acc0)", "%acc_old = %acc0, %n = %zero)"),
    (f"-> ({TYPES}) {{", f"-> ({TYPES}, f32) {{"),
    (f"%l_new, %acc_new : {TYPES}", f"%l_new, %acc_new, %n : {TYPES}, f32"),
)
REFUSALS = {
    "a sum that starts at 1": (
        [("%l0 = tile.broadcast %zero", "%one = arith.constant 1.0 : f32\n%l0 = tile.broadcast %one")],
        "scf.for: its state does not start as that of no keys",
    ),
    "an accumulator that is given": (
        [
            (
                "%acc0 = tile.broadcast %zero : f32 -> tensor<4x8xf32>",
                "%acc0 = tile.load %q[%c1, %i, %c0] : memref<?x?x8xf32> -> tensor<4x8xf32>",
            )
        ],
        "scf.for: its state does not start as that of no keys",
    ),
    "a part of the keys": (
        [(STEP, STEP.replace("%c0", "%c6"))],
        "scf.for: does not start at 0 with a constant",
    ),
    "steps of any size": (
        [(STEP, STEP.replace("%c6", "%R"))],
        "scf.for: does not start at 0 with a constant",
    ),
    "keys of each tile of rows": (
        [(K, K.replace("%j", "%i"))],
        "scf.for: no loop around it reads the same keys again",
    ),
    "a part of the rows": (
        [(ROWS, ROWS.replace("%c0", "%c4"))],
        "scf.for: a loop from 0 in constant steps that",
    ),
    "rows that overlap": ([(ROWS, ROWS.replace("%c4", "%c1"))], "scf.for: its tiles have 4 rows, so that"),
    "rows without a step": ([(ROWS, ROWS.replace("%c4", "%c0"))], "scf.for: a loop from 0 in constant steps"),
    "rows of each head": (
        [(ROWS, ROWS.replace("%Nq", "%r"))],
        "scf.for: its range depends on the loops around it",
    ),
    "memory of one tile": (
        [(DIVISOR, f"%z = memref.alloc() : memref<4xf32>\n{DIVISOR}")],
        "memref.alloc: stands beside the loop over keys, and would be done twice",
    ),
    "another loop": (
        [
            (
                DIVISOR,
                "scf.for %z = %c0 to %r step %c1 {\n"
                f"tile.store %l0, %lse[%r, %z] : tensor<4xf32>, memref<?x?xf32>\n}}\n{DIVISOR}",
            )
        ],
        "scf.for: stands beside the loop over keys, and would be done twice",
    ),
    "what is stored": (
        [("tile.store %out, %o[%r, %i, %c0]", "tile.store %out, %q[%r, %i, %c0]")],
        "tile.load: reads %q, which the loops around the keys store to",
    ),
    "a store for each tile": (
        (("        %m_new = ", f"{STORED}        %m_new = "),),
        "tile.store: stores something for each tile of keys",
    ),
    "something else is carried": (CARRIED, "scf.for: carries something beside the state of a softmax"),
    "a sum over heads": (
        (
            ("scf.for %r = %c0 to %R step %c1 {", f"{OVER_HEADS} {{"),
            ("    }\n  }\n  func.return", "    }\n    scf.yield %z : f32\n  }\n  func.return"),
        ),
        "scf.for: a loop from 0 in constant steps that carries nothing is wanted",
    ),
    "two softmaxes": (((TWICE, TWICE * 2),), "builtin.module: 2 running maxima; one is wanted"),
    "what an earlier tile of rows stored": (
        (OLD, ("row_max %s ", "row_max %s_e "), ("subf %s,", "subf %s_e,")),
        "memref.load: has an effect that is not understood",
    ),
}


@pytest.mark.parametrize("why", REFUSALS)
def test_refusals(why: str) -> None:
    changes, message = REFUSALS[why]
    refused(SPLIT, changed(HEADS, *changes), message)


Q_OUTER = "lazy-rescale,sink-loads,interchange,fuse-loops,keep-state,base-2"


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        ("lazy-rescale", "arith.subf: is no exponent of base 2: run base-2 before"),
        ("base-2", "arith.subf: rescales what is new, too: run lazy-rescale before"),
        ("lazy-rescale,base-2", "scf.for: its state is in memory: run keep-state before"),
        (f"{Q_OUTER},mask-to-spans,fuse-sweeps", "builtin.module: no running maximum of row maxima"),
        (f"{Q_OUTER},causal-skip", "scf.for: reads the state otherwise"),
        (f"{Q_OUTER},split-keys{{keys=12}}", "tile.store: reads the state otherwise"),
        (f"{Q_OUTER},mask-to-spans,accumulate", "tile.scale_rows: is scaled otherwise than to be added to"),
        (
            f"{Q_OUTER},mask-to-spans,parallel-loops",
            "scf.for: stands in a parallel loop: run this before parallel-loops",
        ),
    ],
)
def test_refused_out_of_order(passes: str, message: str) -> None:
    refused(f"{passes},{SPLIT}", str(build(Problem(8, causal="top-left"), 4, 4)), message)


@pytest.mark.parametrize("keys", [0, -6, 7, 10, 6 << 61])
def test_keys_that_are_no_multiple_of_the_step(keys: int) -> None:
    with pytest.raises(InvalidArgument, match=f"keys is {keys}; "):
        run(parse(HEADS), parse_passes(f"split-keys{{keys={keys}}}"))


def test_what_is_allowed() -> None:
    for bad in (-1, 1.5, True, "8", MAX_PART + 1, 1 << 64):
        with pytest.raises(InvalidArgument, match="split_keys is "):
            Schedule(split_keys=bad)  # pyright: ignore[reportArgumentType]
    for without in (FA1, Schedule("kv-outer", bc=64), Schedule(lazy_rescale=False)):
        with pytest.raises(
            InvalidArgument, match="split_keys is 100; it needs lazy_rescale and order 'q-out"
        ):
            replace(without, split_keys=100)
    with pytest.raises(InvalidArgument, match="split_keys is 100; a multiple of bc 64 is allowed, or 0"):
        Schedule(bc=64, split_keys=100)
    with pytest.raises(InvalidArgument, match="split_keys is 64; target cuda has one block for all keys"):
        find("cuda").complete(Problem(64), Schedule(bc=64, split_keys=64))


COMPILED = [
    (Problem(24, 40, causal="bottom-right"), Schedule(br=4, bc=40, panel=0, group_rows=True, split_keys=80)),
    (Problem(24, 40, causal="top-left"), Schedule(br=5, bc=40, split_keys=80, hoist_packs=True)),
    (Problem(7, 5), Schedule(br=1, bc=40, panel=0, group_rows=True, rescale_threshold=8.0, split_keys=80)),
    (Problem(7, 5, causal="bottom-right"), Schedule(br=5, bc=80, causal_skip=False, split_keys=80)),
    (Problem(9, 11, "float16", "bottom-right"), Schedule(br=4, bc=40, panel=0, split_keys=80)),
    (Problem(9, 11, "bfloat16"), Schedule(br=4, bc=40, panel=0, group_rows=True, split_keys=80)),
    (Problem(9, 11, "float64"), Schedule(br=4, bc=40, panel=0, group_rows=True, split_keys=80)),
    (Problem(24, 40, "float64", "bottom-right"), Schedule(br=5, bc=40, split_keys=80, hoist_packs=True)),
    (Problem(7, causal="bottom-right"), Schedule(br=5, bc=16, split_keys=MAX_PART)),
]
assert {p.dtype for p, _ in COMPILED} == set(DTYPES)


@cache
def compiled(target: Cpu) -> list[CpuKernel]:
    return kernels(Build(target), tuple(COMPILED))


def samples(problem: Problem) -> list[Inputs]:
    """Lengths around parts of 80 keys; of 41 queries many see no key of some parts."""
    lengths = [(1, nk) for nk in (0, 1, 79, 80, 81, 161)] + [(3, 200), (41, 161), (100, 95)]
    plain = [make_inputs(problem, "plain", (2, 4, 2, nq, nk), 0.25, seed=nk) for nq, nk in lengths]
    return [*plain, *(make_inputs(problem, kind, (1, 4, 2, 3, 165), 0.25) for kind in KINDS)]


@each_target
@pytest.mark.parametrize("n", range(len(COMPILED)))
def test_compiled_kernels(target: Cpu, n: int) -> None:
    """Within the bound of the reference; the number of threads changes no bit."""
    kernel = compiled(target)[n]
    p = kernel.problem
    for x in samples(p):
        o, lse = call(kernel, x)
        scale = rounded(p, x.scale)
        with np.errstate(all="ignore"):
            bound(p, x.q, x.k, x.v, scale).check(o, lse, *attention(p, x.q, x.k, x.v, scale))
        for threads in range(2, 6):
            for a, b in zip(call(kernel, x, threads), (o, lse), strict=True):
                assert a.tobytes() == b.tobytes(), (x, threads)


@each_target
@pytest.mark.parametrize("at_end", [True, False], ids=["up to", "from"])
def test_guard_pages(target: Cpu, at_end: bool) -> None:
    for kernel in compiled(target)[:4]:
        for nq, nk in ((1, 161), (3, 79), (0, 81), (2, 0)):
            x = make_inputs(kernel.problem, "plain", (1, 4, 2, nq, nk), 0.25)
            y = replace(x, **{n: place(getattr(x, n), at_end, read_only=True) for n in "qkv"})
            want = call(kernel, x)
            out, lse = (place(np.full_like(a, np.nan), at_end) for a in want)

            def one(kernel=kernel, y=y, want=want, out=out, lse=lse) -> None:
                call(kernel, y, threads=2, out=out, lse=lse)
                assert (out.tobytes(), lse.tobytes()) == tuple(a.tobytes() for a in want)

            assert exit_status(one) == 0, kernel.name


@each_target
def test_many_keys_of_few_rows_are_split(target: Cpu) -> None:
    """By what is asked for alone; what a schedule states of it stays."""

    def chosen(nq: int, nk: int, rows: int, **stated: object) -> int:
        problem, asked = Problem(64), Schedule(**stated)  # pyright: ignore[reportArgumentType]
        found = target.complete(problem, target.suit(problem, asked, nq, nk, rows)).split_keys
        assert found is not None
        return found

    assert chosen(1, 4097, 1) == chosen(1, 65536, 8) == chosen(2, 5000, 16) == PART
    assert chosen(1, 4096, 1) == chosen(32, 65536, 32) == 0
    assert chosen(1, 65536, 1, split_keys=0) == 0
    assert chosen(1, 65536, 1, bc=96, split_keys=192) == 192
    assert chosen(1, 65536, 1, bc=96) == 1056
    assert chosen(1, 65536, 1, panel=target.micro[1]) == 0
    assert chosen(1, 65536, 1, order="kv-outer") == chosen(1, 65536, 1, lazy_rescale=False) == 0
    assert chosen(1, 65536, 1, order=FA1.order, lazy_rescale=False, causal_skip=False) == 0


@each_target
def test_open_columns_follow_a_stated_part(target: Cpu) -> None:
    """For every length, with and without panels: else some calls would be refused, others not."""
    lengths = [(1, 10), (1, 300), (1, 5000), (64, 10), (64, 200), (2000, 5000)]

    def columns(part: int, rows: int, key_len: int) -> int:
        bc = target.complete(
            Problem(64), target.suit(Problem(64), Schedule(split_keys=part), rows, key_len, rows)
        ).bc
        assert bc is not None
        return bc

    for part in (1, 40, 100, 1000, 2 * 257, 4096, MAX_PART):
        found = {columns(part, *length) for length in lengths}
        assert all(part % bc == 0 and min(64, part) <= bc <= 512 for bc in found), part
    assert target.complete(Problem(64), Schedule(split_keys=1000)).bc == 500
    for part in (67 * 521, 1009):  # a divisor from 64 to 512, and none
        for length in lengths:
            if part == 1009:
                with pytest.raises(
                    InvalidArgument, match="split_keys is 1009; a multiple of some number from 64"
                ):
                    columns(part, *length)
            else:
                assert columns(part, *length) == 67
