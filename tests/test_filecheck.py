"""Tier 2: what each pass makes of a text. lit runs each file of tests/filecheck as a case of its own."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "filecheck"
FILES = sorted(FOLDER.rglob("*.mlir"))
MISSING = [tool for tool in ("lit", "filecheck") if importlib.util.find_spec(tool) is None]

LIT = "from lit.main import main; main()"
"""Not -m lit.main: that only defines it, and is content with every file."""

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"pip install {' '.join(MISSING)}")


@pytest.mark.parametrize("file", FILES, ids=lambda f: f.relative_to(FOLDER).with_suffix("").as_posix())
def test_file(file):
    command = [sys.executable, "-c", LIT, "-v", "--no-progress-bar", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"PASS: flashgen :: {file.relative_to(FOLDER).as_posix()}" in done.stdout


def test_every_pass_has_a_file_for_what_it_does_and_one_for_what_it_refuses():
    from flashgen.passes.pipeline import OWN

    for p in OWN:
        names = {file.stem.endswith("-refused") for file in (FOLDER / p.name).glob("*.mlir")}
        assert names == {True, False}, p.name
