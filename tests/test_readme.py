"""What the README shows is what flashgen does."""

from __future__ import annotations

import re
from pathlib import Path

from flashgen.bench.cases import CASES
from flashgen.cli.derive import outlines
from flashgen.emission import source
from flashgen.passes.pipeline import REGISTRY
from flashgen.problem import Problem
from flashgen.runtime.compiler import OPTIMIZE
from flashgen.schedule import Schedule
from flashgen.targets.cpu import Avx2

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()


def test_outlines() -> None:
    stages = {
        name: "\n".join(map(str, lines)) for name, lines in outlines("bottom-right", "q-outer", True, True)
    }
    blocks = re.findall(r"```\n(for .*?)\n```", README, re.DOTALL)
    assert blocks == [stages["build"], stages["keep-state"]]


def test_passes() -> None:
    """The table of passes names passes, in their order."""
    named = re.findall(r"^\| `([a-z0-9-]+)` \| .* \| .* \|$", README, re.MULTILINE)
    rows = [name for name in named if name in REGISTRY]
    assert rows == ["lazy-rescale", "sink-loads", "interchange", "fuse-loops", "keep-state", "causal-skip"]


def test_cases() -> None:
    """The table of what flashgen bench measures has each case as it is."""
    rows = re.findall(r"^\| ([PD]\d) \| (.*) \| (.*) \|$", README, re.MULTILINE)
    assert rows == [(case.name, case.label, case.words) for case in CASES.values()]


def test_how_to_compile() -> None:
    """As the runtime does, in the README, in a kernel's header and in the help of emit."""
    texts = README, source(Problem(8), Schedule(), Avx2()), (ROOT / "flashgen/cli/emit.py").read_text()
    for text in texts:
        assert re.findall(r"-std=c\+\+17 (-O\S+)", text) == [OPTIMIZE]


def test_threads() -> None:
    """Of the function in C, in the words of its header."""
    header, words = source(Problem(8), Schedule(), Avx2()), re.compile(r"at most so many; below 1 .* \d+")
    assert words.findall(README) == words.findall(header) != []


def test_what_its_commands_write_is_ignored() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    written = set(re.findall(r"-o ([\w.]+)", README))
    written |= {f"{stem}.o" for stem in re.findall(r"-c (\w+)\.cpp", README)}
    assert {f"/{name}" for name in written} <= {*ignored}
    assert written >= {"fa1.mlir", "attention.cpp", "attention.o"}


def test_links() -> None:
    """Every file that it links to is there."""
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
