"""`flashgen derive`: how a kernel comes from FlashAttention-1, pass by pass, in outlines or as a picture."""

from __future__ import annotations

from itertools import pairwise
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
    """Show the derivation of a kernel: an outline after every pass that changes it.

    An outline has the loops, what each reads, computes and writes. The kernel is a plain one: it reads K and
    V where they lie (no panels), each head on its own (no grouped rows), all keys in one part. For the
    modules themselves, of any kernel, see `flashgen emit --print-ir-after-all`.

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
    typer.echo("\n\n".join([f"// {heading(causal, order)}", *texts]))


def draw(causal: str | None, order: str, lazy_rescale: bool, causal_skip: bool) -> str:
    """The derivation as an SVG."""
    from flashgen.picture import derivation

    return derivation(heading(causal, order), outlines(causal, order, lazy_rescale, causal_skip))


def heading(causal: str | None, order: str) -> str:
    """What is shown, and what the kernel does without."""
    mask = f"causal {causal}" if causal else "no mask"
    return f"FlashAttention-1, pass by pass ({order}, {mask}; no panels, grouped rows or parts of the keys)"


def outlines(causal: str | None, order: str, lazy_rescale: bool, causal_skip: bool) -> list:
    """(pass, outline) of the module as stated and after each pass that changes a word of its outline."""
    from flashgen.outline import stages
    from flashgen.passes.pipeline import lower
    from flashgen.schedule import Schedule

    problem = Problem(8, causal=causal)
    schedule = Schedule(order, 4, 4, lazy_rescale, causal_skip, panel=0, group_rows=False, split_keys=0)
    every = stages(lambda after: lower(problem, schedule, after))
    texts = [[], *([str(line) for line in lines] for _, lines in every)]
    return [stage for stage, (before, text) in zip(every, pairwise(texts), strict=True) if text != before]
