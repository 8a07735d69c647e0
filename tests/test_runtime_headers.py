"""Precompiled headers: read once, used by every kernel, and never needed."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from flashgen.runtime.compiler import BASE_FLAGS, HEADERS_FILE, Compiler, find_compiler
from flashgen.runtime.cpu import library
from flashgen.runtime.headers import precompiled
from flashgen.targets.cpu import Avx2
from tests.sample_kernel import probe_source

FLAGS = (*Avx2().flags, *BASE_FLAGS)
SOURCES = [f"#include <immintrin.h>\n{probe_source(name)}" for name in ("f", "g")]


@dataclass(frozen=True)
class Logging:
    """A g++ that writes down its arguments and which headers it took (after `!` where these are precompiled).

    refuses: what it fails for among its arguments.
    """

    folder: Path
    command: tuple[str, ...]

    def install(self, monkeypatch: pytest.MonkeyPatch, refuses: str = "@@") -> None:
        script = self.folder / "logging"
        script.write_text(
            f'#!/bin/sh\necho "$@" >> {self.folder}/log\n'
            f'case "$*" in *{refuses}*) exit 1;; esac\n'
            f'exec {shlex.join(self.command)} -H "$@" 2>> {self.folder}/log\n'
        )
        script.chmod(0o755)
        monkeypatch.setenv("CXX", str(script))

    def text(self) -> str:
        return (self.folder / "log").read_text()


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Logging:
    """In use, beside an empty cache."""
    compiler = find_compiler()
    if not compiler.is_gnu:
        pytest.skip("g++ is not the compiler here")
    monkeypatch.setenv("FLASHGEN_CACHE_DIR", str(tmp_path / "cache"))
    logging = Logging(tmp_path, compiler.command)
    logging.install(monkeypatch)
    return logging


def test_they_are_read_once_and_used_by_all(log: Logging, tmp_path: Path) -> None:
    libraries = {library(source, "fg"[n], Avx2()) for n, source in enumerate(SOURCES)}
    text = log.text()
    assert len(libraries) == 2
    assert text.count("c++-header") == 1
    assert text.count(f"! ./{HEADERS_FILE}.gch") == 2
    assert len(list((tmp_path / "cache").glob("*.gch"))) == 1


def test_they_change_nothing(log: Logging, tmp_path: Path) -> None:
    compiler, made = find_compiler(), []
    for headers in (None, precompiled(compiler, FLAGS)):
        folder = tmp_path / str(len(made))
        folder.mkdir()
        compiler.compile(SOURCES[0], folder / "f.so", FLAGS, "f", headers)
        made.append((folder / "f.so").read_bytes())
    assert made[0] == made[1]
    assert log.text().count(f"! ./{HEADERS_FILE}.gch") == 1


def test_a_compiler_that_makes_none(log: Logging, monkeypatch: pytest.MonkeyPatch) -> None:
    log.install(monkeypatch, refuses="c++-header")
    assert library(SOURCES[0], "f", Avx2()).exists()
    assert "-include" not in log.text()


def test_a_compiler_that_does_not_take_them(
    log: Logging, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.install(monkeypatch, refuses="-include")
    assert library(SOURCES[0], "f", Avx2()).exists()
    assert [line.count("-include") for line in log.text().splitlines() if "f.cpp" in line] == [1, 0]


def test_a_folder_without_links(log: Logging, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path, to: Path) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    assert library(SOURCES[0], "f", Avx2()).exists()
    assert "-include" not in log.text()


def test_no_room_for_them(log: Logging, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(compiler: Compiler, output: Path, flags: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Compiler, "precompile", refuse)
    assert library(SOURCES[0], "f", Avx2()).exists()
    assert "-include" not in log.text()


def test_what_is_none_is_passed_over(tmp_path: Path) -> None:
    unfit = tmp_path / "unfit"
    unfit.write_bytes(b"no headers")
    assert find_compiler().compile(SOURCES[0], tmp_path / "f.so", FLAGS, "f", unfit) == ""


def test_other_compilers_are_not_asked() -> None:
    assert precompiled(Compiler(("no such compiler",), "clang version 20"), FLAGS) is None
