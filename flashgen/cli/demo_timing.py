"""The measurements of `flashgen demo`, in a process of their own.

It reads Tasks as a JSON list on standard input and prints a JSON object for each Row.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flashgen.bench.methods import SCHEDULES
from flashgen.bench.tasks import EMITTED_1, EMITTED_2, STANDARD_TITLE, Row
from flashgen.bench.turns import Patience, take_turns

if TYPE_CHECKING:
    from flashgen.runtime.cpu import CpuKernel
    from flashgen.targets.cpu import Cpu

LENGTH, HEAD_DIM = 2048, 64
EIGHT, ONE = (f"random, {heads} of {LENGTH} x {HEAD_DIM}" for heads in ("8 heads", "1 head"))
"""What the random inputs are called."""

PATIENCE = Patience()
"""How long the methods of one task take turns."""


@dataclass(frozen=True)
class Task:
    """Some methods on the same input, which is the case of their rows.

    data: what the input is called. file: where it is; if that is None, it is random. shape: of q, and of
    random k and v.
    """

    data: str
    file: str | None
    shape: tuple[int, ...]
    head_dim_v: int
    threads: int
    methods: tuple[str, ...]

    def arrays(self) -> Sequence[np.ndarray]:
        """q, k and v."""
        if self.file is not None:
            from flashgen.cli.arrays import load_named

            return load_named(Path(self.file), ("q", "k", "v"))
        rng = np.random.default_rng(0)
        return [rng.standard_normal(self.shape, dtype=np.float32) for _ in range(3)]


def make_tasks(file: Path | None, real: tuple[tuple[int, ...], int], threads: int) -> list[Task]:
    """What is measured on so many threads: single passes on one thread only, where nothing else differs."""
    three = (STANDARD_TITLE, EMITTED_1, EMITTED_2)
    by_pass = (STANDARD_TITLE, *SCHEDULES) if threads == 1 else three
    tasks = [
        Task(EIGHT, None, (1, 8, LENGTH, HEAD_DIM), HEAD_DIM, threads, by_pass),
        Task(ONE, None, (1, 1, LENGTH, HEAD_DIM), HEAD_DIM, threads, three),
    ]
    if file is not None:
        tasks.insert(0, Task(f"{file.name}, q {real[0]}", str(file), *real, threads, three))
    return tasks


def compile_method(head_dim: int, head_dim_v: int, method: str, target: Cpu) -> CpuKernel | None:
    """The method's kernel; NumPy has none. Raises what flashgen.compile raises."""
    from flashgen import api
    from flashgen.problem import Problem

    if method == STANDARD_TITLE:
        return None
    return api.compile(Problem(head_dim, head_dim_v), SCHEDULES[method], target)


def measure(task: Task, target: Cpu) -> Iterator[Row]:
    """Check each method, then let them take turns."""
    from flashgen.bench.measure import expect, operations
    from flashgen.bench.probes import compute_probe
    from flashgen.bench.standard import standard_attention
    from flashgen.problem import Problem

    q, k, v = task.arrays()
    problem = Problem(q.shape[3], v.shape[3])

    def caller(method: str) -> Callable[[], tuple[np.ndarray, np.ndarray]]:
        kernel = compile_method(q.shape[3], v.shape[3], method, target)
        if kernel is None:
            return lambda: standard_attention(q, k, v)
        return lambda: kernel(q, k, v, threads=task.threads)

    calls = {name: caller(name) for name in task.methods}
    expected = expect(problem, q, k, v, 1 / math.sqrt(q.shape[3]))
    outputs = {name: call() for name, call in calls.items()}
    work = operations(problem, q, k, v)
    series = take_turns(calls, compute_probe(target, task.threads), PATIENCE)
    for name in task.methods:
        o, lse = expected.deviations(*outputs[name])
        yield Row(
            task.data,
            task.threads,
            name,
            work,
            error=o.error,
            bound_share=max(o.share, lse.share),
            seconds=series[name].seconds,
            probes=series[name].probes,
        )


def main() -> None:
    from flashgen.runtime.cpu_features import best_target

    target = best_target()
    for fields in json.load(sys.stdin):
        for row in measure(Task(**fields), target):
            print(json.dumps(asdict(row)), flush=True)


if __name__ == "__main__":
    main()
