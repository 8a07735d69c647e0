"""Whether the tiles of an array lie on one grid, wherever in the kernel they are loaded and stored."""

from __future__ import annotations

from flashgen.plan.model import KernelPlan, Operand, Statement, walk


class Grid:
    """Knows of index values what they are multiples of."""

    def __init__(self, kernel: KernelPlan):
        self._made_by: dict[str, Statement] = {o.name: s for s in walk(kernel.body) for o in s.outs}

    def aligned(self, memory: Operand, indices: list[Operand], shape: tuple[int, ...]) -> bool:
        """Whether a tile of that shape surely stands at a multiple of its extents, or beyond the array."""
        made = self._made_by.get(memory.name)
        alloc = made if made is not None and made.op == "memref_alloc" else None
        extents = alloc.attrs["extents"] if alloc else [None] * len(indices)
        n = len(indices) - len(shape)
        return all(
            self._multiple(index, extent, bound.name if bound else "")
            for index, extent, bound in zip(indices[n:], shape, extents[n:], strict=True)
        )

    def _multiple(self, index: Operand, of: int, bound: str) -> bool:
        """Whether the index is a multiple of ``of``, or at least the value called ``bound``.

        In a loop from the bound on all indices are beyond it. A least or greatest, and a selected value, is
        one of two; what is beyond stays there if the other is a multiple.
        """
        if index.kind == "constant":
            return int(index.value or 0) % of == 0
        if index.name == bound:
            return True
        match self._made_by.get(index.name):
            case Statement(op="scf_for", ins=[start, _, step]):
                known = self._multiple(start, of, bound) and self._multiple(step, of, "")
            case Statement(op="scf_parallel", outs=counters, attrs={"steps": steps}):
                known = self._multiple(steps[counters.index(index)], of, "")
            case Statement(op="arith_muli", ins=factors):
                known = any(x.kind == "constant" and self._multiple(x, of, "") for x in factors)
            case Statement(op="arith_minsi" | "arith_maxsi" | "arith_select", ins=[*_, a, b]):
                known = self._multiple(a, of, bound) and self._multiple(b, of, bound)
            case _:
                known = False
        return known
