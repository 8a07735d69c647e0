"""The timing protocol: methods take turns, and a turn counts by the probes around it.

A machine's speed changes from one moment to the next: clocks move, and neighbours take a core, its caches or
the memory. So what is compared runs interleaved in one process, a probe of what the machine can do stands
right before and right behind each turn, and only ratios of neighbours are believed.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

STEADY = 0.85
"""A turn counts if the probes right before and behind it are at least this share of the best ones seen: else
a neighbour had the core or its caches, or the clock was low."""
FEWEST = 5
"""Turns that figures may be taken of: quartiles of two or three would look sure of themselves. Where fewer
count, figures are of all turns, and marked wherever they are shown."""
SHORTEST = 0.002
"""Seconds that a turn takes at least: a call that is shorter is repeated."""
MOST_CALLS = 1000
"""Of one turn."""


@dataclass(frozen=True)
class Clock:
    """What turns are timed by, seconds: ``call`` those of the process, ``thread`` a probe's in its thread."""

    call: Callable[[], float]
    thread: Callable[[], float]


WALL = Clock(time.perf_counter, time.perf_counter)
CPU = Clock(time.process_time, time.thread_time)
"""Time on a processor: without what other processes take away, and of all threads together."""

Quartiles = tuple[float, float, float]

Speeds = tuple[float, ...]
"""What a probe measured: first what the machine can do at most, of which speeds are shares, then what else
tells whether it is disturbed. Of the best ones seen, each may be from another moment."""


@dataclass(frozen=True)
class Patience:
    """When turns end.

    least: turns of each method that count, if the machine is steady enough. most: turns of each at most.
    seconds: that they go on at least. limit: seconds after which ``least`` turns will do, counting or not.
    """

    least: int = 15
    most: int = 300
    seconds: float = 3.0
    limit: float = 12.0


@dataclass
class Series:
    """One method's turns.

    seconds: of a call, for each turn. probes: what the machine did right before the turn, and right behind.
    """

    seconds: list[float] = field(default_factory=list)
    probes: list[tuple[Speeds, Speeds]] = field(default_factory=list)

    def counting(self, best: Speeds) -> list[bool]:
        """Which turns count, by the best speeds seen."""
        least = [STEADY * speed for speed in best]
        return [
            all(speed >= limit for speeds in pair for speed, limit in zip(speeds, least, strict=True))
            for pair in self.probes
        ]

    def ceiling(self, turn: int) -> float:
        """What the machine could do at most, around a turn."""
        before, behind = self.probes[turn]
        return (before[0] + behind[0]) / 2


def take_turns(
    calls: Mapping[str, Callable[[], object]],
    probe: Callable[[], Speeds],
    patience: Patience,
    best: Speeds = (),
    clock: Clock = WALL,
) -> dict[str, Series]:
    """Let the methods take turns: in each round every one has one, in an order of its own.

    probe: what the machine can do now, in any units. best: the best speeds seen before.
    """
    repeats = {name: calls_of_a_turn(call, clock) for name, call in calls.items()}
    series = {name: Series() for name in calls}
    order = list(calls)
    shuffle = random.Random(0).shuffle  # else each method has always the same one before it
    begin, before = time.perf_counter(), probe()
    while not enough(series.values(), patience, time.perf_counter() - begin, best):
        shuffle(order)
        for name in order:
            seconds = time_calls(calls[name], repeats[name], clock)
            behind = probe()
            series[name].seconds.append(seconds)
            series[name].probes.append((before, behind))
            before = behind
    return series


def calls_of_a_turn(call: Callable[[], object], clock: Clock = WALL) -> int:
    return min(MOST_CALLS, math.ceil(SHORTEST / max(time_calls(call, 1, clock), 1e-9)))


def time_calls(call: Callable[[], object], count: int, clock: Clock = WALL) -> float:
    """Seconds of one call, the mean of ``count``."""
    start = clock.call()
    for _ in range(count):
        call()
    return (clock.call() - start) / count


def enough(series: Iterable[Series], patience: Patience, seconds: float, best: Speeds = ()) -> bool:
    """Whether the turns so far will do: enough of them count for each method, or patience is at its end."""
    every = list(series)
    taken = min(len(one.seconds) for one in every)
    if taken < patience.least or seconds < patience.seconds:
        return False
    best = fastest(best, best_speeds(every))
    fewest = min(sum(one.counting(best)) for one in every)
    return taken >= patience.most or fewest >= patience.least or seconds > patience.limit


def best_speeds(series: Iterable[Series]) -> Speeds:
    """() where there is no probe."""
    return fastest(*(speeds for one in series for pair in one.probes for speeds in pair))


def fastest(*several: Speeds) -> Speeds:
    """The best of each kind of speed; () says nothing of any."""
    return tuple(map(max, zip(*filter(None, several), strict=True)))


def counted(best: Speeds, *series: Series) -> list[int]:
    """The rounds whose turns count for each of these methods."""
    each = zip(*(one.counting(best) for one in series), strict=True)
    return [turn for turn, counts in enumerate(each) if all(counts)]


def few(best: Speeds, *series: Series) -> bool:
    """Whether fewer than FEWEST rounds count for all of these methods."""
    return len(counted(best, *series)) < FEWEST


def used(best: Speeds, *series: Series) -> Sequence[int]:
    """The rounds that figures are of: those that count or, if they are few, all."""
    return range(len(series[0].seconds)) if few(best, *series) else counted(best, *series)


def median_seconds(series: Series, best: Speeds) -> float:
    """Of the turns that count; of all, if few do."""
    return statistics.median(series.seconds[turn] for turn in used(best, series))


def share_of_probe(series: Series, work: float, best: Speeds) -> float | None:
    """Of the probes around each turn, the median of those that count; None if few do.

    work: of a call, in units of which a probe is so many billions a second.
    """
    if few(best, series):
        return None
    return statistics.median(
        work / series.seconds[turn] / 1e9 / series.ceiling(turn) for turn in counted(best, series)
    )


def ratios(series: Series, other: Series, best: Speeds) -> Quartiles:
    """Quartiles of a method's time as a share of another's in the same round; of rounds that count for both
    or, if they are few, of all."""
    return quartiles([series.seconds[turn] / other.seconds[turn] for turn in used(best, series, other)])


def quartiles(values: Sequence[float]) -> Quartiles:
    if len(values) == 1:
        return values[0], values[0], values[0]
    low, middle, high = statistics.quantiles(values, n=4)
    return low, middle, high
