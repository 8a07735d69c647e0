"""`flashgen opt`: passes on a module in MLIR's text form."""

from __future__ import annotations

import sys
from pathlib import Path

from flashgen.errors import InvalidArgument


def run_opt(path: str, passes: str = "", print_ir_after_all: bool = False) -> int:
    """Parse a module, run the passes that a text names, and print what comes out; returns 0.

    path: a file, or "-" for standard input.
    print_ir_after_all: print each stage on standard error, under the name of the pass that left it.

    Raises InvalidArgument (no such file), ParseFailure or IllegalPass; then nothing has been printed on
    standard output.
    """
    from flashgen.ir.dialect import parse
    from flashgen.passes.pipeline import parse_passes, run

    pipeline = parse_passes(passes)
    module = parse(read(path), path)

    def after(name: str, stage: object) -> None:
        print(f"// IR after {name}\n{stage}\n", file=sys.stderr)

    run(module, pipeline, after if print_ir_after_all else None)
    print(module)
    return 0


def read(path: str) -> str:
    if path == "-":
        return sys.stdin.read()
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise InvalidArgument("file", repr(path), f"a module's text is wanted ({e})") from e
