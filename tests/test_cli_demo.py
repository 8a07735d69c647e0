"""flashgen demo and flashgen targets: what is measured, what is said about it, and the exit status."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from flashgen.bench import process
from flashgen.bench.methods import SCHEDULES
from flashgen.bench.report import FEW_COUNT
from flashgen.bench.results import Measured
from flashgen.bench.standard import standard_attention
from flashgen.bench.tasks import EMITTED_1, EMITTED_2, LAZY, Q_OUTER, STANDARD_TITLE, Row
from flashgen.bench.turns import Patience
from flashgen.cli import demo as demo_module
from flashgen.cli import demo_timing, progress
from flashgen.cli.demo_report import PASSES, against_numpy, by_pass, change, explain, make_table, one_head
from flashgen.cli.demo_timing import EIGHT, ONE, Task, make_tasks
from flashgen.cli.main import app
from flashgen.errors import KernelFailure
from flashgen.runtime import cpu_features
from flashgen.targets.cpu import Avx2, Avx512
from tests.sample_kernel import skip_unless_it_runs

MILLISECONDS = {STANDARD_TITLE: 25, EMITTED_1: 20, LAZY: 15, Q_OUTER: 12, EMITTED_2: 10}
TINY = Task("tiny", None, (1, 2, 9, 8), 8, 1, (STANDARD_TITLE, EMITTED_2))


@pytest.fixture(autouse=True)
def runs_here(monkeypatch: pytest.MonkeyPatch) -> None:
    skip_unless_it_runs(Avx2())
    monkeypatch.setattr(demo_timing, "PATIENCE", Patience(seconds=0.2, limit=0.4))


def rows_of(tasks: Sequence[Task], share: float = 0.1) -> Iterator[Row]:
    """Made-up rows: twice as fast on two threads."""
    for task in tasks:
        for method in task.methods:
            seconds = [MILLISECONDS[method] / 1e3 / task.threads] * 9
            probes = [((50.0, 40.0), (50.0, 40.0))] * 9
            row = Row(task.data, task.threads, method, 10**7, error=1e-6, bound_share=share)
            yield replace(row, seconds=seconds, probes=probes)


def test_measure_checks_and_times_in_turns() -> None:
    first, second = demo_timing.measure(TINY, Avx2())
    assert (first.method, second.method) == (STANDARD_TITLE, EMITTED_2)
    for row in (first, second):
        assert len(row.seconds) == len(row.probes) >= demo_timing.PATIENCE.least
        assert all(seconds > 0 for seconds in row.seconds)
        assert row.work == 2 * 2 * 9 * 9 * 16
        assert 0 < row.bound_share < 1


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(q, k, v):
        o, lse = standard_attention(q, k, v)
        return o, lse + np.float32(0.01)

    def compile_method(head_dim, head_dim_v, method, target):
        return None if method == STANDARD_TITLE else lambda q, k, v, threads: broken(q, k, v)

    monkeypatch.setattr(demo_timing, "compile_method", compile_method)
    first, second = demo_timing.measure(TINY, Avx2())
    assert first.bound_share < 1 < second.bound_share


def test_methods_start_from_one_another() -> None:
    """Each pass that is reported changes what its name says, and nothing else."""
    for name, before, choice, _ in PASSES:
        schedule, base = SCHEDULES[name], SCHEDULES[before]
        field = choice.split()[-1 if choice.startswith("order") else 0].replace("-", "_")
        assert replace(base, **({"order": "q-outer"} if field == "q_outer" else {field: True})) == schedule


def test_new_process_has_its_threads_and_no_tuning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in for Python prints what it was started with."""
    script = tmp_path / "python"
    script.write_text('#!/bin/sh\ncat > "$0.tasks"\nenv > "$0.env"\n')
    script.chmod(0o755)
    monkeypatch.setattr(process.sys, "executable", str(script))
    monkeypatch.setenv("OPENBLAS_CORETYPE", "Prescott")
    monkeypatch.setenv("OPENBLAS_L2_SIZE", "1")
    assert list(demo_module.rows_of([TINY], 3)) == []
    variables = dict(
        line.split("=", 1) for line in Path(f"{script}.env").read_text().splitlines() if "=" in line
    )
    assert {variables[name] for name in process.THREAD_VARIABLES} == {"3"}
    assert not variables.keys() & set(process.TUNING_VARIABLES)
    assert [Task(**task).data for task in json.loads(Path(f"{script}.tasks").read_text())] == ["tiny"]


