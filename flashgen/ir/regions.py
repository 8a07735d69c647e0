"""Operations with a region: what is said once for every position, for every row or for every element."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import IndexType, IntegerAttr, StringAttr, TensorType
from xdsl.ir import Attribute, Region, SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    lazy_traits_def,
    operand_def,
    opt_operand_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.traits import HasParent, IsTerminator, Pure

from flashgen.ir.compute import check_span
from flashgen.ir.types import COMPUTED, check, element_of, i1, index, shape_of, tile

REDUCTIONS = ("max", "maxnum", "add")


@irdl_op_definition
class YieldOp(IRDLOperation):
    """`tile.yield %x : f32` ends a region of this dialect."""

    name = "tile.yield"
    values = var_operand_def()
    traits = lazy_traits_def(lambda: (IsTerminator(), HasParent(MaskOp, SweepOp, RowSpanOp), Pure()))
    assembly_format = "$values attr-dict `:` type($values)"

    def __init__(self, *values: SSAValue):
        super().__init__(operands=[values])


def yielded(op: MaskOp | SweepOp | RowSpanOp) -> Sequence[SSAValue]:
    """What the region yields."""
    last = op.body.block.last_op
    assert isinstance(last, YieldOp)
    return last.values


def check_region(op: MaskOp | SweepOp | RowSpanOp, args: list[Attribute], results: list[Attribute]) -> None:
    """The region takes and yields these types."""
    given = [a.type for a in op.body.block.args]
    check(given == args, f"{op.name}: the region takes {', '.join(map(str, args))}")
    last = op.body.block.last_op
    types = [v.type for v in last.values] if isinstance(last, YieldOp) else None
    check(types == results, f"{op.name}: the region yields {', '.join(map(str, results))}")


@irdl_op_definition
class MaskOp(IRDLOperation):
    """`%vis = tile.mask %i, %j {^bb0(%row: index, %col: index): ... tile.yield %p : i1} : tensor<4x8xi1>`

    What depends on the absolute position (row, column) alone, for the tile at element (%i, %j). Yields
    i1 for visibility (f32 or f64 for a bias by position). Index analysis reads bounds from the region.
    A result of rank 1 has one value a row, at column %j.
    `over %span`: columns that are wanted of each row; the others are unspecified.
    """

    name = "tile.mask"
    row = operand_def(IndexType)
    col = operand_def(IndexType)
    over = opt_operand_def(TensorType)
    body = region_def("single_block")
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$row `,` $col $body (`over` $over^ `:` type($over))? attr-dict `:` type($result)"

    def __init__(
        self,
        row: SSAValue,
        col: SSAValue,
        body: Region,
        shape: Sequence[int],
        element: Attribute = i1,
        over: SSAValue | None = None,
    ):
        super().__init__(
            operands=[row, col, over], regions=[body], result_types=[tile(*shape, element=element)]
        )

    def verify_(self) -> None:
        rank = len(shape_of(self.result))
        check(rank in (1, 2), "tile.mask: a tile of rows and columns wanted, or one value a row")
        check(element_of(self.result) in (i1, *COMPUTED), "tile.mask: of i1, f32 or f64")
        check(rank == 2 or self.over is None, "tile.mask: one value a row has no span")
        check_span(self, self.over, shape_of(self.result)[0])
        check_region(self, [index, index], [element_of(self.result)])

    @property
    def predicate(self) -> SSAValue:
        """What the region yields."""
        return yielded(self)[0]


@irdl_op_definition
class RowSpanOp(IRDLOperation):
    """`%span = tile.row_span %i, %j {^bb0(%row: index): ... tile.yield %lo, %hi} of 256 : tensor<96x2xindex>`

    For each row of a tile at element (%i, %j) the visible columns [lo, hi): absolute in the region;
    relative to the tile and clamped to its width (256) in the result, where lo <= hi. The exact form of a
    mask that is an interval in every row.
    """

    name = "tile.row_span"
    row = operand_def(IndexType)
    col = operand_def(IndexType)
    body = region_def("single_block")
    cols = prop_def(IntegerAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$row `,` $col $body `of` $cols attr-dict `:` type($result)"

    def __init__(self, row: SSAValue, col: SSAValue, body: Region, shape: tuple[int, int]):
        super().__init__(
            operands=[row, col],
            regions=[body],
            properties={"cols": IntegerAttr(shape[1], index)},
            result_types=[tile(shape[0], 2, element=index)],
        )

    def verify_(self) -> None:
        check_region(self, [index], [index, index])
        check(shape_of(self.result)[1:] == (2,), "tile.row_span: an interval a row")
        check(element_of(self.result) == index, "tile.row_span: positions are of type index")

    @property
    def width(self) -> int:
        """Columns of the tile that the span speaks of."""
        return self.cols.value.data


@irdl_op_definition
class SweepOp(IRDLOperation):
    """`%p, %l = tile.sweep %s, %m over %span : ... reduce "add" {^bb0(%x: f32, %y: f32): ...
        tile.yield %e, %e : f32, f32} : (tensor<4x8xf32>, tensor<4xf32>) -> (tensor<4x8xf32>, tensor<4xf32>)`

    One pass over the rows of a tile. The region is scalar: an input of rank 1 is read once a row; a result
    of rank 2 is elementwise, one of rank 1 the reduction of what is yielded for it ("max": NaN wins,
    "maxnum": NaN is passed over, "add"). Elements outside the span are neither reduced nor specified.
    """

    name = "tile.sweep"
    inputs = var_operand_def(TensorType)
    over = opt_operand_def(TensorType)
    reduce = prop_def(StringAttr)
    body = region_def("single_block")
    outs = var_result_def(TensorType)
    traits = traits_def(Pure())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$inputs (`over` $over^ `:` type($over))? `reduce` $reduce $body attr-dict"
        " `:` `(` type($inputs) `)` `->` `(` type($outs) `)`"
    )

    def __init__(
        self,
        inputs: Sequence[SSAValue],
        kinds: Sequence[str],
        body: Region,
        outs: Sequence[Attribute],
        over: SSAValue | None = None,
    ):
        super().__init__(
            operands=[inputs, over],
            properties={"reduce": StringAttr(",".join(kinds))},
            regions=[body],
            result_types=[outs],
        )

    def verify_(self) -> None:
        kinds = self.reduce.data.split(",")
        check(all(k in REDUCTIONS for k in kinds), f"tile.sweep: reductions are {', '.join(REDUCTIONS)}")
        ranks = [len(shape_of(o)) for o in self.outs]
        check(ranks.count(1) == len(kinds), "tile.sweep: one reduction for each result of rank 1")
        check(len(self.shape) == 2, "tile.sweep: goes over a tile of rows and columns")
        values = [*self.inputs, *self.outs]
        check(all(shape_of(v) in (self.shape, self.shape[:1]) for v in values), "tile.sweep: shapes differ")
        check_span(self, self.over, self.shape[0])
        elements = [element_of(v) for v in self.inputs], [element_of(v) for v in self.outs]
        check_region(self, *elements)

    @property
    def kinds(self) -> list[str | None]:
        """For each result: None (elementwise) or its reduction."""
        kinds = iter(self.reduce.data.split(","))
        return [next(kinds) if len(shape_of(o)) == 1 else None for o in self.outs]

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows and columns that it goes over."""
        return max((shape_of(v) for v in (*self.inputs, *self.outs)), key=len)
