"""`flashgen bench`: our kernels, what the machine can do, and every installed library of attention."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashgen.bench.cases import CASES, FORM, Case, choose_cases, whole_number
from flashgen.errors import InvalidArgument, check_choice, check_one, check_positive

if TYPE_CHECKING:
    from rich.table import Table

    from flashgen.bench.results import Results
    from flashgen.bench.tasks import Row
    from flashgen.targets.cpu import Cpu

WRONG = 1
"""Exit status where a kernel of ours gives no result, or one outside its bound."""

NO_CASE = {"speed": "all", "ablate": "P1,P4", "memory": "P5", "hardware": "P1"}
"""What is measured in which cases, if none is named."""

UNUSED = {
    "speed": (),
    "ablate": ("peers", "chart"),
    "memory": ("turns", "clock", "chart"),
    "hardware": ("peers", "chart", "json"),
}
"""Options that have no meaning for what is measured, and are refused there: none is ignored."""

TURNS, CLOCK = 15, "wall"
"""Where no other is asked for."""


WHAT_CASES_ARE = "\n".join(
    (
        "\b",
        "Cases, and their shapes (sequences, heads of Q, heads of K and V, queries, keys, head dim):",
        *(f"  {case.name}  {case.label:30}{case.words}" for case in CASES.values()),
    )
)
"""Behind the options, in the help."""


@dataclass(frozen=True)
class Request:
    """What is asked for, checked."""

    cases: list[Case]
    threads: list[int]
    target: Cpu
    turns: int
    clock: str
    json: Path | None
    chart: Path | None


def bench(
    cases: Annotated[
        str | None,
        typer.Option(
            "--cases",
            metavar="all|NAME,...",
            help=f"Some of {', '.join(CASES)}, described below; all, by default.",
        ),
    ] = None,
    shapes: Annotated[
        list[str] | None, typer.Option("--shape", metavar=FORM, help="A shape; may be given several times.")
    ] = None,
    threads: Annotated[
        str, typer.Option("--threads", metavar="N,...", help="How many threads; a run for each.")
    ] = "1",
    target: Annotated[
        str | None,
        typer.Option("--target", help="What our kernels are emitted for.", show_default="the best that runs"),
    ] = None,
    peers: Annotated[
        str | None,
        typer.Option(
            "--peers", metavar="all|none|NAME,...", help="Libraries to compare with.", show_default="all"
        ),
    ] = None,
    turns: Annotated[
        int | None,
        typer.Option(
            "--turns",
            help="Turns of each method that have to count, if patience allows; figures of which fewer than 5 "
            "count are marked ~.",
            show_default=str(TURNS),
        ),
    ] = None,
    clock: Annotated[
        str | None,
        typer.Option(
            "--clock",
            metavar="wall|cpu",
            help="What turns are timed by. cpu, on one thread: without what other processes take away.",
            show_default=CLOCK,
        ),
    ] = None,
    ablate: Annotated[
        bool,
        typer.Option("--ablate", help=f"Switch off a part of our kernel at a time, in {NO_CASE['ablate']}."),
    ] = False,
    memory: Annotated[
        bool,
        typer.Option("--memory", help=f"Measure memory instead of time, in {NO_CASE['memory']}."),
    ] = False,
    hardware: Annotated[
        bool,
        typer.Option("--hardware", help="Count instructions and bytes of standard attention, FA-1 and FA-2."),
    ] = False,
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
      flashgen bench --ablate
      flashgen bench --memory --threads 1,2
      flashgen bench --hardware
    """
    from flashgen.bench.room import check_fits

    kind = choose_kind({"ablate": ablate, "memory": memory, "hardware": hardware})
    given = {"peers": peers, "turns": turns, "clock": clock, "chart": chart_file, "json": json_file}
    refuse_unused(kind, given)
    check_files(json_file, chart_file)
    turns, clock = TURNS if turns is None else turns, CLOCK if clock is None else clock
    peers = "all" if peers is None else peers
    check_positive("turns", turns)
    if cases is None and not shapes:
        cases = NO_CASE[kind]
    chosen = choose_cases(cases, shapes or ())
    counts = parse_threads(threads)
    check_choice("clock", clock, ("wall", "cpu"))
    if clock == "cpu" and counts != [1]:
        raise InvalidArgument("clock", repr(clock), "with threads above 1, 'wall' is allowed")
    check_fits(chosen)
    request = Request(chosen, counts, choose_target(target), turns, clock, json_file, chart_file)
    if kind == "ablate":
        compare_switches(request)
    elif kind == "memory":
        compare_memory(request, peers)
    elif kind == "hardware":
        compare_algorithms(request)
    else:
        compare_peers(request, peers)


def choose_kind(wanted: dict[str, bool]) -> str:
    """What is measured. Raises ConflictingOptions where two are wanted."""
    check_one({f"--{kind}": flag for kind, flag in wanted.items()})
    return next((kind for kind, flag in wanted.items() if flag), "speed")


def refuse_unused(kind: str, given: Mapping[str, object]) -> None:
    """Raise ConflictingOptions for an option that is given and has no meaning for what is measured."""
    for option in UNUSED[kind]:
        check_one({f"--{kind}": True, f"--{option}": given[option]})


