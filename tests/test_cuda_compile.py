"""The compile checks themselves: what they accept, what they refuse, and what they measure."""

from __future__ import annotations

import pytest

from flashgen.errors import CompileFailure
from tests import cuda_compile
from tests.cuda_compile import MISSING, Compile, Usage, check, usage
from tests.cuda_on_cpu.build import HERE

ATTENTION = (HERE / "kernels" / "attention.cu").read_text(encoding="utf-8")
KERNEL = """
#include <cuda_fp16.h>
extern "C" __global__ void __launch_bounds__(128) kernel(__half *y, float x) {
  %s
  y[threadIdx.x] = __float2half_rn(exp2f(x));
}
"""


@pytest.fixture(params=["nvrtc", "nvcc"])
def compiler(request: pytest.FixtureRequest) -> Compile:
    found = getattr(cuda_compile, request.param)()
    if found is None:
        pytest.skip(f"{request.param} is not here")
    return found


@pytest.mark.parametrize("source", [KERNEL % "", ATTENTION], ids=["float16", "attention"])
def test_sound_sources_compile(compiler: Compile, source: str):
    for architecture in ("sm_80", "sm_90"):
        used = usage(compiler(source, architecture))
        assert 8 <= used.registers <= 128 and used.spill_stores == used.spill_loads == 0
        assert used.static_shared == (192 if source is ATTENTION else 0)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("int unused;", "unused"),
        ("if (false) y[0] = y[1]; for (unsigned i = 0; i >= 0; i++) y[i] = y[0];", "pointless comparison"),
        ("int set; set = 1;", "set but never used"),
        ("undeclared = 1;", "undeclared"),
        (
            "static __shared__ float big[1 << 20]; y[0] = big[threadIdx.x];",
            "NVRTC_ERROR_COMPILATION|too much shared data",
        ),
    ],
)
def test_warnings_and_errors_are_refused(compiler: Compile, statement: str, message: str):
    with pytest.raises(CompileFailure, match=message):
        usage(compiler(KERNEL % statement, "sm_80"))


def test_check_uses_the_first_compiler_for_every_architecture_of_the_target():
    assert set(check(KERNEL % "")) == {"sm_80", "sm_90"}


def test_without_a_compiler_the_test_is_skipped_with_both_names(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(cuda_compile, "nvrtc", lambda: None)
    monkeypatch.setattr(cuda_compile, "nvcc", lambda: None)
    with pytest.raises(pytest.skip.Exception) as skipped:
        check("")
    assert str(skipped.value) == MISSING


def test_the_figures_are_read_and_anything_else_is_a_warning():
    log = (
        "ptxas info    : Compiling entry function 'k' for 'sm_80'\n"
        "ptxas         .     8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
        "ptxas info    : Used 255 registers, used 1 barriers, 192 bytes smem\n"
    )
    assert usage(log) == Usage(255, 12, 16, 192)
    with pytest.raises(CompileFailure, match="warning : something"):
        usage(log + "ptxas warning : something\n")
