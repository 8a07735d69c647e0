"""What `flashgen bench --memory` prints, and writes as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from flashgen.bench.memory import Usage
from flashgen.bench.report import Notes, count, title
from flashgen.bench.tasks import RIGHT

if TYPE_CHECKING:
    from rich.table import Table

HOW = (
    "Mebibytes that lie in memory while a call runs, at most, above what there was before it was prepared, "
    "and without the output: scratch memory, compiled graphs, and what an allocator has kept. The libraries "
    "were loaded and a small call made before; what that left and a method uses again is not seen. Copies of "
    "the inputs in a layout of a library's own are not counted. Each figure is from a process of its own."
)


def make_table(usages: Sequence[Usage], notes: Notes) -> Table:
    """A line for each form of a method, a column for each case and number of threads."""
    from rich import box
    from rich.table import Table

    columns = list(dict.fromkeys((usage.case, usage.threads) for usage in usages))
    lines = list(dict.fromkeys((usage.method, usage.form) for usage in usages))
    by_place = {(usage.method, usage.form, usage.case, usage.threads): usage for usage in usages}
    table = Table("MiB above inputs and output", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for case, threads in columns:
        table.add_column(f"{case}\n{count(threads)}", justify="right", overflow="fold")
    for method, form in lines:
        cells = (cell(by_place.get((method, form, *column)), notes) for column in columns)
        table.add_row(f"{title(method)}: {form}" if form else title(method), *cells)
    return table


def cell(usage: Usage | None, notes: Notes) -> str:
    if usage is None:
        return ""
    if usage.state == RIGHT:
        return f"{usage.above / 2**20:.1f}"
    return f"{usage.state} [{notes.number(f'{title(usage.method)}: {usage.note}')}]"


def to_json(usages: Sequence[Usage], machine: Mapping[str, Any]) -> str:
    document = {"machine": machine, "bytes_above_inputs_and_output": [asdict(usage) for usage in usages]}
    return json.dumps(document, indent=1) + "\n"
