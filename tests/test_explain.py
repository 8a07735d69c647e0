"""flashgen explain: the map of a mask as text and as a picture."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from typer.testing import CliRunner

from flashgen import tile_picture
from flashgen.analysis.tile_classes import FULL, MIXED, SKIPPED
from flashgen.cli.explain import drawn
from flashgen.cli.main import app


def invoke(*args: str):
    return CliRunner().invoke(app, ["explain", *args])


def explain(*args: str) -> list[str]:
    done = invoke("mask", *args)
    assert done.exit_code == 0, done.stderr
    return done.stdout.splitlines()


def test_causal() -> None:
    assert explain("--causal", "--nq", "10", "--br", "3", "--bc", "3") == [
        "k <= q + (Nk - Nq)",
        "tiles of 3 x 3, of 10 queries and 10 keys",
        "+...",
        "#+..",
        "##+.",
        "####",
        "16 tiles: 6 skipped (.), 7 full (#), 3 mixed (+)",
        "work: 64 % of all pairs",
    ]


@pytest.mark.parametrize(
    ("args", "rows"),
    [
        ((), ["####"] * 4),
        (("--causal", "top-left", "--nk", "4"), ["+", "#", "#", "#"]),
        (("--causal", "--nk", "4"), [".", ".", ".", "+"]),
        (("--window", "4,0"), ["+...", "++..", ".++.", "..++"]),
        (("--window", ",0"), ["+...", "#+..", "##+.", "###+"]),
        (("--window", "0,0", "--causal"), ["+...", ".+..", "..+.", "...+"]),
        (("--mask", "k < 4 or k <= q"), ["#...", "#+..", "##+.", "###+"]),
        (("--mask", "k < 4", "--causal"), ["+...", "#...", "#...", "#..."]),
        (("--mask", "h == 1 and q < 4"), ["....", "....", "....", "...."]),
        (("--mask", "h == 1 and q < 4", "--head", "1"), ["####", "....", "....", "...."]),
        (("--mask", "b == 2", "--sequence", "2"), ["####"] * 4),
    ],
)
def test_maps(args, rows) -> None:
    assert explain(*args, "--nq", "16", "--br", "4", "--bc", "4")[2:-2] == rows


def test_a_function_that_captures_an_array(tmp_path: Path) -> None:
    path = tmp_path / "documents.py"
    path.write_text(
        "import numpy as np\nids = np.repeat(np.arange(2), 8)\n\n"
        "def same(b, h, q_idx, k_idx):\n    return ids[q_idx] == ids[k_idx]\n"
    )
    lines = explain("--mask-mod", f"{path}:same", "--nq", "16", "--br", "4", "--bc", "4")
    assert lines[0] == "ids[q] == ids[k]"
    assert lines[2:-2] == ["##..", "##..", "..##", "..##"]


def test_no_queries() -> None:
    assert explain("--nq", "0")[2:] == ["0 tiles: 0 skipped (.), 0 full (#), 0 mixed (+)", "work: none"]


def test_of_many_tiles_several_share_a_character() -> None:
    classes = np.full((130, 256), SKIPPED, np.int8)
    classes[:3, :2] = FULL
    classes[3, 1] = FULL
    lines = drawn(classes)
    assert lines[0] == "(a character is 3 x 2 tiles)"
    assert lines[1] == "#" + "." * 127
    assert lines[2] == "+" + "." * 127
    assert len(lines) == 1 + 44 and set("".join(lines[3:])) == {"."}


def test_svg(tmp_path: Path) -> None:
    """Every tile has its colour; the legend counts; the mask's text is in it, and is text."""
    path = tmp_path / "m.svg"
    assert (
        explain("--mask", "k <= q and q < 12", "--nq", "16", "--br", "4", "--bc", "4", "-o", str(path)) == []
    )
    svg = ElementTree.parse(path).getroot()
    name = "{http://www.w3.org/2000/svg}"
    words = [e.text for e in svg.iter(f"{name}text")]
    assert words[0] == "k <= q and q < 12"
    assert words[2:] == ["10 skipped", "3 full", "3 mixed"]
    areas = dict.fromkeys(tile_picture.COLOURS.values(), 0.0)
    for r in svg.find(f"{name}g") or ():
        areas[r.get("fill", "")] += float(r.get("width", 0)) * float(r.get("height", 0))
    tile = (tile_picture.SIZE / 4) ** 2
    counts = [areas[tile_picture.COLOURS[kind]] / tile for kind in (SKIPPED, FULL, MIXED)]
    assert counts == pytest.approx([10, 3, 3])


def test_png(tmp_path: Path) -> None:
    image = pytest.importorskip("matplotlib.image", reason="matplotlib is not installed")
    path = tmp_path / "m.png"
    explain("--causal", "--nq", "8", "--br", "4", "--bc", "4", "-o", str(path))
    pixels = image.imread(path)
    colours = {
        kind: tuple(int(c[n : n + 2], 16) for n in (1, 3, 5)) for kind, c in tile_picture.COLOURS.items()
    }
    side = pixels.shape[0] // 2
    got = [
        tuple(np.rint(255 * pixels[side // 2 + i * side, side // 2 + j * side, :3]).astype(int))
        for i, j in np.ndindex(2, 2)
    ]
    assert got == [colours[kind] for kind in (MIXED, SKIPPED, FULL, MIXED)]


def test_png_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(tile_picture.importlib, "import_module", missing)
    done = invoke("mask", "-o", str(tmp_path / "m.png"))
    assert done.exit_code == 2
    assert re.match(
        r"error: a picture in PNG needs matplotlib: pip install .*; one in SVG does not$", done.stderr
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("schedule",), "topic is 'schedule'; one of 'mask' is allowed"),
        (("mask", "--nq", "-1"), "nq is -1; a whole number of at least 0"),
        (("mask", "--br", "0"), "br is 0; a whole number of at least 1"),
        (("mask", "--head", "-1"), "head is -1; a whole number of at least 0"),
        (("mask", "--nq", "100000", "--br", "1"), "number of tiles is 156300000; up to 4194304 are allowed"),
        (("mask", "-o", "m.pdf"), "output is 'm.pdf'; a name that ends in .svg, .png is allowed"),
        (("mask", "--mask", "doc[q] < 1"), "mask is 'doc[q] < 1'; an expression .*: 'doc' is not declared"),
        (("mask", "--mask", "q"), "mask is 'q'; an expression of kind bool is allowed, not index"),
        (("mask", "--window", "a,b"), "window is 'a,b'; two whole numbers with a comma"),
        (("mask", "--causal", "left"), "causal is 'left'; one of 'bottom-right', 'top-left'"),
        (("mask", "--mask-mod", "nothing.py:f"), "mask_mod is 'nothing.py:f'; FILE.py:NAME is allowed"),
    ],
)
def test_refused(args, message: str) -> None:
    done = invoke(*args)
    assert done.exit_code == 2
    assert re.match(f"error: {message.replace('[', chr(92) + '[')}", done.stderr), done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("more", [(), ("--window", "3,0")], ids=["alone", "beside a window"])
def test_a_function_of_too_few_arguments_is_refused(more: tuple[str, ...], tmp_path: Path) -> None:
    """Also where another function calls it."""
    path = tmp_path / "mods.py"
    path.write_text("def same(b, h, q):\n    return q < 3\n")
    done = invoke("mask", "--mask-mod", f"{path}:same", *more)
    assert done.exit_code == 2
    assert done.stderr == (
        "error: mask_mod: signature is (b, h, q); a function of 4 arguments is allowed: b, h, q, k\n"
    )
