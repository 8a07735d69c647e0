"""flashgen emit and flashgen opt: what they print and what they write."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

import flashgen
from flashgen import FA1, FA2, Problem, Schedule
from flashgen.cli import output as output_module
from flashgen.cli.main import app
from flashgen.cli.options import spell_out
from flashgen.cli.output import write
from flashgen.errors import InvalidArgument
from flashgen.passes import pipeline as pipeline_module
from flashgen.passes.pipeline import REGISTRY, lower, pipeline
from flashgen.targets import TARGETS

SMALL = ("-d", "8", "--br", "4", "--bc", "4")
Q_OUTER = "lazy-rescale,sink-loads,interchange,fuse-loops,keep-state"


def invoke(*args: str, stdin: str | None = None):
    return CliRunner().invoke(app, list(args), input=stdin)


def emit(*args: str) -> str:
    done = invoke("emit", *args)
    assert done.exit_code == 0, done.stderr
    return done.stdout


def test_emits_flashattention_2_for_avx2() -> None:
    assert emit() == flashgen.emit(Problem(64), FA2, "avx2")


def test_every_option_reaches_the_kernel() -> None:
    args = "--target avx512 -d 40 --head-dim-v 24 --dtype float32 --causal top-left --order kv-outer"
    more = "--br 28 --bc 64 --no-lazy-rescale --no-causal-skip"
    schedule = Schedule("kv-outer", 28, 64, lazy_rescale=False, causal_skip=False)
    problem = Problem(40, 24, "float32", "top-left")
    assert emit(*args.split(), *more.split()) == flashgen.emit(problem, schedule, "avx512")


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("order", ["q-outer", "kv-outer"])
def test_prints_plain_text(target: str, order: str) -> None:
    """No colour, and no line broken to fit a terminal."""
    text = emit("--target", target, "--order", order)
    assert "\x1b" not in text
    assert max(map(len, text.splitlines())) > 80
    assert text.endswith("\n")


def test_header_names_the_command_that_writes_the_file_again() -> None:
    text = emit("-d", "24", "--causal", "top-left", "--order", "kv-outer", "--no-causal-skip", "--with-main")
    command = next(line for line in text.splitlines() if "flashgen emit" in line).split()
    assert emit(*command[command.index("emit") + 1 :]) == text


def test_causal_alone_is_bottom_right() -> None:
    wanted = flashgen.emit(Problem(8, causal="bottom-right"), Schedule(br=6, bc=32), "avx2")
    small = ("-d", "8", "--br", "6", "--bc", "32")
    assert emit("--causal", *small) == emit(*small, "--causal") == emit("--causal=bottom-right", *small)
    assert emit(*small, "--causal") == wanted


def test_spell_out() -> None:
    assert spell_out([]) == []
    assert spell_out(["--causal"]) == ["--causal=bottom-right"]
    assert spell_out(["--causal", "-o", "x"]) == ["--causal=bottom-right", "-o", "x"]
    assert spell_out(["--causal", "top-left", "--br"]) == ["--causal", "top-left", "--br"]


def test_output_file(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cpp"
    assert emit("-o", str(path)) == ""
    assert path.read_text() == emit()
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~current_umask()
    written = path.stat().st_mtime_ns, path.stat().st_ino
    emit("-o", str(path))
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == written, "the same text is not written again"
    emit("--causal", "-o", str(path))
    assert path.read_text() == emit("--causal")
    assert [p.name for p in tmp_path.iterdir()] == ["kernel.cpp"]


def current_umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_output_folder_gets_the_kernels_name(tmp_path: Path) -> None:
    emit("-o", str(tmp_path))
    emit("-o", str(tmp_path), "--target", "cuda")
    emit("-o", str(tmp_path), "--print-ir")
    stem = f"{Problem(64).name}_{TARGETS['avx2'].complete(Problem(64), FA2).name}_avx2"
    cuda = f"{Problem(64).name}_{TARGETS['cuda'].complete(Problem(64), FA2).name}_cuda.cu"
    assert {p.name for p in tmp_path.iterdir()} == {f"{stem}.cpp", f"{stem}.mlir", cuda}


@pytest.mark.parametrize("place", ["missing/kernel.cpp", "file/kernel.cpp"])
def test_output_that_cannot_be(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = invoke("emit", "-o", str(tmp_path / place))
    assert done.exit_code == 2
    assert "error: output is" in done.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "kernel.cpp"
    path.write_text("before")

    def fill(file) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(InvalidArgument, match=r"output is '.*'; it cannot be written .No space left"):
        write("output", path, fill)
    assert path.read_text() == "before"
    assert [p.name for p in tmp_path.iterdir()] == ["kernel.cpp"]


def test_output_through_a_link_and_to_a_device(tmp_path: Path) -> None:
    path, link = tmp_path / "kernel.cpp", tmp_path / "link.cpp"
    path.write_text("before")
    link.symlink_to(path)
    emit("-o", str(link))
    assert link.is_symlink()
    assert path.read_text() == emit()
    emit("-o", os.devnull)
    assert not Path(os.devnull).is_file()


def test_print_ir() -> None:
    schedule = TARGETS["avx2"].complete(Problem(8), Schedule(br=4, bc=4))
    assert emit(*SMALL, "--print-ir") == str(lower(Problem(8), schedule)) + "\n"


def test_print_ir_after() -> None:
    final = emit(*SMALL, "--print-ir")
    assert emit(*SMALL, "--print-ir-after", "parallel-loops") == final
    build = emit(*SMALL, "--print-ir-after", "build")
    assert build == emit(*SMALL, "--print-ir-after", "build", "--order", "kv-outer", "--no-lazy-rescale")
    assert "scf.parallel" in final
    assert "scf.parallel" not in build


def test_print_ir_after_what_only_some_problems_ask_for() -> None:
    data = ("--mask", "k % 3 == q", "--print-ir-after", "skip-tiles")
    assert "scf.if" in emit(*SMALL, *data)
    no_product = ("--score", "float(k - q)", "--print-ir-after", "fold-scale")
    assert (
        "print_ir_after is 'fold-scale'; this kernel has build, "
        in invoke("emit", *SMALL, *no_product).stderr
    )


@pytest.mark.parametrize("beside", [(), ("--print-ir",)])
def test_print_ir_after_all(beside: tuple[str, ...]) -> None:
    """On standard error, as opt does it; what goes to standard output stays what it is."""
    done = invoke("emit", *SMALL, "--causal", *beside, "--print-ir-after-all")
    assert done.stdout == emit(*SMALL, "--causal", *beside)
    text = done.stderr
    schedule = TARGETS["avx2"].complete(Problem(8), Schedule(br=4, bc=4))
    names = ["build", *(p.name for p in pipeline(schedule, Problem(8)))]
    assert [line for line in text.splitlines() if line.startswith("// -----//")] == [
        f"// -----// after {name} //----- //" for name in names
    ]
    for name in ("build", "keep-state", "parallel-loops"):
        assert emit(*SMALL, "--causal", "--print-ir-after", name) in text


@pytest.mark.parametrize("beside", [(), ("--print-ir",)])
def test_one_request_is_lowered_and_checked_once(
    beside: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def counting(name: str, work):
        def call(*args):
            done.append(name)
            return work(*args)

        return call

    monkeypatch.setattr(pipeline_module, "build", counting("built", pipeline_module.build))
    monkeypatch.setattr(output_module, "_obstacle", counting("looked", output_module._obstacle))
    emit(*SMALL, *beside, "--print-ir-after-all", "-o", str(tmp_path))
    assert done == ["built", "looked"]


def test_opt_derives_what_emit_shows(tmp_path: Path) -> None:
    """Shows 3: the passes, on the text that emit printed, give the module of emit's own pipeline."""
    path = tmp_path / "fa1.mlir"
    emit(*SMALL, "--causal", "--print-ir-after", "build", "-o", str(path))
    done = invoke("opt", str(path), "-p", Q_OUTER)
    assert done.exit_code == 0, done.stderr
    assert done.stdout == emit(*SMALL, "--causal", "--print-ir-after", "keep-state")
    assert invoke("opt", "-", "-p", Q_OUTER, stdin=path.read_text()).stdout == done.stdout


