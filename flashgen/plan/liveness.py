"""When values are last used: every operation has a number in textual order, a loop a first and a last."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects import func, scf
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Operation, Region, SSAValue, Use

from flashgen.ir.compare import CompareOp
from flashgen.ir.compute import BroadcastOp, DotOp, HoldOp, PackOp, ReplaceOp, SelectOp
from flashgen.ir.memory import LoadOp


class Liveness:
    """Numbers the operations of a function."""

    def __init__(self, function: func.FuncOp):
        self.begin: dict[Operation, int] = {}
        self.end: dict[Operation, int] = {}
        self._number(function.body.block, 0)

    def _number(self, block: Block, n: int) -> int:
        for op in block.ops:
            self.begin[op] = n = n + 1
            for region in op.regions:
                n = self._number(region.block, n) if region.blocks else n
            self.end[op] = n = n + (1 if op.regions else 0)
        return n

    def last_use(self, v: SSAValue) -> int:
        """The number of the last operation that needs v: a loop's end, if v is defined before the loop.

        -1 if v is unused.
        """
        home = v.owner if isinstance(v.owner, Block) else v.owner.parent
        return max((self._leaves(op, home) for op in readers(v)), default=-1)

    def _leaves(self, op: Operation, home: Block | None) -> int:
        """The number of op, or the end of the outermost loop around it within ``home``."""
        at = self.begin[op]
        while op.parent is not home:
            parent = op.parent_op()
            assert parent is not None, "a use outside the function"
            op, at = parent, at if isinstance(parent, scf.IfOp) else self.end[parent]
        return at

    def last_use_with(self, v: SSAValue, place: Operation) -> int:
        """As last_use, but for what is never done where ``place`` is done: the other side of an scf.if."""
        home = v.owner if isinstance(v.owner, Block) else v.owner.parent
        return max((self._leaves(op, home) for op in readers(v) if not exclusive(op, place)), default=-1)


def exclusive(a: Operation, b: Operation) -> bool:
    """Whether two operations stand on different sides of an scf.if."""
    sides = [{region.parent_op(): region for region in regions_around(op)} for op in (a, b)]
    return any(isinstance(op, scf.IfOp) and sides[1].get(op, r) is not r for op, r in sides[0].items())


def regions_around(op: Operation) -> Iterator[Region]:
    region = op.parent_region()
    while region is not None:
        yield region
        up = region.parent_op()
        region = up.parent_region() if up is not None else None


def readers(v: SSAValue) -> Iterator[Operation]:
    """The operations that need v: its users, and those of what is only spelled where it is used."""
    for use in v.uses:
        yield use.operation
        if isinstance(use.operation, BroadcastOp) or deferred(use.operation):
            yield from readers(use.operation.results[0])


def elementwise(op: Operation) -> bool:
    """Whether each element of op's one tile is an expression of the same element of its operands."""
    stock = op.name.startswith(("arith.", "math.")) or isinstance(
        op, ReplaceOp | HoldOp | SelectOp | CompareOp
    )
    return stock and len(op.results) == 1 and isinstance(op.results[0].type, TensorType)


def deferred(op: Operation) -> bool:
    """Whether op's result needs no buffer: one elementwise operation of the same block uses it, once."""
    if not elementwise(op):
        return False
    users = [use.operation for use in op.results[0].uses]
    return len(users) == 1 and elementwise(users[0]) and users[0].parent is op.parent


def viewed(load: LoadOp, stored: set[SSAValue], in_place: bool) -> bool:
    """Whether a tile need not be copied: it is only packed, and nothing in the function stores its array.

    in_place: products as their right side can read it where it lies as well.
    """

    def reads_memory(use: Use) -> bool:
        op = use.operation
        return isinstance(op, PackOp) or (in_place and isinstance(op, DotOp) and use.index == 1)

    return load.memref not in stored and all(map(reads_memory, load.result.uses))
