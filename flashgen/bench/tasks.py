"""What is measured in one process, and what comes of it: what the two sides of a pipe tell each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from flashgen.bench.cases import Case
from flashgen.bench.turns import Series, Speeds

OURS, SGEMM = "flashgen", "sgemm"
WHOLE, WITHOUT = "whole kernel", "without "
"""Of an ablation: the method that all others are compared with, and what their names begin with."""

STANDARD, EMITTED_1, EMITTED_2 = "numpy", "FlashAttention-1", "FlashAttention-2"
"""Standard attention, and our kernels of schedules FA1 and FA2: of `--hardware` and of `flashgen demo`."""
LAZY, Q_OUTER = "  + lazy-rescale", "  + order q-outer"
"""Of the demo: our kernels between the two."""
STANDARD_TITLE = "standard attention, NumPy"

SIDE = 2048
"""Rows and columns of the matrices of sgemm."""

RIGHT, CANNOT, WRONG, FAILED = "right", "cannot", "wrong", "failed"
"""What a method's result is: within the bound of the float64 reference; there is none, as the method says
beforehand; outside the bound; there is none, because it raised something."""


@dataclass(frozen=True)
class Task:
    """Some methods on one case, in one process.

    turns: that have to count for each. clock: "wall", or "cpu" on one thread.
    """

    case: Case
    methods: tuple[str, ...]
    target: str
    threads: int
    turns: int
    clock: str = "wall"

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(fields: Mapping[str, Any]) -> Task:
        return Task(**{**fields, "case": Case(**fields["case"]), "methods": tuple(fields["methods"])})


@dataclass(frozen=True)
class Row:
    """One method's part of a task.

    state: RIGHT, CANNOT, WRONG or FAILED. note: why, unless it is right. form: the one of its forms that is
    timed. forms: what became of each.
    work: of a call, floating-point operations or bytes; see Case.work.
    probes: of each turn, the speeds right before and right behind; lists where they come from JSON.
    error, bound_share: the largest of O, and as a share of its bound.
    """

    case: str
    threads: int
    method: str
    work: int
    state: str = RIGHT
    note: str = ""
    form: str = ""
    forms: Mapping[str, str] = field(default_factory=dict)
    error: float = 0.0
    bound_share: float = 0.0
    seconds: Sequence[float] = ()
    probes: Sequence[tuple[Speeds, Speeds]] = ()

    @property
    def series(self) -> Series:
        return Series(list(self.seconds), [(tuple(before), tuple(behind)) for before, behind in self.probes])
