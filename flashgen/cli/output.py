"""Files that a command writes: whole or not at all."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from flashgen.errors import InvalidArgument


def check_output(argument: str, path: Path, endings: tuple[str, ...] = ()) -> None:
    """Raise InvalidArgument where a file cannot be written; asked before the work, so that none is lost.

    endings: of the name; any, if none is given.
    """
    if endings and path.suffix not in endings:
        raise InvalidArgument(
            argument, repr(str(path)), f"a name that ends in {', '.join(endings)} is allowed"
        )
    try:
        obstacle = _obstacle(path)
    except (OSError, RuntimeError) as e:  # RuntimeError: links that lead in a circle
        obstacle = f"it cannot be written ({getattr(e, 'strerror', None) or e})"
    if obstacle:
        raise InvalidArgument(argument, repr(str(path)), obstacle)


def _obstacle(path: Path) -> str:
    """Why a file cannot be written, "" if nothing is seen to be in the way."""
    path.resolve()
    if path.is_dir():
        return "a file is allowed, and this is a folder"
    if not path.parent.is_dir():
        return f"there is no folder {str(path.parent)!r}"
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        return "a file that may be written is allowed"
    return ""


def write_text(argument: str, path: Path, text: str) -> bool:
    """Write a file unless it holds this text already; whether it was written. Raises InvalidArgument."""
    content = text.encode()
    try:
        if path.is_file() and path.read_bytes() == content:
            return False
    except OSError:
        pass  # a file that may be written and not read
    write(argument, path, lambda file: file.write(content))
    return True


def write(argument: str, path: Path, fill: Callable[[BinaryIO], object]) -> None:
    """Write a file by way of a temporary one beside it, which `fill` writes. Raises InvalidArgument."""
    check_output(argument, path)
    try:
        if path.exists() and not path.is_file():  # a device or a pipe has no whole
            with path.open("wb") as file:
                fill(file)
            return
        path = path.resolve()  # the file that a link stands for is replaced, not the link
        beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with beside.open("wb") as file:
                fill(file)
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as e:
        raise InvalidArgument(argument, repr(str(path)), f"it cannot be written ({e.strerror})") from e


def print_stage(name: str, module: object) -> None:
    """A module on standard error, under the name of the pass that left it, as mlir-opt prints one."""
    print(f"// -----// after {name} //----- //\n{module!s}\n", file=sys.stderr)