def compare_peers(request: Request, names: str) -> None:
    """Our kernels beside the libraries of that name. Raises typer.Exit where one of ours is wrong."""
    from flashgen.bench import report
    from flashgen.bench.peers import choose_peers
    from flashgen.bench.results import Results
    from flashgen.bench.tasks import OURS, RIGHT, SGEMM

    present, absent = choose_peers(names)
    rows = measure(request, lambda case: (OURS, *present) if case.reads else (OURS, *present, SGEMM))
    results, notes = Results(rows, request.cases), report.Notes()
    show(report.make_table(results, notes), [*notes.lines(), *report.summary(results, absent, request.clock)])
    save(request, results, present, absent)
    if any(row.method == OURS and row.state != RIGHT for row in rows):
        raise typer.Exit(WRONG)


def compare_switches(request: Request) -> None:
    """Our kernel beside itself, with one thing switched off. Raises typer.Exit where the whole is wrong."""
    from flashgen.bench import ablation_report as report
    from flashgen.bench.ablation import switches
    from flashgen.bench.report import Notes
    from flashgen.bench.results import Results
    from flashgen.bench.tasks import RIGHT, WHOLE, WITHOUT

    def methods(case: Case) -> list[str]:
        return [WHOLE, *(f"{WITHOUT}{name}" for name in switches(case.problem, request.target))]

    rows = measure(request, methods)
    results, notes = Results(rows, request.cases, WHOLE), Notes()
    show(report.make_table(results, notes), [*notes.lines(), report.summary(results, request.clock)])
    save(request, results, [], [])
    if any(row.method == WHOLE and row.state != RIGHT for row in rows):
        raise typer.Exit(WRONG)


def compare_memory(request: Request, names: str) -> None:
    """What our kernels and the libraries of that name hold while they run."""
    from flashgen.bench import memory, memory_report
    from flashgen.bench.peers import choose_peers
    from flashgen.bench.report import Notes, count, missing
    from flashgen.bench.tasks import OURS
    from flashgen.cli.output import write_text
    from flashgen.cli.progress import progress

    memory.check_system()
    present, absent = choose_peers(names)
    with progress() as bars:
        step = bars.add_task("one process each", total=None)

        def advance(usage: memory.Usage) -> None:
            bars.update(step, description=f"{usage.case}: {usage.method} done on {count(usage.threads)}")

        methods = (OURS, *present)
        usages = memory.measure(request.cases, methods, request.target, request.threads, advance)
    notes = Notes()
    table = memory_report.make_table(usages, notes)
    show(table, [*notes.lines(), *missing(absent), memory_report.HOW])
    if request.json is not None:
        write_text("json", request.json, memory_report.to_json(usages, machine(present)))


def compare_algorithms(request: Request) -> None:
    """Standard attention, FlashAttention-1 and -2, timed and counted, a table for each case."""
    from flashgen.bench import count, hardware
    from flashgen.bench.results import Results
    from flashgen.cli.progress import progress

    count.find_valgrind()
    results = Results(measure(request, lambda case: list(hardware.TITLES)), request.cases)
    for case in request.cases:
        counted = hardware.small(case)
        with progress() as bars:
            step = bars.add_task("counting", total=len(hardware.TITLES))
            counts = hardware.count_all(counted, functools.partial(bars.advance, step))
        for threads in request.threads:
            table = hardware.make_table(results, case, threads, counts, counted)
            show(table, [hardware.summary(counted, request.clock)])


def measure(request: Request, methods: Callable[[Case], Sequence[str]]) -> list[Row]:
    """The rows of a request, with a bar while they come."""
    from flashgen.bench import run
    from flashgen.bench.report import count
    from flashgen.cli.progress import progress

    with progress() as bars:
        total = len(request.threads) * sum(len(methods(case)) for case in request.cases)
        step = bars.add_task(request.cases[0].name, total=total)

        def advance(row: Row) -> None:
            bars.update(step, advance=1, description=f"{row.case} done on {count(row.threads)}")

        settings = request.target, request.threads, request.turns, request.clock
        return run.measure(request.cases, methods, *settings, advance)


def show(table: Table, remarks: Sequence[str]) -> None:
    from flashgen.cli.terminal import console

    out = console()
    out.print(table)
    for text in remarks:
        out.print(f"- {text}")


def save(request: Request, results: Results, present: Sequence[str], absent: Sequence[str]) -> None:
    """Write what was asked for."""
    from flashgen.bench.machine import processor
    from flashgen.cli.output import write, write_text

    if request.json is not None:
        from flashgen.bench.record import to_json

        write_text(
            "json", request.json, to_json(results, machine(present) | {"clock": request.clock}, absent)
        )
    if (path := request.chart) is not None:
        from flashgen.bench.chart import draw

        write("chart", path, lambda file: draw(results, processor(), path.suffix[1:], file))


def machine(present: Sequence[str]) -> dict[str, object]:
    """What the figures were measured with."""
    from flashgen.bench.machine import processor, versions

    return {"processor": processor(), "versions": versions(present)}


def check_files(json_file: Path | None, chart_file: Path | None) -> None:
    """Raise InvalidArgument or MissingTool, before the work, where they cannot be written."""
    from flashgen.cli.output import check_output

    if json_file is not None:
        check_output("json", json_file, (".json",))
    if chart_file is not None:
        check_output("chart", chart_file, (".svg", ".png"))
        from flashgen.bench.chart import load_matplotlib

        load_matplotlib()


def parse_threads(text: str) -> list[int]:
    """ "1,2" ~> [1, 2]. Raises InvalidArgument."""
    from flashgen.runtime.threads import MAX_THREADS

    counts = {whole_number(word.strip()) or 0 for word in text.split(",")}
    if not all(1 <= count <= MAX_THREADS for count in counts):
        raise InvalidArgument("threads", repr(text), f"whole numbers from 1 to {MAX_THREADS} are allowed")
    return sorted(counts)


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
