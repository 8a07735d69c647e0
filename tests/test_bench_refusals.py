"""flashgen bench: what is refused, in one line and before anything runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from flashgen.bench import room
from flashgen.bench.measure import expect
from flashgen.bench.prepare import make_arrays
from flashgen.bench.standard import standard_attention
from flashgen.cli.bench import parse_threads
from flashgen.cli.main import app
from flashgen.targets.cpu import Avx2
from tests.bench_cases import TINY
from tests.sample_kernel import skip_unless_it_runs

MANY = "9" * 5000
"""More than Python's int() takes."""

REFUSED = {
    "P0": (["--cases", "P1,P0"], "cases is 'P0'; all, or some of P1,P2"),
    "short": (["--shape", "1,2,3"], "shape is '1,2,3'; B,Hq,Hkv,Nq,Nk,D[,causal] is allowed"),
    "words": (["--shape", "1,1,1,2,2,x"], "shape is '1,1,1,2,2,x'; B,Hq,Hkv,Nq,Nk,D[,causal] is allowed"),
    "zero": (["--shape", "1,1,1,0,2,8"], "shape is '1,1,1,0,2,8'; sizes above 0"),
    "below zero": (["--shape", "-1,1,1,2,2,8"], "shape is '-1,1,1,2,2,8'; B,Hq,Hkv,Nq,Nk,D[,causal] is"),
    "digits": (
        ["--shape", f"1,1,1,2,2,{MANY}"],
        f"shape is '1,1,1,2,2,{MANY}'; B,Hq,Hkv,Nq,Nk,D[,causal] is allowed, numbers of up to 18 digits\n",
    ),
    "memory": (
        ["--shape", "99999999999,2,2,4,5,8"],
        "shape is '99999999999,2,2,4,5,8'; arrays that take up to ",
    ),
    "heads": (["--shape", "1,3,2,2,2,8"], "shape is '1,3,2,2,2,8'; a multiple of Hkv"),
    "causal": (["--shape", "1,1,1,3,2,8,causal"], "shape is '1,1,1,3,2,8,causal'; with causal, at most Nk"),
    "threads": (["--threads", "1,0"], "threads is '1,0'; whole numbers from 1 to"),
    "digits of threads": (["--threads", MANY], f"threads is '{MANY}'; whole numbers from 1 to"),
    "many threads": (["--threads", "9999"], "threads is '9999'; whole numbers from 1 to"),
    "peer": (["--peers", "torch,abacus"], "peers is 'abacus'; all, none, or some of torch,"),
    "no peer": (["--peers", ""], "peers is ''; all, none, or some of torch,"),
    "no case": (["--cases", ""], "cases is ''; all, or some of P1,P2"),
    "clock": (["--clock", "sun"], "clock is 'sun'; one of 'wall', 'cpu' is allowed"),
    "clock of threads": (["--clock", "cpu", "--threads", "1,2"], "clock is 'cpu'; with threads above 1"),
    "turns": (["--turns", "0"], "turns is 0; a whole number of at least 1"),
    "ablation of peers": (
        ["--ablate", "--peers", "numpy"],
        "with --ablate, --peers 'numpy' is not allowed\n",
    ),
    "ablation and memory": (["--ablate", "--memory"], "with --ablate, --memory is not allowed"),
    "ablation and hardware": (["--hardware", "--ablate"], "with --ablate, --hardware is not allowed"),
    "memory and hardware": (["--hardware", "--memory"], "with --memory, --hardware is not allowed"),
    "chart of memory": (["--memory", "--chart", "x.svg"], "with --memory, --chart 'x.svg' is not allowed"),
    "json of hardware": (
        ["--hardware", "--json", "x.json"],
        "with --hardware, --json 'x.json' is not allowed",
    ),
    "chart of hardware": (
        ["--hardware", "--chart", "x.svg"],
        "with --hardware, --chart 'x.svg' is not allowed",
    ),
    "chart of ablation": (["--ablate", "--chart", "x.svg"], "with --ablate, --chart 'x.svg' is not allowed"),
    "peers of hardware": (
        ["--hardware", "--peers", "none"],
        "with --hardware, --peers 'none' is not allowed",
    ),
    "clock of memory": (["--memory", "--clock", "wall"], "with --memory, --clock 'wall' is not allowed"),
    "turns of memory": (["--memory", "--turns", "15"], "with --memory, --turns '15' is not allowed"),
    "target": (["--target", "cuda"], "target is 'cuda'; a CPU's target"),
    "json": (["--json", "figures.txt"], "json is 'figures.txt'; a name that ends in .json"),
    "chart": (["--chart", "figures.pdf"], "chart is 'figures.pdf'; a name that ends in .svg, .png"),
}


@pytest.mark.parametrize(("words", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(words: list[str], message: str) -> None:
    skip_unless_it_runs(Avx2())
    done = CliRunner().invoke(app, ["bench", "--cases", "P8", *words])
    assert done.exit_code == 2
    assert done.stderr.startswith(f"error: {message}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""


@pytest.mark.parametrize("mode", [[], ["--ablate"], ["--memory"]])
def test_a_case_that_does_not_fit_memory_is_refused(
    mode: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    skip_unless_it_runs(Avx2())
    monkeypatch.setattr(room, "MEMINFO", tmp_path / "meminfo")
    room.MEMINFO.write_text("MemTotal:  99999999 kB\nMemAvailable:  4096 kB\n")
    for words, argument in (
        (["--cases", "P1"], "cases is 'P1'"),
        (["--shape", "1,1,1,1,8192,64"], "shape is"),
    ):
        done = CliRunner().invoke(app, ["bench", *words, *mode])
        assert done.exit_code == 2
        assert done.stderr.startswith(f"error: {argument}")
        assert "; arrays that take up to 4.0 MiB, the memory that is free, are allowed; these" in done.stderr
    room.check_fits([TINY])


def test_memory_is_counted_by_the_arrays() -> None:
    """Q, K, V, O, and the reference's O and lse."""
    q, k, v = make_arrays(TINY)
    o, _ = standard_attention(q, k, v)
    expected = expect(TINY.problem, q, k, v, 1.0)
    assert TINY.array_bytes == sum(x.nbytes for x in (q, k, v, o, expected.o, expected.lse))


def test_where_free_memory_is_not_known_no_case_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(room, "MEMINFO", tmp_path / "meminfo")
    room.MEMINFO.write_text("MemTotal:  1 kB\n")
    room.check_fits([replace(TINY, batch=10**18)])


def test_sizes_in_words() -> None:
    sizes = ((1 << 20) - 1, (1 << 30) - (1 << 20), 1 << 30, 5 << 39)
    assert [*map(room.in_words, sizes)] == ["1.0 MiB", "1023.0 MiB", "1.0 GiB", "2,560.0 GiB"]


def test_threads() -> None:
    assert parse_threads("2, 1,2") == [1, 2]
