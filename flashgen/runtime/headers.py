"""What g++ makes of the headers of vector instructions, kept: reading them is a third of a compilation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flashgen.errors import CompileFailure
from flashgen.runtime.cache import fetch, make_key
from flashgen.runtime.compiler import HEADERS, Compiler


def precompiled(compiler: Compiler, flags: Sequence[str]) -> Path | None:
    """What ``compiler`` made of HEADERS with these flags, from the cache, or made now.

    None where it makes nothing: of other compilers than g++ it is not asked.
    """
    if not compiler.is_gnu:
        return None
    key = make_key("headers", HEADERS, tuple(flags), compiler.identity)
    try:
        return fetch(key, lambda made: compiler.precompile(made, flags), ".gch")
    except (CompileFailure, OSError):  # a disk that is full may still hold a kernel
        return None
