"""Which kernel a call gets: its variant, compiled once and kept."""

from __future__ import annotations

import functools
from bisect import bisect_left
from typing import Any

from flashgen.errors import InvalidArgument, check_choice
from flashgen.problem import Problem
from flashgen.schedule import FA2, Schedule
from flashgen.targets import TARGETS, find
from flashgen.targets.base import KEY_STEPS, QUERY_STEPS, ROW_STEPS, Target


def check_variant(schedule: object, target: object) -> None:
    """Refuse what is of a wrong type before it is looked up: a cache can hold only what can be hashed."""
    if schedule is not None:
        _check_schedule(schedule)
    if target is not None and not isinstance(target, (str, Target)):
        check_choice("target", target, TARGETS)


def _check_schedule(schedule: object) -> None:
    if not isinstance(schedule, Schedule):
        raise InvalidArgument("schedule", repr(schedule), "a flashgen.Schedule is allowed")


def variant(
    problem: Problem, schedule: Schedule | None, target: str | Target
) -> tuple[Problem, Schedule, Target]:
    """What says which kernel is meant, checked and with nothing left to a default."""
    if not isinstance(problem, Problem):
        raise InvalidArgument("problem", repr(problem), "a flashgen.Problem is allowed")
    schedule = FA2 if schedule is None else schedule
    _check_schedule(schedule)
    return problem, schedule, target if isinstance(target, Target) else find(target)


def best_target() -> Target:
    """The target with the widest vectors that this machine has."""
    from flashgen.runtime.cpu_features import best_target

    return best_target()


@functools.cache
def compiled(problem: Problem, schedule: Schedule, target: Target) -> Any:
    """The kernel. Raises TargetLimit, MissingTool or CompileFailure."""
    from flashgen import emission, runtime

    emitted = emission.emit(problem, schedule, target)
    return runtime.load(emitted.source, emitted.name, problem, target, emitted.launch)


def suited(
    problem: Problem,
    schedule: Schedule | None,
    target: str | Target | None,
    query_len: int,
    key_len: int,
    group: int,
) -> Any:
    """The kernel for a call of these lengths, the longest ones, with so many query heads to a key head: what
    the schedule leaves open suits them. Raises what ``flashgen.compile`` raises."""
    steps = (
        bisect_left(QUERY_STEPS, query_len),
        bisect_left(KEY_STEPS, key_len),
        bisect_left(ROW_STEPS, query_len * group),
    )
    return at_steps(problem, schedule, target, *steps)


@functools.cache
def at_steps(
    problem: Problem,
    schedule: Schedule | None,
    target: str | Target | None,
    query_step: int,
    key_step: int,
    row_step: int,
) -> Any:
    """The kernel for a call whose lengths, and a group's rows, lie at these steps."""
    problem, schedule, target = variant(problem, schedule, best_target() if target is None else target)
    query_len = (*QUERY_STEPS, QUERY_STEPS[-1] + 1)[query_step]
    key_len = (*KEY_STEPS, KEY_STEPS[-1] + 1)[key_step]
    rows = (*ROW_STEPS, ROW_STEPS[-1] + 1)[row_step]
    return compiled(problem, target.suit(problem, schedule, query_len, key_len, rows), target)
