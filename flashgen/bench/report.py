"""What `flashgen bench` prints: the table, and what has to be known to read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from flashgen.bench.peers import EXTRA, PEERS
from flashgen.bench.results import Measured, Results
from flashgen.bench.tasks import CANNOT, OURS, RIGHT, SGEMM, SIDE, Row
from flashgen.bench.turns import FEWEST, STEADY, Quartiles

if TYPE_CHECKING:
    from rich.table import Table

    from flashgen.bench.cases import Case


CLOCKS = {
    "wall": "Times are those of a clock on the wall.",
    "cpu": "Times are those of the processor: what other processes took away is not in them.",
}


MARK = "~"
"""Before a figure that was disturbed: here one of all turns, where fewer than FEWEST count."""
PEAK, SHARE, TIMES, TURNS = "peak", "our share", "times best peer", "turns"
"""What columns behind the methods are called: in few letters, as six methods and a shape fill a line."""


class Notes:
    """Remarks below a table, numbered in the order in which cells ask for them."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self._numbers.setdefault(text, len(self._numbers) + 1)

    def lines(self) -> list[str]:
        return [f"[{number}] {text}" for text, number in self._numbers.items()]


def title(method: str) -> str:
    """What a method's column is called."""
    return PEERS[method].name if method in PEERS else method


