"""What `flashgen demo` prints: the table, and what its figures say."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashgen.bench import turns
from flashgen.bench.turns import STEADY, Quartiles, counted
from flashgen.cli.demo_timing import (
    EIGHT,
    FA1_NAME,
    FA2_NAME,
    HEAD_DIM,
    LAZY,
    LENGTH,
    NUMPY,
    ONE,
    Q_OUTER,
    Row,
)
from flashgen.problem import Problem
from flashgen.targets.cpu import Cpu

if TYPE_CHECKING:
    from rich.table import Table

PASSES = (
    (LAZY, FA1_NAME, "lazy-rescale", "O is divided once, not at every key tile"),
    (Q_OUTER, LAZY, "order q-outer", "a row's O, maximum and sum leave the workspace"),
    (FA2_NAME, Q_OUTER, "causal-skip", "key tiles that nothing cuts run without a mask"),
)
"""A method, the one that it adds to, what it adds, and what that does."""


class Rows:
    """Rows by what they measure, in the order of the table."""

    def __init__(self, rows: Sequence[Row]):
        self.all = rows
        self.data = list(dict.fromkeys(row.data for row in rows))
        self.threads = sorted({row.threads for row in rows})
        self._by_key = {(row.data, row.threads, row.method): row for row in rows}
        self.best = {
            n: turns.best_probe(row.series for row in rows if row.threads == n) for n in self.threads
        }
        """The highest peak seen on so many threads, GFLOP/s."""

    def get(self, data: str, threads: int, method: str) -> Row:
        return self._by_key[data, threads, method]

    def counted(self, row: Row) -> int:
        """How many turns count."""
        return len(counted(self.best[row.threads], row.series))

    def seconds(self, row: Row) -> float:
        """The median of the turns that count; of all, where none does."""
        return turns.median_seconds(row.series, self.best[row.threads])

    def share(self, row: Row) -> float | None:
        """Of the FMA peak around each turn, the median of those that count; None where none does."""
        return turns.share_of_probe(row.series, row.operations, self.best[row.threads])

    def ratios(self, data: str, threads: int, method: str, other: str) -> Quartiles:
        """Quartiles of a method's time as a share of another's in the same round."""
        mine, others = self.get(data, threads, method), self.get(data, threads, other)
        return turns.ratios(mine.series, others.series, self.best[threads])


def report(rows: Sequence[Row], target: Cpu) -> None:
    """Print the table and what follows from it."""
    from flashgen.cli.terminal import console

    out, table = console(), Rows(rows)
    out.print(make_table(table))
    for sentence in explain(table, target):
        out.print(f"- {sentence}")


def make_table(rows: Rows) -> Table:
    from rich.table import Table

    table = Table("input and method")
    for title in ("threads", "time, ms", "GFLOP/s", "of FMA peak", "largest error", "of its bound"):
        table.add_column(title, justify="right")
    for data in rows.data:
        table.add_section()
        table.add_row(data, style="bold")
        for row in (row for row in rows.all if row.data == data):
            seconds, share = rows.seconds(row), rows.share(row)
            table.add_row(
                f"  {row.method}",
                str(row.threads),
                f"{1e3 * seconds:.3f}",
                f"{row.operations / seconds / 1e9:.1f}",
                "not seen" if share is None else f"{share:.2f}",
                f"{row.error:.1e}",
                f"{row.bound_share:.3f}" + ("" if row.bound_share <= 1 else " WRONG"),
            )
    return table


def explain(rows: Rows, target: Cpu) -> list[str]:
    """Sentences whose every figure is in the rows, or follows from the sizes."""
    sentences = [how_measured(rows, target), against_numpy(rows, target), by_pass(rows)]
    if len(rows.threads) > 1:
        sentences.append(one_head(rows, target))
    return [*sentences, verdict(rows)]


def how_measured(rows: Rows, target: Cpu) -> str:
    peaks = ", ".join(f"{rows.best[n]:.0f} on {count(n)}" for n in rows.threads)
    enough = sorted(rows.counted(row) for row in rows.all)
    return (
        f"Target {target.name}. The methods of an input take turns. A turn counts if the FMA peak (fused "
        "multiply-adds on registers) right before and right behind it is at least "
        f"{STEADY:.0%} of the best one seen: {enough[0]} to {enough[-1]} turns did. Times, shares of "
        f"the peak around each turn, and ratios are medians of those. GFLOP/s count the two matrix products. "
        f"The best peak seen, GFLOP/s: {peaks}."
    )


def against_numpy(rows: Rows, target: Cpu) -> str:
    def figure(data: str, threads: int) -> str:
        return f"{1 / rows.ratios(data, threads, FA2_NAME, NUMPY)[1]:.2f} on {count(threads)}"

    figures = "; ".join(f"{data}: {', '.join(figure(data, n) for n in rows.threads)}" for data in rows.data)
    br, bc = tiles(target)
    return (
        f"FlashAttention-2 against NumPy, times as fast: {figures}. At {LENGTH} keys NumPy writes a table of "
        f"{4 * LENGTH**2 >> 20} MiB of scores a head and passes over it again and again; the emitted kernel "
        f"holds a tile of {br} x {bc}, {4 * br * bc >> 10} KiB."
    )


def by_pass(rows: Rows) -> str:
    steps = "; ".join(
        f"{choice} ({effect}) {change(rows.ratios(EIGHT, 1, name, before))}"
        for name, before, choice, effect in PASSES
    )
    whole = change(rows.ratios(EIGHT, 1, FA2_NAME, FA1_NAME))
    return f"From FlashAttention-1 to 2 ({EIGHT}, 1 thread) the time changes by {whole}: {steps}."


def change(ratios: Quartiles) -> str:
    """A change of time, in per cent, between quartiles; no change, where they lie on both sides of it."""
    low, middle, high = (f"{100 * (ratio - 1):+.1f}" for ratio in ratios)
    unclear = ", not to be told from none" if ratios[0] <= 1 <= ratios[2] else ""
    return f"{middle} % (quartiles {low} and {high}{unclear})"


def one_head(rows: Rows, target: Cpu) -> str:
    n = rows.threads[-1]
    first, second = (
        rows.seconds(rows.get(ONE, 1, name)) / rows.seconds(rows.get(ONE, n, name))
        for name in (FA1_NAME, FA2_NAME)
    )
    query_tiles = -(-LENGTH // tiles(target)[0])
    return (
        f"With one head, {count(n)} make FlashAttention-1 {first:.2f} times as fast as one does, and "
        f"FlashAttention-2 {second:.2f} times. The outer loop of FlashAttention-1 goes over keys and hands "
        "its state on, so only batch and heads are parallel; that of FlashAttention-2 goes over "
        f"{query_tiles} query tiles, each on its own."
    )


def verdict(rows: Rows) -> str:
    worst = max(rows.all, key=lambda row: (not row.bound_share <= 1, row.bound_share))
    where = f"{worst.method.strip(' +')}, {worst.data}, {count(worst.threads)}"
    if worst.bound_share <= 1:
        share = f"{worst.bound_share:.3f} of it ({where})"
        return f"Every result is within the bound on its error; the nearest to it is at {share}."
    return f"WRONG: {where} is {worst.bound_share:.3g} times as far from the reference as its bound allows."


def count(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def tiles(target: Cpu) -> tuple[int, int]:
    """Br and Bc of the kernels for the random inputs."""
    return target.default_tiles(Problem(HEAD_DIM))
