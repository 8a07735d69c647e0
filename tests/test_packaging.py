"""What an installation gets: templates/ and targets/ inside the package, and nothing else at the top."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = {"flashgen": "flashgen", "targets": "flashgen/targets", "templates": "flashgen/templates"}
"""Of the checkout, and where an installation has them."""


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what a build reads, so that the build leaves nothing in the checkout."""
    copy = tmp_path_factory.mktemp("checkout")
    for folder in FOLDERS:
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / folder, copy / folder, symlinks=True, ignore=ignore)
    for file in ("pyproject.toml", "MANIFEST.in", "LICENSE", "README.md"):
        shutil.copy(ROOT / file, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(checkout: Path) -> Path:
    return build(checkout, "wheel")


@pytest.fixture(scope="module")
def expected(checkout: Path) -> set[str]:
    """Every file of the package, by its name in an installation."""
    return {
        f"{installed}/{path.relative_to(checkout / folder)}"
        for folder, installed in FOLDERS.items()
        for path in (checkout / folder).rglob("*")
        if path.is_file()
    }


def build(source: Path, kind: str) -> Path:
    """Builds "wheel" or "sdist" of ``source`` without a warning, and without a download; the archive."""
    code = f"import sys, setuptools.build_meta as b; print(b.build_{kind}(sys.argv[1]))"
    done = run([sys.executable, "-c", code, str(source / "dist")], cwd=source)
    assert "Package would be ignored" not in done.stderr
    assert "Deprecat" not in done.stderr
    return source / "dist" / done.stdout.splitlines()[-1]


def run(command: list[str], cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_wheel_holds_the_package_and_nothing_else(wheel: Path, expected: set[str]) -> None:
    assert contents(wheel) == expected


def test_wheel_states_licence_and_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        metadata = {name.partition(".dist-info/")[2]: name for name in archive.namelist()}
        assert archive.read(metadata["licenses/LICENSE"]).decode().startswith("MIT License")
        assert "flashgen = flashgen.cli.main:main" in archive.read(metadata["entry_points.txt"]).decode()
        assert archive.read(metadata["top_level.txt"]).decode().split() == ["flashgen"]


def test_wheel_made_from_the_sdist_is_the_same(checkout: Path, wheel: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(build(checkout, "sdist"), tmp_path)
    (source,) = tmp_path.iterdir()
    assert contents(build(source, "wheel")) == contents(wheel)


def test_installed_package_finds_its_targets_and_templates(
    wheel: Path, expected: set[str], tmp_path: Path
) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    code = (
        "import flashgen.targets, flashgen.templates, importlib.resources as r\n"
        "print(flashgen.targets.__file__)\n"
        "print(*r.files('flashgen.templates').rglob('*.*'), sep='\\n')"
    )
    found = run([sys.executable, "-c", code], elsewhere, PYTHONPATH=str(site), PYTHONDONTWRITEBYTECODE="1")
    module, *templates = found.stdout.splitlines()
    assert module == str(site / "flashgen/targets/__init__.py")
    assert set(templates) == {str(site / name) for name in expected if name.startswith("flashgen/templates/")}


@pytest.mark.parametrize("folder", ["targets", "templates"])
def test_package_links_to_the_top_level_folder(folder: str) -> None:
    """One copy of each file, and a relative link, so that a clone may stand anywhere."""
    link = ROOT / "flashgen" / folder
    assert link.is_symlink()
    assert link.readlink() == Path("..") / folder
