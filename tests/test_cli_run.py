"""flashgen run: input and output files, what it reports, what it refuses. Small kernels, compiled once."""

from __future__ import annotations

import re
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from ml_dtypes import bfloat16
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from typer.testing import CliRunner

import flashgen
from flashgen.bench.measure import expect, operations
from flashgen.cli import run as run_module
from flashgen.cli import run_timing
from flashgen.cli.main import app
from flashgen.problem import Problem
from flashgen.reference import EXACT, Deviation, attention, deviation
from flashgen.targets.cpu import Avx2
from tests.sample_kernel import skip_unless_it_runs

TILES = ("--br", "12", "--bc", "32")


@pytest.fixture(autouse=True)
def runs_here() -> None:
    skip_unless_it_runs(Avx2())


@pytest.fixture
def arrays() -> dict[str, np.ndarray]:
    """Grouped heads, odd lengths, Dv of its own."""
    rng = np.random.default_rng(5)
    shapes = {"q": (2, 4, 13, 8), "k": (2, 2, 37, 8), "v": (2, 2, 37, 5)}
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrays: dict[str, np.ndarray]) -> Path:
    """The arrays in every form, and the working folder."""
    monkeypatch.chdir(tmp_path)
    np.savez("qkv.npz", **arrays)
    save_file({"query": arrays["q"], "key": arrays["k"], "value": arrays["v"]}, "qkv.safetensors")
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    return tmp_path


def run(*args: str):
    return CliRunner().invoke(app, ["run", "--target", "avx2", *TILES, *args])


def wanted(arrays: dict[str, np.ndarray], **options: object) -> tuple[np.ndarray, np.ndarray]:
    o, lse = flashgen.attention(
        **arrays,
        enable_gqa=True,
        return_lse=True,
        schedule=flashgen.Schedule(br=12, bc=32),
        target="avx2",
        **options,  # pyright: ignore[reportArgumentType]
    )
    return o, lse


INPUTS = {
    "npz": ("qkv.npz",),
    "safetensors": ("qkv.safetensors", "--names", "query,key,value"),
    "npy": ("--q", "q.npy", "--k", "k.npy", "--v", "v.npy"),
}


@pytest.mark.parametrize("args", INPUTS.values(), ids=INPUTS)
def test_inputs(args: tuple[str, ...], folder: Path, arrays: dict[str, np.ndarray]) -> None:
    done = run(*args, "--out", "o.npy", "--lse", "lse.npy", "--repeat", "1")
    assert done.exit_code == 0, done.output
    o, lse = wanted(arrays)
    np.testing.assert_array_equal(np.load("o.npy"), o)
    np.testing.assert_array_equal(np.load("lse.npy"), lse)


