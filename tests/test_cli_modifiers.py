"""Masks and scores on the command line: what emit makes of them, what run asks for, what both refuse."""

from __future__ import annotations

import re
import shlex
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from flashgen import api
from flashgen.cli.main import app
from flashgen.cli.run import read_inputs
from flashgen.reference import attention

SMALL = ("-d", "8", "--br", "4", "--bc", "4")
MODS = """
import numpy as np
ids = np.arange(4, dtype=np.int32)
number = 3

def same(b, h, q_idx, k_idx):
    return ids[q_idx] == ids[k_idx]

def double(score, b, h, q_idx, k_idx):
    return 2 * score
"""


@pytest.fixture
def mods_file(tmp_path: Path) -> Path:
    path = tmp_path / "mods.py"
    path.write_text(MODS)
    return path


def header(*args: str) -> dict[str, str]:
    """The options in the header of what emit prints."""
    done = CliRunner().invoke(app, ["emit", *SMALL, *args])
    assert done.exit_code == 0, done.stderr
    words = shlex.split(next(line for line in done.stdout.splitlines() if "flashgen emit" in line))
    return {a: b for a, b in pairwise(words) if a.startswith("--")}


PLACE = "q + (Nk - Nq)"


@pytest.mark.parametrize(
    ("args", "mask", "score", "inputs"),
    [
        ((), None, None, None),
        (
            ("--window", "3,0"),
            f"{PLACE} - window_left <= k and k <= {PLACE} + window_right",
            None,
            "window_left:index,window_right:index",
        ),
        (("--window", ",5"), f"k <= {PLACE} + window_right", None, "window_right:index"),
        (("--causal", "top-left", "--window", "5,"), "q - window_left <= k", None, "window_left:index"),
        (("--softcap", "50"), None, "softcap * tanh(score / softcap)", "softcap:float"),
        (("--alibi",), None, f"score - slopes[h] * float(abs({PLACE} - k))", "slopes:float32[1]"),
        (("--mask", "q >= k"), "k <= q", None, None),
        (("--mask", "doc[q]==doc[k]", "--inputs", "doc:int64[1]"), "doc[q] == doc[k]", None, "doc:int64[1]"),
        (("--score", "score / 2"), None, "score / 2.0", None),
        (
            ("--softcap", "1", "--score", "score + x", "--alibi", "--inputs", "x:float"),
            None,
            f"softcap * tanh(score / softcap) + x - slopes[h] * float(abs({PLACE} - k))",
            "slopes:float32[1],softcap:float,x:float",
        ),
    ],
)
def test_emit(args, mask, score, inputs) -> None:
    got = header(*args)
    assert (got.get("--mask"), got.get("--score"), got.get("--inputs")) == (mask, score, inputs)


@pytest.mark.parametrize("kind", ["mask", "score"])
@pytest.mark.parametrize("more", [(), ("--window", "3,0", "--softcap", "2")], ids=["alone", "beside others"])
def test_a_function_of_too_many_arguments_is_refused(kind: str, more, tmp_path: Path) -> None:
    path = tmp_path / "mods.py"
    path.write_text("def f(a, b, c, d, e, f):\n    return a\n")
    done = CliRunner().invoke(app, ["emit", f"--{kind}-mod", f"{path}:f", *more])
    assert done.exit_code == 2
    assert re.match(
        rf"error: {kind}_mod: signature is \(a, b, c, d, e, f\); a function of . arg", done.stderr
    )
    assert done.stderr.count("\n") == 1


def test_emit_takes_functions_of_a_file(mods_file: Path) -> None:
    got = header("--mask-mod", f"{mods_file}:same", "--score-mod", f"{mods_file}:double", "--window", "0,")
    assert got["--mask"] == f"{PLACE} - window_left <= k and ids[q] == ids[k]"
    assert got["--score"] == "2.0 * score"
    assert got["--inputs"] == "ids:int32[1],window_left:index"


REFUSED = {
    "one bound": (
        ("--window", "3"),
        "window is '3'; two whole numbers with a comma between them are allowed",
    ),
    "three bounds": (("--window", "3,4,5"), "window is '3,4,5'; two whole numbers"),
    "a negative bound": (("--window=-1,0",), "window_left is -1; a whole number from 0"),
    "no cap": (("--softcap", "0"), "softcap is 0.0; a finite number above 0 is allowed"),
    "an endless cap": (("--softcap", "inf"), "softcap is inf; a finite number above 0 is allowed"),
    "a mask of the score": (
        ("--mask", "score < 1"),
        "mask is 'score < 1'; positions, lengths and inputs are",
    ),
    "a mask that is a number": (
        ("--mask", "q"),
        "mask is 'q'; an expression of kind bool is allowed, not index",
    ),
    "a score that is a place": (
        ("--score", "q"),
        "score is 'q'; an expression of kind float is allowed, not index",
    ),
    "a text that is none": (
        ("--score", "score +"),
        r"score is 'score \+'; an expression of Python over .*: invalid",
    ),
    "inputs of nothing": (("--inputs", "n:index"), "inputs is 'n:index'; it needs --mask or --score"),
    "an input of no type": (
        ("--mask", "q < n", "--inputs", "n:int"),
        "inputs is 'n:int'; name:index, name:float",
    ),
    "what is not declared": (("--mask", "q < n"), "mask is 'q < n'; .*: 'n' is not declared"),
    "a name of a kernel": (
        ("--mask", "out[q] < 1", "--inputs", "out:int32[1]"),
        "name of an input is 'out'; ",
    ),
    "causal": (("--causal", "left", "--window", "3,0"), "causal is 'left'; one of"),
    "no place": (("--mask-mod", "mods.py"), "mask_mod is 'mods.py'; FILE.py:NAME is allowed"),
    "no file": (
        ("--mask-mod", "nothing.py:f"),
        "mask_mod is 'nothing.py:f'; FILE.py:NAME is allowed, of a file",
    ),
}


