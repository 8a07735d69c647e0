"""Standard output, as Rich prints tables on it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

WIDTH_OF_A_PIPE = 120


def console() -> Console:
    """Standard output: colours only on a terminal; a pipe or a file has lines of 120 columns."""
    from rich.console import Console

    out = Console(highlight=False, markup=False)
    if not out.is_terminal and "COLUMNS" not in os.environ:
        out.width = WIDTH_OF_A_PIPE
    return out
