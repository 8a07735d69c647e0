"""No register block of a matrix product keeps a vector on the stack, read off the compiler's assembly."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flashgen import emission
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.runtime.compiler import BASE_FLAGS, find_compiler
from flashgen.schedule import FA1, FA2, Schedule
from flashgen.targets.avx512bf16 import Avx512Bf16
from flashgen.targets.cpu import Avx2, Cpu
from tests.compiled import TARGETS

LABEL = re.compile(r"(\.L\d+):$")
JUMP = re.compile(r"\tj\w+\t(\.L\d+)$")
FMA = re.compile(r"\tv(fn?m\w+[sp][sd]|dpbf16ps)\t")
BROADCAST = re.compile(r"\tv(broadcasts[sd]|pbroadcastd)\t[^,]*\(|\{1to\d+\}")
SLOT = r"(\(%rsp[,)]|-\d+\(%rbp\))"
ON_STACK = re.compile(rf"{SLOT}.*%[xyz]mm|%[xyz]mm.*{SLOT}")


class Greedy(Avx2):
    """Register blocks of two rows more than the registers hold."""

    micro = (8, 16)


def innermost_loops(assembly: str) -> Iterator[list[str]]:
    """The lines from a label to a jump back to it, without another label between them."""
    start, name = 0, ""
    lines = assembly.splitlines()
    for n, line in enumerate(lines):
        if found := LABEL.match(line):
            start, name = n, found[1]
        elif (found := JUMP.match(line)) and found[1] == name:
            yield lines[start + 1 : n]


def product_loops(target: Cpu, problem: Problem, schedule: Schedule, folder: Path) -> list[list[str]]:
    """Of the kernel, compiled as users do, the contraction loops of register blocks and of their rest."""
    source = folder / "kernel.cpp"
    source.write_text(emission.emit(problem, schedule, target).source)
    assembly, compiler = folder / "kernel.s", find_compiler()
    if "clang" in compiler.version or compiler.is_zig:
        pytest.skip("reads the labels of g++")
    flags = (*BASE_FLAGS, *target.flags)
    subprocess.run([*compiler.command, *flags, "-S", "-o", assembly, source], check=True)
    micro, vectors = target.micro[0], target.micro_of(problem)[1] // target.lanes_of(problem)

    def is_block(loop: list[str], rows: int) -> bool:
        steps, rest = divmod(sum(map(bool, map(FMA.match, loop))), rows * vectors)
        return steps > 0 and rest == 0 and sum(map(bool, map(BROADCAST.search, loop))) >= steps * rows

    heights = [rows for rows in (micro, target.tile_rows % micro) if rows]
    loops = list(innermost_loops(assembly.read_text()))
    for rows in heights:
        assert sum(is_block(loop, rows) for loop in loops) >= 2, "both products have one"
    return [loop for loop in loops if any(is_block(loop, rows) for rows in heights)]


def spills(loops: list[list[str]]) -> list[str]:
    return [line for loop in loops for line in loop if ON_STACK.search(line)]


@pytest.mark.parametrize("schedule", [FA2, FA1], ids=["fa2", "fa1"])
@pytest.mark.parametrize(
    "problem",
    [Problem(64, causal=ALIGNMENTS[1]), Problem(128), Problem(64, dtype="float64", causal=ALIGNMENTS[1])],
    ids=lambda p: p.name,
)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_blocks_stay_in_registers(target: Cpu, problem: Problem, schedule: Schedule, tmp_path: Path) -> None:
    assert not spills(product_loops(target, problem, schedule, tmp_path))


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_blocks_of_kernels_that_fetch_stay_in_registers(target: Cpu, tmp_path: Path) -> None:
    """What is fetched is fetched between blocks."""
    schedule = replace(FA2, fetch_ahead=True)
    problem = Problem(64, causal=ALIGNMENTS[1])
    assert ", fetch<" in emission.emit(problem, schedule, target).source
    assert not spills(product_loops(target, problem, schedule, tmp_path))


@pytest.mark.parametrize("head_dim, causal", [(64, ALIGNMENTS[1]), (128, None)])
def test_blocks_of_pairs_stay_in_registers(head_dim: int, causal: str | None, tmp_path: Path) -> None:
    """And take two steps an instruction: no block multiplies floats any more."""
    problem = Problem(head_dim, dtype="bfloat16", causal=causal)
    schedule = replace(FA2, products="bfloat16")
    loops = product_loops(Avx512Bf16(), problem, schedule, tmp_path)
    assert not spills(loops)
    assert {found[1] for loop in loops for line in loop if (found := FMA.match(line))} == {"dpbf16ps"}


def test_a_spill_is_seen(tmp_path: Path) -> None:
    assert spills(product_loops(Greedy(), Problem(64), FA2, tmp_path))
