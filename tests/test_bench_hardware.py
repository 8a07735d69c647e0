"""flashgen bench --hardware: what is counted by valgrind, and the table of it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from flashgen.bench import count, hardware
from flashgen.bench.cases import Case
from flashgen.bench.count import Counts
from flashgen.bench.results import Results
from flashgen.cli.main import app
from flashgen.errors import KernelFailure
from flashgen.targets.cpu import Avx2
from tests.sample_kernel import skip_unless_it_runs
from tests.test_bench import made_up

CACHEGRIND = """
==7== I   refs:      1,398,890,190
==7== LLi misses:           54,231
==7== LLd misses:        1,089,367  (    901,330 rd   +    188,037 wr)
"""


def test_what_valgrind_prints() -> None:
    assert count.parse(CACHEGRIND) == Counts(1_398_890_190, 64 * 1_089_367)
    with pytest.raises(KernelFailure, match="valgrind does not tell"):
        count.parse("==7== I   refs:      1,398\n")


def test_what_goes_wrong_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the process, not by valgrind about it."""
    noise = "==7== Cachegrind, a cache profiler\nTraceback:\nOSError: no kernel\n==7== \n==7== I   refs: 3\n"
    done = SimpleNamespace(returncode=1, stderr=noise)
    monkeypatch.setattr(count, "find_valgrind", lambda: "valgrind")
    monkeypatch.setattr(count.subprocess, "run", lambda *_, **options: done)
    with pytest.raises(KernelFailure, match=r"^valgrind ended with status 1: OSError: no kernel$"):
        count.count(Case("P", 1, 1, 1, 8, 8, 8))


def test_without_valgrind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    skip_unless_it_runs(Avx2())
    monkeypatch.setenv("PATH", str(tmp_path))
    done = CliRunner().invoke(app, ["bench", "--hardware", "--target", "avx2"])
    assert done.exit_code == 2
    assert "install it (Debian: apt install valgrind)" in done.stderr


def test_hardware_table() -> None:
    """Rows as timed, and shares of what was counted on a small case."""
    case = Case("P", 1, 8, 8, 2048, 2048, 64)
    counted = hardware.small(case)
    assert counted == Case("1,1,1,1024,1024,64", 1, 1, 1, 1024, 1024, 64)
    assert hardware.products(counted) == 1 << 24
    assert hardware.least_fetched(counted) == 1 << 20
    results = Results([made_up(case, 1, method, 1) for method in hardware.TITLES], [case])
    counts = dict.fromkeys(hardware.TITLES, Counts(1 << 25, 3 << 20))
    table = hardware.make_table(results, case, 1, counts, counted)
    assert [next(iter(column.cells)) for column in table.columns[1:]] == ["1.0", "0.200", "0.500", "3.0"]
    assert [column.header for column in table.columns][2] == "of FMA peak"
    decode = Case("D", 1, 8, 8, 1, 64, 64)  # is held to the speed of reading
    results = Results([made_up(decode, 1, method, 1) for method in hardware.TITLES], [decode])
    columns = hardware.make_table(results, decode, 1, counts, counted).columns
    assert [column.header for column in columns][2] == "of read\nbandwidth"
    text = hardware.summary(counted, "wall")
    assert "Fetched is what comes from memory into a cache of 512 KiB, to be read or written;" in text
    assert "what is written back is not counted. Q, K, V and O together have 1.0 MiB" in text
