"""Standard attention, FlashAttention-1 and FlashAttention-2 side by side: what each makes of the hardware."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from flashgen.bench.cases import FLOAT, Case
from flashgen.bench.count import CACHE, Counts, count
from flashgen.bench.methods import SCHEDULES
from flashgen.bench.report import CLOCKS, FEW_COUNT, figure, mark
from flashgen.bench.results import Results
from flashgen.bench.tasks import EMITTED_1, EMITTED_2, RIGHT, STANDARD, STANDARD_TITLE
from flashgen.targets.cpu import Avx2

if TYPE_CHECKING:
    from rich.table import Table

TITLES = {STANDARD: STANDARD_TITLE, EMITTED_1: EMITTED_1, EMITTED_2: EMITTED_2}
COUNTED_LENGTH = 1024
"""Queries and keys, at most, of what is counted: valgrind is fifty times as slow as the machine."""


def small(case: Case) -> Case:
    """One head of a case, and of its lengths so much that valgrind can count it."""
    nq, nk = min(case.nq, COUNTED_LENGTH), min(case.nk, COUNTED_LENGTH)
    sizes = replace(case, batch=1, hq=1, hkv=1, nq=nq, nk=nk)
    return replace(sizes, name=sizes.label)


def count_all(case: Case, advance: Callable[[], object]) -> dict[str, Counts]:
    """Of each method on a small case, for AVX2, which is what valgrind knows."""
    counts = {}
    for method in TITLES:
        counts[method] = count(case, *compiled(case, method))
        advance()
    return counts


def compiled(case: Case, method: str) -> tuple[str, str]:
    """Library and name of an emitted kernel; "" and "" for NumPy."""
    if method not in SCHEDULES:
        return "", ""
    from flashgen import emission
    from flashgen.runtime.cpu import library

    problem, target = case.problem, Avx2()
    schedule = target.suit(problem, SCHEDULES[method], case.nq, case.nk, case.rows)
    emitted = emission.emit(problem, schedule, target)
    return str(library(emitted.source, emitted.name, target)), emitted.name


def products(case: Case) -> int:
    """Vector multiply-adds of the two products, without padding."""
    return case.operations // 2 // Avx2.lanes


def least_fetched(case: Case) -> int:
    """Bytes of Q, K, V and O: a line is fetched to be read, and to be written."""
    return case.kv_bytes + 2 * FLOAT * case.batch * case.hq * case.nq * case.head_dim


def make_table(
    results: Results, case: Case, threads: int, counts: Mapping[str, Counts], counted: Case
) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(case.label, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    peak = "of read\nbandwidth" if case.reads else "of FMA peak"
    for name in ("ms", peak, "instructions that\nare not products", "MiB\nfetched"):
        table.add_column(name, justify="right", overflow="fold")
    for method, title in TITLES.items():
        row = results.get(case.name, threads, method)
        right = row if row is not None and row.state == RIGHT else None
        table.add_row(
            title,
            f"{mark(results, right)}{1e3 * results.seconds(right):.1f}" if right else "-",
            figure(right and results.share(right), ".3f"),
            f"{1 - products(counted) / counts[method].instructions:.3f}",
            f"{counts[method].fetched / 2**20:.1f}",
        )
    return table


def summary(counted: Case, clock: str) -> str:
    return (
        f"{CLOCKS[clock]} {FEW_COUNT} Instructions and bytes are counted by valgrind on a call of "
        f"{counted.label}, for AVX2, on one thread. The products take {products(counted)} vector "
        "multiply-adds; all else that is executed, their loads included, is not products. Fetched is what "
        f"comes from memory into a cache of {CACHE >> 10} KiB, to be read or written; what is written back "
        f"is not counted. Q, K, V and O together have {least_fetched(counted) / 2**20:.1f} MiB."
    )
