"""A compiler for attention kernels.

    import flashgen
    o = flashgen.attention(q, k, v, is_causal=True)
    print(flashgen.emit(flashgen.Problem(head_dim=64), target="avx512"))

Names are imported when they are first used: importing flashgen costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flashgen import errors, mods
    from flashgen.api import attention, compile, emit
    from flashgen.api_sequences import attention_paged, attention_varlen
    from flashgen.problem import Problem
    from flashgen.runtime.merge import merge
    from flashgen.schedule import FA1, FA2, Schedule

_HOMES = {
    "FA1": "schedule",
    "FA2": "schedule",
    "Problem": "problem",
    "Schedule": "schedule",
    "attention": "api",
    "attention_paged": "api_sequences",
    "attention_varlen": "api_sequences",
    "compile": "api",
    "emit": "api",
    "errors": "errors",
    "merge": "runtime.merge",
    "mods": "mods",
}

__all__ = [
    "FA1",
    "FA2",
    "Problem",
    "Schedule",
    "attention",
    "attention_paged",
    "attention_varlen",
    "compile",
    "emit",
    "errors",
    "merge",
    "mods",
]


def __getattr__(name: str) -> object:
    if name == "__version__":
        metadata = importlib.import_module("importlib.metadata")
        try:
            return metadata.version("flashgen")
        except metadata.PackageNotFoundError as error:
            raise AttributeError("flashgen is not installed, so that its version is not known") from error
    if name not in _HOMES:
        raise AttributeError(f"module 'flashgen' has no attribute {name!r}")
    home = importlib.import_module(f"flashgen.{_HOMES[name]}")
    value = home if name == _HOMES[name] else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
