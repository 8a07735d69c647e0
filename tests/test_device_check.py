"""The script for machines with a GPU: that it says no without one, and that its measure can tell."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from flashgen.problem import Problem
from tests import device_check
from tests.cuda_on_cpu.cupy_double import Double
from tests.test_runtime_cuda import LAUNCH, PROBLEM, SOURCE, CudaKernel


def test_without_a_gpu_it_says_one_line_and_exits_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    for module in (None, Double(count=0)):
        monkeypatch.setitem(sys.modules, "cupy", module)
        assert device_check.main(minutes=1) == 2
        out, err = capsys.readouterr()
        assert not out and err.startswith("error: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("right", "wrong", "least"),
    [
        ("acc[x] / l[r]", "acc[x] / l[r]", 0.0),
        ("acc[x] / l[r]", "acc[x] / l[r] * 1.0001f", 1.0),
        ("+ logf(l[tid])", "+ 1.0001f * logf(l[tid])", 1.0),
        (": neg_inf;\n}", ": 0.0f;\n}", np.inf),
    ],
)
def test_errors_are_measured_in_units_of_the_bound(
    monkeypatch: pytest.MonkeyPatch, right: str, wrong: str, least: float
):
    monkeypatch.setitem(sys.modules, "cupy", Double())
    kernel = CudaKernel(SOURCE.replace(right, wrong), "attention", PROBLEM, LAUNCH)
    worst = max(device_check.excess(kernel, PROBLEM, sizes) for sizes in device_check.SIZES)
    assert worst <= 1 if least == 0 else worst >= least


def test_every_kind_of_kernel_is_among_the_variants():
    found = list(device_check.variants())
    assert len(set(found)) == len(found)
    for dtype in ("float32", "float16"):
        for causal in (None, "bottom-right", "top-left"):
            wanted = Problem(64, None, dtype, causal)
            schedules = [schedule for problem, schedule in found if problem == wanted]
            assert len(schedules) == 8
