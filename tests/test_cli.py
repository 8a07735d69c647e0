"""The command line as a whole: help, refusals, and what it costs to start."""

from __future__ import annotations

import gc
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from flashgen.cli.main import USAGE_ERROR, app, main

COMMANDS = ("emit", "opt", "explain", "run", "targets", "demo", "bench")


def invoke(*args: str, stdin: str | None = None):
    return CliRunner().invoke(app, list(args), input=stdin)


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_examples(command: str) -> None:
    done = invoke(command, "--help")
    assert done.exit_code == 0
    assert f"    flashgen {command}" in done.stdout.partition("Examples:\n")[2]
    assert command in invoke("--help").stdout


def test_without_a_command_there_is_help() -> None:
    assert "Commands:" in invoke().output


def test_version() -> None:
    done = invoke("--version")
    assert done.exit_code == 0
    assert re.fullmatch(r"flashgen \d+\.\d+\.\d+\n", done.stdout)


@pytest.mark.parametrize(
    "args", [("--help",), ("--version",), *((command, "--help") for command in COMMANDS)]
)
def test_help_imports_nothing_heavy(args: tuple[str, ...]) -> None:
    """Not wall time, but what makes it."""
    code = (
        "import sys\n"
        "from flashgen.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = ('xdsl', 'numpy', 'jinja2', 'rich', 'safetensors', 'multiprocessing', 'asyncio')\n"
        "print('heavy:', *[name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, *args], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].strip() == "heavy:"


def test_emit_needs_no_numpy() -> None:
    code = (
        "import sys\n"
        "from flashgen.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "print('heavy:', *[name for name in ('numpy', 'rich') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "emit"], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1].strip() == "heavy:"


LISTED = r"`\w+ {}--help` lists what is allowed$"
REFUSED = {
    "unknown target": (
        ("emit", "--target", "sse"),
        r"target is 'sse'; one of 'avx2', 'avx512', 'avx512bf16', 'cuda' is",
    ),
    "tiles too large": (
        ("emit", "--br", "8000", "--bc", "8000"),
        r"tiles 8000 x 8000 need \d+ bytes .* target avx2 allows \d+: \d+ x \d+ fit",
    ),
    "no tiles at all": (
        ("emit", "-d", "1000000000"),
        r"tiles 64 x 64 need \d+ bytes .*: head_dim 1000000000 and head_dim_v 1000000000 are too large",
    ),
    "no tiles on cuda": (
        ("emit", "-d", "1000000000", "--target", "cuda"),
        r"tiles 1 x 1 need \d+ bytes .*: head_dim 1000000000 and head_dim_v 1000000000 are too large for any",
    ),
    "shared memory": (
        ("emit", "--target", "cuda", "--br", "512"),
        r"tiles 512 x \d+ need \d+ bytes of shared memory",
    ),
    "order": (("emit", "--order", "outer"), r"order is 'outer'; one of 'kv-outer', 'q-outer'"),
    "alignment": (
        ("emit", "--causal", "foo"),
        r"causal is 'foo'; one of 'bottom-right', 'top-left' is allowed$",
    ),
    "parts of the keys": (
        ("emit", "--order", "kv-outer", "--split-keys", "64"),
        r"split_keys is 64; it needs lazy_rescale and order 'q-outer'",
    ),
    "dtype": (
        ("emit", "--dtype", "float8"),
        r"dtype is 'float8'; one of 'float32', 'float16', 'bfloat16', 'float64'",
    ),
    "head dim": (("emit", "-d", "0"), r"head_dim is 0; a whole number of at least 1"),
    "value dim": (("emit", "--head-dim-v", "0"), r"head_dim_v is 0; a whole number of at least 1"),
    "tile": (("emit", "--br", "-4"), r"br is -4; a whole number of at least 1"),
    "a pass that is not run": (
        ("emit", "--order", "kv-outer", "--print-ir-after", "interchange"),
        r"print_ir_after is 'interchange'; this kernel has build, lazy-rescale, base-2, ",
    ),
    "a place that is not there": (
        ("emit", "--print-ir-after-all", "-o", "missing/kernel.cpp"),
        r"output is 'missing/kernel.cpp'; there is no folder 'missing'$",
    ),
    "two outputs": (("emit", "--print-ir", "--with-main"), r"with --print-ir, --with-main is not allowed$"),
    "an output of a pass and another": (
        ("emit", "--with-main", "--print-ir-after", "build"),
        r"with --print-ir-after 'build', --with-main is not allowed$",
    ),
    "main in CUDA": (("emit", "--target", "cuda", "--with-main"), r"with_main is True; target cuda has none"),
    "stages of what is not made": (
        ("emit", "--target", "cuda", "--with-main", "--print-ir-after-all"),
        r"with_main is True; target cuda has none",
    ),
    "pass unknown": (
        ("opt", "-", "-p", "tidy"),
        r"no pass is called 'tidy'; known: group-rows, lazy-rescale, ",
    ),
    "pass options": (("opt", "-", "-p", "pack{panel"), r"passes 'pack\{panel': Expected equals"),
    "pass option unknown": (
        ("opt", "-", "-p", "pack{panle=3}"),
        r"pass 'pack' has no option 'panle'; known: panel$",
    ),
    "pass option twice": (
        ("opt", "-", "-p", "cse,pack{panel=16 panel=8}"),
        r"passes 'cse,pack\{panel=16 panel=8\}': option 'panel' is given twice; once is allowed$",
    ),
    "a flag that is a number": (
        ("opt", "-", "-p", "fuse-sweeps{apart=1}"),
        r"option 'apart' of pass 'fuse-sweeps' is 1; true or false is allowed$",
    ),
    "two numbers for one": (
        ("opt", "-", "-p", "pack{panel=1,2}"),
        r"option 'panel' of pass 'pack' is 1,2; a whole number is allowed$",
    ),
    "pass without options": (("opt", "-", "-p", "cse{a=1}"), r"pass 'cse' has no option 'a'; it has none$"),
    "half a list": (("opt", "-", "-p", "cse,"), r"passes 'cse,': names of passes, with commas between them"),
    "not a module": (("opt", "-"), r"-:1:1: Could not parse"),
    "no module": (("opt",), r"FILE is missing; a file is wanted, or - for standard input"),
    "no file": (
        ("opt", "nothing.mlir"),
        r"file is 'nothing.mlir'; a module's text is wanted \(.*No such file",
    ),
    "no input": (("run",), r"FILE is missing; FILE or all of --q, --k and --v are wanted"),
    "a file in place of an alignment": (
        ("run", "--causal", "qkv.npz"),
        r"causal is 'qkv.npz'; one of 'bottom-right', 'top-left' is allowed, or nothing, with FILE in front",
    ),
    "no such input": (("run", "nothing.npz"), r"FILE is 'nothing.npz'; there is no such file"),
    "no such command": (("foo",), r"COMMAND is 'foo'; one of 'emit', 'opt', .*'bench' is allowed$"),
    "no such option": (("emit", "--nope"), rf"no such option: --nope\b.*{LISTED.format('emit ')}"),
    "no such option of all": (("--nope",), rf"no such option: --nope; {LISTED.format('')}"),
    "not a number": (
        ("emit", "--br", "x"),
        rf"invalid value for '--br': 'x' is not .*{LISTED.format('emit ')}",
    ),
    "no value": (("derive", "--output"), rf"option '--output' requires .*{LISTED.format('derive ')}"),
    "a value too many": (("opt", "a", "b c\nd"), rf".*unexpected extra.*b c.*d.*{LISTED.format('opt ')}"),
    "demo's input": (("demo", "nothing.npz"), r"FILE is 'nothing.npz'; there is no such file"),
}


@pytest.mark.parametrize(("args", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals_are_one_line(
    args: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On standard error, with exit status 2; and no file appears where one was asked for."""
    monkeypatch.chdir(tmp_path)
    if args[0] == "emit" and "-o" not in args:
        args = (*args, "-o", "kernel.cpp")
    done = invoke(*args, stdin="?")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert re.match("error: " + message, done.stderr), done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("args", [("emit",), ("opt", "fa1.mlir"), ("derive",), ("targets",)])
def test_a_full_disk_is_one_line(args: tuple[str, ...], tmp_path: Path) -> None:
    if not Path("/dev/full").exists():
        pytest.skip("/dev/full is not here")
    invoke("emit", "--br", "4", "--bc", "4", "--print-ir-after", "build", "-o", str(tmp_path / "fa1.mlir"))
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", "from flashgen.cli.main import main; main()", *args],
            cwd=tmp_path,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (2, "error: No space left on device\n")


@pytest.mark.parametrize("args", [("emit",), ("opt", "--list-passes")])
def test_a_broken_pipe_is_quiet(args: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", "from flashgen.cli.main import main; main()", *args]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_a_module_too_deep_is_one_line() -> None:
    """Of 3000 loops, one in another."""
    head = '"builtin.module"() ({ func.func @f() { %a = arith.constant 0 : index\n'
    loops = "".join(f"scf.for %i{n} = %a to %a step %a {{\n" for n in range(3000))
    text = head + loops + "}\n" * 3000 + "func.return } }) : () -> ()\n"
    done = invoke("opt", "-", stdin=text)
    assert (done.exit_code, done.stderr) == (2, "error: the input is nested too deeply\n")


@pytest.mark.parametrize("name", ["loop.cpp", "k" * 300])
def test_emit_to_a_name_that_cannot_be(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("loop.cpp").symlink_to("loop.cpp")
    done = invoke("emit", "-o", name)
    assert done.exit_code == 2
    assert re.fullmatch(rf"error: output is '{name}'; it cannot be written \(.+\)\n", done.stderr)
    assert Path("loop.cpp").is_symlink()


def test_the_parsers_refusals_are_clicks_usage_errors() -> None:
    """Whatever place Typer takes Click from."""
    assert USAGE_ERROR.__name__ == "UsageError"
    assert USAGE_ERROR.__module__.endswith("click.exceptions")
    assert USAGE_ERROR("no such word").format_message() == "no such word"


def test_faults_are_not_dressed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only deliberate refusals are one line: anything else keeps its traceback."""
    monkeypatch.setattr("flashgen.emission.emit", lambda *args, **options: 1 / 0)
    assert isinstance(invoke("emit").exception, ZeroDivisionError)


def test_examples_of_the_help_work(tmp_path: Path) -> None:
    """Those of emit, opt and run, one after the other in one folder, as a shell takes them."""
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, 2, 9, 8), dtype=np.float32) for _ in range(3))
    np.savez(tmp_path / "qkv.npz", q=q, k=k, v=v)
    for name, array in (("q", q), ("k", k), ("v", v)):
        np.save(tmp_path / f"{name}.npy", array)
    from safetensors.numpy import save_file

    save_file({"query": q, "key": k, "value": v}, tmp_path / "layer.safetensors")
    folder = Path(sys.executable).parent
    lines = [
        line.strip()
        for command in ("emit", "opt", "run")
        for line in invoke(command, "--help")
        .stdout.partition("Examples:\n")[2]
        .partition("\n\n")[0]
        .splitlines()
    ]
    assert len(lines) >= 11
    script = "\n".join(("set -e", f"PATH={shlex.quote(str(folder))}:$PATH", *lines))
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = {path.name for path in tmp_path.iterdir()}
    assert made >= {"attention.cpp", "check.cpp", "a.out", "fa1.mlir", "o.npy", "result.npz"}


def test_a_warning_is_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["flashgen", "--version"])
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        try:
            with pytest.raises(SystemExit):
                main()
        finally:
            gc.enable()
        warnings.warn("the folder is full", RuntimeWarning, stacklevel=1)
    assert capsys.readouterr().err == "warning: the folder is full\n"