def test_opt_prints_stages_on_standard_error(tmp_path: Path) -> None:
    path = tmp_path / "fa1.mlir"
    emit(*SMALL, "--print-ir-after", "build", "-o", str(path))
    done = invoke("opt", str(path), "-p", "lazy-rescale,sink-loads", "--print-ir-after-all")
    lazy, sunk = done.stderr.split("// -----// after sink-loads //----- //\n")
    assert lazy.startswith("// -----// after lazy-rescale //----- //\n")
    assert sunk.strip() == done.stdout.strip()


def test_opt_refuses_in_one_line(tmp_path: Path) -> None:
    """FlashAttention-1's nest is not perfect, so its loops cannot be interchanged yet."""
    path = tmp_path / "fa1.mlir"
    emit(*SMALL, "--print-ir-after", "build", "-o", str(path))
    done = invoke("opt", str(path), "-p", "lazy-rescale,interchange")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr == "error: interchange: scf.for: the nest is not perfect; sink-loads first\n"


def test_opt_lists_passes() -> None:
    legend, *lines = invoke("opt", "--list-passes").stdout.splitlines()
    assert legend.startswith("PASS{OPTION} ")
    names, texts = zip(*(line.split(maxsplit=1) for line in lines), strict=True)
    assert [name.partition("{")[0] for name in names] == list(REGISTRY)
    assert {"pack{panel}", "rescale-threshold{threshold}"} <= {*names}
    assert not [text for text in texts if "docstring" in text]
    assert {line.index(text) for line, text in zip(lines, texts, strict=True)} == {max(map(len, names)) + 2}


@pytest.mark.parametrize("doc", [None, ""])
def test_opt_lists_a_pass_that_says_nothing(doc: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flashgen.passes.pack.__doc__", doc)
    done = invoke("opt", "--list-passes")
    assert re.search(r"^pack\{panel\} +\(its file has no docstring\)$", done.stdout, re.M), done.exception


def test_fa1_is_the_schedule_of_the_paper() -> None:
    options = ("--order", "kv-outer", "--no-lazy-rescale", "--no-causal-skip")
    assert emit(*options) == flashgen.emit(Problem(64), FA1, "avx2")
