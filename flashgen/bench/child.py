"""The process that measures: reads Tasks as a JSON list on standard input, prints a JSON object a Row.

flashgen.bench.process says why it is one of its own.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace

from flashgen.bench.measure import expect
from flashgen.bench.methods import make_method
from flashgen.bench.prepare import make_arrays, prepare, prepare_sgemm
from flashgen.bench.probes import Probe, compute_probe, read_probe
from flashgen.bench.tasks import SGEMM, Row, Task
from flashgen.bench.turns import CPU, WALL, Patience, Speeds, best_speeds, fastest, take_turns
from flashgen.targets import find
from flashgen.targets.cpu import Cpu

CLOCKS = {"wall": WALL, "cpu": CPU}
SECONDS, PATIENCE = 1.0, 0.4
"""That turns go on at least; and, for each turn of each method that is to count, after which as many turns
will do, even if some do not count."""


class Measurer:
    """Measures tasks one after the other, and remembers how fast the machine was at its best."""

    def __init__(self) -> None:
        self.best: dict[str, Speeds] = {}

    def rows(self, task: Task) -> Iterator[Row]:
        """Check each method, then let those that are right take turns."""
        target = find(task.target)
        assert isinstance(target, Cpu)
        rows, calls = {}, {}
        arrays = make_arrays(task.case)
        expected = expect(task.case.problem, *arrays, task.case.head_dim**-0.5)
        for name in task.methods:
            row = Row(task.case.name, task.threads, name, task.case.work)
            if name == SGEMM:
                rows[name], prepared = prepare_sgemm(row)
            else:
                method = make_method(name, target, task.threads)
                rows[name], prepared = prepare(method, task.case, arrays, expected, row, CLOCKS[task.clock])
            if prepared is not None:
                calls[name] = prepared.call
        known, probe = make_probe(task, target)
        limit = PATIENCE * task.turns * len(calls)
        patience = Patience(task.turns, seconds=SECONDS, limit=limit)
        series = (
            take_turns(calls, probe, patience, self.best.get(known, ()), CLOCKS[task.clock]) if calls else {}
        )
        self.best[known] = fastest(self.best.get(known, ()), best_speeds(series.values()))
        for name, row in rows.items():
            turns = series.get(name)
            yield row if turns is None else replace(row, seconds=turns.seconds, probes=turns.probes)


def make_probe(task: Task, target: Cpu) -> tuple[str, Probe]:
    """What bounds the case, and under which name the best of it is remembered."""
    clock = CLOCKS[task.clock]
    if task.case.reads:
        return f"read {task.case.kv_bytes}", read_probe(target, task.threads, task.case.kv_bytes, clock)
    return "fma", compute_probe(target, task.threads, clock)


def main() -> None:
    measurer = Measurer()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is not a row
    for fields in json.load(sys.stdin):
        for row in measurer.rows(Task.from_json(fields)):
            print(json.dumps(asdict(row)), file=answers, flush=True)


if __name__ == "__main__":
    main()
