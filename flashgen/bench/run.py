"""From cases and methods to rows: a process for each number of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from flashgen.bench.cases import Case
from flashgen.bench.process import in_new_process
from flashgen.bench.tasks import Row, Task
from flashgen.targets.cpu import Cpu


def measure(
    cases: Sequence[Case],
    methods: Callable[[Case], Sequence[str]],
    target: Cpu,
    counts: Sequence[int],
    turns: int,
    clock: str,
    advance: Callable[[Row], object],
) -> list[Row]:
    """methods: of a case. counts: numbers of threads. turns, clock: of a Task.

    advance: told of each row, as it comes.
    """
    rows: list[Row] = []
    for threads in counts:
        tasks = [Task(case, tuple(methods(case)), target.name, threads, turns, clock) for case in cases]
        for fields in in_new_process("flashgen.bench.child", [task.to_json() for task in tasks], threads):
            rows.append(Row(**fields))
            advance(rows[-1])
    return rows
