"""`flashgen demo`: standard attention, FlashAttention-1 and FlashAttention-2 side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flashgen.errors import InvalidArgument

if TYPE_CHECKING:
    from flashgen.bench.tasks import Row
    from flashgen.cli.demo_timing import Task
    from flashgen.targets.cpu import Cpu

WRONG = 1
"""Exit status of a result that is further from the reference than the bound allows."""

COMPILERS = 2


def demo(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="A .npz or .safetensors file of q, k and v: real input."),
    ] = None,
) -> None:
    """Compare NumPy with emitted kernels.

    Standard attention in NumPy, FlashAttention-1 and FlashAttention-2 are checked against a float64 reference
    and take turns in one run, on the arrays of FILE and on random ones, on one thread and on all. The exit
    status is 1 where an error is above its bound.

    \b
    Examples:
      flashgen demo
      flashgen demo tests/data/minilm.npz
    """
    from flashgen.bench.report import count
    from flashgen.cli.demo_report import report
    from flashgen.cli.demo_timing import make_tasks
    from flashgen.cli.progress import progress
    from flashgen.runtime.cpu_features import best_target
    from flashgen.runtime.threads import available_threads

    target = best_target()
    real = check_input(file) if file is not None else ((), 0)
    counts = sorted({1, available_threads()})
    runs = {threads: make_tasks(file, real, threads) for threads in counts}
    rows: list[Row] = []
    with progress() as bars:
        step = bars.add_task("compiling", total=None)
        compile_all(runs[1], target)
        stages = [
            f"{task.data}, on {count(threads)}"
            for threads, tasks in runs.items()
            for task in tasks
            for _ in task.methods
        ]
        bars.update(step, description=stages[0], total=len(stages))
        stages.append("done")
        for threads, tasks in runs.items():
            for row in rows_of(tasks, threads):
                rows.append(row)
                bars.update(step, advance=1, description=stages[len(rows)])
    report(rows, target)
    if any(not row.bound_share <= 1 for row in rows):
        raise typer.Exit(WRONG)


def check_input(file: Path) -> tuple[tuple[int, ...], int]:
    """Shape of the file's q, and Dv; that q, k and v fit together. Raises InvalidArgument."""
    from flashgen.cli.arrays import load_named
    from flashgen.problem import Problem
    from flashgen.runtime.arrays import check_type, look
    from flashgen.runtime.tensors import Form, lay_out

    arrays = load_named(file, ("q", "k", "v"))
    for name, x in zip("qkv", arrays, strict=True):
        check_type(look(name, x), "float32")
        if x.ndim != 4 or 0 in x.shape:
            raise InvalidArgument(
                f"{name}.shape", x.shape, "four dimensions above 0 are allowed: (B, H, N, D)"
            )
    q, k, v = (Form(x.shape, x.strides) for x in arrays)
    lay_out(Problem(q.shape[3], v.shape[3]), q, k, v, None, None)
    return q.shape, v.shape[3]


def compile_all(tasks: Sequence[Task], target: Cpu) -> None:
    """Fill the cache with what the tasks need, two compilers at a time."""
    from concurrent.futures import ThreadPoolExecutor

    from flashgen.cli.demo_timing import compile_method
    from flashgen.runtime.peak import measure_peak
    from flashgen.runtime.product import measure_product

    wanted = {(task.shape[3], task.head_dim_v, method) for task in tasks for method in task.methods}
    with ThreadPoolExecutor(COMPILERS) as pool:
        peak = pool.submit(measure_peak, target, seconds=0.001)
        product = pool.submit(measure_product, target, seconds=0.001)
        kernels = [pool.submit(compile_method, d, dv, method, target) for d, dv, method in sorted(wanted)]
        for job in (peak, product, *kernels):
            job.result()


def rows_of(tasks: Sequence[Task], threads: int) -> Iterator[Row]:
    """The rows of these tasks, as they are measured, by a process whose NumPy uses so many threads."""
    from flashgen.bench.process import in_new_process
    from flashgen.bench.tasks import Row

    for fields in in_new_process("flashgen.cli.demo_timing", [asdict(task) for task in tasks], threads):
        yield Row(**fields)
