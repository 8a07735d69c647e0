"""fetch-ahead: while one head is computed, the tiles of the next come into the caches.

    parallel (b, g) {
      parallel (t) { store (pack (load k[b, g, t * Bc, 0])), panels[t] }
      parallel (r, i) {
        q = load q[b, g, i, 0];  for j { s = dot q, panels[..];  ...;  acc = dot p, .. }
        store acc, o[b, g, i, 0]
      }
    }
        ~>
    parallel (b, g) {
      (b', g') = what comes behind (b, g)
      parallel (t) { ... }
      parallel (r, i) {
        ...  for j {
          fetch k[b', g', i, 0];  fetch q[b', g', i, 0];  s = dot q, panels[..];  ...
          fetch v[b', g', i, 0];  fetch o[b, g, i, 0];    acc = dot p, ..
        } ...
      }
    }

Packing, and reading Q, wait for memory, and products do not: what one iteration of the outer loop reads is
fetched beside the products of the one before, for each tile of queries as many rows of K, V and Q as that
has; and so is what it is about to write. With fewer queries than keys these are the first keys alone. Where a
head's arrays do not fit the caches, it costs a fetch or two a register block, and gains nothing.

Legal because tile.fetch has no effect on values. Behind the last position comes one of the array's, too. Of
sequences of different lengths the next iteration may have the next one's arrays: these are then fetched.

Not handled: kernels that do not pack in front of other loops; steps of the outer loop other than 1; rows
that tile.group_rows numbers, which are not fetched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import memref, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint

from flashgen.analysis.linear import accesses, inside, linear
from flashgen.ir.compute import DotOp, PackOp
from flashgen.ir.construct import add, floordiv, named, remainder, smaller, sub
from flashgen.ir.memory import Access, FetchOp, GroupRowsOp, LoadOp, StoreOp
from flashgen.ir.provenance import claim
from flashgen.ir.types import shape_of, tile
from flashgen.passes.base import TilePass
from flashgen.passes.edit import insert_after, insert_before, shared_index
from flashgen.passes.patterns import is_above


@dataclass(frozen=True)
class Beside:
    """The products of one block, and what is fetched beside them."""

    dots: list[DotOp]
    rows: SSAValue
    """The first row of their tile."""
    later: Sequence[Access]
    """Fetched where the next iteration of the outer loop finds it."""
    now: Sequence[Access]
    """Fetched where this iteration does."""


@dataclass(frozen=True)
class Ahead:
    outer: scf.ParallelOp
    places: list[Beside]


@dataclass(frozen=True)
class FetchAheadPass(TilePass[Ahead]):
    name = "fetch-ahead"

    def match(self, module: ModuleOp) -> Ahead:
        outer = [op for op in module.walk() if isinstance(op, scf.ParallelOp)][:1]
        if not outer:
            self.refuse(module, "no parallel loop: run parallel-loops before")
        if any(linear(step).constant != 1 or linear(step).terms for step in outer[0].step):
            self.refuse(outer[0], "its steps are not all 1")
        loops = [op for op in outer[0].body.block.ops if isinstance(op, scf.ForOp | scf.ParallelOp)]
        packed = [self.packed(op, around) for around in loops for op in packs(around)]
        if not packed:
            self.refuse(outer[0], "nothing is packed in front of the products: run hoist-packs before")
        places = [self.beside(dots, packed, around) for around in loops for dots in products(around)]
        if not places:
            self.refuse(outer[0], "no product with panels stands in a loop behind them")
        return Ahead(outer[0], places)

    def packed(self, pack: PackOp, around: Operation) -> LoadOp:
        load = pack.operand.owner
        if not isinstance(load, LoadOp) or any(isinstance(op, DotOp) for op in around.walk()):
            self.refuse(pack, "packs what is not loaded, or stands beside the products")
        if any(inside(v, around) for n, v in enumerate(load.indices) if n != len(load.indices) - 2):
            self.refuse(load, "its position changes otherwise than from row to row")
        return load

    def beside(self, dots: list[DotOp], packed: list[LoadOp], around: Operation) -> Beside:
        """What is fetched beside some products: what is packed, their queries, and what is stored."""
        first = dots[0]
        outside = [op for op in accesses(around) if not isinstance(op.memref.owner, memref.AllocOp)]
        queries = [op for op in outside if isinstance(op, LoadOp) and is_above(op.result, first)]
        if len(queries) != 1 or len(shape_of(queries[0].result)) != 2:
            self.refuse(first, "one tile of queries is wanted that is loaded where it is computed")
        known = [op for op in outside if all(is_above(v, first) for v in op.indices)]
        written = [op for op in known if isinstance(op, StoreOp) and len(shape_of(op.value)) == 2]
        read, now = ([op for op in ops if not grouped(op)] for ops in ((*packed, *queries), written))
        return Beside(dots, queries[0].indices[-2], read, now)

    def rewrite(self, module: ModuleOp, match: Ahead) -> None:
        behind = successor(match.outer)
        for place in match.places:
            rows = shape_of(place.dots[0].result)[0]
            fetches: list[FetchOp] = []
            for op in (*place.later, *place.now):
                known = behind if op in place.later else {}
                array, *indices = (later(v, known, match.outer) for v in (op.memref, *op.indices))
                indices[-2] = place.rows
                fetches.append(FetchOp(array, indices, tile(rows, shape_of(op.tile)[1])))
            count = len(place.dots)
            for n, dot in enumerate(place.dots):
                insert_before(dot, *fetches[n::count])
                claim(dot, self.name)


def grouped(op: Access) -> bool:
    """Whether its array is another numbering of one."""
    return isinstance(op.memref.owner, GroupRowsOp)


def packs(around: Operation) -> list[PackOp]:
    return [op for op in around.walk() if isinstance(op, PackOp)]


def products(around: Operation) -> Iterator[list[DotOp]]:
    """Those with panels, block by block."""
    dots = [op for op in around.walk() if isinstance(op, DotOp) and len(shape_of(op.rhs)) > 2]
    for block in dict.fromkeys(op.parent for op in dots):
        yield [op for op in dots if op.parent is block]


def successor(outer: scf.ParallelOp) -> dict[SSAValue, SSAValue]:
    """For each index of the loop what it is in the next iteration: the last one counts, the others carry.

    Behind the last iteration comes one that the loop has, too.
    """
    block, one = outer.body.block, shared_index(outer, 1)
    found: dict[SSAValue, SSAValue] = {}
    first, carry = block.first_op, one
    assert first is not None
    with ImplicitBuilder(Builder(InsertPoint.before(first))):
        for n in range(len(block.args) - 1, -1, -1):
            raised, stop = add(block.args[n], carry), outer.upperBound[n]
            if n:
                value, carry = remainder(raised, stop), floordiv(raised, stop)
            else:
                value = smaller(raised, sub(stop, one))
            found[block.args[n]] = named(f"{block.args[n].name_hint or 'n'}_next", value)
    return found


def later(v: SSAValue, known: dict[SSAValue, SSAValue], outer: Operation) -> SSAValue:
    """What v, an array or an index of one, is in the next iteration: where sequences differ in length, an
    array is another sequence's."""
    found = copied(v, known, outer)
    return found if found is v or found.name_hint else named(f"{v.name_hint or 'n'}_next", found)


def copied(v: SSAValue, known: dict[SSAValue, SSAValue], outer: Operation) -> SSAValue:
    """v where the known values are others; what it is made of is computed anew behind it."""
    if v in known or not inside(v, outer) or not isinstance(v.owner, Operation):
        return known.get(v, v)
    op = v.owner
    operands = {x: copied(x, known, outer) for x in op.operands}
    if all(old is new for old, new in operands.items()):
        return v
    copy = op.clone(operands)
    copy.attributes.clear()
    copy.results[0].name_hint = None
    insert_after(op, copy)
    known[v] = copy.results[0]
    return known[v]
