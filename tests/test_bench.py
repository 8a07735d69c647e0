"""flashgen bench: what is measured, that a method is checked before it is timed, and what is said of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from flashgen.bench import memory_report
from flashgen.bench.cases import CASES, Case, choose_cases, parse_shape
from flashgen.bench.measure import Expected, expect, operations
from flashgen.bench.memory import Usage
from flashgen.bench.peers.base import Peer, Prepared
from flashgen.bench.prepare import Arrays, make_arrays, prepare
from flashgen.bench.record import to_json
from flashgen.bench.report import MARK, Notes, line, make_table, summary
from flashgen.bench.results import Results
from flashgen.bench.standard import standard_attention
from flashgen.bench.tasks import CANNOT, FAILED, OURS, RIGHT, SGEMM, WRONG, Row, Task
from flashgen.bench.turns import FEWEST
from flashgen.cli.main import app
from flashgen.problem import Problem
from flashgen.targets.cpu import Avx2
from tests.bench_cases import TINY
from tests.compiled import quick_compiler
from tests.sample_kernel import skip_unless_it_runs

QUIET, DISTURBED = ((50.0, 40.0), (50.0, 40.0)), ((50.0, 40.0), (50.0, 20.0))
"""Speeds before and behind a turn: the peak, and a product in caches."""
DECODE = Case("decode", 1, 4, 2, 1, 32, 8)


def test_a_shape_says_how_much_work_it_is() -> None:
    case = parse_shape("1,8,2,512,512,64,causal")
    assert case == Case("1,8,2,512,512,64,causal", 1, 8, 2, 512, 512, 64, causal=True)
    assert case.name == case.label
    assert case.operations == 4 * 8 * 512 * 512 * 64 // 2
    assert (case.unit, case.work) == ("GFLOP/s", case.operations)
    assert parse_shape("1,8,2,512,512,64").operations == 2 * case.operations
    d1 = CASES["D1"]
    assert (d1.unit, d1.work, d1.kv_bytes) == ("GB/s", 64 << 20, 64 << 20)


@pytest.mark.parametrize("text", ["2,4,2,7,7,8", "1,2,1,4,11,8,causal", "1,2,1,9,9,8,causal"])
def test_operations_are_those_of_the_visible_pairs(text: str) -> None:
    """With the mask, but for half of its diagonal."""
    case = parse_shape(text)
    diagonal = case.nq * 2 * case.batch * case.hq * case.head_dim if case.causal else 0
    exact = operations(case.problem, *make_arrays(case))
    assert abs(case.operations - (exact - diagonal)) <= 2 * case.batch * case.hq * case.head_dim


def test_the_help_says_what_each_case_is_and_how_many_turns_figures_need() -> None:
    text = CliRunner().invoke(app, ["bench", "--help"]).stdout
    lines = [line.split(maxsplit=2) for line in text.splitlines()]
    for case in CASES.values():
        assert [case.name, case.label, case.words] in lines
    assert f"of which fewer than {FEWEST} count are marked {MARK}." in " ".join(text.split())


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ("2,8,4,1,9,16", "decoding: 1 query, 9 keys, 8 heads of 16 on 4 of K and V, 2 sequences"),
        ("1,4,4,3,9,16,causal", "prefill: 3 queries, 9 keys, 4 heads of 16, causal"),
        ("1,4,4,9,9,16", "prefill: 9 queries and keys, 4 heads of 16"),
        ("1,1,1,1,1,8", "decoding: 1 query, 1 key, 1 head of 8"),
        ("1,2,1,3,1,8", "prefill: 3 queries, 1 key, 2 heads of 8 on 1 of K and V"),
    ],
)
def test_a_shape_in_words(shape: str, words: str) -> None:
    assert parse_shape(shape).words == words


def test_cases_are_chosen_by_name_and_by_shape() -> None:
    assert choose_cases("all", []) == list(CASES.values())
    chosen = choose_cases("D2,P1,D2", ["1,1,1,2,2,8"])
    assert [case.name for case in chosen] == ["D2", "P1", "1,1,1,2,2,8"]
    assert [case.name for case in choose_cases(None, ["1,1,1,2,2,8"])] == ["1,1,1,2,2,8"]


@pytest.mark.parametrize("causal", [False, True])
def test_standard_attention_is_right(causal: bool) -> None:
    rng = np.random.default_rng(3)
    q = rng.standard_normal((2, 6, 11, 8), dtype=np.float32)
    k, v = (rng.standard_normal((2, 3, 17, d), dtype=np.float32) for d in (8, 5))
    problem = Problem(8, 5, causal="bottom-right" if causal else None)
    deviations = expect(problem, q, k, v, 8**-0.5).deviations(*standard_attention(q, k, v, causal))
    assert all(0 < deviation.share < 1 for deviation in deviations)


class Library(Peer):
    """A peer whose forms are given: each is a function of what is right."""

    def __init__(self, **forms):
        super().__init__(1)
        self._forms = forms

    def forms(self, case, q, k, v):
        def make(form) -> Prepared:
            return Prepared(lambda: form(standard_attention(q, k, v)[0]))

        return {name: lambda form=form: make(form) for name, form in self._forms.items()}


@pytest.fixture(scope="module")
def tiny() -> tuple[Arrays, Expected]:
    arrays = make_arrays(TINY)
    return arrays, expect(TINY.problem, *arrays, TINY.head_dim**-0.5)


def fate(library: Peer, tiny: tuple[Arrays, Expected]) -> tuple[Row, Prepared | None]:
    return prepare(library, TINY, *tiny, Row("tiny", 1, "library", TINY.work))


def broken(o: np.ndarray) -> np.ndarray:
    raise ValueError("no such\nthing")


def slow(o: np.ndarray) -> np.ndarray:
    for _ in range(200):
        o = o + np.float32(0)
    return o


def test_the_fastest_right_form_is_timed(tiny) -> None:
    row, prepared = fate(Library(slow=slow, fast=lambda o: o, half=lambda o: o / 2, broken=broken), tiny)
    assert (row.state, row.form) == (RIGHT, "fast")
    assert prepared is not None
    assert 0 < row.bound_share <= 1
    assert row.forms["slow"].endswith(" ms")
    assert row.forms["half"].startswith("wrong: error ")
    assert row.forms["broken"] == "failed: ValueError: no such"


@pytest.mark.parametrize(
    "wrong",
    [lambda o: o / 2, lambda o: o[..., :4], lambda o: o.astype(np.float64), lambda o: o * np.float32(np.nan)],
    ids=["half", "shape", "type", "nan"],
)
def test_a_wrong_method_is_marked_and_not_timed(wrong, tiny) -> None:
    row, prepared = fate(Library(one=wrong, other=broken), tiny)
    assert (row.state, row.form) == (WRONG, "one")
    assert "times its bound: a wrong result, or less than float32 inside" in row.note
    assert prepared is None


def test_less_than_float32_inside_is_found(tiny) -> None:
    """Float32 cut to the bits of bfloat16, as some libraries compute on processors that have it."""
    row, _ = fate(Library(cut=lambda o: (o.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)), tiny)
    assert row.state == WRONG


def test_a_method_that_fails_or_cannot(tiny) -> None:
    row, prepared = fate(Library(broken=broken), tiny)
    assert (row.state, row.note, prepared) == (FAILED, "ValueError: no such", None)
    library = Library(one=lambda o: o)
    library.cannot = lambda case: "not today"
    row, prepared = fate(library, tiny)
    assert (row.state, row.note, prepared) == (CANNOT, "not today", None)


def made_up(case: Case, threads: int, method: str, milliseconds: float, **fields) -> Row:
    probes = [QUIET] * 9
    return Row(case.name, threads, method, 10**7, seconds=[milliseconds / 1e3] * 9, probes=probes, **fields)


def a_run() -> Results:
    """flashgen twice as fast as the best peer in one case, half as fast in the other."""
    tiny = [
        made_up(TINY, 1, OURS, 1),
        made_up(TINY, 1, "torch", 3),
        made_up(TINY, 1, "numpy", 2),
        replace(made_up(TINY, 1, "openvino", 0.1), state=WRONG, note="error 1"),
        made_up(TINY, 1, SGEMM, 0.5),
    ]
    decode = [
        made_up(DECODE, 1, OURS, 2),
        made_up(DECODE, 1, "torch", 1),
        Row("decode", 1, "numpy", 1, state=FAILED, note="ValueError: x"),
        Row("decode", 1, "openvino", 1, state=CANNOT, note="no rows"),
    ]
    return Results([*tiny, *decode], [TINY, DECODE])


def test_figures() -> None:
    results, notes = a_run(), Notes()
    assert results.compared == [OURS, "torch", "numpy", "openvino"]
    cells = line(results, TINY, 1, notes)
    assert cells == [
        "tiny 1,4,2,5,9,8", "10.0", "3.3", "5.0*", "wrong [1]", "50", "0.20", "2.00 2.00-2.00", "9",
    ]  # fmt: skip
    assert line(results, DECODE, 1, notes)[1:5] == ["5.0", "10.0*", "failed [2]", "no [3]"]
    assert notes.lines() == ["[1] OpenVINO: error 1", "[2] NumPy: ValueError: x", "[3] OpenVINO: no rows"]
    assert results.mean_ratio(1) == pytest.approx(1)
    assert results.mean_ratio(1, "torch") == pytest.approx(1.5**0.5)
    assert results.mean_ratio(1, "openvino") is None


def disturbed() -> Results:
    """``a_run`` with one case more: a peer is four times as fast, but only four of nine turns count."""
    busy = replace(TINY, name="busy")
    probes = [QUIET] * 4 + [DISTURBED] * 5
    ours, peer = made_up(busy, 1, OURS, 4), made_up(busy, 1, "torch", 1)
    run = a_run()
    rows = [*run.rows, replace(ours, probes=probes), peer]
    return Results(rows, [*run.cases.values(), busy])


def test_a_figure_of_few_turns_is_marked() -> None:
    """And in no mean and no claim."""
    results = disturbed()
    cells = line(results, results.cases["busy"], 1, Notes())
    assert cells[1:3] == ["~2.5", "10.0*"]
    assert cells[5:] == ["-", "-", "~0.25 0.25-0.25", "4"]
    assert results.mean_ratio(1) == pytest.approx(1)
    text = " ".join(summary(results, [], "wall"))
    assert "(geometric mean, without 1 of 3 cases: their ratios are marked ~)" in text
    assert "A peer is faster in: decode on 1 thread (torch SDPA, 0.50 0.50-0.50)." in text
    assert "~ marks a figure of all turns, disturbed ones too, because fewer than 5 count" in text
    document = json.loads(to_json(results, {}, []))
    figures = {(row["case"], row["method"]): row["figures"] for row in document["results"]}
    marks = {
        name: (each["few_turns_count"], each["few_rounds_count"]) for name, each in figures.items() if each
    }
    assert marks["busy", OURS] == (True, None)
    assert marks["busy", "torch"] == (False, True)
    assert marks["tiny", "torch"] == (False, False)


def test_summary() -> None:
    text = " ".join(summary(a_run(), ["flex"], "wall"))
    assert "1 thread: flashgen is 1.00 times as fast as the best peer" in text
    assert "torch SDPA 1.22, NumPy 2.00." in text
    assert "A peer is faster in: decode on 1 thread (torch SDPA, 0.50 0.50-0.50)." in text
    assert "in the same rounds: 20 to 20 GFLOP/s on 1 thread." in text
    assert "Not installed, so not compared: flex (pip install 'flashgen[bench]')." in text


def test_json() -> None:
    document = json.loads(to_json(a_run(), {"processor": "abacus"}, ["flex"]))
    assert document["not_installed"] == ["flex"]
    figures = {(row["case"], row["method"]): row["figures"] for row in document["results"]}
    assert figures["tiny", "numpy"]["flashgen_times_as_fast"] == [2, 2, 2]
    assert figures["tiny", OURS]["share_of_ceiling"] == pytest.approx(0.2)
    assert figures["decode", "torch"]["unit"] == "GB/s"
    assert figures["decode", "numpy"] is None


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_chart(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from flashgen.bench.chart import draw

    path = tmp_path / f"chart.{kind}"
    with path.open("wb") as file:
        draw(disturbed(), "abacus", kind, file)
    if kind == "svg":
        assert path.read_text().count("opacity: 0.4") == 1  # few of flashgen's turns count in one case
    assert path.read_bytes().startswith(b"<?xml" if kind == "svg" else b"\x89PNG")


def test_task_survives_json() -> None:
    task = Task(TINY, (OURS, "numpy"), "avx2", 2, 3)
    assert Task.from_json(json.loads(json.dumps(task.to_json()))) == task


def test_bench_measures(tmp_path: Path) -> None:
    """The whole command, once, with the one peer that is always there."""
    skip_unless_it_runs(Avx2())
    path = tmp_path / "out.json"
    words = ["--shape", "1,4,2,16,16,8,causal", "--shape", "1,4,2,1,32,8", "--peers", "numpy", "--turns", "2"]
    words += ["--target", "avx2", "--clock", "cpu", "--json", str(path)]
    with quick_compiler():
        done = CliRunner().invoke(app, ["bench", *words])
    assert done.exit_code == 0, done.output
    assert "1,4,2,16,16,8,causal" in done.stdout
    rows = json.loads(path.read_text())["results"]
    assert [row["method"] for row in rows] == [OURS, "numpy", SGEMM, OURS, "numpy"]
    assert all(row["state"] == RIGHT and row["figures"]["rate"] > 0 for row in rows)
    assert all(len(row["seconds"]) == len(row["probes"]) >= 2 for row in rows)
    kinds = [{len(speeds) for pair in row["probes"] for speeds in pair} for row in rows]
    assert kinds == [{2}, {2}, {2}, {1}, {1}]  # decoding is bounded by memory


def test_table_has_a_line_for_each_case_and_number_of_threads() -> None:
    results = a_run()
    table = make_table(results, Notes())
    assert table.row_count == 4  # two headings
    assert len(table.columns) == len(results.compared) + 5


def test_columns_have_names_of_their_own_and_are_explained() -> None:
    titles = [" ".join(str(column.header).split()) for column in make_table(a_run(), Notes()).columns]
    assert len(set(titles)) == len(titles)
    text = " ".join(summary(a_run(), [], "wall"))
    words = ["peak", "our share", "times best peer", "turns"]
    assert titles[-4:] == words
    assert all(f"{word}: " in text for word in words)
    assert "- stands where there is no share" in text


def test_memory(tmp_path: Path) -> None:
    """What NumPy makes at least of 512 x 512 scores, and our kernel does not."""
    skip_unless_it_runs(Avx2())
    path = tmp_path / "out.json"
    words = ["--shape", "1,4,4,512,512,16", "--peers", "numpy", "--target", "avx2", "--json", str(path)]
    with quick_compiler():
        done = CliRunner().invoke(app, ["bench", "--memory", *words])
    assert done.exit_code == 0, done.output
    usages = json.loads(path.read_text())["bytes_above_inputs_and_output"]
    ours, numpy = (usage["above"] for usage in usages)
    assert [usage["method"] for usage in usages] == [OURS, "numpy"]
    assert numpy > 4 * 512 * 512 * 4 > 2 * ours
    assert f"{numpy / 2**20:.1f}" in done.stdout


def test_memory_report() -> None:
    usages = [
        Usage("a", 1, OURS, "attention", above=3 << 19),
        Usage("a", 2, OURS, "attention", above=3 << 20),
        Usage("a", 1, "torch", state=FAILED, note="MemoryError"),
    ]
    notes = Notes()
    table = memory_report.make_table(usages, notes)
    assert [list(column.cells) for column in table.columns] == [
        ["flashgen: attention", "torch SDPA"],
        ["1.5", "failed [1]"],
        ["3.0", ""],
    ]
    assert notes.lines() == ["[1] torch SDPA: MemoryError"]
