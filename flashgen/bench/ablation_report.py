"""What `flashgen bench --ablate` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flashgen.bench.report import CLOCKS, FEW_COUNT, Notes, count, figure, mark, spread
from flashgen.bench.results import Results
from flashgen.bench.tasks import RIGHT, WHOLE, WITHOUT, Row

if TYPE_CHECKING:
    from rich.table import Table


def make_table(results: Results, notes: Notes) -> Table:
    """A line for each switch, a column for each case and number of threads."""
    from rich import box
    from rich.table import Table

    columns = [(case, threads) for threads in results.threads for case in results.cases]
    table = Table("switched off", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for case, threads in columns:
        table.add_column(f"{case}\n{count(threads)}", justify="right", overflow="fold")
    for method in results.compared:
        rows = [results.get(case, threads, method) for case, threads in columns]
        table.add_row(method.removeprefix(WITHOUT), *(cell(results, row, notes) for row in rows))
    return table


def cell(results: Results, row: Row | None, notes: Notes) -> str:
    """How many times as long the kernel takes; of the whole kernel its rate and its share of the peak."""
    if row is None:
        return ""
    if row.state != RIGHT:
        return f"{row.state} [{notes.number(row.note)}]"
    if row.method == WHOLE:
        unit = results.cases[row.case].unit
        return (
            f"{mark(results, row)}{results.rate(row):.1f} {unit}, {figure(results.share(row), '.2f')} of peak"
        )
    whole = results.get(row.case, row.threads, WHOLE)
    if whole is None or whole.state != RIGHT:
        return ""
    low, middle, high = results.times_as_fast(whole, row)
    unclear = low <= 1 <= high or results.few(whole, row)
    return mark(results, whole, row) + spread((low, middle, high)) + (" ?" if unclear else "  ")


def summary(results: Results, clock: str) -> str:
    taken = [results.counted(row) for row in results.rows if row.state == RIGHT]
    return (
        f"{CLOCKS[clock]} Each line is the kernel with one thing switched off, and how many times as long it "
        "takes as the whole kernel in the same round: median and quartiles; ? where they do not tell it from "
        f"none. Tile sizes stay as they are. {min(taken, default=0)} to {max(taken, default=0)} turns each "
        f"count. {FEW_COUNT} What fails cannot be left out, for the reason given. panel off: nothing is "
        "packed. causal_skip off: the mask is not split off, every key tile has it. fuse-sweeps off: each "
        "reduction is a sweep of its own, and so is each operation that feeds it. micro-tiles off: register "
        "blocks of one row. rescale-skip off: rows are multiplied by a factor of 1, too."
    )
