"""Outlines say what a module does, and `flashgen derive` shows how they change."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from flashgen.cli.derive import outlines
from flashgen.cli.main import app
from flashgen.outline import Line


def text(lines: list[Line]) -> str:
    return "\n".join(map(str, lines))


def derive(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["derive", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_from_fa1_to_fa2() -> None:
    stages = dict(outlines(None, "q-outer", True, False))
    assert text(stages["build"]).startswith(
        """\
for b, g, r
  for i
    store acc, l, m
  for j
    load k, v
    for i
      load q, acc, l, m
      dot, mask, row_max, exp, row_sum, exp, exp, dot, divide
      store acc, l, m
"""
    )
    assert (
        text(stages["keep-state"])
        == """\
for b, g, r, i
  load q
  for j carrying acc, l, m
    load k, v
    dot, mask, row_max, exp, row_sum, exp, dot
  divide
  store o
  log
  store lse"""
    )


@pytest.mark.parametrize(
    ("arguments", "passes", "absent"),
    [
        ((), ["interchange", "keep-state", "causal-skip", "parallel-loops"], []),
        (("--order", "kv-outer"), ["lazy-rescale", "causal-skip"], ["interchange", "keep-state"]),
        (("--no-lazy-rescale", "--no-causal-skip"), ["interchange"], ["lazy-rescale", "causal-skip"]),
    ],
)
def test_stages_are_those_of_the_schedule(
    arguments: tuple[str, ...], passes: list[str], absent: list[str]
) -> None:
    heading, *titles = [line[3:] for line in derive(*arguments).splitlines() if line.startswith("// ")]
    assert heading.endswith("; no panels, grouped rows or parts of the keys)")
    assert titles[0] == "build"
    assert set(passes) <= set(titles) and not set(absent) & set(titles)


def test_every_stage_differs_from_the_one_before() -> None:
    """nan-in-sum, for one, changes an operation that is still called the same."""
    _, *stages = derive("--causal").rstrip().split("\n\n")
    shown = [stage.partition("\n") for stage in stages]
    assert not [title for (_, _, before), (title, _, after) in pairwise(shown) if before == after]


def test_picture(tmp_path: Path) -> None:
    """It is well-formed, holds every stage, and colours what the pass of a panel made, and no more."""
    path = tmp_path / "d.svg"
    derive("--causal", "-o", str(path))
    svg = ElementTree.parse(path).getroot()
    group, words, span = (f"{{http://www.w3.org/2000/svg}}{tag}" for tag in ("g", "text", "tspan"))
    panels = {g.find(words).text: g for g in svg.findall(group)}  # pyright: ignore[reportOptionalMemberAccess]
    coloured = {title: [s.text for s in g.iter(span) if s.get("fill")] for title, g in panels.items()}
    assert list(panels) == [title for title, _ in outlines("bottom-right", "q-outer", True, True)]
    assert coloured["build"] == []
    assert coloured["interchange"] == ["for ", "i", "j"]
    assert coloured["keep-state"] == ["for ", "j", " carrying acc, l, m"]


def test_picture_wants_an_svg(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["derive", "-o", str(tmp_path / "d.png")])
    assert result.exit_code == 2
    assert result.stderr.strip().count("\n") == 0 and ".svg" in result.stderr
    assert not list(tmp_path.iterdir())
