"""From rows to the figures of the table: rates, shares of what the machine can do, ratios."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from flashgen.bench import turns
from flashgen.bench.cases import Case
from flashgen.bench.tasks import OURS, RIGHT, SGEMM, Row
from flashgen.bench.turns import Quartiles, Speeds


class Measured:
    """Rows by case, number of threads and method, and what follows from their turns alone."""

    def __init__(self, rows: Sequence[Row]):
        self.rows = rows
        self.threads = sorted({row.threads for row in rows})
        self._rows = {(row.case, row.threads, row.method): row for row in rows}
        self._best: dict[tuple[str, int], Speeds] = {}
        for row in rows:
            key = self.probed(row)
            self._best[key] = turns.fastest(self._best.get(key, ()), turns.best_speeds([row.series]))

    def probed(self, row: Row) -> tuple[str, int]:
        """What the probes of a row measure, and on how many threads."""
        return "fma", row.threads

    def get(self, case: str, threads: int, method: str) -> Row | None:
        return self._rows.get((case, threads, method))

    def best(self, row: Row) -> Speeds:
        """The best speeds of the run of what the row's probes measure."""
        return self._best[self.probed(row)]

    def counted(self, row: Row) -> int:
        """How many of a row's turns count."""
        return len(turns.counted(self.best(row), row.series))

    def few(self, row: Row, *others: Row) -> bool:
        """Whether so few turns count, of all these methods in the same rounds, that figures are of all."""
        return turns.few(self.best(row), row.series, *(other.series for other in others))

    def ceiling(self, row: Row) -> float | None:
        """The median of the probes around the turns that count; None if few do."""
        if self.few(row):
            return None
        counted = turns.counted(self.best(row), row.series)
        return statistics.median(row.series.ceiling(turn) for turn in counted)

    def seconds(self, row: Row) -> float:
        """The median of the turns that count; of all, if few do."""
        return turns.median_seconds(row.series, self.best(row))

    def rate(self, row: Row) -> float:
        """GFLOP/s or GB/s; see Case.work."""
        return row.work / self.seconds(row) / 1e9

    def share(self, row: Row) -> float | None:
        """Of the FMA peak, or of the read bandwidth, around each turn; None if few count."""
        return turns.share_of_probe(row.series, row.work, self.best(row))

    def times_as_fast(self, row: Row, other: Row) -> Quartiles:
        """How often a method could run while another runs once, of the same round; see ``few``."""
        return turns.ratios(other.series, row.series, self.best(row))


class Results(Measured):
    """Rows of a run of `flashgen bench`.

    ours: the method that the others are compared with.
    """

    def __init__(self, rows: Sequence[Row], cases: Sequence[Case], ours: str = OURS):
        self.ours = ours
        self.cases = {case.name: case for case in cases}
        self.compared = [name for name in dict.fromkeys(row.method for row in rows) if name != SGEMM]
        """flashgen and its peers."""
        super().__init__(rows)

    def probed(self, row: Row) -> tuple[str, int]:
        """Memory is read at a speed that depends on how much of it is."""
        case = self.cases[row.case]
        return (f"read {case.kv_bytes}" if case.reads else "fma"), row.threads

    def best_peer(self, case: str, threads: int) -> Row | None:
        """The fastest peer that is right."""
        peers = (self.get(case, threads, name) for name in self.compared if name != self.ours)
        right = [row for row in peers if row is not None and row.state == RIGHT]
        return min(right, key=self.seconds, default=None)

    def against_best_peer(self, case: str, threads: int) -> tuple[Row, Quartiles] | None:
        """The fastest peer, and how many times as fast as it flashgen is."""
        ours, peer = self.get(case, threads, self.ours), self.best_peer(case, threads)
        if ours is None or peer is None or ours.state != RIGHT:
            return None
        return peer, self.times_as_fast(ours, peer)

    def pairs(self, threads: int, method: str | None = None) -> list[tuple[Row, Row]]:
        """flashgen's row and that of a method, of the best peer if none is given: of each case that both
        have."""
        pairs = []
        for case in self.cases:
            ours = self.get(case, threads, self.ours)
            other = self.best_peer(case, threads) if method is None else self.get(case, threads, method)
            if ours and other and ours.state == other.state == RIGHT:
                pairs.append((ours, other))
        return pairs

    def mean_ratio(self, threads: int, method: str | None = None) -> float | None:
        """The geometric mean, over ``pairs``, of how many times as fast as the method flashgen is; without
        those of which few turns count. None where there is no other."""
        ratios = [self.times_as_fast(*pair)[1] for pair in self.pairs(threads, method) if not self.few(*pair)]
        return math.exp(statistics.mean(map(math.log, ratios))) if ratios else None
