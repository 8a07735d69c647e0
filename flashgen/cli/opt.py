"""`flashgen opt`: passes on a module in MLIR's text form."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from flashgen.cli.output import print_stage
from flashgen.errors import InvalidArgument


def opt(
    file: Annotated[
        str | None, typer.Argument(metavar="FILE", help="A module's text; - is standard input.")
    ] = None,
    passes: Annotated[
        str,
        typer.Option(
            "--passes",
            "-p",
            metavar="PASS,...",
            help="The passes, in order; options in braces: pack{panel=16}.",
        ),
    ] = "",
    print_ir_after_all: Annotated[
        bool,
        typer.Option("--print-ir-after-all", help="Print the module after each pass too, on standard error."),
    ] = False,
    list_passes: Annotated[
        bool, typer.Option("--list-passes", help="Print what passes there are instead.")
    ] = False,
) -> None:
    """Run passes on a module of the tile IR.

    What comes out is printed. A pass that is not legal says why, and then nothing is printed.

    \b
    Examples:
      flashgen emit --br 4 --bc 4 -d 8 --print-ir-after build > fa1.mlir
      flashgen opt fa1.mlir -p lazy-rescale,sink-loads,interchange,fuse-loops,keep-state
      flashgen opt - -p lazy-rescale,sink-loads --print-ir-after-all < fa1.mlir
    """
    if list_passes:
        typer.echo(describe_passes())
    elif file is None:
        raise InvalidArgument("FILE", "missing", "a file is wanted, or - for standard input")
    else:
        run_opt(file, passes, print_ir_after_all)


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

    run(module, pipeline, print_stage if print_ir_after_all else None)
    print(module)
    return 0


def read(path: str) -> str:
    try:
        return sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise InvalidArgument("file", repr(path), f"a module's text is wanted ({e})") from e


def describe_passes() -> str:
    """One line a pass, in the canonical order: its name, its options in braces, and what it does.

    Above them a line says how to read these.
    """
    from dataclasses import fields

    from flashgen.passes.pipeline import OWN, REGISTRY

    rows = [("PASS{OPTION}", "what it does; -p takes an option with its value: pack{panel=16}")]
    for name, kind in REGISTRY.items():
        options = ",".join(f.name for f in fields(kind))
        what = first_line(kind).removeprefix(f"{name}: ") if kind in OWN else f"xDSL's {kind.__name__}"
        rows.append((name + (f"{{{options}}}" if options else ""), what))
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {what}" for name, what in rows)


def first_line(kind: type) -> str:
    """Of the docstring of the file that a pass stands in."""
    lines = (sys.modules[kind.__module__].__doc__ or "").splitlines()
    return lines[0] if lines else "(its file has no docstring)"
