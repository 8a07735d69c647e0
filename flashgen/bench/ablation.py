"""What each part of a kernel is worth: the kernel with one thing switched off.

A switch is a field of the schedule, a pass, or a part of the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from xdsl.passes import ModulePass

from flashgen.bench.cases import Case
from flashgen.bench.peers.base import Peer, Prepared
from flashgen.errors import InvalidArgument
from flashgen.passes.fuse_sweeps import FuseSweepsPass
from flashgen.passes.pipeline import pipeline
from flashgen.passes.reciprocal import ReciprocalPass
from flashgen.problem import Problem
from flashgen.schedule import FA2, Schedule
from flashgen.targets.cpu import Cpu

if TYPE_CHECKING:
    from flashgen.emission import Emitted

OFF: dict[str, dict[str, Any]] = {
    "order": {"order": "kv-outer", "split_keys": 0},
    "lazy_rescale": {"lazy_rescale": False, "split_keys": 0},
    "causal_skip": {"causal_skip": False},
    "hoist_packs": {"hoist_packs": False, "fetch_ahead": False},
    "panel": {"panel": 0, "hoist_packs": False, "fetch_ahead": False, "products": "float32"},
    "group_rows": {"group_rows": False},
    "rescale_threshold": {"rescale_threshold": 0.0},
    "split_keys": {"split_keys": 0},
    "fetch_ahead": {"fetch_ahead": False},
    "products": {"products": "float32"},
}
"""Fields of a schedule, and what switches each off: with what cannot be without it."""

APART: dict[str, ModulePass] = {FuseSweepsPass.name: FuseSweepsPass(apart=True)}
"""Passes that no kernel can do without, and what runs in their place: as little of them as will do."""

REFINING = frozenset({ReciprocalPass.name})
"""Passes that go with one that a field decides on, and can also be switched off alone."""

MICRO_TILES, RESCALE_SKIP = "micro-tiles", "rescale-skip"
"""The switches that leave a register block one row, and that multiply rows by a factor of 1, too."""


def switches(problem: Problem, target: Cpu) -> list[str]:
    """What can be switched off: fields, each pass that no field alone decides on, parts of the target."""
    schedule = target.complete(problem, FA2)
    gone = sorted((decided_by(field, schedule, problem) for field in OFF), key=len)
    decided: set[str] = set()
    for names in gone:
        left = names - decided - REFINING
        decided |= left if len(left) == 1 else set()
    passes = [p.name for p in pipeline(schedule, problem) if p.name not in decided]
    return [*OFF, *passes, *PARTS]


def decided_by(field: str, schedule: Schedule, problem: Problem) -> set[str]:
    """The passes that do not run with this field switched off."""
    kept = {p.name for p in pipeline(replace(schedule, **OFF[field]), problem)}
    return {p.name for p in pipeline(schedule, problem)} - kept


class Ablated(Peer):
    """Our kernel, of a target's default schedule, with one thing switched off; "" for none.

    Tile sizes stay those of the whole kernel.
    """

    key, name, package = "ablated", "ablated", "flashgen"

    def __init__(self, threads: int, target: Cpu, switch: str = ""):
        super().__init__(threads)
        self.target, self.switch = target, switch

    def forms(
        self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray
    ) -> Mapping[str, Callable[[], Prepared]]:
        def prepare() -> Prepared:
            kernel = self.compile(case)
            return Prepared(lambda: kernel(q, k, v), lambda result: result[0])

        return {"kernel": prepare}

    def compile(self, case: Case) -> Any:
        """Raises a FlashgenError that says why the kernel cannot be without it."""
        from flashgen import runtime

        emitted, target = self.emit(case)
        return runtime.load(emitted.source, emitted.name, case.problem, target)

    def emit(self, case: Case) -> tuple[Emitted, Cpu]:
        """The kernel, and what to compile it for. Raises as ``compile`` does."""
        from flashgen import emission

        problem, target = case.problem, self.target
        schedule = target.complete(problem, target.suit(problem, FA2, case.nq, case.nk, case.rows))
        passes = None
        if self.switch in OFF:
            schedule = switch_off(schedule, self.switch)
        elif self.switch in PARTS:
            target = PARTS[self.switch](target)
        elif self.switch:
            passes = without(pipeline(schedule, problem), self.switch)
        return emission.emit(problem, schedule, target, passes=passes), target


def switch_off(schedule: Schedule, field: str) -> Schedule:
    """Raises InvalidArgument where this kernel has it off."""
    off = replace(schedule, **OFF[field])
    if off == schedule:
        allowed = "it is off in this kernel already; only what is on can be switched off"
        raise InvalidArgument(field, repr(OFF[field][field]), allowed)
    return off


def without(passes: Sequence[ModulePass], name: str) -> list[ModulePass]:
    """A pipeline without a pass, or with what runs in its place."""
    return [APART.get(p.name, p) if p.name == name else p for p in passes if p.name != name or name in APART]


def one_row(target: Cpu) -> Cpu:
    """The target with register blocks of one row: each vector of a panel is loaded for a single product."""
    return changed(target, MICRO_TILES, micro=(1, target.micro[1]))


def every_row(target: Cpu) -> Cpu:
    """The target with no row left alone because its factor is 1."""
    return changed(target, RESCALE_SKIP, scale_rows="scale_every_row.hpp")


def changed(target: Cpu, switch: str, **fields: Any) -> Cpu:
    """A target of its own, and so are the names of its kernels."""
    name = f"{target.name}_without_{switch.replace('-', '_')}"
    return type(name, (type(target),), {"name": name, **fields})()


PARTS: dict[str, Callable[[Cpu], Cpu]] = {MICRO_TILES: one_row, RESCALE_SKIP: every_row}
"""Parts of a target that can be switched off."""
