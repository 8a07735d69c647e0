"""`flashgen bench`: our kernels, what the machine can do, and every installed library of attention."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashgen.bench.cases import CASES, FORM, Case, choose_cases
from flashgen.errors import InvalidArgument

if TYPE_CHECKING:
    from flashgen.bench.results import Results
    from flashgen.bench.tasks import Row
    from flashgen.targets.cpu import Cpu

WRONG = 1
"""Exit status where a kernel of ours gives no result, or one outside its bound."""


def bench(
    cases: Annotated[
        str | None,
        typer.Option("--cases", metavar="all|NAME,...", help=f"Some of {', '.join(CASES)}; all, by default."),
    ] = None,
    shapes: Annotated[
        list[str] | None, typer.Option("--shape", metavar=FORM, help="A shape; may be given several times.")
    ] = None,
    threads: Annotated[
        str | None,
        typer.Option(
            "--threads", metavar="N,...", help="How many threads; a run for each.", show_default="1"
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", help="What our kernels are emitted for.", show_default="the best that runs"),
    ] = None,
    peers: Annotated[
        str, typer.Option("--peers", metavar="all|none|NAME,...", help="Which libraries to compare with.")
    ] = "all",
    turns: Annotated[
        int, typer.Option("--turns", help="Turns of each method that have to count, if patience allows.")
    ] = 15,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE.json", help="Write every turn and every figure.")
    ] = None,
    chart_file: Annotated[
        Path | None,
        typer.Option("--chart", metavar="FILE.svg|FILE.png", help="Draw shares of the peak as bars."),
    ] = None,
) -> None:
    """Compare our kernels with the machine's peak and with other libraries.

    Every method of a case is checked against a float64 reference, then all take turns in one process. A
    library that is not installed, cannot do a case or does it wrong is said to be so. The exit status is 1
    where a result of ours is wrong.

    \b
    Examples:
      flashgen bench --cases P1,P4,D1
      flashgen bench --cases all --threads 1,2
      flashgen bench --shape 1,32,8,512,4096,128,causal --peers torch,numpy
    """
    from flashgen.bench.peers import choose_peers
    from flashgen.bench.results import Results
    from flashgen.bench.tasks import OURS, RIGHT
    from flashgen.errors import check_positive

    check_files(json_file, chart_file)
    chosen, counts = choose_cases(cases, shapes or ()), parse_threads(threads)
    check_positive("turns", turns)
    cpu = choose_target(target)
    present, absent = choose_peers(peers)
    rows = measure(chosen, present, cpu, counts, turns)
    results = Results(rows, chosen)
    show(results, absent)
    save(results, present, absent, json_file, chart_file)
    if any(row.method == OURS and row.state != RIGHT for row in rows):
        raise typer.Exit(WRONG)


def check_files(json_file: Path | None, chart_file: Path | None) -> None:
    """Raise InvalidArgument or MissingTool, before the work, where they cannot be written."""
    from flashgen.cli.output import check_output

    if json_file is not None:
        check_output("json", json_file, (".json",))
    if chart_file is not None:
        from flashgen.bench.chart import load_matplotlib

        check_output("chart", chart_file, (".svg", ".png"))
        load_matplotlib()


def show(results: Results, absent: Sequence[str]) -> None:
    """Print the table and what has to be known to read it."""
    from flashgen.bench.report import Notes, make_table, summary
    from flashgen.cli.terminal import console

    notes, out = Notes(), console()
    out.print(make_table(results, notes))
    for text in (*notes.lines(), *(f"- {sentence}" for sentence in summary(results, absent))):
        out.print(text)


def save(
    results: Results,
    present: Sequence[str],
    absent: Sequence[str],
    json_file: Path | None,
    chart_file: Path | None,
) -> None:
    """Write what was asked for."""
    from flashgen.bench.machine import processor, versions
    from flashgen.cli.output import write, write_text

    if json_file is not None:
        from flashgen.bench.record import to_json

        machine = {"processor": processor(), "versions": versions(present)}
        write_text("json", json_file, to_json(results, machine, absent))
    if chart_file is not None:
        from flashgen.bench.chart import draw

        kind = chart_file.suffix[1:]
        write("chart", chart_file, lambda file: draw(results, processor(), kind, file))


def parse_threads(text: str | None) -> list[int]:
    """ "1,2" ~> [1, 2]. Raises InvalidArgument."""
    from flashgen.runtime.threads import MAX_THREADS

    words = [word.strip() for word in (text or "1").split(",")]
    if not all(word.isascii() and word.isdigit() and 1 <= int(word) <= MAX_THREADS for word in words):
        raise InvalidArgument("threads", repr(text), f"whole numbers from 1 to {MAX_THREADS} are allowed")
    return sorted(set(map(int, words)))


def choose_target(name: str | None) -> Cpu:
    """Raises InvalidArgument for one that is no CPU, MissingTool for one that does not run here."""
    from flashgen.runtime.cpu_features import best_target, require
    from flashgen.targets import find
    from flashgen.targets.cpu import Cpu

    if name is None:
        return best_target()
    target = find(name)
    if not isinstance(target, Cpu):
        raise InvalidArgument("target", repr(name), "a CPU's target is allowed: avx2 or avx512")
    require(target)
    return target


def measure(
    cases: Sequence[Case], peers: Sequence[str], target: Cpu, counts: Sequence[int], turns: int
) -> list[Row]:
    """A process for each number of threads, case by case."""
    from flashgen.bench.process import in_new_process
    from flashgen.bench.tasks import OURS, SGEMM, Row, Task
    from flashgen.cli.terminal import progress

    def task(case: Case, threads: int) -> Task:
        methods = (OURS, *peers) if case.reads else (OURS, *peers, SGEMM)
        return Task(case, methods, target.name, threads, turns)

    rows: list[Row] = []
    with progress() as bars:
        total = len(counts) * sum(len(task(case, 1).methods) for case in cases)
        step = bars.add_task(cases[0].name, total=total)
        for threads in counts:
            tasks = [task(case, threads).to_json() for case in cases]
            for fields in in_new_process("flashgen.bench.child", tasks, threads):
                rows.append(Row(**fields))
                bars.update(step, advance=1, description=f"{rows[-1].case} done, {threads} threads")
    return rows
