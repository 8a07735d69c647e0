"""`flashgen derive`: how a kernel comes from FlashAttention-1, pass by pass, in outlines or as a picture."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flashgen.cli.options import Causal, CausalSkip, LazyRescale, Order
from flashgen.cli.output import check_output, write_text
from flashgen.problem import Problem


def derive(
    causal: Causal = None,
    order: Order = "q-outer",
    lazy_rescale: LazyRescale = True,
    causal_skip: CausalSkip = True,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.svg", help="Draw a picture instead of printing text."),
    ] = None,
) -> None:
    """Show the derivation of a kernel: its loops after every pass that changes them.

    Each outline has the loops, what each reads, computes and writes. For the modules themselves see
    `flashgen emit --print-ir-after-all`.

    \b
    Examples:
      flashgen derive
      flashgen derive --causal -o derivation.svg
      flashgen derive --order kv-outer --no-lazy-rescale
    """
    if output is not None:
        check_output("output", output, (".svg",))
        write_text("output", output, draw(causal, order, lazy_rescale, causal_skip))
        return
    stages = outlines(causal, order, lazy_rescale, causal_skip)
    texts = ("\n".join([f"// {title}", *map(str, lines)]) for title, lines in stages)
    typer.echo("\n\n".join(texts))


def draw(causal: str | None, order: str, lazy_rescale: bool, causal_skip: bool) -> str:
    """The derivation as an SVG."""
    from flashgen.picture import derivation

    mask = f"causal {causal}" if causal else "no mask"
    heading = f"FlashAttention-1, pass by pass ({order}, {mask})"
    return derivation(heading, outlines(causal, order, lazy_rescale, causal_skip))


def outlines(causal: str | None, order: str, lazy_rescale: bool, causal_skip: bool) -> list:
    """(pass, outline) of the module as stated and after each pass that changes its outline."""
    from flashgen.outline import stages
    from flashgen.passes.pipeline import lower
    from flashgen.schedule import Schedule

    problem = Problem(8, causal=causal)
    schedule = Schedule(order, 4, 4, lazy_rescale, causal_skip, panel=0, group_rows=False, split_keys=0)
    every = stages(lambda after: lower(problem, schedule, after))
    befores = [[], *(lines for _, lines in every)]
    return [stage for stage, before in zip(every, befores, strict=False) if stage[1] != before]
