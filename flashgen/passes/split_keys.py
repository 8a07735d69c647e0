"""split-keys: the keys in parts, each with a state of its own; then what all parts found becomes one.

    for r { for i {
      m, l, acc = for j in [0, Nk) step Bc { step };  store acc / nonzero(l), o[r, i]
    } }
  ~>
    parts = ceildiv(Nk, P);  ms, ls, accs = alloc [parts, group, Nq]
    for p in [0, parts) { for r { for i {
      m, l, acc = for j in [p * P, min((p + 1) * P, Nk)) step Bc { step }
      store m, ms[p, r, i];  store l, ls[p, r, i];  store acc, accs[p, r, i]
    } } }
    for r { for i {
      m, l, acc = for p in [0, parts) {
        m' = max(m, ms[p, r, i]);  kept = exp2(m - finite(m'));  added = exp2(ms[p, r, i] - finite(m'))
        l' = l * kept + ls[p, r, i] * added;  acc' = acc * kept + accs[p, r, i] * added
      }
      store acc / nonzero(l), o[r, i]
    } }

Parts wait for nothing, so that threads can share the keys of one head (Flash-Decoding). All rows that read a
part come before the next part, and find it in the caches. Parts are added in their order, so that bits depend
on P alone. It costs the memory of their states: Dv + 2 numbers a row and part.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import math, scf
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType, ModuleOp, TensorType
from xdsl.ir import Block, BlockArgument, SSAValue
from xdsl.rewriter import InsertPoint
from xdsl.traits import is_side_effect_free

from flashgen.analysis.dependence import describe, strangers
from flashgen.analysis.linear import Linear, accesses, induction, inside, linear, step_of, stored
from flashgen.analysis.neutral import constant
from flashgen.errors import InvalidArgument, check_positive
from flashgen.ir.construct import (
    add,
    addf,
    alloc,
    ceildiv,
    finite,
    loop,
    maxf,
    mul,
    mulf,
    named,
    smaller,
    subf,
)
from flashgen.ir.construct import rows as by_rows
from flashgen.ir.memory import LoadOp, StoreOp
from flashgen.ir.provenance import claim, keep
from flashgen.ir.types import NEG_INF, element_of, index, shape_of
from flashgen.passes.edit import erase, insert_after, insert_before, remove_dead, shared_index
from flashgen.passes.online_softmax import OnlineSoftmaxPass, Running, number
from flashgen.passes.patterns import is_above, outermost
from flashgen.schedule import MAX_PART


@dataclass(frozen=True)
class Split:
    """A step over keys, and the loops around it, from the outermost, in which the keys are the same."""

    step: Running
    nest: list[scf.ForOp]

    @property
    def keys(self) -> scf.ForOp:
        """The loop over keys."""
        return self.step.loop

    @property
    def outer(self) -> scf.ForOp:
        return self.nest[0]


@dataclass(frozen=True)
class SplitKeysPass(OnlineSoftmaxPass[Split]):
    """``keys``: P, the keys of one part, a multiple of the key loop's step, up to MAX_PART.

    Legal for a step of the form that passes/online_softmax.py knows, which carries its state on from
    (-inf, 0, 0) and stores nothing; in loops that carry nothing and hold nothing but the key loop, pure
    operations, loads and stores; where nothing that the outermost of them loads is stored in it. A part in
    which a row sees no key leaves (-inf, 0, 0), which adds nothing.
    Not handled: what that file lists; state in memory, as in the kv-outer order; keys that each query tile
    has to itself.
    """

    name = "split-keys"
    keys: int

    def match(self, module: ModuleOp) -> Split:
        check_positive("keys", self.keys, most=MAX_PART)
        steps = self.steps(module)
        if len(steps) != 1:
            self.refuse(module, f"{len(steps)} running maxima; one is wanted")
        (step,) = steps
        self.check_loop(step)
        nest = self.nest(step.loop)
        for around, inner in zip(nest, [*nest[1:], step.loop], strict=True):
            self.check_around(around, inner, nest[0])
        tile = shape_of(step.m.new)[0]
        if tile > (step_of(nest[-1]) or 0):
            self.refuse(nest[-1], f"its tiles have {tile} rows, so that they overlap")
        written = stored(nest[0])
        for op in accesses(nest[0]):
            if isinstance(op, LoadOp) and op.memref in written:
                self.refuse(op, f"reads {describe(op.memref)}, which the loops around the keys store to")
        return Split(step, nest)

    def check_loop(self, step: Running) -> None:
        """The key loop: its range, its state, and that nothing else follows from it."""
        keys = step.loop
        if not all(isinstance(s.old, BlockArgument) for s in step.state):
            self.refuse(keys, "its state is in memory: run keep-state before")
        if len(keys.iter_args) != len(step.state):
            self.refuse(keys, "carries something beside the state of a softmax")
        for state, neutral in zip(step.state, (NEG_INF, 0.0, 0.0), strict=True):
            if constant(state.start) != neutral:
                self.refuse(keys, "its state does not start as that of no keys")
        if linear(keys.lb) != Linear() or (width := step_of(keys)) is None:
            self.refuse(keys, "does not start at 0 with a constant step")
        if self.keys % width:
            raise InvalidArgument("keys", self.keys, f"multiples of the key loop's step {width} are allowed")
        for op in keys.walk():
            if isinstance(op, StoreOp):
                self.refuse(op, "stores something for each tile of keys")
        for op in strangers(keys):
            self.refuse(op, "has an effect that is not understood")

    def nest(self, keys: scf.ForOp) -> list[scf.ForOp]:
        """The loops around, from the outermost, in which the same tiles are read."""
        read = [v for op in accesses(keys) for v in (op.memref, *op.indices) if not inside(v, keys)]
        outer, found, up = outermost(keys, [keys.ub, *read]), [], keys.parent_op()
        if isinstance(up, scf.ParallelOp):
            self.refuse(keys, "stands in a parallel loop: run this before parallel-loops")
        while isinstance(up, scf.ForOp) and outer is not keys and outer.parent_op() is not up:
            found.insert(0, up)
            up = up.parent_op()
        if not found:
            self.refuse(keys, "no loop around it reads the same keys again")
        return found

    def check_around(self, around: scf.ForOp, inner: scf.ForOp, outer: scf.ForOp) -> None:
        """A loop around the keys can be gone through twice, and its positions number what is kept."""
        if linear(around.lb) != Linear() or (step_of(around) or 0) < 1 or around.iter_args:
            self.refuse(around, "a loop from 0 in constant steps that carries nothing is wanted")
        if not is_above(around.ub, outer):
            self.refuse(around, "its range depends on the loops around it")
        *body, _ = around.body.block.ops
        for op in body:
            if op is not inner and not isinstance(op, LoadOp | StoreOp) and not is_side_effect_free(op):
                self.refuse(op, "stands beside the loop over keys, and would be done twice")

    def rewrite(self, module: ModuleOp, match: Split) -> None:
        zero, size = shared_index(match.outer, 0), shared_index(match.outer, self.keys)
        one = shared_index(match.outer, 1)
        with ImplicitBuilder(Builder(InsertPoint.before(match.outer))):
            parts = named("parts", ceildiv(match.keys.ub, size))
            extents = [parts, *(around.ub for around in match.nest[:-1]), whole_rows(match.nest[-1])]
            memory = [allocate(state, extents, zero) for state in match.keys.body.block.args[1:]]
            over_parts = loop("part", zero, parts, one, lambda part: None)
        self.find(match, over_parts, size, memory)
        self.merge(match, parts, memory)
        for around in match.nest:
            claim(around, self.name)
        remove_dead(module)

    def find(self, match: Split, over_parts: scf.ForOp, size: SSAValue, memory: Sequence[Kept]) -> None:
        """The loops again, over one part of the keys, whose state is stored in the place of all results."""
        copy = match.outer.clone()
        keep(copy, match.outer)
        twin = dict(zip(match.outer.walk(), copy.walk(), strict=True))
        for op in [op for op in copy.walk() if isinstance(op, StoreOp)]:
            erase(op)
        keys, end = twin[match.keys], over_parts.body.block.last_op
        assert isinstance(keys, scf.ForOp) and end is not None
        insert_before(end, copy)
        p = induction(over_parts)
        with ImplicitBuilder(Builder(InsertPoint.before(copy))):
            first = named("part_from", mul(p, size))
            keys.operands[0] = first
            keys.operands[1] = named("part_to", smaller(add(first, size), match.keys.ub))
        nest = [twin[around] for around in match.nest]
        at = [p, *(induction(around) for around in nest if isinstance(around, scf.ForOp))]
        pairs = zip(keys.results, memory, strict=True)
        insert_after(keys, *(StoreOp(result, kept.array, kept.indices(at)) for result, kept in pairs))
        for op in (*nest, keys):
            claim(op, self.name)

    def merge(self, match: Split, parts: SSAValue, memory: Sequence[Kept]) -> None:
        """The states of all parts, where there was the loop over keys."""
        keys = match.keys
        body = Block(arg_types=[index, *(v.type for v in keys.iter_args)])
        for new, old in zip(body.args[1:], keys.body.block.args[1:], strict=True):
            new.name_hint = old.name_hint
        part, *carried = body.args
        part.name_hint = "part"
        with ImplicitBuilder(body):
            at = [part, *map(induction, match.nest)]
            pairs = [(old, kept.load(old, at)) for old, kept in zip(carried, memory, strict=True)]
            state = [pairs[number(s)] for s in match.step.state]
            made = dict(zip((old for old, _ in state), merged(*state), strict=True))
            for old, result in zip(carried, keys.results, strict=True):
                made[old].name_hint = result.name_hint
            scf.YieldOp(*(made[old] for old in carried))
        zero, one = shared_index(keys, 0), shared_index(keys, 1)
        over_parts = scf.ForOp(zero, parts, one, list(keys.iter_args), body)
        insert_before(keys, over_parts)
        for before, after in zip(keys.results, over_parts.results, strict=True):
            after.name_hint = before.name_hint
            before.replace_all_uses_with(after)
        erase(keys)


@dataclass(frozen=True)
class Kept:
    """Where a value of the state is kept: an array of the parts, the loops around the keys, and its rows."""

    array: SSAValue
    zero: SSAValue

    def indices(self, at: Sequence[SSAValue]) -> list[SSAValue]:
        """Of the tile at a position."""
        return [*at, *[self.zero] * (len(shape_of(self.array)) - len(at))]

    def load(self, state: SSAValue, at: Sequence[SSAValue]) -> SSAValue:
        """What a part found for a value of the state."""
        assert isinstance(state.type, TensorType)
        found = LoadOp(self.array, self.indices(at), state.type, in_bounds=True).result
        found.name_hint = f"{state.name_hint}_part" if state.name_hint else None
        return found


def whole_rows(tiles: scf.ForOp) -> SSAValue:
    """The rows of all tiles that a loop steps through, those beyond its end too."""
    if step_of(tiles) == 1:
        return tiles.ub
    return named("whole_rows", mul(ceildiv(tiles.ub, tiles.step), tiles.step))


def allocate(state: SSAValue, extents: Sequence[SSAValue], zero: SSAValue) -> Kept:
    """Memory for a value of the state."""
    shape = [*[DYNAMIC_INDEX] * len(extents), *shape_of(state)[1:]]
    array = alloc(MemRefType(element_of(state), shape), *extents)
    array.name_hint = f"{state.name_hint}_parts" if state.name_hint else None
    return Kept(array, zero)


Pair = tuple[SSAValue, SSAValue]


def merged(m: Pair, total: Pair, acc: Pair) -> tuple[SSAValue, SSAValue, SSAValue]:
    """The state over the keys of two: each is a pair, of what is known and what a part adds."""
    highest = maxf(*m)
    top = named("top", finite(highest))
    kept = named("kept", math.Exp2Op(subf(m[0], top)).result)
    added = named("added", math.Exp2Op(subf(m[1], top)).result)

    def add_up(pair: Pair) -> SSAValue:
        return addf(*(mulf(v, by_rows(w, v)) for v, w in zip(pair, (kept, added), strict=True)))

    return highest, addf(mulf(total[0], kept), mulf(total[1], added)), add_up(acc)
