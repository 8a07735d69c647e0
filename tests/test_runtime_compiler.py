"""Finding a C++ compiler, and what it says."""

from __future__ import annotations

import os
import re
import shutil
import sys
import warnings
from pathlib import Path

import pytest

from flashgen.errors import CompileFailure, InvalidArgument, MissingTool
from flashgen.problem import Problem
from flashgen.runtime import compiler as module
from flashgen.runtime.compiler import BASE_FLAGS, Compiler, find_compiler
from flashgen.runtime.cpu import library
from flashgen.targets import find
from flashgen.targets.cpu import Avx2
from tests.sample_kernel import attention_source, probe_source


def script(path: Path, text: str) -> Path:
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


@pytest.fixture
def empty_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A PATH with nothing in it, and no ziglang."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)
    return folder


def test_cxx_comes_first_and_may_have_arguments(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(empty_path / "g++", "echo plain")
    script(empty_path / "wrapper", 'echo "wrapper of $1"')
    assert find_compiler().command == ("g++",)
    monkeypatch.setenv("CXX", "")
    assert find_compiler().command == ("g++",)
    monkeypatch.setenv("CXX", "wrapper g++")
    assert find_compiler().command == ("wrapper", "g++")
    assert "wrapper of g++" in find_compiler().identity


def test_order_without_cxx(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(empty_path / "clang++", "echo clang")
    assert find_compiler().command == ("clang++",)
    script(empty_path / "g++", "echo gcc")
    assert find_compiler().command == ("g++",)


def test_ziglang_comes_last(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: name == "ziglang")
    monkeypatch.setattr(module.sys, "executable", str(script(empty_path / "python", 'echo "$@"')))
    found = find_compiler()
    assert found.command == (str(empty_path / "python"), "-m", "ziglang", "c++")
    assert found.is_zig
    assert found.identity.endswith("-m ziglang c++ --version\n")


def test_no_compiler(empty_path: Path) -> None:
    with pytest.raises(
        MissingTool, match=r"no C\+\+ compiler.*apt install g\+\+.*flashgen\[zig\].*emit and opt"
    ):
        find_compiler()


def test_cxx_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -m64")
    with pytest.raises(MissingTool, match="CXX names 'no-such-compiler', which is not there"):
        find_compiler()


def test_cxx_that_does_not_run(empty_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(script(empty_path / "broken", "echo out of order >&2; exit 3")))
    with pytest.raises(MissingTool, match=r"does not run \(out of order\)"):
        find_compiler()
    (empty_path / "broken").write_text("neither script nor program")
    with pytest.raises(MissingTool, match="does not start"):
        find_compiler()


def test_identity_follows_the_file(empty_path: Path) -> None:
    path = script(empty_path / "g++", "echo one")
    before = find_compiler()
    assert find_compiler() == before
    os.utime(path, (0, 0))
    touched = find_compiler()
    assert touched.identity != before.identity
    script(path, "echo two")
    os.utime(path, (0, 0))
    assert find_compiler().identity != touched.identity


def test_zig_spells_march_its_own_way() -> None:
    flags = ("-march=x86-64-v3", "-mprefer-vector-width=512", "-O3")
    zig = Compiler((sys.executable, "-m", "ziglang", "c++"), "")
    assert zig.spell(flags) == ("-march=x86_64_v3", "-mprefer-vector-width=512", "-O3", "-nostdlib++")
    assert Compiler(("/opt/zig/zig", "c++"), "").is_zig
    assert Compiler(("g++",), "").spell(flags) == flags


@pytest.mark.parametrize("target", ["avx2", "avx512"])
@pytest.mark.parametrize("source", [attention_source("f", Problem(64, causal="top-left")), probe_source("f")])
def test_compiles_without_a_warning(target: str, source: str, tmp_path: Path) -> None:
    flags = (*find(target).flags, *BASE_FLAGS, "-Wall", "-Wextra")
    assert find_compiler().compile(source, tmp_path / "f.so", flags) == ""
    assert (tmp_path / "f.so").stat().st_size > 0


@pytest.mark.parametrize("command", ["clang++", "ziglang"])
def test_other_compilers(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if command == "ziglang":
        pytest.importorskip("ziglang", reason="pip install 'flashgen[zig]' for this test")
        monkeypatch.setenv("CXX", f"{sys.executable} -m ziglang c++")
    elif not shutil.which(command):
        pytest.skip(f"{command} is not installed")
    else:
        monkeypatch.setenv("CXX", command)
    for target in ("avx2", "avx512"):
        flags = (*find(target).flags, *BASE_FLAGS, "-Wall", "-Wextra")
        assert find_compiler().compile(attention_source("f", Problem(8)), tmp_path / "f.so", flags) == ""


def test_failure_has_the_compilers_words(tmp_path: Path) -> None:
    with pytest.raises(CompileFailure, match=r"could not compile wrong.cpp: (?s:.*)nonsense"):
        find_compiler().compile("nonsense;", tmp_path / "f.so", BASE_FLAGS, "wrong")
    assert not (tmp_path / "f.so").exists()


def test_cxx_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++ '")
    with pytest.raises(InvalidArgument, match=r'CXX is "g\+\+ \'"; words .* \(No closing quotation\)'):
        find_compiler()


@pytest.mark.parametrize("command", ["true", "echo", "g++ -c", "g++ -S", "g++ -fsyntax-only"])
def test_a_compiler_that_makes_no_library(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not shutil.which(command.split(maxsplit=1)[0]):
        pytest.skip(f"{command.split(maxsplit=1)[0]} is not installed")
    monkeypatch.setenv("CXX", command)
    monkeypatch.setenv("FLASHGEN_CACHE_DIR", str(tmp_path / "cache"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(CompileFailure, match=f"{re.escape(command)} made no shared library .* f.cpp"):
            library(probe_source("f"), "f", Avx2())
    assert not list((tmp_path / "cache").glob("*.so"))


def test_a_compiler_that_hangs(empty_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(empty_path / "g++", f'test "$1" = --version || exec {shutil.which("sleep", path=os.defpath)} 60')
    found = find_compiler()
    monkeypatch.setattr(module, "TIMEOUT", 0.5)
    with pytest.raises(CompileFailure, match=r"g\+\+ .* has not ended after 0.5 seconds"):
        found.compile("", tmp_path / "f.so", ())


def test_failure_without_words(empty_path: Path, tmp_path: Path) -> None:
    script(empty_path / "g++", 'test "$1" = --version')
    with pytest.raises(CompileFailure, match="exit status 1"):
        find_compiler().compile("", tmp_path / "f.so", ())
