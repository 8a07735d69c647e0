"""Runs a plan on scratch memory that remembers whose value each word holds. It computes nothing.

Independent of liveness and storage: it reads the statements as a template does. A statement may write all
of a buffer, padding included, and reads what its operand's shape says.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from flashgen.plan.model import KernelPlan, Operand, Statement
from flashgen.targets.base import TileLayout

WORD = 4  # bytes
WORDS = {"f32": 1, "f64": 2, "index": 2}
"""Of an element."""
PLACED = ("row", "tile", "packed", "span")
IN_STEP = ("tile_sweep", "tile_scale_rows", "copy")
"""Operations that read an element, or a value of a row, before they write the same one."""


def in_scratch(o: Operand) -> bool:
    """Whether it lies in scratch memory: panels may lie in an array."""
    return o.kind in PLACED and o.memory is None


class Wrong(AssertionError):
    """A plan that would compute with another value's bytes."""


@dataclass
class Memory:
    """Simulates one run of a plan.

    trips: how often each loop turns, by the loop's counter.
    """

    plan: KernelPlan
    layout: TileLayout
    trips: dict[str, int]
    declared: list[set[str]] = field(default_factory=lambda: [set()])
    packed: set[str] = field(default_factory=set)
    ever: set[str] = field(default_factory=set)
    deferred: dict[str, list[Operand]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.words = np.full(self.plan.scratch_bytes // WORD + 1, "", object)
        spans = sorted((b.offset, b.offset + b.bytes) for b in self.plan.buffers)
        if any(end > start for (_, end), (start, _) in pairwise(spans)):
            raise Wrong("buffers overlap")
        self.declared[0].update(p.name for p in self.plan.params)

    def run(self) -> None:
        """Raise Wrong where something is read that is not there."""
        self.block(self.plan.body)

    def block(self, statements: list[Statement]) -> None:
        self.declared.append(set())
        for s in statements:
            self.statement(s)
        self.declared.pop()

    def statement(self, s: Statement) -> None:
        if s.op in ("scf_for", "scf_parallel"):
            for _ in range(self.trips[s.outs[0].name] if s.op == "scf_for" else 2):
                self.ever -= names(s)
                self.block(s.body)
                for value, becomes in s.attrs.get("carried", ()):
                    self.check_content(s, becomes)
                    self.words[self.extent(value)] = value.name
            return
        if s.form == "elementwise" and s.inline:
            self.deferred[s.outs[0].name] = list(self.read(s))
            return
        reads = list(self.read(s))
        for operand in reads:
            self.check_read(s, operand)
        for out in s.outs:
            if out.kind == "packed" and out.memory is not None:
                self.place_in_array(s, out)
            if in_scratch(out):
                self.check_place(s, out, reads)
                self.words[self.extent(out)] = out.name
                self.declare(s, out)

    def read(self, s: Statement) -> Iterator[Operand]:
        """What a statement needs to find in scratch memory, in what is spelled within it too."""
        operands = [*s.ins, *(x for x in s.attrs.values() if isinstance(x, Operand))]
        if s.attrs.get("accumulate") or s.op == "tile_scale_rows":
            operands += s.outs
        for o in operands:
            if o.name in self.deferred:
                yield from self.deferred[o.name]
            elif in_scratch(o):
                yield o

    def place_in_array(self, s: Statement, out: Operand) -> None:
        """Panels are packed into an array before they are used where they lie."""
        assert out.memory is not None
        if s.op == "tile_place" and out.memory.name not in self.packed:
            raise Wrong(f"{out.name} lies in {out.memory.name}, where nothing was packed")
        self.packed.add(out.memory.name)

    def check_read(self, s: Statement, o: Operand) -> None:
        if not any(o.name in scope for scope in self.declared):
            raise Wrong(f"{s.op} reads {o.name}, which has no name there")
        self.check_content(s, o)

    def check_content(self, s: Statement, o: Operand) -> None:
        found = set(self.words[self.elements(o)].ravel())
        if found - {o.name}:
            raise Wrong(f"{s.op} reads {o.name} and finds {sorted(found - {o.name})}")

    def check_place(self, s: Statement, out: Operand, reads: list[Operand]) -> None:
        """Within a buffer; and apart from what is read, unless that is read in step with it."""
        place = self.extent(out)
        if (out.offset, (place.stop - place.start) * WORD) not in [
            (b.offset, b.bytes) for b in self.plan.buffers
        ]:
            raise Wrong(f"{out.name} does not lie in a buffer")
        for o in reads:
            other = self.extent(o)
            if max(place.start, other.start) >= min(place.stop, other.stop):
                continue
            alike = (o.offset, o.kind, o.shape, o.stride) == (out.offset, out.kind, out.shape, out.stride)
            in_step = s.form == "elementwise" or s.op in IN_STEP or (o.name == out.name and o not in s.ins)
            if not (alike and in_step):
                raise Wrong(f"{s.op} overwrites {o.name} with {out.name} while it reads it")

    def declare(self, s: Statement, out: Operand) -> None:
        if s.declares and out.name in self.ever:
            raise Wrong(f"{s.op} declares {out.name} again")
        if not s.declares and not any(out.name in scope for scope in self.declared):
            raise Wrong(f"{s.op} updates {out.name}, which has no name there")
        if s.declares:
            self.declared[-1].add(out.name)
            self.ever.add(out.name)

    def extent(self, o: Operand) -> slice:
        """Words of its buffer."""

        def padded(n: int, to: int) -> int:
            return -(-n // to) * to

        count = {
            "row": lambda: padded(o.shape[0], self.layout.cols),
            "span": lambda: 2 * padded(o.shape[0], self.layout.rows),
            "tile": lambda: padded(o.shape[0], self.layout.rows) * o.stride,
            "packed": lambda: int(np.prod(o.shape)),
        }[o.kind]()
        return slice(o.offset // WORD, o.offset // WORD + count * WORDS[o.element])

    def elements(self, o: Operand) -> slice | np.ndarray:
        """Words that belong to it, without padding."""
        start, size = o.offset // WORD, WORDS[o.element]
        if o.kind == "tile":
            rows, cols = o.shape
            return start + np.arange(rows)[:, None] * o.stride * size + np.arange(cols * size)
        count = 2 * o.shape[0] if o.kind == "span" else int(np.prod(o.shape))
        return slice(start, start + count * size)


def names(s: Statement) -> set[str]:
    """What a statement and its body declare."""
    return {o.name for o in s.outs}.union(*(names(t) for t in s.body))


def loops(statements: list[Statement]) -> list[str]:
    """The counters of all loops."""
    return [
        name
        for s in statements
        for name in [*([s.outs[0].name] if s.op == "scf_for" else []), *loops(s.body)]
    ]


def changed(plan: KernelPlan, change: dict[str, dict]) -> KernelPlan:
    """The plan with fields of operands changed, by name: for tests that break one."""

    def operand(x: object) -> object:
        if isinstance(x, Operand):
            return replace(x, **change.get(x.name, {}))
        if isinstance(x, list | tuple):
            return type(x)(map(operand, x))
        return x

    def statement(s: Statement) -> Statement:
        attrs = {key: operand(value) for key, value in s.attrs.items()}
        return replace(
            s, outs=operand(s.outs), ins=operand(s.ins), attrs=attrs, body=[*map(statement, s.body)]
        )

    return replace(plan, body=[*map(statement, plan.body)])
