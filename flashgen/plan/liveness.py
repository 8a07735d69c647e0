"""When values are last used: every operation has a number in textual order, a loop a first and a last."""

from __future__ import annotations

from xdsl.dialects import func
from xdsl.ir import Block, Operation, SSAValue

from flashgen.ir.compute import BroadcastOp, PackOp
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
                n = self._number(region.block, n)
            self.end[op] = n = n + (1 if op.regions else 0)
        return n

    def last_use(self, v: SSAValue) -> int:
        """The number of the last operation that needs v: a loop's end, if v is defined before the loop.

        A broadcast is a view of its operand, so its uses count as the operand's. -1 if v is unused.
        """
        home = v.owner if isinstance(v.owner, Block) else v.owner.parent
        last = -1
        for use in v.uses:
            last = max(last, self._leaves(use.operation, home))
            if isinstance(use.operation, BroadcastOp):
                inner = [self._leaves(u.operation, home) for u in use.operation.result.uses]
                last = max(last, *inner, -1)
        return last

    def _leaves(self, op: Operation, home: Block | None) -> int:
        """The number of op, or the end of the loop around it that stands in ``home``."""
        at = self.begin[op]
        while op.parent is not home:
            parent = op.parent_op()
            assert parent is not None, "a use outside the function"
            op, at = parent, self.end[parent]
        return at


def viewed(load: LoadOp, stored: set[SSAValue]) -> bool:
    """Whether a tile need not be copied: it is only packed, and nothing in the function stores its array."""
    return load.memref not in stored and all(isinstance(u.operation, PackOp) for u in load.result.uses)
