"""How far the work has come, where standard error is no terminal."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flashgen.cli import progress


class Waiting:
    """Stands in for a timer: the test says when it goes off."""

    def __init__(self, seconds: float, call: Callable[[], None]):
        self.seconds, self.call, self.state = seconds, call, "made"
        timers.append(self)

    def start(self) -> None:
        self.state = "started"

    def cancel(self) -> None:
        self.state = "cancelled"


timers: list[Waiting] = []


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    timers.clear()
    monkeypatch.setattr(progress.threading, "Timer", Waiting)


def test_a_line_for_each_stage_of_what_takes_long(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress() as bars:
        step = bars.add_task("compiling", total=None)
        bars.update(step, description="calling", total=3)
        assert (timers[0].seconds, timers[0].state) == (progress.QUIET, "started")
        timers[0].call()
        bars.advance(step)
        bars.update(step, description="calling", advance=1)
        bars.update(step, description="checking", total=8, completed=0)
    printed = capsys.readouterr()
    assert (printed.err, printed.out) == ("calling\nchecking\n", "")
    assert timers[0].state == "cancelled"


def test_what_is_done_at_once_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ZeroDivisionError), progress.progress() as bars:
        bars.update(bars.add_task("compiling"), description="calling")
        _ = 1 / 0
    assert capsys.readouterr().err == ""
    assert timers[0].state == "cancelled"