def test_new_process_measures() -> None:
    """The real thing, once; also what JSON makes of a task and of a row."""
    rows = list(demo_module.rows_of([TINY], 1))
    assert [row.method for row in rows] == [STANDARD_TITLE, EMITTED_2]
    assert all(0 < row.bound_share < 1 and len(row.seconds) == len(row.probes) for row in rows)


def test_a_process_that_fails_is_not_overlooked() -> None:
    with pytest.raises(process.subprocess.CalledProcessError):
        list(demo_module.rows_of([replace(TINY, methods=("none",))], 1))


def test_a_process_that_a_signal_ends_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As where memory runs out. A stand-in for Python ends itself."""
    script = tmp_path / "python"
    script.write_text("#!/bin/sh\ncat > /dev/null\nkill -KILL $$\n")
    script.chmod(0o755)
    monkeypatch.setattr(process.sys, "executable", str(script))
    message = r"^flashgen.cli.demo_timing, .* was ended by signal 9 \(Killed\): memory ran out, most likely$"
    with pytest.raises(KernelFailure, match=message):
        list(demo_module.rows_of([TINY], 1))


def test_compiles_each_kernel_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """And passes on what a compiler says."""
    asked: list[tuple] = []
    monkeypatch.setattr(demo_timing, "compile_method", lambda *args: asked.append(args))
    demo_module.compile_all(make_tasks(Path("real.npz"), ((1, 3, 7, 8), 5), 1), Avx2())
    assert len(asked) == len(set(asked)) == 3 + 1 + len(SCHEDULES)
    assert {args[:2] for args in asked} == {(8, 5), (64, 64)}
    monkeypatch.setattr(demo_timing, "compile_method", lambda *args: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        demo_module.compile_all([TINY], Avx2())


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> dict[int, Sequence[Task]]:
    """The demo with made-up measurements; what was asked for, by threads."""
    asked: dict[int, Sequence[Task]] = {}

    def made_up_rows(tasks: Sequence[Task], threads: int) -> Iterator[Row]:
        asked[threads] = tasks
        yield from rows_of(tasks, share=float(os.environ.get("MADE_UP_SHARE", "0.25")))

    monkeypatch.setattr(demo_module, "rows_of", made_up_rows)
    monkeypatch.setattr(demo_module, "compile_all", lambda tasks, target: None)
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    return asked


def test_demo(made_up: dict[int, Sequence[Task]], tmp_path: Path) -> None:
    path = tmp_path / "real.npz"
    np.savez(path, **{name: np.ones((1, 3, 7, 8), np.float32) for name in "qkv"})
    done = CliRunner().invoke(app, ["demo", str(path)])
    assert done.exit_code == 0, done.output
    assert [task.data for task in made_up[1]] == ["real.npz, q (1, 3, 7, 8)", EIGHT, ONE]
    assert made_up.keys() == {1, 2}
    words = " ".join(done.stdout.split())  # a narrow terminal folds lines
    for task in (*made_up[1], *made_up[2]):
        for method in task.methods:
            assert method.strip() in words
    assert "0.250" in words
    assert "Every result is within the bound" in words


def test_one_processor_is_enough(made_up: dict[int, Sequence[Task]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    done = CliRunner().invoke(app, ["demo"])
    assert done.exit_code == 0, done.output
    assert made_up.keys() == {1}
    assert "With one head" not in done.stdout


def test_each_input_is_a_stage(made_up: dict[int, Sequence[Task]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the progress that is told, from the first on, as if the work had taken long."""
    lines = progress.Lines()
    lines.begin()
    monkeypatch.setattr(progress, "progress", lambda: nullcontext(lines))
    done = CliRunner().invoke(app, ["demo"])
    counts = ("1 thread", "2 threads")
    stages = [f"{name}, on {threads}" for threads in counts for name in (EIGHT, ONE)]
    assert done.stderr.splitlines() == ["compiling", *stages, "done"]