@pytest.mark.parametrize(("args", "message"), REFUSED.values(), ids=REFUSED)
def test_emit_refuses(args, message: str) -> None:
    done = CliRunner().invoke(app, ["emit", *SMALL, *args])
    assert done.exit_code == 2
    assert re.match(f"error: {message}", done.stderr), done.stderr
    assert done.stderr.count("\n") == 1 and done.stdout == ""


@pytest.mark.parametrize(
    ("option", "name", "message"),
    [
        ("--mask-mod", "nothing", "mask_mod is '.*:nothing'; the file defines no 'nothing'"),
        ("--mask-mod", "number", "mask_mod is of type int; a Python function is allowed"),
        ("--score-mod", "same", r"score_mod: signature is \(b, h, q_idx, k_idx\); a function of 5 arguments"),
    ],
)
def test_functions_of_a_file_that_are_refused(option, name, message, mods_file: Path) -> None:
    done = CliRunner().invoke(app, ["emit", *SMALL, option, f"{mods_file}:{name}"])
    assert done.exit_code == 2 and re.match(f"error: {message}", done.stderr), done.stderr


def test_a_file_that_does_not_run(tmp_path: Path) -> None:
    (tmp_path / "mods.py").write_text("1 / 0\n")
    done = CliRunner().invoke(app, ["emit", "--mask-mod", f"{tmp_path}/mods.py:f"])
    assert done.exit_code == 2
    assert "the file does not run: ZeroDivisionError: division by zero" in done.stderr


# run: what it asks flashgen.attention for, which is stood in for by the reference here.


@pytest.fixture
def file(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    arrays = {
        name: rng.standard_normal((1, 2, n, 8)).astype(np.float32)
        for name, n in zip("qkv", (4, 6, 6), strict=True)
    }
    more = {"doc": np.array([0, 0, 1, 1, 1, 1], np.int32), "sink": np.zeros(2, np.float32)}
    np.savez(tmp_path / "x.npz", **arrays, **more)
    return tmp_path / "x.npz"


def run(file: Path, monkeypatch: pytest.MonkeyPatch, *args: str):
    asked: dict = {}

    def stand_in(q, k, v, *, scale, schedule, target, threads, enable_gqa, return_lse, **options):
        from flashgen.combine import combine

        asked.update(options)
        made = combine((*q.shape[:3], k.shape[2]), **options)
        o, lse = attention(made.problem(8), q, k, v, scale, made.values)
        return o.astype(np.float32), lse.astype(np.float32)

    monkeypatch.setattr(api, "attention", stand_in)
    done = CliRunner().invoke(app, ["run", str(file), "--repeat", "1", "--target", "avx2", *args])
    return done, asked


@pytest.mark.parametrize(
    ("args", "options"),
    [
        ((), set()),
        (("--window", "1,0"), {"window"}),
        (("--softcap", "3", "--alibi"), {"softcap", "alibi"}),
        (("--sink",), {"sinks"}),
        (("--mask", "doc[q] == doc[k] or h == 1"), {"mask_mod"}),
        (("--score", "score * float(doc[k])", "--causal"), {"score_mod"}),
    ],
)
def test_run(args, options, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, asked = run(file, monkeypatch, *args)
    assert done.exit_code == 0, done.stderr or done.stdout
    assert set(asked) - {"is_causal", "causal_alignment"} == options


def test_run_reads_what_a_text_reads_from_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result that ignores the mask is found out."""
    monkeypatch.setattr(
        api, "attention", lambda q, k, v, **_: (np.zeros_like(q), np.zeros(q.shape[:3], "f4"))
    )
    args = ("run", str(file), "--repeat", "1", "--target", "avx2", "--mask", "doc[k] == 1")
    assert CliRunner().invoke(app, list(args)).exit_code == 1
    q, _, v = read_inputs(file, {"q": None, "k": None, "v": None}, "q,k,v", None)
    o = v[:, :, 2:].mean(axis=2, keepdims=True) + 0 * q
    monkeypatch.setattr(api, "attention", lambda q, k, v, **_: (o, np.full(q.shape[:3], np.log(4), "f4")))
    done = CliRunner().invoke(app, [*args, "--score", "0.0 * score"])
    assert done.exit_code == 0, done.stdout


def test_run_refuses(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, _ = run(file, monkeypatch, "--mask", "nothing[q] < 1")
    assert done.exit_code == 2 and "nothing" in done.stderr
    done, _ = run(file, monkeypatch, "--mask", "q <")
    assert done.exit_code == 2 and re.match("error: mask is 'q <'; .*: invalid syntax", done.stderr)
    done, _ = run(file, monkeypatch, "--mask", "doc < 1")
    assert done.exit_code == 2 and "'doc' is an array, which wants indices" in done.stderr
