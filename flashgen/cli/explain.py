"""`flashgen explain mask`: which tiles a mask skips, which it shows whole, and which it cuts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flashgen.cli.modifiers import masks_of
from flashgen.cli.options import Causal, Mask, MaskMod, Window
from flashgen.cli.output import check_output, write, write_text
from flashgen.errors import InvalidArgument, check_choice, check_positive
from flashgen.problem import CAUSAL

if TYPE_CHECKING:
    from numpy import ndarray

TOPICS = ("mask",)
WIDEST, HIGHEST = 128, 64
"""Columns and lines of a map in text; of more tiles, several share a character."""
MOST_TILES = 1 << 22
LETTERS = ".+#"
"""Skipped, mixed and full, by their numbers."""


def explain(
    topic: Annotated[str, typer.Argument(metavar="mask", help="What to explain: a mask.")],
    causal: Causal = None,
    window: Window = None,
    mask: Mask = None,
    mask_mod: MaskMod = None,
    nq: Annotated[int, typer.Option("--nq", help="Queries.")] = 1024,
    nk: Annotated[int | None, typer.Option("--nk", help="Keys.", show_default="as many as queries")] = None,
    br: Annotated[int, typer.Option("--br", help="Rows of a query tile.")] = 64,
    bc: Annotated[int, typer.Option("--bc", help="Rows of a key tile.")] = 64,
    sequence: Annotated[int, typer.Option("--sequence", help="Whose mask, where it depends on b.")] = 0,
    head: Annotated[int, typer.Option("--head", help="Whose mask, where it depends on h.")] = 0,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Draw a picture, .svg or .png, instead."),
    ] = None,
) -> None:
    """Show the tiles of a mask: skipped (.), full (#) and mixed (+).

    The classes follow from the mask's expression, by the ranges of its parts: nobody wrote them down. What
    is called skipped or full is that; what is called mixed may be either, where ranges cannot tell. A kernel
    passes over skipped tiles and needs the mask in mixed ones alone. Which these are it finds by the same
    ranges in its own loops, and may tell a few more of them than this map, or a few fewer.

    \b
    Examples:
      flashgen explain mask --causal --nq 512
      flashgen explain mask --window 255,0 --nq 4096 --br 128 --bc 128 -o window.svg
      flashgen explain mask --mask 'k <= q or k < 100' --nq 300 --nk 500
      flashgen explain mask --causal --mask-mod documents.py:same_document
    """
    check_choice("topic", topic, TOPICS)
    if causal is not None:
        check_choice("causal", causal, CAUSAL)
    check_positive("nq", nq, least=0)
    check_positive("nk", nk := nq if nk is None else nk, least=0)
    check_positive("br", br)
    check_positive("bc", bc)
    check_positive("sequence", sequence, least=0)
    check_positive("head", head, least=0)
    tiles = -(-nq // br) * -(-nk // bc)
    if tiles > MOST_TILES:
        raise InvalidArgument("number of tiles", tiles, f"up to {MOST_TILES} are allowed: larger br and bc")
    if output is not None:
        check_output("output", output, (".svg", ".png"))
    text, classes = classified(locals(), (nq, nk), (br, bc), (sequence, head))
    lines = [f"tiles of {br} x {bc}, of {nq} queries and {nk} keys", work(classes, (nq, nk), (br, bc))]
    if output is None:
        typer.echo("\n".join([text, lines[0], *drawn(classes), counted(classes), lines[1]]))
        return
    from flashgen import tile_picture

    if output.suffix == ".svg":
        write_text("output", output, tile_picture.svg(text, "; ".join(lines), classes))
    else:
        tile_picture.load_image()  # before a file is begun
        write("output", output, lambda file: tile_picture.png(classes, file))


def classified(
    options: Mapping[str, Any], lengths: tuple[int, int], tiles: tuple[int, int], head: tuple[int, int]
) -> tuple[str, ndarray]:
    """The mask of all options as text, and the class of each tile."""
    from flashgen import mods
    from flashgen.analysis.tile_classes import classify
    from flashgen.trace import trace

    masks = [] if options["causal"] is None else [mods.causal(options["causal"])]
    masks += masks_of(options, {})
    traced = trace(masks[0] if len(masks) == 1 else mods.and_masks(*masks))
    return str(traced.expression), classify(traced.expression, lengths, tiles, traced.values, head)


def drawn(classes: ndarray) -> list[str]:
    """The map in lines; where one character stands for several tiles, it is what all of them are, or +."""
    import numpy as np

    rows, columns = classes.shape
    down, right = -(-rows // HIGHEST) or 1, -(-columns // WIDEST) or 1
    starts = [range(0, n, step) for n, step in ((rows, down), (columns, right))]
    if classes.size == 0:
        return []
    least, most = (
        f.reduceat(f.reduceat(classes, starts[0], axis=0), starts[1], axis=1)
        for f in (np.minimum, np.maximum)
    )
    shown = np.where(least == most, least, 1)
    lines = ["".join(LETTERS[c] for c in row) for row in shown.tolist()]
    return lines if down == right == 1 else [f"(a character is {down} x {right} tiles)", *lines]


def counted(classes: ndarray) -> str:
    """How many there are of each class."""
    skipped, mixed, full = (int((classes == n).sum()) for n in range(3))
    return f"{classes.size} tiles: {skipped} skipped (.), {full} full (#), {mixed} mixed (+)"


def work(classes: ndarray, lengths: tuple[int, int], tiles: tuple[int, int]) -> str:
    """The share of all pairs of a query and a key that lie in tiles that are not skipped."""
    import numpy as np

    sizes = [
        np.minimum(np.arange(0, n, t) + t, n) - np.arange(0, n, t)
        for n, t in zip(lengths, tiles, strict=True)
    ]
    pairs = lengths[0] * lengths[1]
    visited = int((np.outer(*sizes) * (classes != 0)).sum())
    return f"work: {100 * visited / pairs:.3g} % of all pairs" if pairs else "work: none"
