"""Every field of a problem and of a schedule is in the variant's name and in the command of its header.

Both are written by hand. A new field has to be given another value below, and then to be in both.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest
from typer.testing import CliRunner

from flashgen import Problem, Schedule
from flashgen.cli.main import app
from flashgen.emission import emit, variant
from flashgen.targets import Target, find

CUDA, AVX2 = find("cuda"), find("avx2")  # the target that leaves the most open; one that packs
PROBLEM = Problem(8, 8, "float32", "bottom-right")
SCHEDULE = CUDA.complete(PROBLEM, Schedule(br=4, bc=4))
OTHER: dict[str, Any] = {
    "head_dim": 9,
    "head_dim_v": 9,
    "dtype": "float16",
    "causal": "top-left",
    "order": "kv-outer",
    "br": 8,
    "bc": 8,
    "lazy_rescale": False,
    "causal_skip": False,
    "panel": 16,
    "group_rows": True,
}
ONLY = {"panel": AVX2, "group_rows": AVX2}
"""The target of fields that have one value on CUDA."""
FIELDS = [f.name for kind in (Problem, Schedule) for f in fields(kind)]


def changed(field: str, target: Target) -> tuple[Problem, Schedule]:
    schedule = target.complete(PROBLEM, replace(SCHEDULE, **dict.fromkeys(ONLY)))
    if hasattr(PROBLEM, field):
        return replace(PROBLEM, **{field: OTHER[field]}), schedule
    other = OTHER[field] if OTHER[field] != getattr(schedule, field) else getattr(SCHEDULE, field)
    return PROBLEM, replace(schedule, **{field: other})


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_is_in_the_name(field: str) -> None:
    name = variant(*changed(field, CUDA), CUDA)
    assert name != variant(PROBLEM, SCHEDULE, CUDA)
    assert name.isidentifier()
    assert name.isascii()


@pytest.mark.parametrize("field", FIELDS)
def test_the_command_in_the_header_writes_the_file_again(field: str) -> None:
    target = ONLY.get(field, CUDA)
    source = emit(*changed(field, target), target).source
    assert (
        source
        != emit(PROBLEM, target.complete(PROBLEM, replace(SCHEDULE, **dict.fromkeys(ONLY))), target).source
    )
    command = next(line for line in source.splitlines() if "flashgen emit" in line).split()
    done = CliRunner().invoke(app, command[command.index("emit") :])
    assert done.exit_code == 0, done.stderr
    assert done.stdout == source
