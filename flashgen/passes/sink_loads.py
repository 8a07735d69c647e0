"""sink-loads: make a nest perfect, so that its loops can be interchanged.

for j { kj = load k[j]; for i { ... kj ... } }  ~>  for j { for i { kj = load k[j]; ... kj ... } }
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from xdsl.dialects import scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.traits import is_side_effect_free

from flashgen.analysis.dependence import describe, strangers
from flashgen.analysis.linear import stored
from flashgen.ir.memory import LoadOp, StoreOp
from flashgen.ir.provenance import claim
from flashgen.passes.base import TilePass
from flashgen.passes.edit import insert_before


@dataclass(frozen=True)
class Nest:
    """A loop, the one loop in it, and what stands between their headers."""

    inner: scf.ForOp
    moved: list[Operation]


@dataclass(frozen=True)
class SinkLoadsPass(TilePass[list[Nest]]):
    """Move loads, and the pure operations beside them, from a loop's body into the one loop inside it.

    Legal when the inner loop is the last thing in the outer one, stores to no array that is loaded (a load
    would be repeated after the store), and its bounds use none of what is moved.
    Not handled: loops that carry values, several inner loops, loads behind the inner loop.
    """

    name = "sink-loads"

    def match(self, module: ModuleOp) -> list[Nest]:
        nests = [self.check(outer, inner) for outer, inner in loaded_nests(module)]
        if not nests:
            self.refuse(module, "no loop loads tiles in front of a single inner loop")
        return nests

    def check(self, outer: scf.ForOp, inner: scf.ForOp) -> Nest:
        last = outer.body.block.last_op
        if outer.iter_args or inner.iter_args:
            self.refuse(inner, "the nest carries values from iteration to iteration")
        if inner.next_op is not last:
            self.refuse(inner, "something follows the inner loop")
        for op in strangers(inner):
            self.refuse(op, "has an effect that may change what is loaded")
        moved = [op for op in outer.body.block.ops if op is not inner and op is not last]
        written = stored(inner)
        for op in moved:
            if isinstance(op, LoadOp) and op.memref in written:
                self.refuse(op, f"the inner loop stores to {describe(op.memref)}")
            if not isinstance(op, LoadOp) and not is_side_effect_free(op):
                self.refuse(op, "has a side effect, which would be repeated")
            if any(v in op.results for v in inner.operands):
                self.refuse(op, "the inner loop's bounds depend on it")
        return Nest(inner, moved)

    def rewrite(self, module: ModuleOp, match: list[Nest]) -> None:
        for nest in match:
            first = nest.inner.body.block.first_op
            assert first is not None
            insert_before(first, *nest.moved)
            for op in nest.moved:
                if isinstance(op, LoadOp):
                    claim(op, self.name)


def loaded_nests(module: ModuleOp) -> Iterator[tuple[scf.ForOp, scf.ForOp]]:
    """Loops that load tiles, each with the one loop directly inside."""
    for outer in module.walk():
        if isinstance(outer, scf.ForOp):
            body = list(outer.body.block.ops)
            loops = [op for op in body if isinstance(op, scf.ForOp)]
            if len(loops) == 1 and any(isinstance(op, LoadOp | StoreOp) for op in body):
                yield outer, loops[0]
