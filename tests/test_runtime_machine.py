"""What the processor can run, and how fast."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest

from flashgen.errors import InvalidArgument, MissingTool
from flashgen.runtime import cpu_features as module
from flashgen.runtime.bandwidth import measure_read
from flashgen.runtime.cpu_features import best_target, cpu_features, missing_features, require
from flashgen.runtime.peak import measure_peak
from flashgen.runtime.probe import load_probe
from flashgen.runtime.product import MEMORY, measure_product
from flashgen.targets.cpu import Avx2, Avx512, Cpu


@pytest.fixture
def pretend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """Makes the machine one with the given features."""

    def set_features(*features: str) -> None:
        path = tmp_path / "cpuinfo"
        path.write_text(f"processor\t: 0\nflags\t\t: fpu {' '.join(features)} sse\nbugs\t\t: avx512bw\n")
        monkeypatch.setattr(module, "CPUINFO", path)
        monkeypatch.setattr(module.platform, "machine", lambda: "x86_64")
        cpu_features.cache_clear()

    yield set_features
    cpu_features.cache_clear()


def test_widest_target_that_runs(pretend) -> None:
    pretend(*Avx512.features)
    assert best_target().name == "avx512"
    pretend(*Avx2.features, "avx512f")
    assert best_target().name == "avx2"
    assert missing_features(Avx512()) == ["avx512bw", "avx512cd", "avx512dq", "avx512vl"]
    require(Avx2())


def test_refusal_names_what_is_missing(pretend) -> None:
    pretend(*Avx2.features)
    with pytest.raises(
        MissingTool, match=r"cannot run target avx512: it has no avx512f, avx512bw, .*emit works"
    ):
        require(Avx512())
    pretend("avx")
    with pytest.raises(MissingTool, match="cannot run target avx2: it has no avx2, fma, "):
        best_target()


def test_other_machines(pretend, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(*Avx512.features)
    monkeypatch.setattr(module.platform, "machine", lambda: "aarch64")
    with pytest.raises(MissingTool, match=r"this machine is 'aarch64'; .*x86-64"):
        best_target()


def test_systems_that_do_not_tell(pretend, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pretend()
    monkeypatch.setattr(module, "CPUINFO", tmp_path / "none")
    with pytest.raises(MissingTool, match="cannot be read"):
        best_target()


@pytest.mark.parametrize("target", [Avx2(), Avx512()], ids=lambda target: target.name)
def test_peak(target: Cpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if missing := missing_features(target):
        pytest.skip(f"this processor has no {', '.join(missing)}")
    monkeypatch.setenv("FLASHGEN_CACHE_DIR", str(tmp_path))
    # 0.5 GHz with one FMA unit on a loaded machine, 8 GHz with two.
    assert 2 * target.lanes * 0.05 < measure_peak(target, seconds=0.005, repeats=3) < 2 * target.lanes * 16
    assert 2 * target.lanes * 0.05 < measure_peak(target, 2, seconds=0.005, repeats=3) < 4 * target.lanes * 16
    assert len(list(tmp_path.glob("*.so"))) == 1


@pytest.mark.parametrize("target", [Avx2(), Avx512()], ids=lambda target: target.name)
def test_product(target: Cpu) -> None:
    """Of what the two sides hold, in the memory that it is given; no faster than arithmetic on registers."""
    if missing := missing_features(target):
        pytest.skip(f"this processor has no {', '.join(missing)}")
    run = load_probe("product.cpp", "flashgen_product", target)
    run.argtypes, run.restype = [ctypes.c_void_p, ctypes.c_int64], ctypes.c_double
    rows, depth, width = 192 // target.micro[0] * target.micro[0], 64, 512
    used = rows * depth + depth * width
    assert 4 * (192 * depth + depth * width + 192 * width) == MEMORY
    data = np.random.default_rng(0).standard_normal((MEMORY >> 2) + 32, np.float32)
    memory = data[-(data.ctypes.data >> 2) % 16 :]
    memory[MEMORY >> 2 :] = 7
    assert run(memory.ctypes.data, 1) == 2 * rows * depth * width
    q, panels = memory[: rows * depth].reshape(rows, depth), memory[rows * depth : used]
    k = panels.reshape(-1, depth, 2 * target.lanes).swapaxes(0, 1).reshape(depth, width)
    scores = memory[used : used + rows * width].reshape(rows, width)
    np.testing.assert_allclose(scores, q @ k, rtol=0, atol=1e-4)
    assert np.all(memory[MEMORY >> 2 :] == 7)
    for threads in (1, 2):
        assert 2 * target.lanes * 0.05 < measure_product(target, threads) < 2 * threads * target.lanes * 16


def test_peak_refuses_no_threads() -> None:
    with pytest.raises(InvalidArgument, match="threads is 0"):
        measure_peak(Avx2(), 0)


def test_reading_is_measured() -> None:
    """Every byte of an array that fills no cache line evenly; more from a cache than from memory."""
    try:
        require(Avx2())
    except MissingTool as missing:
        pytest.skip(str(missing))
    small, large = np.ones((1 << 18) + 5, np.uint8), np.ones(1 << 28, np.uint8)
    cached = max(measure_read(Avx2(), small, times=200) for _ in range(5))
    assert cached > min(measure_read(Avx2(), large) for _ in range(3)) > 0.1
    assert measure_read(Avx2(), large, threads=2) > 0.1
    with pytest.raises(InvalidArgument, match="times is 0; a whole number of at least 1"):
        measure_read(Avx2(), small, times=0)
