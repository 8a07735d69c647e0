"""The measurements of `flashgen demo`, in a process of their own.

OpenBLAS, which NumPy's matrix products use, reads how many threads it has when it is loaded, so each number
of threads gets a new process: it reads Tasks as a JSON list on standard input and prints a JSON object for
each Row.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flashgen.schedule import FA1, FA2, Schedule

if TYPE_CHECKING:
    from flashgen.runtime.cpu import CpuKernel
    from flashgen.targets.cpu import Cpu

NUMPY, FA1_NAME, LAZY, Q_OUTER, FA2_NAME = (
    "standard attention, NumPy",
    "FlashAttention-1",
    "  + lazy-rescale",
    "  + order q-outer",
    "FlashAttention-2",
)
SCHEDULES: dict[str, Schedule | None] = {
    NUMPY: None,
    FA1_NAME: FA1,
    LAZY: Schedule("kv-outer", lazy_rescale=True, causal_skip=False),
    Q_OUTER: Schedule("q-outer", lazy_rescale=True, causal_skip=False),
    FA2_NAME: FA2,
}
"""What is compared; from FlashAttention-1 on, each adds a choice to the one above it."""

LENGTH, HEAD_DIM = 2048, 64
EIGHT, ONE = (f"random, {heads} of {LENGTH} x {HEAD_DIM}" for heads in ("8 heads", "1 head"))
"""What the random inputs are called."""

SECONDS, PATIENCE = 3.0, 12.0
"""How long the methods of one task take turns: at least, and at most for turns that do not count."""
ROUNDS = 15, 300
"""At least and at most so many turns each that count."""
STEADY = 0.85
"""A turn counts if the peaks right before and behind it are at least this share of the best one seen: else a
neighbour had the core, or the clock was low."""
PROBE = 0.005
"""Seconds that a measurement of the peak takes."""
SETTLE = 0.05
"""Seconds before it, on several threads: those of OpenBLAS go on spinning for a while behind their work."""


@dataclass(frozen=True)
class Task:
    """Some methods on the same input.

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


@dataclass(frozen=True)
class Row:
    """One method's part of a task.

    seconds: of each turn. operations: of the two products, a turn. peaks: for each turn, the GFLOP/s of as
    many threads in fused multiply-adds on registers, right before it and right behind. error: the largest of
    O. bound_share: the largest of O and of lse, as a share of its bound.
    """

    data: str
    threads: int
    method: str
    seconds: Sequence[float]
    operations: int
    peaks: Sequence[tuple[float, float]]
    error: float
    bound_share: float


def make_tasks(file: Path | None, real: tuple[tuple[int, ...], int], threads: int) -> list[Task]:
    """What is measured on so many threads: single passes on one thread only, where nothing else differs."""
    three = (NUMPY, FA1_NAME, FA2_NAME)
    by_pass = (NUMPY, FA1_NAME, LAZY, Q_OUTER, FA2_NAME) if threads == 1 else three
    tasks = [
        Task(EIGHT, None, (1, 8, LENGTH, HEAD_DIM), HEAD_DIM, threads, by_pass),
        Task(ONE, None, (1, 1, LENGTH, HEAD_DIM), HEAD_DIM, threads, three),
    ]
    if file is not None:
        tasks.insert(0, Task(f"{file.name}, q {real[0]}", str(file), *real, threads, three))
    return tasks


def standard_attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The whole table of scores, its softmax, the products: O and lse in float32, nothing done twice."""
    (b, hq, nq, d), hkv = q.shape, k.shape[1]
    queries = (q * np.float32(1 / math.sqrt(d))).reshape(b, hkv, hq // hkv, nq, d)
    p = queries @ k[:, :, None].swapaxes(-1, -2)
    top = p.max(axis=-1, keepdims=True)
    p -= top
    np.exp(p, out=p)
    total = p.sum(axis=-1, keepdims=True)
    o = p @ v[:, :, None]
    o /= total
    return o.reshape(b, hq, nq, v.shape[3]), (top + np.log(total)).reshape(b, hq, nq)


def compile_method(head_dim: int, head_dim_v: int, method: str, target: Cpu) -> CpuKernel | None:
    """The method's kernel; NumPy has none. Raises what flashgen.compile raises."""
    from flashgen import api
    from flashgen.problem import Problem

    schedule = SCHEDULES[method]
    return None if schedule is None else api.compile(Problem(head_dim, head_dim_v), schedule, target)


def measure(task: Task, target: Cpu) -> Iterator[Row]:
    """Check each method, then let them take turns."""
    from flashgen.cli.measure import expect, operations
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
    turns, peaks = take_turns(calls, target, task.threads)
    for name in task.methods:
        o, lse = expected.deviations(*outputs[name])
        share = max(o.share, lse.share)
        yield Row(task.data, task.threads, name, turns[name], work, peaks[name], o.error, share)


def take_turns(
    calls: Mapping[str, Callable[[], object]], target: Cpu, threads: int
) -> tuple[dict[str, list[float]], dict[str, list[tuple[float, float]]]]:
    """For each call and turn its seconds, and the GFLOP/s of the peak right before and right behind it."""
    from flashgen.runtime.peak import measure_peak

    def probe() -> float:
        if threads > 1:
            time.sleep(SETTLE)
        return measure_peak(target, threads, seconds=PROBE, repeats=1)

    turns: dict[str, list[float]] = {name: [] for name in calls}
    peaks: dict[str, list[tuple[float, float]]] = {name: [] for name in calls}
    begin, before = time.perf_counter(), probe()
    while not enough(peaks, time.perf_counter() - begin):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            turns[name].append(time.perf_counter() - start)
            behind = probe()
            peaks[name].append((before, behind))
            before = behind
    return turns, peaks


def enough(peaks: Mapping[str, Sequence[tuple[float, float]]], seconds: float) -> bool:
    """Whether the turns so far will do: enough of them count for each method, or patience is at its end."""
    least, most = ROUNDS
    taken = min(map(len, peaks.values()))
    if taken < least or seconds < SECONDS:
        return False
    best = max(peak for pairs in peaks.values() for pair in pairs for peak in pair)
    fewest = min(sum(counting(pairs, best)) for pairs in peaks.values())
    return taken >= most or fewest >= least or seconds > PATIENCE


def counting(peaks: Sequence[tuple[float, float]], best: float) -> list[bool]:
    """Which turns count, by the peaks around each and the best peak seen."""
    return [min(pair) >= STEADY * best for pair in peaks]


def main() -> None:
    from flashgen.runtime.cpu_features import best_target

    target = best_target()
    for fields in json.load(sys.stdin):
        for row in measure(Task(**fields), target):
            print(json.dumps(asdict(row)), flush=True)


if __name__ == "__main__":
    main()
