"""The derivation as a picture: one panel a pass, what it changed in colour."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flashgen.ir.provenance import STATED
from flashgen.outline import Line
from flashgen.render import templates

COLUMNS, PANEL_WIDTH, GAP, TOP = 3, 560, 20, 76  # panels in a row; pixels
LINE_HEIGHT, INDENT, MARGIN = 18, 16, 14  # pixels


def derivation(heading: str, stages: Sequence[tuple[str, Sequence[Line]]]) -> str:
    """An SVG of (title, outline) panels, in reading order."""
    panels, y = [], TOP
    for start in range(0, len(stages), COLUMNS):
        row = stages[start : start + COLUMNS]
        height = 40 + LINE_HEIGHT * max(len(lines) for _, lines in row)
        for n, (title, lines) in enumerate(row):
            x = GAP + n * (PANEL_WIDTH + GAP)
            panels.append(_panel(title, lines) | {"x": x, "y": y, "height": height})
        y += height + GAP
    width = GAP + COLUMNS * (PANEL_WIDTH + GAP)
    template = templates().get_template("derivation.svg.jinja")
    return template.render(heading=heading, panels=panels, width=width, height=y)


def _panel(title: str, lines: Sequence[Line]) -> dict[str, Any]:
    texts = [
        {"x": MARGIN + INDENT * line.depth, "y": 48 + LINE_HEIGHT * n, "parts": _parts(line, title)}
        for n, line in enumerate(lines)
    ]
    return {"title": title, "width": PANEL_WIDTH, "lines": texts}


def _parts(line: Line, title: str) -> list[tuple[str, bool]]:
    """Pieces of a line, each with whether the panel's pass made it; nothing of the first is."""
    new = [made_by == title != STATED for made_by in line.made_by]
    parts = [(f"{line.verb} ", all(new))] if line.verb else []
    for n, word in enumerate(line.words):
        parts += [(", ", False)] if n else []
        parts.append((word, new[n]))
    if line.carried:
        parts.append((line.carried, new[-1]))
    return parts