def test_outputs(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    o, lse = wanted(arrays, is_causal=True, causal_alignment="top-left", scale=-0.5)
    for name in ("out.npz", "out.safetensors"):
        args = ("--causal", "top-left", "--scale", "-0.5", "--threads", "2", "--repeat", "1", "--out", name)
        done = run("qkv.npz", *args)
        assert done.exit_code == 0, done.output
        written = np.load(name) if name.endswith("npz") else load_file(name)
        np.testing.assert_array_equal(written["o"], o)
        np.testing.assert_array_equal(written["lse"], lse)


def test_report(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_timing, "make_probe", lambda machine, threads: lambda: (200.0, 100.0))
    done = run("qkv.npz", "--causal", "--threads", "1", "--repeat", "3")
    words = " ".join(done.stdout.split())  # a narrow terminal folds lines
    assert "kernel attention_d8_dv5_f32_causal_bottom_right_q_outer_br12_bc32" in words
    assert "q (2, 4, 13, 8), k (2, 2, 37, 8), v (2, 2, 37, 5), float32, scale 0.353553" in words
    shares = [float(share) for share in re.findall(r"error of \w+ +\S+, (\S+) of the bound", done.stdout)]
    assert len(shares) == 2
    assert all(0 < share < 1 for share in shares)
    assert "the median of 3, 1 thread" in words and "1 threads" not in words
    assert re.search(r"share of peak \S+ of 200 GFLOP/s, measured beside it", words)
    assert "~" not in words


@pytest.mark.parametrize("slow", [(150.0, 100.0), (200.0, 75.0)], ids=["peak", "product"])
def test_disturbed_figures_are_marked(
    slow: tuple[float, ...], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    speeds = iter([(200.0, 100.0), slow, *[(200.0, 100.0)] * 99])
    monkeypatch.setattr(run_timing, "make_probe", lambda machine, threads: lambda: next(speeds))
    done = run("qkv.npz", "--repeat", "1")
    words = " ".join(done.stdout.split())
    assert done.exit_code == 0, done.output
    assert re.search(r"time ~\S+ ms, .* speed ~\S+ GFLOP/s", words)
    assert (
        "~ marks what was disturbed: the machine's speed beside the calls fell to 0.75 of its best" in words
    )
    assert "share of peak" not in words.replace("no share of the peak", "")


def test_sizes_of_zero(folder: Path) -> None:
    np.savez(
        "none.npz", q=np.ones((1, 2, 3, 8), "f"), k=np.ones((1, 2, 0, 8), "f"), v=np.ones((1, 2, 0, 5), "f")
    )
    assert run("none.npz", "--out", "o.npz").exit_code == 0
    assert np.load("o.npz")["o"].shape == (1, 2, 3, 5)
    assert np.isneginf(np.load("o.npz")["lse"]).all()
    np.savez(
        "flat.npz", q=np.ones((1, 2, 3, 8), "f"), k=np.ones((1, 2, 4, 8), "f"), v=np.ones((1, 2, 4, 0), "f")
    )
    assert run("flat.npz", "--out", "flat.npy").exit_code == 0
    assert np.load("flat.npy").shape == (1, 2, 3, 0)


def test_wrong_result_is_exit_status_1(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The output is written all the same: whoever looks for the fault wants it."""
    prepare = run_module.prepare

    def broken(*args):
        call, threads = prepare(*args)
        return lambda: (call()[0] + np.float32(1e-3), call()[1]), threads

    monkeypatch.setattr(run_module, "prepare", broken)
    done = run("qkv.npz", "--out", "o.npy")
    assert done.exit_code == 1
    assert re.search(r"error of O +0.001, \S+ of the bound: WRONG", done.stdout)
    assert Path("o.npy").exists()


F = np.float32
REFUSED = {
    "heads": (
        {"q": np.ones((2, 3, 13, 8), F)},
        (),
        r"q.shape is \(2, 3, 13, 8\); heads that are a multiple of k's 2",
    ),
    "shape": (
        {"v": np.ones((2, 2, 36, 5), F)},
        (),
        r"v.shape is \(2, 2, 36, 5\); \(2, 2, 37, 5\) is allowed",
    ),
    "rank": ({"k": np.ones((2, 37, 8), F)}, (), r"k.shape is \(2, 37, 8\); four dimensions are allowed"),
    "dtype": ({"q": np.ones((2, 4, 13, 8), "g")}, (), r"q.dtype is '<f16'; .*; --dtype float32 makes it"),
    "byte order": ({"q": np.ones((2, 4, 13, 8), ">f4")}, (), r"q.dtype is '>f4'; native float32"),
    "half": ({"q": np.ones((2, 4, 13, 8), np.float16)}, (), r"k.dtype is '<f4'; native float16 is allowed"),
    "no type": (
        {},
        ("--dtype", "float8"),
        r"dtype is 'float8'; one of 'float32', 'float16', 'bfloat16', 'float64'",
    ),
    "integers": (
        {"q": np.ones((2, 4, 13, 8), int)},
        ("--dtype", "float16"),
        r"q.dtype is '<i8'; a float type is rounded to float16",
    ),
    "bytes": (
        {"k": np.ones((2, 2, 37, 8), bfloat16)},
        (),
        r"k.dtype is '\|V2'; two bytes without a type are allowed with --dtype bfloat16",
    ),
    "bfloat16 in NumPy's files": (
        {},
        ("--dtype", "bfloat16", "--out", "o.npz"),
        r"out is 'o.npz'; a name that ends in .safetensors is allowed for bfloat16",
    ),
    "mixed": ({"k": np.ones((2, 2, 37, 8))}, (), r"k.dtype is '<f8'; native float32 is allowed"),
    "head dim": ({"q": np.ones((2, 4, 13, 0), F)}, (), r"head_dim is 0; a whole number"),
    "objects": ({"q": np.array([None])}, (), r"FILE is 'in.npz'; a .npz file of numbers is allowed"),
    "scale": ({}, ("--scale", "nan"), r"scale is nan; 0 is allowed, or a finite"),
    "large scale": ({}, ("--scale", "3e38"), r"scale is 3e\+38; 0 is allowed, or a finite float32 of size"),
    "small scale": ({}, ("--scale", "1e-40"), r"scale is 1e-40; 0 is allowed, or a finite float32 of size"),
    "threads": ({}, ("--threads", "0"), r"threads is 0; a whole number from 1"),
    "threads on cuda": (
        {},
        ("--target", "cuda", "--threads", "2"),
        r"threads is 2; target cuda chooses its own",
    ),
    "repeat": ({}, ("--repeat", "0"), r"repeat is 0; a whole number of at least 1"),
    "names": ({}, ("--names", "q,k"), r"names is 'q,k'; three names with commas"),
    "a name": ({}, ("--names", "q,k,w"), r"names is 'q,k,w'; in.npz has no 'w'; it holds q, k, v"),
    "two inputs": ({}, ("--q", "q.npy"), r"with FILE 'in.npz', --q 'q.npy' is not allowed$"),
    "tiles": ({}, ("--br", "99999", "--bc", "9999"), r"tiles 99999 x 9999 need \d+ bytes"),
    "ending": ({}, ("--out", "o.txt"), r"out is 'o.txt'; a name that ends in .npy, .npz, .safetensors"),
    "lse's ending": ({}, ("--lse", "l.npz"), r"lse is 'l.npz'; a name that ends in .npy"),
    "out on its input": (
        {},
        ("--out", "in.npz"),
        r"out is 'in.npz'; a file other than the inputs",
    ),
    "lse on its input": ({}, ("--lse", "./in.npz"), r"lse is 'in.npz'; a file other than the inputs"),
    "one file for two": (
        {},
        ("--out", "x.npy", "--lse", "x.npy"),
        r"lse is 'x.npy'; a file other than out's",
    ),
    "no folder": ({}, ("--out", "no/o.npy"), r"out is 'no/o.npy'; there is no folder 'no'"),
}


@pytest.mark.parametrize(("change", "args", "message"), REFUSED.values(), ids=REFUSED)
def test_refused(
    change: dict, args: tuple[str, ...], message: str, folder: Path, arrays: dict[str, np.ndarray]
) -> None:
    np.savez("in.npz", **arrays | change)
    before = set(folder.iterdir())
    done = run("in.npz", *(() if "--out" in args else ("--out", "o.npy")), *args)
    assert done.exit_code == 2, done.output
    assert re.match(f"error: {message}", done.stderr), done.stderr
    assert done.stderr.count("\n") == 1
    assert set(folder.iterdir()) == before


BROKEN = {
    "text.npz": r"FILE is 'text.npz'; a .npz file of numbers",
    "text.safetensors": r"FILE is 'text.safetensors'; a .safetensors file",
    "text.bin": r"FILE is 'text.bin'; a name that ends in .npz, .safetensors",
    "half.npz": r"FILE is 'half.npz'; a .npz file of numbers",
    "half.safetensors": r"FILE is 'half.safetensors'; a .safetensors file",
    "array.npz": r"FILE is 'array.npz'; a .npz file of numbers is allowed \(it holds one array",
    "missing.npz": r"FILE is 'missing.npz'; there is no such file",
}


@pytest.mark.parametrize(("name", "message"), BROKEN.items())
def test_broken_files(name: str, message: str, folder: Path) -> None:
    for text in ("text.npz", "text.safetensors", "text.bin"):
        Path(text).write_text("no arrays here")
    for half in ("npz", "safetensors"):
        Path(f"half.{half}").write_bytes(Path(f"qkv.{half}").read_bytes()[:900])
    Path("array.npz").write_bytes(Path("q.npy").read_bytes())
    done = run(name)
    assert done.exit_code == 2
    assert re.match(f"error: {message}", done.stderr), done.stderr


def npy(header: str) -> bytes:
    """A .npy file of this header, and nothing behind it."""
    return b"\x93NUMPY\x01\0" + len(header).to_bytes(2, "little") + header.encode()


HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 1000000000000, 8), }"


@pytest.mark.parametrize("header", ["{'descr': '<f4', 'shape': (", "((((", "\0", HUGE])
@pytest.mark.parametrize("form", ["npy", "npz"])
def test_headers_of_anything(form: str, header: str, folder: Path) -> None:
    if form == "npy":
        Path("k.npy").write_bytes(npy(header))
        done, message = run(*INPUTS["npy"]), "k is 'k.npy'; a .npy file of numbers is allowed (.+)"
    else:
        with zipfile.ZipFile("odd.npz", "w") as file:
            file.writestr("q.npy", npy(header))
            for name in "kv":
                file.write(f"{name}.npy")
        done, message = run("odd.npz"), "FILE is 'odd.npz'; a .npz file of numbers is allowed (.+)"
    assert_refused(done, message)


def assert_refused(done, message: str) -> None:
    assert done.exit_code == 2, done.output
    assert re.match(f"error: {message}", done.stderr), done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("offset", "value", "reason"),
    [(8, 1, "encrypted"), (10, 99, "compression method is not supported")],
)
def test_zips_that_cannot_be_unpacked(offset: int, value: int, reason: str, folder: Path) -> None:
    """The same words in both headers of the first member: flags, and method of compression."""
    content = bytearray(Path("qkv.npz").read_bytes())
    content[content.index(b"PK\1\2") + offset] = content[content.index(b"PK\3\4") + offset - 2] = value
    Path("odd.npz").write_bytes(content)
    assert_refused(run("odd.npz"), rf"FILE is 'odd.npz'; a .npz file of numbers is allowed \(.*{reason}")


def test_a_member_that_is_no_array(folder: Path) -> None:
    with zipfile.ZipFile("odd.npz", "w") as file:
        file.writestr("q", "words")
        for name in "kv":
            file.write(f"{name}.npy")
    assert_refused(run("odd.npz"), r"FILE is 'odd.npz'; .* \(its member 'q' is not an array\)")


def test_outputs_that_cannot_be(folder: Path) -> None:
    Path("loop.npy").symlink_to("loop.npy")
    for name in ("loop.npy", f"{'o' * 300}.npy"):
        for option in ("--out", "--lse"):
            message = rf"{option[2:]} is '{name}'; it cannot be written \((Symlink loop|File name too long)"
            assert_refused(run("qkv.npz", option, name), message)


def test_broken_npy(folder: Path) -> None:
    Path("k.npy").write_bytes(Path("k.npy").read_bytes()[:100])
    for args, message in (
        (("--q", "q.npy", "--k", "k.npy", "--v", "v.npy"), r"k is 'k.npy'; a .npy file of numbers"),
        (
            ("--q", "qkv.npz", "--k", "k.npy", "--v", "v.npy"),
            r"q is 'qkv.npz'; a .npy file is allowed; FILE takes",
        ),
        (("--q", "q.npy", "--v", "v.npy"), r"--k is missing; FILE or all of --q, --k and --v"),
    ):
        done = run(*args)
        assert done.exit_code == 2
        assert re.match(f"error: {message}", done.stderr), done.stderr


def test_files_of_other_types(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    """In .safetensors, in .npz (bfloat16 as bytes), and float32 that becomes that type: one O."""
    for dtype in (bfloat16, np.float16, np.float64):
        other = {name: array.astype(dtype) for name, array in arrays.items()}
        save_file(other, "other.safetensors")
        np.savez("other.npz", **other)
        name = np.dtype(dtype).name
        want, want_lse = wanted(other)
        for args in (("other.safetensors",), ("other.npz", "--dtype", name), ("qkv.npz", "--dtype", name)):
            done = run(*args, "--out", "o.safetensors", "--repeat", "1")
            assert done.exit_code == 0, done.stderr
            assert f" {name}, scale" in done.stdout
            with safe_open("o.safetensors", "numpy") as file:
                stored = {"bfloat16": "BF16", "float16": "F16", "float64": "F64"}[name]
                assert file.get_slice("o").get_dtype() == stored
                assert file.get_tensor("o").tobytes() == want.tobytes()
                np.testing.assert_array_equal(file.get_tensor("lse"), want_lse, strict=True)
    errors = [float(x) for x in re.findall(r"error of \w+\s+(\S+),", done.stdout)]
    assert len(errors) == 2 and max(errors) < 1e-14, "float64's, beside a reference of more"


def test_without_the_package_of_bfloat16(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({name: np.ones((1, 1, 1, 8), bfloat16) for name in "qkv"}, "b.safetensors")
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    for args in (("b.safetensors",), ("qkv.npz", "--dtype", "bfloat16")):
        done = run(*args)
        assert done.exit_code == 2
        message = "error: bfloat16 arrays need the package ml_dtypes: pip install 'flashgen[bfloat16]'; other"
        assert done.stderr.startswith(message) and done.stderr.count("\n") == 1


def test_deviation() -> None:
    inf, nan = np.inf, np.nan
    want, allowed = np.array([1.0, inf, nan, -inf]), np.array([0.5])
    assert deviation(want.astype(F), want, allowed) == EXACT
    assert deviation(np.array([1.25, inf, nan, -inf], F), want, allowed) == Deviation(0.25, 0.5)
    for wrong in (
        [nan, inf, nan, -inf],
        [1, nan, nan, -inf],
        [1, inf, 0, -inf],
        [1, inf, nan, inf],
        [1, 3, nan, -inf],
    ):
        assert deviation(np.array(wrong, F), want, allowed) == Deviation(inf, inf)
    assert deviation(np.zeros(0, F), np.zeros(0), allowed) == EXACT


@pytest.mark.parametrize("causal", [None, "bottom-right", "top-left"])
def test_expected_by_head_is_the_reference(causal: str | None, arrays: dict[str, np.ndarray]) -> None:
    problem = Problem(8, 5, causal=causal)
    heads: list[None] = []
    expected = expect(problem, *arrays.values(), 0.3, lambda: heads.append(None))
    o, lse = attention(problem, *arrays.values(), 0.3)
    np.testing.assert_array_equal(expected.o, o)
    np.testing.assert_array_equal(expected.lse, lse)
    assert len(heads) == 8


def test_operations(arrays: dict[str, np.ndarray]) -> None:
    """2 (D + Dv) for each pair of a query and a visible key."""
    each = 2 * (8 + 5) * 2 * 4
    assert operations(Problem(8, 5), *arrays.values()) == each * 13 * 37
    assert operations(Problem(8, 5, causal="top-left"), *arrays.values()) == each * 13 * 14 // 2
    assert operations(Problem(8, 5, causal="bottom-right"), *arrays.values()) == each * (
        13 * 37 - 13 * 12 // 2
    )
