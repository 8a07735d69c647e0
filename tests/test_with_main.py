"""The program that --with-main adds to a kernel: it compiles without a warning, and finds what is wrong."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from flashgen.emission import source
from flashgen.errors import InvalidArgument
from flashgen.problem import Problem
from flashgen.reference import C
from flashgen.runtime.compiler import OPTIMIZE, find_compiler
from flashgen.schedule import FA1, FA2
from flashgen.targets import find
from flashgen.targets.cpu import Cpu
from tests.sample_kernel import skip_unless_it_runs

WARNINGS = ("-Wall", "-Wextra", "-Wshadow", "-Werror")


def compiled(text: str, target: Cpu, folder: Path) -> Path:
    """The program, by the few flags that a reader of the file would use; a warning is an error."""
    compiler, program = find_compiler(), folder / "check"
    (folder / "check.cpp").write_text(text)
    flags = compiler.spell((*target.flags, OPTIMIZE, "-pthread", *WARNINGS))
    command = [*compiler.command, *flags, "check.cpp", "-o", str(program), "-lm"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return program


def run(program: Path, *args: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *map(str, args)], capture_output=True, text=True, timeout=120, check=False
    )


CASES = [
    (Problem(64), FA2, "avx2"),
    (Problem(40, 24, causal="bottom-right"), FA2, "avx2"),
    (Problem(40, 24, causal="top-left"), FA1, "avx2"),
    (Problem(64, causal="bottom-right"), FA2, "avx512"),
    (Problem(7, 3), FA1, "avx512"),
    (Problem(40, 24, "float16", "bottom-right"), FA2, "avx2"),
    (Problem(7, 3, "bfloat16"), FA1, "avx512"),
    (Problem(40, 24, "float64", "bottom-right"), FA2, "avx2"),
]
SIZES = [
    (),
    (1, 4, 2, 5, 2, 1),
    (1, 4, 1, 2, 5, 3),
    (1, 2, 2, 0, 5),
    (1, 2, 2, 5, 0),
    (0,),
    (1, 0, 3),
    (2, 1, 1, 1, 1),
]


@pytest.mark.parametrize(("problem", "schedule", "name"), CASES)
def test_right_kernels_pass(problem: Problem, schedule, name: str, tmp_path: Path) -> None:
    target = find(name)
    assert isinstance(target, Cpu)
    skip_unless_it_runs(target)
    program = compiled(source(problem, schedule, target, with_main=True), target, tmp_path)
    for sizes in SIZES:
        done = run(program, *sizes)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.startswith("right: B ")
        shares = [float(x) for x in re.findall(r"largest error \S+, (\S+) of its bound", done.stdout)]
        assert len(shares) == 2
        assert all(0 <= share <= 1 for share in shares)
        if not sizes:
            assert all(shares)
            assert "Hq 6, Hkv 2, Nq 197, Nk 331" in done.stdout


def test_usage(tmp_path: Path) -> None:
    target = find("avx2")
    assert isinstance(target, Cpu)
    skip_unless_it_runs(target)
    program = compiled(source(Problem(8), FA2, target, with_main=True), target, tmp_path)
    for sizes in ((1, 3, 2), (1, 1, 0), (-1,), ("x",), (1, 1, 1, 5, 5, 0), (1, 1, 1, 5, 5, 1, 1), (1, "1x")):
        done = run(program, *sizes)
        assert done.returncode == 2
        assert "[B Hq Hkv Nq Nk THREADS]" in done.stderr
        assert done.stdout == ""


FAULTS = {
    "the exponential": ("p = fma(p, r, all(0.693151f));", "p = fma(p, r, all(0.69f));"),
    "lse": ("lane[n] = ::log(lane[n])", "lane[n] = ::log(lane[n]) + 0.001f"),
    "NaN": ("lane[n] = ::log(lane[n])", "lane[n] = NAN"),
    "a row that is not written": (
        "r = 0; r < rows; ++r) {\n    T *const to = a.row(index, N - 2, r);\n    if (each == 1)",
        "r = 1; r < rows; ++r) {\n    T *const to = a.row(index, N - 2, r);\n    if (each == 1)",
    ),
}


@pytest.mark.parametrize(("right", "wrong"), FAULTS.values(), ids=FAULTS)
def test_wrong_kernels_fail(right: str, wrong: str, tmp_path: Path) -> None:
    target = find("avx2")
    assert isinstance(target, Cpu)
    skip_unless_it_runs(target)
    text = source(Problem(16, causal="bottom-right"), FA2, target, with_main=True)
    assert right in text
    done = run(compiled(text.replace(right, wrong), target, tmp_path))
    assert done.returncode == 1
    assert done.stdout.startswith("WRONG: ")


def test_a_float64_kernel_that_is_wrong_as_float32_is_fails(tmp_path: Path) -> None:
    """The definition is computed in more than float64, and the bound is float64's."""
    target, right = find("avx2"), "p = fma(p, r, all(0.693147180559944));"
    assert isinstance(target, Cpu)
    skip_unless_it_runs(target)
    text = source(Problem(16, dtype="float64"), FA2, target, with_main=True)
    assert right in text
    wrong = text.replace(right, right.replace("0559944", "0559"))
    done = run(compiled(wrong, target, tmp_path))
    assert done.returncode == 1
    assert done.stdout.startswith("WRONG: ")
    error = re.search(r"o    largest error (\S+),", done.stdout)
    assert error is not None and float(error[1]) < 1e-11


def test_bound_is_that_of_the_reference() -> None:
    assert f"C = {C:.1f};" in source(Problem(8), FA2, find("avx2"), with_main=True)


def test_main_is_asked_for() -> None:
    """And changes nothing of the kernel."""
    for problem, schedule, name in CASES:
        plain, checked = (source(problem, schedule, find(name), with_main=flag) for flag in (False, True))
        assert "int main(" not in plain
        assert checked.replace(" --with-main\n", "\n", 1).startswith(plain)


def test_cuda_has_none() -> None:
    with pytest.raises(InvalidArgument, match="with_main is True; target cuda has none"):
        source(Problem(8), FA2, find("cuda"), with_main=True)
