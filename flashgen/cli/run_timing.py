"""How long the calls of `flashgen run` take, and what the machine could do meanwhile."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flashgen.bench.turns import STEADY, Speeds, fastest
from flashgen.targets.base import Target
from flashgen.targets.cpu import Cpu

AT_EACH_END = 3
"""Probes before the calls, and behind them: a neighbour is seldom there at one moment alone."""
BETWEEN = 0.1
"""Seconds of calls after which the machine is probed again."""


@dataclass(frozen=True)
class Timing:
    """How long calls took, and what the machine could do meanwhile.

    seconds: of each call. speeds: of each probe before, between and behind the calls; on a GPU, which is not
    probed, each of them is ().
    """

    seconds: Sequence[float]
    speeds: Sequence[Speeds]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def peak(self) -> float | None:
        """GFLOP/s in fused multiply-adds, the best seen; None where nothing is probed."""
        return next(iter(fastest(*self.speeds)), None)

    @property
    def steadiness(self) -> float:
        """The lowest speed as a share of the best of its kind."""
        best = fastest(*self.speeds)
        shares = [speed / most for speeds in self.speeds for speed, most in zip(speeds, best, strict=True)]
        return min(shares, default=1.0)

    @property
    def disturbed(self) -> bool:
        return self.steadiness < STEADY


def time_beside_probes(
    call: Callable[[], object], probe: Callable[[], Speeds], repeat: int, advance: Callable[[], object]
) -> Timing:
    """How long each of ``repeat`` calls takes, with probes around them; ``advance`` is called behind each."""
    seconds, since = [], 0.0
    speeds = [probe() for _ in range(AT_EACH_END)]
    for _ in range(repeat):
        if since > BETWEEN:
            speeds.append(probe())
            since = 0.0
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
        since += seconds[-1]
        advance()
    return Timing(seconds, [*speeds, *(probe() for _ in range(AT_EACH_END))])


def make_probe(machine: Target, threads: int) -> Callable[[], Speeds]:
    """What the processor can do now, as `flashgen bench` has it; of a GPU, nothing."""
    if not isinstance(machine, Cpu):
        return tuple
    from flashgen.bench.probes import compute_probe

    return compute_probe(machine, threads)
