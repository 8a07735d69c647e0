"""The dialect put together: what it contains, and how modules are parsed and verified."""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects import arith, builtin, func, math, memref, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Dialect, Operation, SSAValue
from xdsl.parser import Parser
from xdsl.utils.exceptions import ParseError, VerifyException

from flashgen.errors import ParseFailure
from flashgen.ir.compare import CompareOp
from flashgen.ir.compute import (
    BroadcastOp,
    DotOp,
    HoldOp,
    PackOp,
    ReplaceOp,
    RowMaxOp,
    RowSumOp,
    ScaleRowsOp,
    SelectOp,
)
from flashgen.ir.memory import ElementOp, ExtremesOp, FetchOp, GroupRowsOp, LoadOp, StoreOp
from flashgen.ir.regions import MaskOp, RowSpanOp, SweepOp, YieldOp
from flashgen.ir.sequences import PagesOp, SequenceOp

Tile = Dialect(
    "tile",
    [
        LoadOp,
        StoreOp,
        ElementOp,
        ExtremesOp,
        FetchOp,
        GroupRowsOp,
        SequenceOp,
        PagesOp,
        BroadcastOp,
        DotOp,
        PackOp,
        ScaleRowsOp,
        RowMaxOp,
        RowSumOp,
        ReplaceOp,
        HoldOp,
        SelectOp,
        CompareOp,
        MaskOp,
        RowSpanOp,
        SweepOp,
        YieldOp,
    ],
)


def context() -> Context:
    """A context that knows every dialect that a module may use."""
    ctx = Context()
    for dialect in (builtin.Builtin, func.Func, arith.Arith, math.Math, memref.MemRef, scf.Scf, Tile):
        ctx.load_dialect(dialect)
    return ctx


def parse(text: str, name: str = "<module>") -> ModuleOp:
    """The module that a text states, verified. Raises ParseFailure with the place and the reason."""
    try:
        module = Parser(context(), text, name).parse_module()
        verify(module)
    except ParseError as e:
        raise ParseFailure(f"{e.span.get_location()}: {one_line(e.msg)}") from e
    except VerifyException as e:
        raise ParseFailure(f"{name}: {one_line(str(e))}") from e
    return module


def one_line(text: str) -> str:
    return " ".join(text.split())


def verify(module: ModuleOp) -> None:
    """Raise VerifyException unless every operation is well formed and every use is below its definition."""
    module.verify()
    check_dominance(module)


def check_dominance(root: Operation) -> None:
    """xDSL's verifier does not look at this: an operand is defined above its use, in an enclosing block."""

    def walk(block: Block, visible: set[SSAValue]) -> None:
        visible = visible | set(block.args)
        for op in block.ops:
            for n, v in enumerate(op.operands):
                if v not in visible:
                    hint = v.name_hint or "?"
                    raise VerifyException(f"{op.name}: operand {n} (%{hint}) does not dominate its use")
            for region in op.regions:
                for inner in region.blocks:
                    walk(inner, visible)
            visible |= set(op.results)

    for region in root.regions:
        for block in region.blocks:
            walk(block, set())
