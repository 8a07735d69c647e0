"""The timing protocol: which turns count, when they end, and what is made of them."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from flashgen.bench import turns
from flashgen.bench.results import Measured
from flashgen.bench.tasks import Row
from flashgen.bench.turns import (
    CPU,
    Clock,
    Patience,
    Series,
    enough,
    median_seconds,
    ratios,
    share_of_probe,
    take_turns,
)

Pair = tuple[tuple[float, float], tuple[float, float]]


def around(before: float, behind: float, product: float = 40.0) -> Pair:
    """Speeds before and behind a turn: the peak, and that of a product, the same both times."""
    return (before, product), (behind, product)


GOOD, BAD, BEST = around(50, 50), around(50, 20), (50.0, 40.0)


def series(*probes: Pair) -> Series:
    return Series([1e-3] * len(probes), list(probes))


def test_turns_go_on_until_enough_count() -> None:
    patience = Patience(least=2, most=4, seconds=0.2, limit=0.4)
    assert not enough([series(GOOD), series(GOOD)], patience, 0.3)
    assert not enough([series(GOOD, GOOD), series(GOOD, GOOD)], patience, 0.1)
    assert enough([series(GOOD, GOOD), series(GOOD, GOOD)], patience, 0.3)
    assert not enough([series(GOOD, GOOD, GOOD), series(GOOD, BAD, BAD)], patience, 0.3)
    assert enough([series(GOOD, GOOD, GOOD), series(GOOD, BAD, BAD)], patience, 0.5)
    assert enough([series(GOOD, GOOD, GOOD, GOOD), series(GOOD, BAD, BAD, BAD)], patience, 0.3)


def test_a_better_probe_seen_before_holds() -> None:
    """A machine that is slow all the time it is looked at is not taken to be steady."""
    patience = Patience(least=2, most=9, seconds=0.2, limit=0.4)
    assert enough([series(GOOD, GOOD)], patience, 0.3)
    assert not enough([series(GOOD, GOOD)], patience, 0.3, best=(60.0, 40.0))
    assert not enough([series(GOOD, GOOD)], patience, 0.3, best=(50.0, 48.0))


def test_a_disturbed_turn_is_in_no_figure() -> None:
    one = Series(
        [1e-3, 9e-3, 9e-3, 3e-3] * 3, [around(50, 50), around(50, 30), around(30, 50), around(43, 50)] * 3
    )
    other = Series([2e-3, 1e-3, 1e-3, 1e-3] * 3, [GOOD] * 12)
    assert turns.counted(BEST, one, other) == [0, 3, 4, 7, 8, 11]
    assert median_seconds(one, BEST) == pytest.approx(2e-3)
    assert share_of_probe(one, 10**7, BEST) == pytest.approx((10 / 50 + 10 / 3 / 46.5) / 2)
    assert ratios(one, other, BEST)[1] == pytest.approx((0.5 + 3) / 2)


def test_a_neighbour_in_the_caches_is_seen_by_the_product_alone() -> None:
    one = Series([1e-3, 9e-3], [GOOD, around(50, 50, product=33)])
    assert turns.best_speeds([one]) == BEST
    assert one.counting(BEST) == [True, False]
    assert one.ceiling(1) == 50


def test_the_best_speeds_may_be_of_different_moments() -> None:
    assert turns.fastest((), (50.0, 30.0), (40.0, 35.0)) == (50.0, 35.0)
    assert turns.fastest() == turns.best_speeds([Series()]) == ()


def test_quartiles_are_not_taken_of_a_few() -> None:
    one = Series([1e-3] * 4 + [9e-3] * 8, [GOOD] * 4 + [BAD] * 8)
    other = Series([1e-3] * 12, [GOOD] * 12)
    assert turns.few(BEST, one, other)
    assert ratios(one, other, BEST) == pytest.approx((1, 9, 9))
    assert median_seconds(one, BEST) == pytest.approx(9e-3)
    assert share_of_probe(one, 10**7, BEST) is None
    one.probes[4] = GOOD
    assert not turns.few(BEST, one, other)
    assert ratios(one, other, BEST) == pytest.approx((1, 1, 5))
    assert median_seconds(one, BEST) == pytest.approx(1e-3)


def test_where_no_turn_counts() -> None:
    """The median of all, no share, and ratios of all."""
    one, other = Series([1e-3, 2e-3, 9e-3], [BAD] * 3), Series([1e-3] * 3, [GOOD] * 3)
    assert median_seconds(one, BEST) == pytest.approx(2e-3)
    assert share_of_probe(one, 10**7, BEST) is None
    assert ratios(one, other, BEST)[1] == pytest.approx(2)


def test_the_best_probe_is_that_of_all_rows() -> None:
    """Where a row's turns were all disturbed, others show it: it has no share."""
    good = Row("data", 1, "a", 10**7, seconds=[1e-3] * 5, probes=[GOOD] * 5)
    busy = replace(good, method="b", seconds=[9e-3] * 5, probes=[around(20, 20)] * 5)
    elsewhere = replace(busy, threads=2)
    rows = Measured([good, busy, elsewhere])
    assert [rows.counted(row) for row in (good, busy, elsewhere)] == [5, 0, 5]
    assert rows.share(good) == pytest.approx(10 / 50)
    assert rows.share(busy) is None
    assert rows.seconds(busy) == pytest.approx(9e-3)
    assert rows.times_as_fast(good, busy)[1] == pytest.approx(9)


def test_every_method_has_a_turn_in_each_round() -> None:
    calls: list[str] = []
    names = ("a", "b", "c")
    taken = take_turns(
        {name: lambda name=name: calls.append(name) for name in names},
        lambda: (50.0, 40.0),
        Patience(least=6, seconds=0),
    )
    assert set(taken) == set(names)
    assert all(len(one.seconds) == len(one.probes) == 6 for one in taken.values())
    first = [name for name, before in zip(calls, ["", *calls], strict=False) if name != before]
    rounds = [tuple(first[at : at + 3]) for at in range(3, len(first) - 2, 3)]
    assert len(set(rounds)) > 1  # not always in one order


def test_short_calls_are_repeated() -> None:
    ticks = iter(range(1000))
    clock = Clock(lambda: next(ticks) * 1e-4, time.thread_time)
    assert turns.calls_of_a_turn(lambda: None, clock) == 20
    assert turns.time_calls(lambda: None, 4, clock) == pytest.approx(0.25e-4)


def test_time_on_a_processor_is_without_sleep() -> None:
    assert turns.time_calls(lambda: time.sleep(0.05), 1, CPU) < 0.04
    assert turns.time_calls(lambda: time.sleep(0.05), 1) >= 0.05
