"""Measurements in a process of their own.

OpenBLAS, MKL and OpenMP read how many threads they have when they are loaded, so each number of threads gets
a new process: it reads its tasks as a JSON list on standard input, and prints a JSON object for each result.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from flashgen.errors import KernelFailure

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
TUNING_VARIABLES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
"""Would have NumPy's products use something else than what OpenBLAS chooses for this processor."""


def environment(threads: int) -> dict[str, str]:
    """This process's own, with so many threads for libraries, and none of their own tuning undone."""
    kept = {name: value for name, value in os.environ.items() if name not in TUNING_VARIABLES}
    return kept | dict.fromkeys(THREAD_VARIABLES, str(threads))


def in_new_process(module: str, tasks: Sequence[dict[str, Any]], threads: int) -> Iterator[dict[str, Any]]:
    """What ``python -m module`` prints of these tasks, as it does, where libraries use so many threads.

    Raises CalledProcessError, where the process has said why on standard error, and KernelFailure where it
    could not, because a signal ended it: Linux sends one where memory runs out.
    """
    command = [sys.executable, "-m", module]
    with subprocess.Popen(
        command, env=environment(threads), text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        with process.stdin:
            json.dump(tasks, process.stdin)
        for line in process.stdout:
            yield json.loads(line)
    if process.returncode < 0:
        number = -process.returncode
        full = ": memory ran out, most likely" if number == signal.SIGKILL else ""
        reason = f"signal {number} ({signal.strsignal(number)}){full}"
        raise KernelFailure(f"{module}, the process that measures, was ended by {reason}")
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
