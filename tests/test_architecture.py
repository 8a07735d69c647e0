"""Data flows one way: nothing imports what stands to its right."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

FLOW = (
    ("errors", "expression", "layouts", "problem", "schedule"),
    ("notation", "making", "symbol", "capture", "trace", "mods", "combine"),
    ("ir",),
    ("evaluate",),
    ("analysis", "reference"),
    ("interpret_arrays", "interpret_elements", "build_expression", "build_layout"),
    ("interpret_sequences",),
    ("build", "interpret", "outline"),
    ("passes",),
    ("plan",),
    ("targets",),
    ("render", "picture", "tile_picture"),
    ("emission",),
    ("runtime",),
    ("arguments", "options"),
    ("variants",),
    ("api",),
    ("api_sequences",),
    ("bench",),
    ("cli",),
)
"""Parts of the package, left to right."""

FILES = sorted([*(ROOT / "flashgen").glob("[a-z]*.py"), *(ROOT / "targets").glob("*.py")])
FILES += sorted(p for d in FLOW for part in d for p in (ROOT / "flashgen" / part).rglob("*.py"))


def part_of(module: str) -> str:
    """flashgen.passes.pack ~> passes"""
    return module.split(".")[1] if "." in module else ""


def place(part: str) -> int:
    return next(n for n, parts in enumerate(FLOW) if part in parts)


def imports(path: Path) -> set[str]:
    """Modules of the package that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module, *(f"{node.module}.{a.name}" for a in node.names)]
            found |= {name for name in names if name.split(".")[0] == "flashgen" and "." in name}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.startswith("flashgen.")}
            assert not any(a.name.split(".")[0] in ("targets", "templates") for a in node.names), path
    return {name for name in found if any(part_of(name) in parts for parts in FLOW)}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_go_left(path: Path) -> None:
    relative = path.relative_to(ROOT).with_suffix("").parts
    part = relative[0] if relative[0] == "targets" else relative[1]
    if part == "__init__":
        return
    later = {name for name in imports(path) if place(part_of(name)) > place(part)}
    assert not later


def test_every_part_has_its_place() -> None:
    parts = {p.stem for p in (ROOT / "flashgen").iterdir() if p.name[0].isalpha() and p.stem != "py"}
    assert parts - {"templates"} == {part for parts in FLOW for part in parts}
