"""generated/ is what flashgen emits today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flashgen.targets import TARGETS
from tests import make_generated

HINT = "run `make generated` and read the difference"


def test_folder_holds_a_fresh_emit() -> None:
    wanted = make_generated.everything()
    assert make_generated.present() == wanted.keys(), HINT
    for path, text in wanted.items():
        assert (make_generated.FOLDER / path).read_text() == text, f"generated/{path}: {HINT}"


def test_names_say_what_a_kernel_is() -> None:
    """Every algorithm, mask and target, each once."""
    kernels = make_generated.kernels()
    assert len(kernels) == 2 * 2 * len(TARGETS)
    for path, text in kernels.items():
        first = text.splitlines()[0]
        assert ("kv_outer" in first) == path.startswith("fa1")
        assert ("causal" in first) == ("causal" in path)
        assert first.endswith(re.split(r"[_.]", path)[-2])


def test_main_mends_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(make_generated, "FOLDER", tmp_path)
    monkeypatch.setattr(make_generated, "kernels", lambda: {"a.cpp": "new", "b.cpp": "same"})
    monkeypatch.setattr(make_generated, "modules", lambda: {"derivation/00-build.mlir": "module"})
    monkeypatch.setattr(make_generated, "pictures", dict)
    for name, text in (("a.cpp", "old"), ("b.cpp", "same"), ("stale.cpp", "")):
        (tmp_path / name).write_text(text)
    untouched = (tmp_path / "b.cpp").stat().st_mtime_ns
    make_generated.main()
    assert make_generated.present() == {"a.cpp", "b.cpp", "derivation/00-build.mlir"}
    assert (tmp_path / "a.cpp").read_text() == "new"
    assert (tmp_path / "b.cpp").stat().st_mtime_ns == untouched
