"""How many threads a call gets."""

from __future__ import annotations

import pytest

from flashgen.errors import InvalidArgument
from flashgen.runtime import threads as module
from flashgen.runtime.threads import MAX_THREADS, WORK_PER_THREAD, available_threads, choose_threads

LARGE = 1000 * WORK_PER_THREAD


@pytest.fixture(autouse=True)
def _six_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(module.os, "sched_getaffinity", lambda pid: set(range(6)))


def test_the_processors_that_this_process_may_use() -> None:
    assert choose_threads(None, LARGE) == available_threads() == 6


def test_small_problems_get_as_many_as_they_are_worth() -> None:
    counts = [choose_threads(None, work * WORK_PER_THREAD // 2) for work in (0, 1, 3, 4, 5, 6, 100)]
    assert counts == [1, 1, 1, 2, 2, 3, 6]


@pytest.mark.parametrize(("value", "count"), [("1", 1), (" 3 ", 3), ("40", 40), ("4,2,1", 4), ("", 6)])
def test_environment(value: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    assert choose_threads(None, LARGE) == count
    assert choose_threads(5, LARGE) == 5


@pytest.mark.parametrize("value", ["0", "-1", "many", "2.5", "1025", "4;2", "²", ","])
def test_bad_environment(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    with pytest.raises(
        InvalidArgument, match=r"OMP_NUM_THREADS is .*; a whole number from 1 to 1024 is allowed"
    ):
        choose_threads(None, LARGE)


@pytest.mark.parametrize("value", [0, -3, MAX_THREADS + 1, 2.0, "2", True])
def test_bad_argument(value: object) -> None:
    with pytest.raises(InvalidArgument, match=r"threads is .*; a whole number from 1 to 1024 is allowed"):
        choose_threads(value, 0)  # pyright: ignore[reportArgumentType]


def test_argument_is_taken_as_it_is() -> None:
    assert choose_threads(MAX_THREADS, 0) == MAX_THREADS
