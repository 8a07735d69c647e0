"""How far the work has come, on standard error."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress

QUIET = 2.0
"""Seconds after which work that goes on says what it is at."""


class Lines:
    """Stands in for ``Progress`` where there is no terminal: a line for each stage of what takes long."""

    def __init__(self) -> None:
        self._stage, self._late, self._lock = "", False, threading.Lock()

    def add_task(self, description: str, *, total: float | None = None) -> Any:
        self._enter(description)

    def update(self, task: Any, *, description: str | None = None, **numbers: float) -> None:
        """numbers: those of ``Progress.update``; of a stage, only its beginning is told."""
        if description is not None:
            self._enter(description)

    def advance(self, task: Any) -> None:
        pass

    def begin(self) -> None:
        """Tell the stage that it is at, and each from now on."""
        with self._lock:
            self._late = True
            self._tell()

    def _enter(self, stage: str) -> None:
        with self._lock:
            if stage != self._stage:
                self._stage = stage
                self._tell()

    def _tell(self) -> None:
        if self._late and self._stage:
            print(self._stage, file=sys.stderr, flush=True)


@contextmanager
def progress() -> Iterator[Progress | Lines]:
    """How far the work has come, as long as it goes on.

    A bar that is gone when it is done or, where standard error is no terminal, the stages of what takes
    longer than QUIET.
    """
    from rich.console import Console

    err = Console(stderr=True)
    if err.is_terminal:
        from rich.progress import Progress

        with Progress(console=err, transient=True) as bars:
            yield bars
        return
    lines = Lines()
    timer = threading.Timer(QUIET, lines.begin)
    timer.daemon = True
    timer.start()
    try:
        yield lines
    finally:
        timer.cancel()
