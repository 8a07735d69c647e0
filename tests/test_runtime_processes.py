"""Many processes on one cache (F17): one compiles, the others wait; a killed one is replaced."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from flashgen.runtime.cache import is_sound
from flashgen.runtime.compiler import find_compiler
from flashgen.targets.cpu import Avx2
from tests.sample_kernel import skip_unless_it_runs

PROCESSES = 8

WORKER = """
import numpy as np
from flashgen.problem import Problem
from flashgen.runtime import load
from flashgen.targets import find
from tests.sample_kernel import attention_expected, attention_source

q, k, v = np.random.default_rng(1).standard_normal((3, 1, 2, 5, 4), dtype=np.float32)
o, lse = load(attention_source("f", Problem(4)), "f", Problem(4), find("avx2"))(q, k, v)
expected = attention_expected(q, k, v, 0.5, None)
np.testing.assert_array_max_ulp(o, expected[0].astype(np.float32), 1)
np.testing.assert_array_max_ulp(lse, expected[1].astype(np.float32), 1)
print("right")
"""

SLOW_COMPILER = """#!/bin/sh
case "$*" in *--version*) exec {compiler} "$@" ;; esac
echo $PPID >> {log}
sleep 1.5
exec {compiler} "$@"
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of the processes: an empty cache, and a compiler that takes its time and notes who called it."""
    skip_unless_it_runs(Avx2())
    compiler = find_compiler()
    script = tmp_path / ("zig" if compiler.is_zig else "slow")
    script.write_text(SLOW_COMPILER.format(compiler=shlex.join(compiler.command), log=tmp_path / "log"))
    script.chmod(0o755)
    (tmp_path / "log").touch()
    return os.environ | {"CXX": str(script), "FLASHGEN_CACHE_DIR": str(tmp_path / "cache")}


def start(environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER],
        env=environment,
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def callers(tmp_path: Path) -> list[int]:
    """Processes that called the compiler, in order."""
    return [int(line) for line in (tmp_path / "log").read_text().split()]


def check_entry(folder: Path) -> None:
    (entry,) = folder.glob("*.so")
    assert is_sound(entry)
    assert sorted(path.suffix for path in folder.iterdir()) == [".lock", ".so"]


def test_eight_start_at_once(environment: dict[str, str], tmp_path: Path) -> None:
    workers = [start(environment) for _ in range(PROCESSES)]
    for worker in workers:
        assert worker.communicate(timeout=120) == ("right\n", "")
    assert len(callers(tmp_path)) == 1
    check_entry(tmp_path / "cache")


def test_one_of_eight_is_killed_while_it_compiles(environment: dict[str, str], tmp_path: Path) -> None:
    workers = {(worker := start(environment)).pid: worker for _ in range(PROCESSES)}
    deadline = time.monotonic() + 120
    while not (called := callers(tmp_path)):
        assert time.monotonic() < deadline
        assert any(worker.poll() is None for worker in workers.values())
        time.sleep(0.02)
    killed = workers.pop(called[0])
    killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    killed.communicate()
    for worker in workers.values():
        assert worker.communicate(timeout=120) == ("right\n", "")
    first, second = callers(tmp_path)
    assert first == killed.pid
    assert second in workers
    check_entry(tmp_path / "cache")


FORK = """
import os, signal
from flashgen.passes import pipeline
from flashgen.problem import Problem
from flashgen.schedule import Schedule

schedule = Schedule(br=4, bc=4, panel=0, group_rows=False, split_keys=0)
with pipeline.BUILDING:  # as another thread would hold it
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        pipeline.lower(Problem(8), schedule)
        assert not pipeline.BUILDING.locked()
        os._exit(0)
    assert pipeline.BUILDING.locked()
    assert os.waitpid(child, 0)[1] == 0
pipeline.lower(Problem(8), schedule)
"""


def test_a_fork_while_another_thread_builds() -> None:
    """The child has a lock of its own; without it, the alarm ends the child."""
    subprocess.run([sys.executable, "-c", FORK], check=True, timeout=120)
