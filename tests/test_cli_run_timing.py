"""flashgen run: when the machine is probed beside the calls that are timed."""

from __future__ import annotations

import pytest

from flashgen.cli import run_timing
from flashgen.targets.cpu import Avx2
from flashgen.targets.cuda import Cuda
from tests.sample_kernel import skip_unless_it_runs


def test_the_machine_is_probed_beside_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """At each end, and between calls as soon as these have taken a while."""
    happened: list[str] = []

    def probe() -> tuple[float, ...]:
        happened.append("probe")
        return (1.0,)

    for between, order in ((0.0, ["call", "probe", "call"]), (1e9, ["call", "call"])):
        happened.clear()
        monkeypatch.setattr(run_timing, "BETWEEN", between)
        timing = run_timing.time_beside_probes(lambda: happened.append("call"), probe, 2, lambda: None)
        ends = ["probe"] * run_timing.AT_EACH_END
        assert happened == [*ends, *order, *ends]
        assert len(timing.seconds) == 2 and not timing.disturbed and timing.peak == 1
    on_a_gpu = run_timing.time_beside_probes(lambda: None, run_timing.make_probe(Cuda(), 0), 2, lambda: None)
    assert set(on_a_gpu.speeds) == {()}
    assert on_a_gpu.peak is None and not on_a_gpu.disturbed


def test_a_real_probe() -> None:
    skip_unless_it_runs(Avx2())
    assert all(speed > 0 for speed in run_timing.make_probe(Avx2(), 2)())
