"""Which iterations of a loop touch the same elements of an array.

A loop *owns* a dimension of an array when every access to it stays, in that dimension, within a slice that
belongs to the iteration alone. Iterations of such a loop share no element: they carry no dependence through
the array. Two forms of slices are known; n is a tile's extent in the dimension, `rest` does not change
while the loop runs and is equal for all accesses:

- `c * iv + rest`, with n <= |c| * step: tiles that do not reach into the next iteration's;
- `iv * group + r + rest`, with n = 1 and r running over [0, group): blocks of `group` positions, such as the
  query heads of one key head.

Arrays are arguments of the function, sequences of these, or allocations, which the verifier of tile.load and
tile.store sees to; so there is no second value for an array, and distinct values are distinct memory: an
allocation overlaps nothing, and that arguments do not overlap each other the runtime checks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations

from xdsl.dialects import arith, memref, scf
from xdsl.ir import BlockArgument, Operation, SSAValue
from xdsl.traits import IsTerminator, is_side_effect_free

from flashgen.analysis.linear import Linear, accesses, induction, inside, linear, same, step_of, stored
from flashgen.ir.memory import Access, GroupRowsOp, LoadOp, StoreOp, extents
from flashgen.ir.sequences import SequenceOp


@dataclass(frozen=True)
class Slice:
    """What one iteration touches of one dimension. Of equal slices only those of equal iterations meet.

    stride: from one iteration's slice to the next one's, per unit of the induction variable.
    rest: where the slice of position 0 starts.
    """

    dimension: int
    stride: Linear
    rest: Linear


def slices(access: Access, loop: scf.ForOp, scope: scf.ForOp | None = None) -> set[Slice]:
    """The dimensions in which this access stays within what one iteration of the loop owns.

    scope: the loop during which the slices must not move; the loop itself if not given.
    """
    dimensions = enumerate(zip(access.indices, extents(access), strict=True))
    found = (slice_of(n, linear(v), extent, loop, scope or loop) for n, (v, extent) in dimensions)
    return {s for s in found if s is not None}


def slice_of(dimension: int, form: Linear, extent: int, loop: scf.ForOp, scope: scf.ForOp) -> Slice | None:
    step = step_of(loop)
    if step is None or step < 1:
        return None
    coefficient, rest = form.without(induction(loop))
    if coefficient == 0:
        return block_of(dimension, form, extent, loop, scope)
    if extent > abs(coefficient) * step or not invariant(rest, scope):
        return None
    return Slice(dimension, Linear({}, coefficient), rest)


def block_of(dimension: int, form: Linear, extent: int, loop: scf.ForOp, scope: scf.ForOp) -> Slice | None:
    """The slice of `iv * group + r + rest` with r in [0, group)."""
    for product, r in permutations(form.terms, 2):
        group = other_factor(product, induction(loop))
        if group is not None and extent == 1 and runs_over(r, group):
            rest = form.plus(Linear({product: 1, r: 1}), -1)
            if invariant(rest, scope) and invariant(linear(group), scope):
                return Slice(dimension, linear(group), rest)
    return None


def other_factor(product: SSAValue, factor: SSAValue) -> SSAValue | None:
    """What multiplies ``factor`` in ``product``."""
    op = product.owner
    if isinstance(op, arith.MuliOp) and factor in op.operands:
        return op.rhs if op.lhs is factor else op.lhs
    return None


def runs_over(v: SSAValue, count: SSAValue) -> bool:
    """Whether v is the induction variable of a loop over part of [0, count)."""
    if not isinstance(v, BlockArgument) or v.index != 0:
        return False
    loop = v.owner.parent_op()
    if not isinstance(loop, scf.ForOp) or not same(loop.ub, count):
        return False
    start = linear(loop.lb)
    return not start.terms and start.constant >= 0 and (step_of(loop) or 0) >= 1


def invariant(form: Linear, loop: scf.ForOp) -> bool:
    """Whether nothing in the form changes while the loop runs."""
    return not any(inside(symbol, loop) for symbol in form.terms)


def confined(touching: Iterable[tuple[Access, scf.ForOp]], scope: scf.ForOp | None = None) -> bool:
    """Whether accesses, each made in its loop, stay within the same slices: only equal iterations meet.

    The loops are one loop, or run over the same range.
    """
    owned = [slices(access, loop, scope) for access, loop in touching]
    return bool(set.intersection(*owned)) if owned else True


def touching(root: Operation, array: SSAValue) -> list[Access]:
    """The accesses below root to one array."""
    return [a for a in accesses(root) if a.memref is array]


def strangers(root: Operation) -> Iterator[Operation]:
    """Operations below root that may have an effect, and that are no tile.load, tile.store or allocation."""
    return (op for op in root.walk() if op is not root and is_stranger(op))


def is_stranger(op: Operation) -> bool:
    """Whether op itself, its regions aside, may have an effect that is not understood."""
    known = (LoadOp, StoreOp, scf.ForOp, scf.ParallelOp, memref.AllocOp)
    if op.regions or isinstance(op, known) or op.has_trait(IsTerminator):
        return False
    return not is_side_effect_free(op)


def carried(loop: scf.ForOp) -> list[SSAValue | Operation]:
    """What carries a dependence from one iteration to another. If nothing does, they may run in any order.

    Arrays with slices that iterations share, the loop's carried values, and operations with effects that are
    not understood. An array allocated inside the loop belongs to one iteration, and a sequence whose number
    each iteration has to itself.
    """
    shared = [array for array in ordered_stores(loop) if not apart(array, loop)]
    return [*shared, *loop.body.block.args[1:], *strangers(loop)]


def apart(array: SSAValue, loop: scf.ForOp) -> bool:
    """Whether no two iterations touch the same element of an array."""
    op = array.owner
    if isinstance(op, GroupRowsOp) and inside(array, loop):
        return inside(op.source, loop) and apart(op.source, loop)
    if isinstance(op, SequenceOp) and inside(array, loop):
        coefficient, rest = linear(op.number).without(induction(loop))
        return coefficient != 0 and invariant(rest, loop)
    return inside(array, loop) or confined((a, loop) for a in touching(loop, array))


def ordered_stores(root: Operation) -> list[SSAValue]:
    """The arrays stored to below root, in order of their first access."""
    written = stored(root)
    return list(dict.fromkeys(a.memref for a in accesses(root) if a.memref in written))


Distance = str
"""Of a dependence, per loop: "0" (never between different iterations), "+" (forward), "*" (unknown)."""


def distances(outer: scf.ForOp, inner: scf.ForOp) -> dict[SSAValue, tuple[Distance, Distance]]:
    """For each array stored in the nest, the distances of its dependences in (outer, inner).

    ("+", "0") and ("0", "+") are carried by one loop alone; ("*", "*") may be (+, -).
    """
    found: dict[SSAValue, tuple[Distance, Distance]] = {}
    for array in ordered_stores(inner):
        group = touching(inner, array)
        owned = [confined(((a, loop) for a in group), scope=outer) for loop in (outer, inner)]
        found[array] = ("0" if owned[0] else "+", "0" if owned[1] else "+") if any(owned) else ("*", "*")
    return found


def describe(what: SSAValue | Operation) -> str:
    """For messages: a value's name, an operation's kind."""
    if isinstance(what, Operation):
        return what.name
    return f"%{what.name_hint}" if what.name_hint else "an unnamed value"
