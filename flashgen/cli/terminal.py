"""What is shown to people: tables on standard output, and how far the work has come on standard error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

WIDTH_OF_A_PIPE = 120


def console() -> Console:
    """Standard output: colours only on a terminal; a pipe or a file has lines of 120 columns."""
    from rich.console import Console

    out = Console(highlight=False, markup=False)
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = WIDTH_OF_A_PIPE
    return out


@contextmanager
def progress() -> Iterator[Progress]:
    """A bar for each task of what takes a while: on a terminal, and gone when the work is done."""
    from rich.console import Console
    from rich.progress import Progress

    err = Console(stderr=True)
    with Progress(console=err, transient=True, disable=not err.is_terminal) as bars:
        yield bars
