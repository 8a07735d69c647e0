"""What `flashgen demo` prints: the table, and what its figures say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashgen.bench.report import FEW_COUNT, count, figure, mark
from flashgen.bench.results import Measured
from flashgen.bench.tasks import EMITTED_1, EMITTED_2, LAZY, Q_OUTER, STANDARD_TITLE, Row
from flashgen.bench.turns import STEADY, Quartiles
from flashgen.cli.demo_timing import EIGHT, HEAD_DIM, LENGTH, ONE
from flashgen.problem import Problem
from flashgen.targets.cpu import Cpu

if TYPE_CHECKING:
    from rich.table import Table

PASSES = (
    (LAZY, EMITTED_1, "lazy-rescale", "O is divided once, not at every key tile"),
    (Q_OUTER, LAZY, "order q-outer", "a row's O, maximum and sum leave the workspace"),
    (
        EMITTED_2,
        Q_OUTER,
        "causal-skip",
        "no causal mask is here, but one at the end of the keys: only a tile that it cuts keeps it",
    ),
)
"""A method, the one that it adds to, what it adds, and why that makes it faster."""

NO_GAIN = 1 / STEADY
"""Times as fast, from one process to another, that the machine may make by itself without it being seen."""


def pair(rows: Measured, data: str, threads: int, method: str, before: str) -> tuple[Row, Row]:
    """What ``times_as_fast`` takes for a method's time as a share of another's."""
    return row_of(rows, data, threads, before), row_of(rows, data, threads, method)


def row_of(rows: Measured, data: str, threads: int, method: str) -> Row:
    row = rows.get(data, threads, method)
    assert row is not None
    return row


def report(rows: Sequence[Row], target: Cpu) -> None:
    """Print the table and what follows from it."""
    from flashgen.cli.terminal import console

    out, table = console(), Measured(rows)
    out.print(make_table(table))
    for sentence in explain(table, target):
        out.print(f"- {sentence}")


def make_table(rows: Measured) -> Table:
    from rich.table import Table

    table = Table("input and method")
    for title in ("threads", "time, ms", "GFLOP/s", "of FMA peak", "largest error", "of its bound"):
        table.add_column(title, justify="right")
    for data in inputs(rows):
        table.add_section()
        table.add_row(data, style="bold")
        for row in (row for row in rows.rows if row.case == data):
            table.add_row(
                f"  {row.method}",
                str(row.threads),
                f"{mark(rows, row)}{1e3 * rows.seconds(row):.3f}",
                f"{mark(rows, row)}{rows.rate(row):.1f}",
                figure(rows.share(row), ".2f"),
                f"{row.error:.1e}",
                f"{row.bound_share:.3f}" + ("" if row.bound_share <= 1 else " WRONG"),
            )
    return table


def explain(rows: Measured, target: Cpu) -> list[str]:
    """Sentences whose every figure is in the rows, or follows from the sizes.

    A reason is given only for what the figures show: on a disturbed machine they may show the opposite.
    """
    marks = [FEW_COUNT] if any(rows.few(row) for row in rows.rows) else []
    sentences = [*marks, how_measured(rows, target), against_numpy(rows, target), by_pass(rows)]
    if len(rows.threads) > 1:
        sentences.append(one_head(rows, target))
    return [*sentences, verdict(rows)]


def how_measured(rows: Measured, target: Cpu) -> str:
    best = {row.threads: rows.best(row) for row in rows.rows}
    peaks = ", ".join(f"{best[n][0]:.0f} on {count(n)}" for n in rows.threads)
    enough = sorted(rows.counted(row) for row in rows.rows)
    return (
        f"Target {target.name}. The methods of an input take turns. A turn counts if the FMA peak (fused "
        "multiply-adds on registers) and a product of tiles in caches, right before and right behind it, are "
        f"at least {STEADY:.0%} of the best seen: {enough[0]} to {enough[-1]} turns did. Times, shares of "
        f"the peak around each turn, and ratios are medians of those. GFLOP/s count the two matrix "
        f"products. The best peak seen, GFLOP/s: {peaks}."
    )


def against_numpy(rows: Measured, target: Cpu) -> str:
    def ratio(data: str, threads: int) -> str:
        both = pair(rows, data, threads, EMITTED_2, STANDARD_TITLE)
        return f"{mark(rows, *both)}{1 / rows.times_as_fast(*both)[1]:.2f} on {count(threads)}"

    ratios = "; ".join(f"{data}: {', '.join(ratio(data, n) for n in rows.threads)}" for data in inputs(rows))
    said = f"FlashAttention-2 against NumPy, times as fast: {ratios}."
    random = [(data, threads) for data in (EIGHT, ONE) for threads in rows.threads]
    if not shown(rows, [pair(rows, *where, EMITTED_2, STANDARD_TITLE) for where in random]):
        return said
    br, bc = tiles(target)
    return (
        f"{said} At {LENGTH} keys NumPy writes a table of {4 * LENGTH**2 >> 20} MiB of scores a head and "
        f"passes over it again and again; the emitted kernel holds a tile of {br} x {bc}, "
        f"{4 * br * bc >> 10} KiB."
    )


def shown(rows: Measured, pairs: Sequence[tuple[Row, Row]]) -> bool:
    """Whether the second of each pair is seen to be faster.

    No figure says slower, marked or not, and at least one that is not marked has its quartiles on the faster
    side.
    """
    found = [(rows.few(*both), rows.times_as_fast(*both)) for both in pairs]
    agree = all(middle < 1 for _, (_, middle, _) in found)
    return agree and any(high < 1 for few, (_, _, high) in found if not few)


def by_pass(rows: Measured) -> str:
    def changed(method: str, before: str) -> str:
        both = pair(rows, EIGHT, 1, method, before)
        return mark(rows, *both) + change(rows.times_as_fast(*both))

    def reason(method: str, before: str, why: str) -> str:
        return f" ({why})" if shown(rows, [pair(rows, EIGHT, 1, method, before)]) else ""

    steps = "; ".join(
        f"{choice}{reason(name, before, why)} {changed(name, before)}" for name, before, choice, why in PASSES
    )
    whole = changed(EMITTED_2, EMITTED_1)
    return f"From FlashAttention-1 to 2 ({EIGHT}, 1 thread) the time changes by {whole}: {steps}."


def change(ratios: Quartiles) -> str:
    """A change of time, in per cent, between quartiles; no change, where they lie on both sides of it."""
    low, middle, high = (f"{100 * (ratio - 1):+.1f}" for ratio in ratios)
    unclear = ", not to be told from none" if ratios[0] <= 1 <= ratios[2] else ""
    return f"{middle} % (quartiles {low} and {high}{unclear})"


def one_head(rows: Measured, target: Cpu) -> str:
    n = rows.threads[-1]
    runs = {
        method: (row_of(rows, ONE, 1, method), row_of(rows, ONE, n, method))
        for method in (EMITTED_1, EMITTED_2)
    }
    gains = {method: rows.seconds(one) / rows.seconds(more) for method, (one, more) in runs.items()}
    sure = not any(rows.few(row) for run in runs.values() for row in run)

    def gain(method: str) -> str:
        one, more = runs[method]
        return f"{mark(rows, one) or mark(rows, more)}{gains[method]:.2f} times"

    said = (
        f"With one head, {count(n)} make FlashAttention-1 {gain(EMITTED_1)} as fast as one does, and "
        f"FlashAttention-2 {gain(EMITTED_2)}."
    )
    if not (sure and gains[EMITTED_1] <= NO_GAIN < gains[EMITTED_2]):
        return said
    query_tiles = -(-LENGTH // tiles(target)[0])
    return (
        f"{said} The outer loop of FlashAttention-1 goes over keys and hands its state on, so only batch and "
        f"heads are parallel; that of FlashAttention-2 goes over {query_tiles} query tiles, each on its own."
    )


def verdict(rows: Measured) -> str:
    worst = max(rows.rows, key=lambda row: (not row.bound_share <= 1, row.bound_share))
    where = f"{worst.method.strip(' +')}, {worst.case}, {count(worst.threads)}"
    if worst.bound_share <= 1:
        share = f"{worst.bound_share:.3f} of it ({where})"
        return f"Every result is within the bound on its error; the nearest to it is at {share}."
    return f"WRONG: {where} is {worst.bound_share:.3g} times as far from the reference as its bound allows."


def tiles(target: Cpu) -> tuple[int, int]:
    """Br and Bc of the kernels for the random inputs."""
    return target.tiles(Problem(HEAD_DIM))


def inputs(rows: Measured) -> list[str]:
    """In the order of the table."""
    return list(dict.fromkeys(row.case for row in rows.rows))
