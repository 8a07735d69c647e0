"""The cache of compiled kernels in one process: keys, damage, folders that cannot be written (F17)."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from flashgen.errors import CompileFailure
from flashgen.problem import Problem
from flashgen.runtime import cache
from flashgen.runtime import cpu as cpu_module
from flashgen.runtime.cache import cache_folder, fetch, is_sound, make_key
from flashgen.runtime.compiler import Compiler
from flashgen.targets.cpu import Avx2
from tests.sample_kernel import attention_source, skip_unless_it_runs

KEY = make_key("some", "kernel")


class Builder:
    """Writes ``content`` as the library; knows how often it was asked."""

    def __init__(self, content: bytes = b"\x7fELF and so on" * 50):
        self.content, self.builds = content, 0

    def __call__(self, path: Path) -> None:
        self.builds += 1
        path.write_bytes(self.content)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache, not yet made, of a process that has fetched nothing."""
    monkeypatch.setenv("FLASHGEN_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(cache, "_private", None)
    forget(monkeypatch)
    return tmp_path / "cache"


def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on the process is a new one, as far as the cache is concerned."""
    monkeypatch.setattr(cache, "_found", {})


def leftovers(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name not in (f"{KEY}.so", f"{KEY}.lock"))


def test_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FLASHGEN_CACHE_DIR", "here")
    assert cache_folder() == Path.cwd() / "here"
    monkeypatch.delenv("FLASHGEN_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "flashgen"


def test_builds_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder()
    path = fetch(KEY, builder)
    assert path == folder / f"{KEY}.so"
    assert path.read_bytes().startswith(builder.content)
    assert fetch(KEY, builder) == path
    forget(monkeypatch)
    assert fetch(KEY, builder) == path
    assert builder.builds == 1
    assert leftovers(folder) == []


def test_second_fetch_reads_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch(KEY, Builder())
    monkeypatch.setattr(cache, "is_sound", None)
    fetch(KEY, Builder())


def flip(at: int):
    def damage(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[at] ^= 1
        return bytes(changed)

    return damage


@pytest.mark.parametrize(
    "damage",
    [
        *[lambda content, end=end: content[:end] for end in (0, 1, 400, -40, -1)],
        *[flip(at) for at in (0, 300, -41, -40, -33, -32, -1)],
        lambda content: content + b"\0",
        lambda content: bytes(len(content)),
    ],
)
def test_damaged_entry_is_built_again(damage, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = Builder()
    path = fetch(KEY, builder)
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    assert not is_sound(path)
    forget(monkeypatch)
    assert fetch(KEY, builder) == path
    assert (path.read_bytes(), builder.builds) == (whole, 2)


def test_damaged_library_is_never_loaded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half an ELF file can pass dlopen and end the process at the first call."""
    skip_unless_it_runs(Avx2())
    source = attention_source("f", Problem(4))
    path = cpu_module.library(source, "f", Avx2())
    whole = path.read_bytes()
    path.unlink()
    path.write_bytes(whole[:5000])
    forget(monkeypatch)
    cpu_module.load(source, "f", Problem(4), Avx2())
    assert is_sound(path)


def test_failed_build_leaves_nothing(folder: Path) -> None:
    def build(path: Path) -> None:
        path.write_bytes(b"half")
        raise CompileFailure("no")

    with pytest.raises(CompileFailure):
        fetch(KEY, build)
    assert not (folder / f"{KEY}.so").exists()
    assert leftovers(folder) == []
    builder = Builder()
    fetch(KEY, builder)
    assert builder.builds == 1


def test_errors_of_the_build_are_not_the_folders(folder: Path) -> None:
    def build(path: Path) -> None:
        raise OSError("of the build")

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(OSError, match="of the build"):
            fetch(KEY, build)


def test_an_entry_that_does_not_load_goes(folder: Path) -> None:
    path = fetch(KEY, Builder())
    with pytest.raises(CompileFailure, match="what the compiler made of f does not load"):
        cpu_module.open_function(path, "f")
    assert not path.exists()
    builder = Builder()
    assert fetch(KEY, builder) == path
    assert builder.builds == 1


def test_stale_temporaries_go(folder: Path) -> None:
    other = make_key("another")
    for name, age in ((f"{KEY}.mine.tmp", 0), (f"{other}.new.tmp", 0), (f"{other}.old.tmp", 2 * 24 * 3600)):
        (folder / name).mkdir(parents=True)
        (folder / name / "kernel.so").write_bytes(b"half")
        os.utime(folder / name, (time.time() - age,) * 2)
    fetch(KEY, Builder())
    assert leftovers(folder) == [f"{other}.new.tmp"]


def test_threads_build_once(folder: Path) -> None:
    builder = Builder()

    def build(path: Path) -> None:
        time.sleep(0.2)
        builder(path)

    threads = [threading.Thread(target=fetch, args=(KEY, build)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert builder.builds == 1


@pytest.mark.parametrize("below", ["", "below/it"])
def test_folder_that_cannot_be_made(below: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its place is taken by a file: what root cannot write either."""
    folder.write_text("a file")
    monkeypatch.setenv("FLASHGEN_CACHE_DIR", str(folder / below))
    builder = Builder()
    with pytest.warns(RuntimeWarning, match="cannot be written .*FLASHGEN_CACHE_DIR names another"):
        path = fetch(KEY, builder)
    assert is_sound(path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert fetch(KEY, builder) == path
    assert builder.builds == 1
    assert folder.read_text() == "a file"


@pytest.mark.parametrize("step", ["mkdir", "TemporaryDirectory", "replace", "UnixFileLock"])
def test_folder_that_cannot_be_written(
    step: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*args, **kwargs):
        path = kwargs.get("dir") or (args[1] if step == "replace" else args[0])
        if Path(path).is_relative_to(folder):
            raise OSError(30, "Read-only file system")
        return original(*args, **kwargs)

    import filelock

    owner = {"mkdir": Path, "TemporaryDirectory": cache.tempfile, "replace": os, "UnixFileLock": filelock}[
        step
    ]
    attribute = step.replace("Unix", "")
    original = getattr(owner, attribute)
    monkeypatch.setattr(owner, attribute, refuse)
    builder = Builder()
    with pytest.warns(RuntimeWarning, match="Read-only file system"):
        path = fetch(KEY, builder)
    assert is_sound(path)
    assert not path.is_relative_to(folder)
    assert not (folder / f"{KEY}.so").exists()


def test_entry_whose_place_is_taken(folder: Path) -> None:
    (folder / f"{KEY}.so").mkdir(parents=True)
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        assert is_sound(fetch(KEY, Builder()))


def test_readable_folder_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fetch(KEY, Builder())
    forget(monkeypatch)
    monkeypatch.setattr(cache, "_fill", None)
    assert fetch(KEY, Builder()) == path


def test_private_folder_goes_with_its_process(folder: Path) -> None:
    folder.write_text("a file")
    code = (
        "import os, sys, warnings; warnings.simplefilter('ignore')\n"
        "from pathlib import Path\n"
        "from flashgen.runtime.cache import fetch\n"
        "path = fetch('k', lambda path: path.write_bytes(b'x'))\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    other = fetch('k', lambda path: path.write_bytes(b'x'))\n"
        "    print(other, flush=True)\n"
        "    sys.exit(0 if other.exists() and other != path else 1)\n"
        "_, status = os.waitpid(child, 0)\n"
        "assert status == 0 and path.exists()\n"
        "print(path)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    child, parent = map(Path, done.stdout.split())
    assert child.parent != parent.parent
    assert not child.parent.exists()
    assert not parent.parent.exists()


def test_parts_of_a_key_do_not_run_together() -> None:
    keys = {
        make_key(*parts) for parts in (("ab", "c"), ("a", "bc"), ("abc",), (("a", "bc"),), (("a",), "bc"))
    }
    assert len(keys) == 5


def test_key_changes_with_each_of_its_parts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: list[str] = []
    monkeypatch.setattr(cpu_module, "fetch", lambda key, build: keys.append(key))
    compiler = Compiler(("g++",), "g++ 12")
    monkeypatch.setattr(cpu_module, "find_compiler", lambda: compiler)

    class Other(Avx2):
        flags = ("-march=x86-64-v3", "-mtune=znver3")

    class Renamed(Avx2):
        name = "avx2b"

    def key(source: str = "int f;", target: Avx2 = Avx2()) -> str:  # noqa: B008
        cpu_module.library(source, "f", target)
        return keys[-1]

    first = key()
    assert key() == first
    changed = [key("int g;"), key(target=Other()), key(target=Renamed())]
    with monkeypatch.context() as patch:
        patch.setattr(cpu_module, "BASE_FLAGS", (*cpu_module.BASE_FLAGS, "-g"))
        changed.append(key())
    with monkeypatch.context() as patch:
        patch.setattr(cpu_module, "find_compiler", lambda: replace(compiler, identity="g++ 13"))
        changed.append(key())
    assert key() == first
    assert len({first, *changed}) == 6


def test_file_name_is_no_part_of_the_key(folder: Path) -> None:
    source = attention_source("f", Problem(4))
    assert cpu_module.library(source, "f", Avx2()) == cpu_module.library(source, "g", Avx2())


def test_compiles_into_the_cache_only(folder: Path) -> None:
    package = Path(cpu_module.__file__).parents[1]

    def snapshot() -> dict[Path, int]:
        return {p: p.stat().st_mtime_ns for p in package.rglob("*") if p.is_file() and p.suffix != ".pyc"}

    before = snapshot()
    cpu_module.library(attention_source("f", Problem(4)), "f", Avx2())
    assert snapshot() == before
    assert {path.suffix for path in folder.iterdir()} == {".so", ".lock"}