@pytest.mark.parametrize("share", ["1.5", "inf", "nan"])
def test_an_error_above_its_bound_is_exit_status_1(
    share: str, made_up: dict[int, Sequence[Task]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MADE_UP_SHARE", share)
    done = CliRunner().invoke(app, ["demo"])
    assert done.exit_code == 1
    assert "WRONG: standard attention, NumPy, random" in done.stdout
    assert "Every result" not in done.stdout


def test_explanation_follows_from_the_rows() -> None:
    tasks = [*make_tasks(None, ((), 0), 1), *make_tasks(None, ((), 0), 2)]
    text = " ".join(explain(Measured(list(rows_of(tasks))), Avx2()))
    assert f"{EIGHT}: 2.50 on 1 thread, 2.50 on 2 threads" in text
    assert (
        "2 threads make FlashAttention-1 2.00 times as fast as one does, and FlashAttention-2 2.00 times"
        in text
    )
    assert "the time changes by -50.0 % (quartiles -50.0 and -50.0)" in text
    assert "lazy-rescale (O is divided once, not at every key tile) -25.0 %" in text
    assert "order q-outer (a row's O, maximum and sum leave the workspace) -20.0 %" in text
    assert (
        "causal-skip (no causal mask is here, but one at the end of the keys: only a tile that it cuts"
        in text
    )
    assert "keeps it) -16.7 %" in text
    assert "GFLOP/s: 50 on 1 thread, 50 on 2 threads" in text


NUMPY_REASON, HEADS_REASON = "At 2048 keys NumPy writes a table", "The outer loop of FlashAttention-1 goes"


def rows_where(alter: Callable[[Row], Row]) -> Measured:
    tasks = [*make_tasks(None, ((), 0), 1), *make_tasks(None, ((), 0), 2)]
    return Measured([alter(row) for row in rows_of(tasks)])


def slower(row: Row, times: float, *wanted: object) -> Row:
    """The row, its time changed if it is the one of that input, method and number of threads."""
    if (row.case, row.method, row.threads) != wanted:
        return row
    return replace(row, seconds=[times * seconds for seconds in row.seconds])


def disturbed(row: Row, *wanted: object) -> Row:
    """Two of its nine turns count."""
    if wanted and (row.case, row.method, row.threads) != wanted:
        return row
    return replace(row, probes=[((50.0, 40.0), (50.0, 20.0))] * 7 + [((50.0, 40.0),) * 2] * 2)


def test_numpy_is_explained_only_where_every_figure_says_so() -> None:
    assert NUMPY_REASON in against_numpy(rows_where(lambda row: row), Avx2())
    one_marked = against_numpy(rows_where(lambda row: disturbed(row, EIGHT, EMITTED_2, 2)), Avx2())
    assert "~2.50 on 2 threads" in one_marked and NUMPY_REASON in one_marked
    for made in (
        lambda row: slower(row, 3, ONE, EMITTED_2, 2),
        lambda row: disturbed(slower(row, 3, ONE, EMITTED_2, 2), ONE, EMITTED_2, 2),
        disturbed,
    ):
        text = against_numpy(rows_where(made), Avx2())
        assert text.startswith("FlashAttention-2 against NumPy") and NUMPY_REASON not in text


def test_a_pass_is_explained_only_where_its_figures_say_so() -> None:
    reason, others = "O is divided once", "a row's O, maximum and sum leave the workspace"
    assert f"lazy-rescale ({reason}, not at every key tile) -25.0 %" in by_pass(rows_where(lambda row: row))
    for made, step in (
        (lambda row: slower(row, 1.4, EIGHT, LAZY, 1), "lazy-rescale +5.0 % ("),
        (lambda row: disturbed(row, EIGHT, EMITTED_1, 1), "lazy-rescale ~-25.0 % ("),
    ):
        text = by_pass(rows_where(made))
        assert f": {step}quartiles " in text and reason not in text
        assert f"order q-outer ({others}) -" in text


def test_one_head_is_explained_only_where_its_figures_say_so() -> None:
    def without_gain(row: Row) -> Row:
        return slower(row, 2, ONE, EMITTED_1, 2)

    text = one_head(rows_where(without_gain), Avx2())
    assert "FlashAttention-1 1.00 times as fast as one does, and FlashAttention-2 2.00 times." in text
    assert HEADS_REASON in text
    for made in (
        lambda row: row,  # FlashAttention-1 gains as much
        lambda row: slower(without_gain(row), 2, ONE, EMITTED_2, 2),
        lambda row: disturbed(without_gain(row), ONE, EMITTED_2, 2),
        lambda row: disturbed(without_gain(row), ONE, EMITTED_1, 1),
    ):
        text = one_head(rows_where(made), Avx2())
        assert text.startswith("With one head, 2 threads make") and HEADS_REASON not in text


def test_each_mark_of_the_table_is_explained() -> None:
    quiet, busy = rows_where(lambda row: row), rows_where(disturbed)
    cells = {cell for column in make_table(busy).columns for cell in column.cells}
    assert "-" in cells and "not seen" not in cells
    assert explain(busy, Avx2())[0] == FEW_COUNT
    assert FEW_COUNT not in " ".join(explain(quiet, Avx2()))
    assert "- stands where there is no share" in FEW_COUNT


def test_what_few_turns_count_for_is_marked() -> None:
    tasks = [*make_tasks(None, ((), 0), 1), *make_tasks(None, ((), 0), 2)]
    rows = list(rows_of(tasks))
    assert "~" not in " ".join(explain(Measured(rows), Avx2()))
    busy = [
        replace(row, probes=[((50.0, 40.0), (50.0, 20.0))] * 5 + [((50.0, 40.0),) * 2] * 4)
        if row.method == EMITTED_2 and row.threads == 1
        else row
        for row in rows
    ]
    text = " ".join(explain(Measured(busy), Avx2()))
    assert f"{EIGHT}: ~2.50 on 1 thread, 2.50 on 2 threads" in text
    assert "FlashAttention-2 ~2.00 times." in text
    assert "the time changes by ~-50.0 %" in text
    assert "(O is divided once, not at every key tile) -25.0 %" in text
    assert "~ marks a figure of all turns" in text


def test_change_is_claimed_only_where_quartiles_agree() -> None:
    assert change((0.8, 0.9, 0.95)) == "-10.0 % (quartiles -20.0 and -5.0)"
    assert change((0.8, 0.9, 1.05)) == "-10.0 % (quartiles -20.0 and +5.0, not to be told from none)"


REFUSED = {
    "rank": (np.ones((3, 7, 8), np.float32), "q.shape is (3, 7, 8); four dimensions above 0"),
    "empty": (np.ones((1, 3, 0, 8), np.float32), "q.shape is (1, 3, 0, 8); four dimensions above 0"),
    "type": (np.ones((1, 3, 7, 8)), "q.dtype is '<f8'; native float32"),
    "heads": (np.ones((1, 4, 7, 8), np.float32), "q.shape is (1, 4, 7, 8); heads that are a multiple"),
}


@pytest.mark.parametrize(("q", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(q: np.ndarray, message: str, tmp_path: Path) -> None:
    kv = np.ones((1, 3, 7, 8), np.float32)
    np.savez(tmp_path / "in.npz", q=q, k=kv, v=kv)
    done = CliRunner().invoke(app, ["demo", str(tmp_path / "in.npz")])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {message}")
    assert done.stdout == ""


def targets(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    for name, value in {"COLUMNS": "400", **environment}.items():
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(app, ["targets"])
    assert done.exit_code == 0
    return done.stdout


def line(text: str, target: str) -> list[str]:
    return [
        cell.strip() for cell in next(x for x in text.splitlines() if f" {target} " in x).split("│")[1:-1]
    ]


def test_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_features, "cpu_features", lambda: frozenset(Avx2.features))
    text = targets(monkeypatch)
    name, machine, emits, compiles, runs = line(text, "avx2")
    assert (name, machine, emits, runs) == (
        "avx2",
        "x86-64, vectors of 8 floats",
        "yes",
        "yes: this processor",
    )
    assert compiles.startswith("yes: ")
    missing = ", ".join(f for f in Avx512.features if f not in Avx2.features)
    assert line(text, "avx512")[4].startswith(
        f"no: this processor cannot run target avx512: it has no {missing}"
    )
    assert line(text, "avx512")[3].startswith("yes: ")


def test_targets_without_a_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What is missing is named with what to install; brackets are not taken for markup."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    text = targets(monkeypatch, PATH=str(tmp_path), CXX="")
    for cell in line(text, "avx2")[3:]:
        assert cell.startswith("no: there is no C++ compiler")
        assert "pip install 'flashgen[zig]'" in cell
    assert "pip install 'flashgen[cuda]'" in line(text, "cuda")[3]
    assert [line(text, name)[2] for name in ("avx2", "avx512", "cuda")] == ["yes"] * 3
