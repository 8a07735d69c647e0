"""A run as JSON: every turn, and the figures of the table."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from flashgen.bench.results import Results
from flashgen.bench.tasks import RIGHT, Row
from flashgen.bench.turns import FEWEST, STEADY


def to_json(results: Results, machine: Mapping[str, Any], absent: Sequence[str]) -> str:
    """machine: what the figures were measured with. absent: peers that are not installed."""
    document = {
        "machine": machine,
        "not_installed": list(absent),
        "steady": STEADY,
        "few": FEWEST,
        "cases": {
            case.name: asdict(case) | {"operations": case.operations, "kv_bytes": case.kv_bytes}
            for case in results.cases.values()
        },
        "geometric_mean_times_best_peer": {n: results.mean_ratio(n) for n in results.threads},
        "results": [asdict(row) | {"figures": figures(results, row)} for row in results.rows],
    }
    return json.dumps(document, indent=1, allow_nan=False, default=str) + "\n"


def figures(results: Results, row: Row) -> dict[str, Any] | None:
    """What the table says of a row; None where there is nothing to time.

    rate, ceiling: in ``unit``. few_turns_count: seconds and rate are of all turns, and there is no ceiling.
    flashgen_times_as_fast, or whole_kernel_times_as_fast: quartiles; few_rounds_count: of all rounds.
    """
    if row.state != RIGHT:
        return None
    ours = results.get(row.case, row.threads, results.ours)
    against = few_rounds = None
    if ours is not None and ours.state == RIGHT and ours is not row:
        against, few_rounds = results.times_as_fast(ours, row), results.few(ours, row)
    return {
        "unit": results.cases[row.case].unit,
        "seconds": results.seconds(row),
        "rate": results.rate(row),
        "ceiling": results.ceiling(row),
        "share_of_ceiling": results.share(row),
        "turns_that_count": results.counted(row),
        "few_turns_count": results.few(row),
        f"{results.ours}_times_as_fast".replace(" ", "_"): against,
        "few_rounds_count": few_rounds,
    }
