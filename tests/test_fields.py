"""Every field of a problem and of a schedule is in the variant's name and in the command of its header.

Both are written by hand. A new field has to be given another value below, and then to be in both.
"""

from __future__ import annotations

import shlex
from dataclasses import fields, replace
from typing import Any

import pytest
from typer.testing import CliRunner

from flashgen import Problem, Schedule
from flashgen.cli.main import app
from flashgen.emission import emit, variant
from flashgen.notation import inputs, parse
from flashgen.targets import Target, find

PROBLEM = Problem(8, 8, "bfloat16", "bottom-right")
SCHEDULE = Schedule(br=4, bc=4, hoist_packs=False)
OTHER: dict[str, Any] = {
    "head_dim": 9,
    "head_dim_v": 9,
    "dtype": "float16",
    "causal": "top-left",
    "mask": parse("k <= q + n and doc[q] == doc[k]", inputs("n:index,doc:int32[1]"), "mask"),
    "score": parse("x * tanh(score / x) - 0.1", inputs("x:float"), "score"),
    "sink": True,
    "layout": "packed",
    "order": "kv-outer",
    "br": 8,
    "bc": 8,
    "lazy_rescale": False,
    "causal_skip": False,
    "panel": 0,
    "hoist_packs": True,
    "group_rows": True,
    "rescale_threshold": 0.1,
    "split_keys": 8,
    "fetch_ahead": True,
    "products": "bfloat16",
}
NEEDS: dict[str, dict[str, Any]] = {"fetch_ahead": {"hoist_packs": True}}
"""What both variants of a field have to have."""

FIELDS = [f.name for kind in (Problem, Schedule) for f in fields(kind)]


def pair(field: str) -> list[tuple[Problem, Schedule, Target]]:
    """Two variants that differ in this field."""
    target = find("avx512bf16")
    base = replace(target.complete(PROBLEM, SCHEDULE), **NEEDS.get(field, {}))
    if hasattr(PROBLEM, field):
        return [(PROBLEM, base, target), (replace(PROBLEM, **{field: OTHER[field]}), base, target)]
    return [(PROBLEM, base, target), (PROBLEM, replace(base, **{field: OTHER[field]}), target)]


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_is_in_the_name(field: str) -> None:
    before, name = (variant(*each) for each in pair(field))
    assert name != before
    assert name.isidentifier()
    assert name.isascii()


@pytest.mark.parametrize("field", FIELDS)
def test_the_command_in_the_header_writes_the_file_again(field: str) -> None:
    before, source = (emit(*each).source for each in pair(field))
    assert source != before
    command = shlex.split(next(line for line in source.splitlines() if "flashgen emit" in line))
    done = CliRunner().invoke(app, command[command.index("emit") :])
    assert done.exit_code == 0, done.stderr
    assert done.stdout == source