def make_table(results: Results, notes: Notes) -> Table:
    """A line for each case and number of threads; prefill in GFLOP/s, decoding in GB/s of K and V."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("B,Hq,Hkv,Nq,Nk,D", overflow="fold")
    for name in (*map(title, results.compared), PEAK, SHARE, TIMES, TURNS):
        table.add_column("\n".join(name.split(maxsplit=1)), justify="right", overflow="fold")
    for threads in results.threads:
        for reads in (False, True):
            cases = [case for case in results.cases.values() if case.reads is reads]
            if cases:
                table.add_section()
                table.add_row(heading(threads, reads), style="bold")
            for case in cases:
                table.add_row(*line(results, case, threads, notes))
    return table


def heading(threads: int, reads: bool) -> str:
    return f"{count(threads)}, {'GB/s' if reads else 'GFLOP/s'}"


def count(threads: int) -> str:
    return "1 thread" if threads == 1 else f"{threads} threads"


def line(results: Results, case: Case, threads: int, notes: Notes) -> list[str]:
    """A case on so many threads: a cell for each column."""
    rows = [results.get(case.name, threads, method) for method in results.compared]
    best, against = results.best_peer(case.name, threads), results.against_best_peer(case.name, threads)
    ours = results.get(case.name, threads, OURS)
    right = ours if ours is not None and ours.state == RIGHT else None
    return [
        case.name if case.name == case.label else f"{case.name} {case.label}",
        *(cell(results, row, notes) + ("*" if row is best and row is not None else "") for row in rows),
        figure(right and results.ceiling(right), ".0f"),
        figure(right and results.share(right), ".2f"),
        "" if ours is None or against is None else mark(results, ours, against[0]) + spread(against[1]),
        str(min((results.counted(row) for row in rows if row and row.state == RIGHT), default=0)),
    ]


def mark(results: Measured, row: Row, *others: Row) -> str:
    return MARK if results.few(row, *others) else ""


def figure(value: float | None, form: str) -> str:
    """A dash where there is none: few turns count."""
    return "-" if value is None else format(value, form)


def cell(results: Results, row: Row | None, notes: Notes) -> str:
    """A rate; or, where there is none, what there is instead, with a note."""
    if row is None:
        return ""
    if row.state == RIGHT:
        return f"{mark(results, row)}{results.rate(row):.1f}"
    word = "no" if row.state == CANNOT else row.state
    return f"{word} [{notes.number(f'{title(row.method)}: {row.note}')}]"


def spread(ratios: Quartiles) -> str:
    low, middle, high = ratios
    return f"{middle:.2f} {low:.2f}-{high:.2f}"


def summary(results: Results, absent: Sequence[str], clock: str) -> list[str]:
    """Sentences whose every figure is in the rows."""
    sentences = [means(results, threads) for threads in results.threads]
    sentences += [losses(results), products(results), HOW_TO_READ, how_measured(results, clock)]
    return [sentence for sentence in (*sentences, *missing(absent)) if sentence]


def missing(absent: Sequence[str]) -> list[str]:
    """Of peers that are not installed."""
    names = ", ".join(PEERS[key].name for key in absent)
    return [f"Not installed, so not compared: {names} ({EXTRA})."] if absent else []


def means(results: Results, threads: int) -> str:
    """Of the cases whose ratios are not marked; how many are, is said."""
    whole, pairs = results.mean_ratio(threads), results.pairs(threads)
    if whole is None:
        return ""
    left_out = sum(results.few(*pair) for pair in pairs)
    without = (
        f", without {left_out} of {len(pairs)} cases: their ratios are marked {MARK}" if left_out else ""
    )
    each = {name: results.mean_ratio(threads, name) for name in results.compared if name in PEERS}
    figures = ", ".join(f"{title(name)} {mean:.2f}" for name, mean in each.items() if mean is not None)
    return (
        f"{count(threads)}: flashgen is {whole:.2f} times as fast as the best peer of each case (geometric "
        f"mean{without}), and against each peer: {figures}."
    )


def losses(results: Results) -> str:
    """Where a peer is faster, by the quartiles of a ratio that is not marked."""
    behind = []
    for threads in results.threads:
        for case in results.cases:
            against = results.against_best_peer(case, threads)
            ours = results.get(case, threads, OURS)
            if ours is None or against is None or results.few(ours, against[0]):
                continue
            if against[1][2] < 1:
                peer = title(against[0].method)
                behind.append(f"{case} on {count(threads)} ({peer}, {spread(against[1])})")
    return f"A peer is faster in: {', '.join(behind)}." if behind else ""


def products(results: Results) -> str:
    """What a matrix product reaches in the same rounds."""
    figures = []
    for threads in results.threads:
        rows = [row for row in results.rows if row.method == SGEMM and row.threads == threads]
        if rates := sorted(results.rate(row) for row in rows if not results.few(row)):
            figures.append(f"{rates[0]:.0f} to {rates[-1]:.0f} GFLOP/s on {count(threads)}")
    return (
        f"NumPy's own product of two matrices, {SIDE}^3, in the same rounds: {'; '.join(figures)}."
        if figures
        else ""
    )


FEW_COUNT = (
    f"{MARK} marks a figure of all turns, disturbed ones too, because fewer than {FEWEST} count; - stands "
    "where there is no share of the peak for that reason."
)

HOW_TO_READ = (
    f"{PEAK}: what the machine reached right before and behind flashgen's turns. {SHARE}: flashgen's rate as "
    f"a share of that. {TIMES}: how many times as fast as the best peer, which is marked *, flashgen is: the "
    f"median, with quartiles, of ratios of one round. {TURNS}: the fewest that count for a method. "
    f"{FEW_COUNT} Ratios so marked are in no mean, and no peer is said to be faster by them."
)


def how_measured(results: Results, clock: str) -> str:
    rows = [row for row in results.rows if row.state == RIGHT and row.method == OURS]
    ceilings = {
        f"{results.best(row)[0]:.0f} {'GB/s' if results.cases[row.case].reads else 'GFLOP/s'} on "
        f"{count(row.threads)}"
        for row in rows
    }
    return (
        f"{CLOCKS[clock]} The methods of a case take turns, in an order that changes from round to round. "
        "Right before and right behind each turn the machine's peak is measured: fused multiply-adds on "
        "registers, or for decoding the reading of as many bytes as K and V have; and, but for decoding, a "
        "product of tiles in caches, which shows neighbours that the peak does not. A turn counts if "
        f"all are at least {STEADY:.0%} of the best seen ({', '.join(sorted(ceilings))}); rates are medians "
        "of those that do. GFLOP/s count 4 B Hq Nq Nk D, half for causal; GB/s count K and V once. Each "
        "result is within the bound of the float64 reference."
    )
