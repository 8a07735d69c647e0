"""The command line: `flashgen emit`, `opt`, `derive`, `explain`, `run`, `targets`, `demo`, `bench`.

What a command needs is imported when it runs: `flashgen --help` knows neither NumPy nor xDSL.
"""

from __future__ import annotations

import gc
import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from flashgen.cli.bench import WHAT_CASES_ARE, bench
from flashgen.cli.demo import demo
from flashgen.cli.derive import derive
from flashgen.cli.emit import emit
from flashgen.cli.explain import explain
from flashgen.cli.opt import opt
from flashgen.cli.options import BareCausal
from flashgen.cli.run import run
from flashgen.cli.targets import targets
from flashgen.errors import FlashgenError, check_choice

USAGE = 2
"""Exit status of a request that is refused, or of a wrong command line."""

USAGE_ERROR: Any = typer.BadParameter.__base__
"""What the parser of a command line raises: Click's UsageError, which Typer takes from one place or another
and does not export."""


class Commands(TyperGroup):
    """Says in one line what flashgen, its parser or the system refuses.

    All else is a fault, with its traceback.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words before the command; those behind it are parsed by ``invoke``."""
        if not args:
            return super().parse_args(ctx, args)  # which prints the help
        with one_line(ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that the first word names. Raises InvalidArgument where there is none."""
        check_choice("COMMAND", args[0], self.list_commands(ctx))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with one_line(ctx):
            result = super().invoke(ctx)
            sys.stdout.flush()  # here, where a disk that is full can still be told of
            return result


@contextmanager
def one_line(ctx: Any) -> Iterator[None]:
    """What is refused within, as a line on standard error and exit status 2."""
    try:
        yield
    except BrokenPipeError:
        raise  # whoever reads has enough: Typer ends quietly
    except FlashgenError as refusal:
        refuse(str(refusal), refusal)
    except USAGE_ERROR as refusal:
        said = " ".join(refusal.format_message().split()).removesuffix(".")
        command = " ".join(word for word in (ctx.command_path, ctx.invoked_subcommand) if word)
        refuse(f"{said[:1].lower()}{said[1:]}; `{command} --help` lists what is allowed", refusal)
    except RecursionError as refusal:
        refuse("the input is nested too deeply", refusal)
    except OSError as refusal:
        place = f": {str(refusal.filename)!r}" if refusal.filename is not None else ""
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # what is left is not tried again
        refuse(f"{refusal.strerror or refusal}{place}", refusal)


def refuse(reason: str, cause: BaseException) -> NoReturn:
    """Print the reason on standard error and end with exit status 2."""
    typer.echo(f"error: {reason}", err=True)
    raise typer.Exit(USAGE) from cause


app = typer.Typer(
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"flashgen {version('flashgen')}")
        raise typer.Exit


@app.callback()
def flashgen(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A compiler for attention kernels: FlashAttention-1 in, FlashAttention-2 by passes, C++ or CUDA out.

    \b
    Examples:
      flashgen emit --target cuda --order q-outer
      flashgen emit --causal -o attention.cpp
      flashgen run qkv.npz --causal --out o.npy
      flashgen COMMAND --help
    """


app.command(cls=BareCausal)(emit)
app.command()(opt)
app.command(cls=BareCausal)(derive)
app.command(cls=BareCausal)(explain)
app.command(cls=BareCausal)(run)
app.command()(targets)
app.command()(demo)
app.command(epilog=WHAT_CASES_ARE)(bench)


def main() -> None:
    """What the script `flashgen` calls; exits with 0, 1 (a result that is wrong) or 2 (a refused request)."""
    warnings.showwarning = lambda message, *_: print(f"warning: {message}", file=sys.stderr)
    gc.disable()  # a command ends before garbage matters, and collecting is a tenth of what emit takes
    app()
