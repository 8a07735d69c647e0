"""Barriers, for targets whose threads share tiles: where one needs what another wrote, or still reads.

What the templates of such a target keep to:

- An element of a tile, a row or a span belongs to one thread, which follows from its position alone. The
  threads that own the elements of one row are a team, and the row's single values belong to one of them.
- A thread touches its own elements and no others, with three exceptions. Beside a tile, values a row and
  spans are read by the whole team. A product reads whole rows of its left side, which the result's team
  owns, and all of its right side.

So most hazards (read after write, write after read, write after write) concern one thread alone, some a
team, which has a cheap barrier of its own, and few the block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

from flashgen.errors import CannotEmit
from flashgen.plan.grid import Grid
from flashgen.plan.model import KernelPlan, Operand, Statement, walk

HELD = ("row", "tile", "mask", "span")
KNOWN = (
    "tile_load",
    "tile_store",
    "tile_fill",
    "tile_dot",
    "tile_dot_where",
    "tile_sweep",
    "tile_scale_rows",
    "tile_row_span",
    "tile_mask",
    "tile_mask_rows",
)


UNTOUCHING = (
    "scf_parallel",
    "scf_for",
    "scf_if",
    "scf_else",
    "memref_alloc",
    "tile_sequence",
    "tile_pages",
    "barrier",
    "tile_mask_columns",
    "tile_extremes",
)


class Reach(IntEnum):
    """How far from what it owns a thread reaches, and which threads a barrier has to gather for that."""

    OWN = 0
    TEAM = 1
    BLOCK = 2


@dataclass(frozen=True)
class Access:
    """What a statement touches: bytes [first, end) of ``memory`` ("" for scratch memory).

    layout: how positions map to addresses; equal ones give an element the same owner. None: unlike any.
    """

    memory: str
    first: int
    end: int
    layout: tuple[Any, ...] | None
    reach: Reach
    writes: bool

    def hazard(self, later: Access) -> Reach:
        """The threads that must meet between the two; OWN for none."""
        apart = self.memory != later.memory or self.end <= later.first or later.end <= self.first
        if apart or not (self.writes or later.writes):
            return Reach.OWN
        same = self.layout is not None and self.layout == later.layout
        return max(self.reach, later.reach) if same else Reach.BLOCK


State = frozenset[tuple[Access, bool]]
"""Accesses since the block's last barrier, each with whether a team's barrier came behind it."""

Missing = list[tuple[Statement, Reach]]
NONE: State = frozenset()


def with_barriers(kernel: KernelPlan) -> KernelPlan:
    """The plan with Statement("barrier"), attrs ``among``: "team" or "block", before what needs one.

    attrs ``fence`` of a tile_sweep then says whether the team has to meet within it, between the reads of
    a row and its results. A hazard between what came before a loop and the loop's body gives a barrier
    before the loop. Raises CannotEmit for an operation whose accesses are not known.
    """
    placement = Barriers(kernel, decides=True)
    placement.settle(kernel.body, repeats=False)
    return replace(kernel, body=placement.insert(kernel.body))


def unordered(kernel: KernelPlan) -> Missing:
    """The statements (loops included) of a plan with barriers that still lack one."""
    missing: Missing = []
    Barriers(kernel, decides=False).walk(kernel.body, NONE, missing)
    return missing


class Barriers:
    """Where barriers are needed, by statement. ``decides``: whether loops may get new ones."""

    def __init__(self, kernel: KernelPlan, decides: bool):
        self._decides = decides
        self._bytes = {b.offset: b.bytes for b in kernel.buffers}
        self._grid = Grid(kernel)
        self._needed: dict[int, Reach] = {}
        self._settled: set[int] = set()
        self._deferred: dict[str, list[Access]] = {}
        self._touched = {id(s): list(self._list(s)) for s in walk(kernel.body)}
        every = {a for accesses in self._touched.values() for a in accesses}
        self._hazards = {b: [(a, h) for a in every if (h := a.hazard(b))] for b in every}

    def settle(self, body: list[Statement], repeats: bool) -> None:
        """Decide on barriers until the body has none missing, also from round to round if it repeats."""
        while missing := self._missing(body, repeats):
            for s, reach in missing:
                self._needed[id(s)] = max(reach, self._needed.get(id(s), Reach.OWN))
        for s in body:  # what a barrier was wanted for may have got one nearer by, in a later pass
            need = self._needed.get(id(s), Reach.OWN)
            for less in range(need):
                self._needed[id(s)] = Reach(less)
                if not self._missing(body, repeats):
                    break
                self._needed[id(s)] = need

    def _missing(self, body: list[Statement], repeats: bool) -> Missing:
        missing: Missing = []
        (self.run if repeats else self.walk)(body, NONE, missing)
        return missing

    def run(self, body: list[Statement], entry: State, missing: Missing) -> State:
        """What is pending behind the body after one or more rounds; notes what barriers are missing."""
        state = entry
        while True:
            out = self.walk(body, state, missing)
            if out <= state:
                return out
            state |= out

    def walk(self, statements: list[Statement], state: State, missing: Missing) -> State:
        """What is pending behind the statements; goes on as if the missing barriers were there."""
        for s in statements:
            if s.op == "barrier":
                state = passed(state, Reach[s.attrs["among"].upper()])
                continue
            state = passed(state, self._needed.get(id(s), Reach.OWN))
            if s.op == "scf_parallel":
                state = self.walk(s.body, state, missing)
                continue
            if s.op == "scf_for":
                state = self._loop(s, state, missing)
                continue
            if s.op in (
                "scf_if",
                "scf_else",
            ):  # all threads take the same side, either one
                state = state | self.walk(s.body, state, missing)
                continue
            if need := self._need(s, state):
                missing.append((s, need))
                state = passed(state, need)
            state |= {(access, False) for access in self._touched[id(s)]}
        return state

    def _need(self, s: Statement, state: State) -> Reach:
        """The threads that still have to meet before the statement."""
        hazards = (hazard for access in self._touched[id(s)] for hazard in self._hazards[access])
        unmet = (
            reach
            for then, reach in hazards
            if (then, False) in state or (reach == Reach.BLOCK and (then, True) in state)
        )
        return max(unmet, default=Reach.OWN)

    def _loop(self, s: Statement, entry: State, missing: Missing) -> State:
        if self._decides and id(s) not in self._settled:
            self._settled.add(id(s))
            self.settle(s.body, repeats=True)
        inside: Missing = []
        out = self.run(s.body, entry, inside)
        if inside:
            need = max(reach for _, reach in inside)
            missing.append((s, need))
            entry = passed(entry, need)
            out = self.run(s.body, entry, [])
        return entry | out

    def insert(self, statements: list[Statement]) -> list[Statement]:
        """The statements with barriers between them."""
        done = []
        for s in statements:
            if need := self._needed.get(id(s)):
                done.append(Statement("barrier", attrs={"among": need.name.lower()}, made_by=s.made_by))
            fence = {"fence": self._fence(s)} if s.op == "tile_sweep" else {}
            done.append(replace(s, body=self.insert(s.body), attrs=s.attrs | fence))
        return done

    def _fence(self, s: Statement) -> bool:
        """Whether results of a sweep lie where its team reads from."""
        now = self._touched[id(s)]
        return any(a.hazard(b) for a in now for b in now if b.writes and not a.writes)

    def _list(self, s: Statement) -> Iterator[Access]:
        """The accesses of a statement, with those of what is spelled within it."""
        if s.form == "scalar" or s.op in UNTOUCHING:
            return
        if s.form == "operation" and s.op not in KNOWN:
            raise CannotEmit(f"{s.op}: which threads touch what is not known")
        spelled_later = s.form == "elementwise" and s.inline
        reads = [*self._reads(s), *(a for o in s.ins for a in self._deferred.get(o.name, ()))]
        if spelled_later:
            self._deferred[s.outs[0].name] = reads
            return
        yield from reads
        for out in s.outs:
            yield self._held(out, Reach.OWN, writes=True)

    def _reads(self, s: Statement) -> Iterator[Access]:
        beside_tile = any(o.kind in ("tile", "mask") for o in (*s.ins, *s.outs))
        if s.op in ("tile_dot", "tile_dot_where"):
            left, right = s.ins
            yield self._held(left, Reach.TEAM)
            yield self._held(right, Reach.BLOCK)
        else:
            for o in s.ins:
                if o.kind in HELD and o.name not in self._deferred:
                    wide = beside_tile and o.kind not in ("tile", "mask")
                    yield self._held(o, Reach.TEAM if wide else Reach.OWN)
        for role in ("over", "where"):
            if (held := s.attrs.get(role)) is not None:
                yield self._held(held, Reach.TEAM)
        match s:
            case Statement(op="tile_load", ins=[memory, *indices], outs=[tile]):
                yield self._stored(memory, indices, tile.shape, writes=False)
            case Statement(op="tile_store" | "tile_fill", ins=[_, memory, *indices]):
                yield self._stored(memory, indices, s.attrs["shape"], writes=True)

    def _held(self, o: Operand, reach: Reach, writes: bool = False) -> Access:
        if o.kind not in HELD:
            raise CannotEmit(f"{o.name}: threads do not share values of kind {o.kind}")
        end = o.offset + self._bytes[o.offset]
        return Access("", o.offset, end, (o.kind, o.offset, o.stride), reach, writes)

    def _stored(
        self, memory: Operand, indices: list[Operand], shape: tuple[int, ...], writes: bool
    ) -> Access:
        """Threads own elements of an array too, if all tiles of it lie on one grid."""
        layout = shape if self._grid.aligned(memory, indices, shape) else None
        return Access(memory.name, 0, 1, layout, Reach.OWN, writes)


def passed(state: State, barrier: Reach) -> State:
    """What is pending behind a barrier."""
    match barrier:
        case Reach.BLOCK:
            return NONE
        case Reach.TEAM:
            return frozenset((access, True) for access, _ in state)
    return state
