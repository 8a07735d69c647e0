"""The FileCheck files, through lit: each pass on a module that it transforms, and on one that it refuses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

FILES = Path(__file__).parent / "filecheck"


def test_every_file_passes() -> None:
    lit = [sys.executable, "-c", "from lit.main import main; main()"]
    done = subprocess.run([*lit, "-v", "-j2", str(FILES)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    passed = re.search(r"Passed *: (\d+)", done.stdout)
    assert passed is not None
    assert int(passed[1]) == len(list(FILES.rglob("*.mlir")))


def test_each_folder_shows_what_is_transformed_and_what_is_refused() -> None:
    for folder in (f for f in FILES.iterdir() if any(f.glob("*.mlir"))):
        refused = {f.name for f in folder.glob("*-refused.mlir")}
        assert refused, f"{folder.name}: no refusal"
        assert len(refused) < len(list(folder.glob("*.mlir"))), f"{folder.name}: nothing is transformed"
        for name in refused:
            assert "// RUN: not flashgen opt" in (folder / name).read_text()
