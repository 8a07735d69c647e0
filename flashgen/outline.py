"""A module in a few lines: its loops, what each reads, computes and writes. For people, not for parsing.

for b, g, r
  for i
    store acc, l, m
  for j
    load k, v
    for i
      load q, acc, l, m
      dot, mask, row_max, exp, row_sum, exp, exp, dot, divide
      store acc, l, m
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from xdsl.dialects import arith, func, math, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation

from flashgen.ir.compute import DotOp, PackOp, RowMaxOp, RowSumOp, ScaleRowsOp
from flashgen.ir.memory import LoadOp, StoreOp
from flashgen.ir.provenance import STATED, made_by
from flashgen.ir.regions import MaskOp, RowSpanOp, SweepOp

WORDS: dict[type[Operation], str] = {
    DotOp: "dot",
    RowMaxOp: "row_max",
    RowSumOp: "row_sum",
    PackOp: "pack",
    ScaleRowsOp: "scale_rows",
    MaskOp: "mask",
    RowSpanOp: "span",
    SweepOp: "sweep",
    math.ExpOp: "exp",
    math.Exp2Op: "exp2",
    math.LogOp: "log",
    arith.DivfOp: "divide",
}
"""The operations that an outline names; index arithmetic and elementwise products go without saying."""


@dataclass(frozen=True)
class Line:
    """One line of an outline: how deep it stands, its words, and for each the last pass that changed it."""

    depth: int
    words: tuple[str, ...]
    made_by: tuple[str, ...]
    verb: str = ""
    carried: str = ""

    def __str__(self) -> str:
        text = f"{self.verb} {', '.join(self.words)}".strip() + self.carried
        return "  " * self.depth + text


def outline(module: ModuleOp) -> list[Line]:
    """The lines of a module's one function."""
    (function,) = (op for op in module.walk() if isinstance(op, func.FuncOp))
    return list(_block(function.body.block, 0))


def _block(block: Block, depth: int) -> Iterator[Line]:
    run: list[tuple[str, str, str]] = []  # (verb, word, pass) of a line that is being collected

    def flush() -> Iterator[Line]:
        if run:
            yield Line(depth, tuple(w for _, w, _ in run), tuple(p for _, _, p in run), run[0][0])
            run.clear()

    for op in block.ops:
        if isinstance(op, scf.ForOp | scf.ParallelOp):
            yield from flush()
            yield from _loop(op, depth)
        elif (said := _said(op)) is not None:
            if run and run[0][0] != said[0]:
                yield from flush()
            run.append((*said, latest(op)))
    yield from flush()


def latest(op: Operation) -> str:
    """The last pass that changed op; "build" if none did."""
    return made_by(op)[-1] if made_by(op) else STATED


def _said(op: Operation) -> tuple[str, str] | None:
    """(verb, word) for an operation that an outline names."""
    if isinstance(op, LoadOp | StoreOp):
        return ("load" if isinstance(op, LoadOp) else "store", op.memref.name_hint or "?")
    word = WORDS.get(type(op))
    return ("", word) if word else None


def _loop(loop: scf.ForOp | scf.ParallelOp, depth: int) -> Iterator[Line]:
    """A loop and what is in it; loops that hold nothing but a loop share a line."""
    if isinstance(loop, scf.ParallelOp):
        names = tuple(a.name_hint or "?" for a in loop.body.block.args)
        yield Line(depth, names, (latest(loop),) * len(names), "parallel")
        yield from _block(loop.body.block, depth + 1)
        return
    chain = [loop]
    while (inner := _only_loop(chain[-1].body.block)) is not None and not chain[-1].iter_args:
        chain.append(inner)
    last = chain[-1]
    carried = ", ".join(a.name_hint or "?" for a in last.body.block.args[1:])
    yield Line(
        depth,
        tuple(c.body.block.args[0].name_hint or "?" for c in chain),
        tuple(latest(c) for c in chain),
        "for",
        f" carrying {carried}" if carried else "",
    )
    yield from _block(last.body.block, depth + 1)


def _only_loop(block: Block) -> scf.ForOp | None:
    """The one loop of a block in which nothing else is worth a word."""
    worth = [op for op in block.ops if isinstance(op, scf.ForOp | scf.ParallelOp) or _said(op) is not None]
    return worth[0] if len(worth) == 1 and isinstance(worth[0], scf.ForOp) else None


def stages(lower: Callable[[Callable[[str, ModuleOp], None]], object]) -> list[tuple[str, list[Line]]]:
    """(pass, outline) after each pass; ``lower`` runs a pipeline and calls its argument after each pass."""
    seen: list[tuple[str, list[Line]]] = []
    lower(lambda name, module: seen.append((name, outline(module))))
    return seen
