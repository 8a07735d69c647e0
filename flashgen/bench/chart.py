"""A run as a bar chart: each method's share of what the machine can do."""

from __future__ import annotations

import importlib
from typing import Any, BinaryIO

from flashgen.bench.report import count, title
from flashgen.bench.results import Results
from flashgen.bench.tasks import OURS, RIGHT
from flashgen.bench.turns import FEWEST
from flashgen.errors import MissingTool

WIDTH = 0.82
"""Of a case's bars together, where cases are 1 apart."""
PALE = 0.4
"""Opacity of a bar that is no share of probes of turns that count."""
COLOURS = ("#b2182b", "#4d4d4d", "#878787", "#5b7fa6", "#9ab6d3", "#d9c9a3")
"""Of flashgen, then of its peers: it stands out, also in grey."""


def load_matplotlib() -> Any:
    """Raises MissingTool."""
    try:
        return importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise MissingTool("charts need matplotlib: pip install 'flashgen[bench]'") from error


def draw(results: Results, machine: str, kind: str, file: BinaryIO) -> None:
    """Write a chart with a panel for each number of threads.

    machine: a line about where this was measured. kind: "svg" or "png".
    """
    figure = load_matplotlib().Figure(figsize=(11, 3.6 * len(results.threads) + 0.6), layout="constrained")
    for panel, threads in zip(
        figure.subplots(len(results.threads), squeeze=False)[:, 0], results.threads, strict=True
    ):
        fill(panel, results, threads)
    figure.suptitle(f"Attention, float32, as a share of the machine's peak\n{machine}", fontsize=10)
    figure.savefig(file, format=kind, dpi=144)


def fill(panel: Any, results: Results, threads: int) -> None:
    """The bars of one number of threads, flashgen's labelled; none where a method has no right result."""
    cases, width = list(results.cases.values()), WIDTH / len(results.compared)
    for index, (method, colour) in enumerate(zip(results.compared, COLOURS, strict=False)):
        bars = [(at, height(results, case.name, threads, method)) for at, case in enumerate(cases)]
        seen = [(at, share) for at, share in bars if share is not None]
        places = [at + (index + 0.5) * width - WIDTH / 2 for at, _ in seen]
        drawn = panel.bar(places, [share for _, share in seen], width, label=title(method), color=colour)
        for bar, (at, _) in zip(drawn, seen, strict=True):
            bar.set_alpha(PALE if is_few(results, cases[at].name, threads, method) else 1)
        if method == OURS:
            panel.bar_label(drawn, fmt="%.2f", fontsize=7)
    panel.set_xticks(range(len(cases)), [case_label(case.name, case.label) for case in cases], fontsize=6)
    panel.set_ylabel("FMA peak; D: read bandwidth", fontsize=8)
    disturbed = any(results.few(row) for row in results.rows if row.threads == threads and row.state == RIGHT)
    pale = f"; pale: of all turns, as fewer than {FEWEST} count" if disturbed else ""
    panel.set_title(f"{count(threads)}{pale}", fontsize=9, loc="left")
    panel.set_ylim(0, 1.05)
    panel.spines[["top", "right"]].set_visible(False)
    panel.legend(ncols=len(results.compared), fontsize=7, frameon=False, loc="upper right")


def is_few(results: Results, case: str, threads: int, method: str) -> bool:
    row = results.get(case, threads, method)
    return row is not None and results.few(row)


def case_label(name: str, label: str) -> str:
    """On lines of their own: the name, heads, lengths and the rest."""
    batch, hq, hkv, nq, nk, *rest = label.split(",")
    lines = [f"{batch},{hq},{hkv}", f"{nq},{nk}", ",".join(rest)]
    return "\n".join(lines if name == label else [name, *lines])


def height(results: Results, case: str, threads: int, method: str) -> float | None:
    """A method's rate as a share of the probes around its turns; of the best probe, if few turns count."""
    row = results.get(case, threads, method)
    if row is None or row.state != RIGHT:
        return None
    share = results.share(row)
    return results.rate(row) / results.best(row)[0] if share is None else share
