"""How Hypothesis runs: the same examples every time, and new ones on request (``make fuzz``).

In continuous integration ($CI) a test that skips fails the run, unless what it lacks is not expected there:
else a tool that was not installed would take a whole tier of tests away in silence.
"""

from __future__ import annotations

import os
import re

import pytest
from hypothesis import settings

os.environ["COLUMNS"] = "160"  # what tests print does not depend on the terminal

settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("fuzz", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile("repeatable")

MAY_LACK = (
    r"nvcc is not here",
    r"flashgen\[zig\]",
    r"clang",
    r"make_minilm\.py needs",
    r"processor|AVX-?512|avx512",
    r"(torch|jax|flex|onnxruntime|openvino) is not installed",
)
"""What machines differ in: nvcc beside NVRTC, a second compiler, the model's package, wide vectors, and the
libraries that the benchmark compares with."""

unexpected: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.skipped and isinstance(report.longrepr, tuple):
        reason = report.longrepr[2]
        if not any(re.search(pattern, reason) for pattern in MAY_LACK):
            unexpected.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session) -> None:
    if unexpected and os.environ.get("CI") and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if unexpected and os.environ.get("CI"):
        terminalreporter.section("skipped, though not expected to")
        for line in unexpected:
            terminalreporter.line(line)
