"""Finds a C++ compiler and runs it."""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flashgen.errors import CompileFailure, InvalidArgument, MissingTool

OPTIMIZE = "-O2"
"""Emitted code says itself which loops are over registers; -O3 takes half as long again and gains nothing."""

# -ffp-contract=off: emitted code says fma where it means one; a compiler's own choice would differ from
#     loop to loop, and kernels that promise equal bits would not have them.
# -fno-math-errno changes no result: it only spares the functions of math.h the writing of errno.
# -fno-trapping-math would change none either, and gains nothing where the arithmetic is intrinsics.
BASE_FLAGS = (
    "-std=c++17",
    OPTIMIZE,
    "-ffp-contract=off",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-pthread",
)

HELP = (
    "install g++ (Debian: apt install g++) or flashgen's own (pip install 'flashgen[zig]'), "
    "or name one in CXX; emit and opt work without"
)


HEADERS, HEADERS_FILE = "#include <immintrin.h>\n", "headers.h"
"""What is precompiled. g++ -include headers.h takes headers.h.gch in its place, unless that was made with
other flags; the headers' own guards then make an emitted file's #include of them do nothing."""

TIMEOUT = 300
"""Seconds after which a compiler is taken to hang; a kernel takes it two, a minute on a loaded machine."""

ELF_64, SHARED_X86_64 = b"\x7fELF\x02", b"\x03\x00\x3e\x00"
"""How a shared library of x86-64 begins, and its type and machine, at TYPE_AT (elf(5))."""
TYPE_AT = 16


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler.

    command: the words that start it.
    identity: its path, version, size and time of change: two compilers that may give different machine
        code have different identities.
    """

    command: tuple[str, ...]
    identity: str

    @property
    def is_zig(self) -> bool:
        """Whether it is ``zig c++``, a clang with its own way with -march and its own C++ library."""
        return any(Path(word).stem in ("zig", "ziglang") for word in self.command)

    @property
    def version(self) -> str:
        """What it says of itself: the first line of its answer to --version."""
        return self.identity.partition("\n")[2].partition("\n")[0]

    @property
    def is_gnu(self) -> bool:
        """Whether it is g++."""
        return "Free Software Foundation" in self.identity

    def spell(self, flags: Sequence[str]) -> tuple[str, ...]:
        """Flags of g++ in this compiler's spelling.

        zig: -march=x86-64-v3 ~> -march=x86_64_v3, and no libc++, which emitted code does not use and
        which zig would first compile for a minute or two.
        """
        if not self.is_zig:
            return tuple(flags)
        march = "-march="
        words = (march + f[len(march) :].replace("-", "_") if f.startswith(march) else f for f in flags)
        return (*words, "-nostdlib++")

    def compile(
        self,
        source: str,
        output: Path,
        flags: Sequence[str],
        name: str = "kernel",
        headers: Path | None = None,
    ) -> str:
        """Compile ``source`` to the shared library ``output``; what the compiler said, "" if nothing.

        The source is written to ``output``'s folder as ``name``.cpp. headers: what ``precompile`` made with
        the same flags. Raises CompileFailure with the compiler's words, also where it is content and has made
        something else.
        """
        text, words = output.parent / f"{name}.cpp", self.spell(flags)
        _write(text, source)
        if headers is not None:
            _write(output.parent / HEADERS_FILE, HEADERS)
            _link(output.parent / f"{HEADERS_FILE}.gch", headers)
            words = (*words, "-include", HEADERS_FILE)
        said = self._make([*words, text.name, "-o", str(output), "-lm"], text)
        if not _is_library(output):
            raise CompileFailure(
                f"{shlex.join(self.command)} made no shared library for x86-64 of {text.name}; a C++ "
                "compiler is allowed in CXX, without options that choose another output"
            )
        return said

    def precompile(self, output: Path, flags: Sequence[str]) -> None:
        """Make of HEADERS what ``compile`` takes with the same flags. Raises CompileFailure."""
        headers = output.parent / HEADERS_FILE
        _write(headers, HEADERS)
        self._make([*self.spell(flags), "-x", "c++-header", headers.name, "-o", str(output)], headers)
        if not output.exists():
            raise CompileFailure(f"{shlex.join(self.command)} made nothing of {headers.name}")

    def _make(self, words: Sequence[str], text: Path) -> str:
        """Run it in the folder of ``text``, which it is to compile; what it said."""
        done = _run([*self.command, *words], text.parent)
        if done.returncode != 0:
            reason = done.stderr.strip() or f"exit status {done.returncode}"
            raise CompileFailure(f"{shlex.join(self.command)} could not compile {text.name}: {reason}")
        return done.stderr


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CompileFailure(f"{path.name} cannot be written to be compiled ({error})") from error


def _link(path: Path, to: Path) -> None:
    try:
        path.symlink_to(to)
    except OSError as error:
        raise CompileFailure(f"{path.name} cannot be linked ({error})") from error


def _is_library(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            head = file.read(TYPE_AT + len(SHARED_X86_64))
    except OSError:
        return False
    return head.startswith(ELF_64) and head.endswith(SHARED_X86_64)


def find_compiler() -> Compiler:
    """The compiler that CXX names, else the first of g++, clang++ and the package ziglang.

    Raises MissingTool, where there is none or CXX names one that is not there, and InvalidArgument, where
    CXX has a quotation without end.
    """
    named = os.environ.get("CXX", "")
    try:
        words = shlex.split(named)
    except ValueError as error:
        raise InvalidArgument(
            "CXX", repr(named), f"words as a shell takes them are allowed ({error})"
        ) from error
    if words:
        if not shutil.which(words[0]):
            raise MissingTool(f"CXX names {words[0]!r}, which is not there; {HELP}")
        return _identify(words)
    for name in ("g++", "clang++"):
        if shutil.which(name):
            return _identify([name])
    if importlib.util.find_spec("ziglang"):
        return _identify([sys.executable, "-m", "ziglang", "c++"])
    raise MissingTool(f"there is no C++ compiler (looked for CXX, g++, clang++, ziglang); {HELP}")


def _identify(words: list[str]) -> Compiler:
    path = Path(shutil.which(words[0]) or words[0]).resolve()
    version = _run([*words, "--version"])
    if version.returncode != 0:
        said = version.stderr.strip() or f"exit status {version.returncode}"
        raise MissingTool(f"{shlex.join(words)} --version does not run ({said}); {HELP}")
    stat = path.stat()
    identity = f"{path} {stat.st_size} {stat.st_mtime_ns} {shlex.join(words)}\n{version.stdout}"
    return Compiler(tuple(words), identity)


def _run(command: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"LC_ALL": "C"}
    try:
        return subprocess.run(
            command,
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=TIMEOUT,
        )
    except subprocess.TimeoutExpired as error:
        raise CompileFailure(f"{shlex.join(command)} has not ended after {TIMEOUT} seconds") from error
    except OSError as error:
        raise MissingTool(f"{command[0]} does not start ({error}); {HELP}") from error
