"""A mask's tiles as a picture: queries downwards, keys to the right, a colour for each class."""

from __future__ import annotations

import importlib
from itertools import groupby
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from flashgen.analysis.tile_classes import FULL, MIXED, SKIPPED
from flashgen.errors import MissingTool
from flashgen.render import templates

NAMES = {SKIPPED: "skipped", FULL: "full", MIXED: "mixed"}
COLOURS = {SKIPPED: "#eaeef2", FULL: "#5b7fa6", MIXED: "#bc4c00"}
SIZE, LEFT, TOP, GAP = 640, 24, 100, 24  # of the longer side; pixels
LEGEND = 130  # pixels from one class to the next


def svg(heading: str, words: str, classes: NDArray[np.int8]) -> str:
    """The picture, with a heading, words below it and a legend that counts."""
    tiles = max(*classes.shape, 1)
    side = SIZE / tiles
    rectangles = []
    for i, row in enumerate(classes.tolist()):
        j = 0
        for kind, run in groupby(row):
            n = len([*run])
            place = {"x": LEFT + j * side, "y": TOP + i * side, "width": n * side, "height": side}
            rectangles.append({k: f"{v:g}" for k, v in place.items()} | {"colour": COLOURS[kind]})
            j += n
    kinds = [
        {"name": name, "colour": COLOURS[kind], "count": int((classes == kind).sum()), "x": LEFT + n * LEGEND}
        for n, (kind, name) in enumerate(NAMES.items())
    ]
    return (
        templates()
        .get_template("tiles.svg.jinja")
        .render(
            heading=heading,
            words=words,
            kinds=kinds,
            rectangles=rectangles,
            line=f"{min(1.0, side / 8):g}",
            width=SIZE + 2 * LEFT,
            height=f"{TOP + classes.shape[0] * side + GAP:g}",
        )
    )


def png(classes: NDArray[np.int8], file: BinaryIO) -> None:
    """The tiles alone, enlarged so that one is a few pixels. Raises MissingTool."""
    colours = np.zeros((3, 3), np.uint8)
    for kind, colour in COLOURS.items():
        colours[kind] = [int(colour[n : n + 2], 16) for n in (1, 3, 5)]
    pixels = max(1, SIZE // max(*classes.shape, 1))
    image = colours[classes].repeat(pixels, axis=0).repeat(pixels, axis=1)
    load_image().imsave(file, image, format="png")


def load_image() -> Any:
    """Raises MissingTool."""
    try:
        return importlib.import_module("matplotlib.image")
    except ImportError as error:
        missing = "a picture in PNG needs matplotlib: pip install 'flashgen[bench]'; one in SVG does not"
        raise MissingTool(missing) from error
