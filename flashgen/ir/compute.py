"""What is computed from tiles and stock arith lacks.

Some operands restrict where an operation looks. `where` is a visibility of each element; `over` and
`only` are spans, an interval of columns a row (see tile.row_span). What a span excludes is not read, so
NaN there is harmless, and of a result it is *unspecified*: NaN in the interpreter, anything in a kernel.
"""

from __future__ import annotations

from math import prod
from typing import Any

from xdsl.dialects.builtin import FloatAttr, TensorType, UnitAttr
from xdsl.ir import SSAValue
from xdsl.irdl import (
    AttrSizedOperandSegments,
    IRDLOperation,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    result_def,
    traits_def,
)
from xdsl.traits import Pure

from flashgen.ir.types import (
    COMPUTED,
    NARROW,
    bf16,
    check,
    computed_in,
    element_of,
    i1,
    index,
    number,
    shape_of,
    tile,
)


def check_span(op: IRDLOperation, span: SSAValue | None, rows: int) -> None:
    """A span has one interval of columns a row."""
    fits = span is None or (shape_of(span) == (rows, 2) and element_of(span) == index)
    check(fits, f"{op.name}: a span of one interval a row wanted, tensor<{rows}x2xindex>")


@irdl_op_definition
class BroadcastOp(IRDLOperation):
    """`%t = tile.broadcast %m : tensor<4xf32> -> tensor<4x8xf32>`; also of a scalar to any tile.

    One value a row is repeated along the row. A view: the plan gives it no buffer.
    """

    name = "tile.broadcast"
    operand = operand_def()
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$operand attr-dict `:` type($operand) `->` type($result)"

    def __init__(self, operand: SSAValue, result: TensorType):
        super().__init__(operands=[operand], result_types=[result])

    def verify_(self) -> None:
        shape = shape_of(self.operand)
        check(shape_of(self.result)[: len(shape)] == shape, f"{self.name}: leading dimensions differ")
        check(element_of(self.operand) == element_of(self.result), f"{self.name}: element types differ")


@irdl_op_definition
class DotOp(IRDLOperation):
    """`%s = tile.dot %q, %k transpose : tensor<4x8xf32>, tensor<6x8xf32> -> tensor<4x6xf32>`
    `%y = tile.dot %p, %v where %vis : tensor<4x6xi1> acc %x : ...`

    A matrix product; the right side may be transposed, or packed (rank 3 or 4, see tile.pack). The last
    panel may be padded: the result then has fewer columns than the panels cover.
    `where %vis`: element (i, r) of the left side takes part only where %vis[i, r]; with `zeros` it is 0
    elsewhere, and so can be left out where that is easier than to let it meet what is not finite.
    `over %span`: the same, for an interval of the contraction a row.
    `only %span`: result columns that are wanted; the others are unspecified.
    `acc %x`: is added to x, in ascending order of the contraction, one fused multiply-add a step.

    Of two bfloat16 sides every product is exact and sums are float32, pair by pair of the contraction, of
    each pair the second first; what is subnormal, an operand or a sum, counts as 0 (x86's vdpbf16ps).
    """

    name = "tile.dot"
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    where = opt_operand_def(TensorType)
    over = opt_operand_def(TensorType)
    only = opt_operand_def(TensorType)
    acc = opt_operand_def(TensorType)
    transpose = opt_prop_def(UnitAttr)
    zeros = opt_prop_def(UnitAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    assembly_format = (
        "$lhs `,` $rhs (`transpose` $transpose^)? (`where` $where^ `:` type($where))? (`zeros` $zeros^)?"
        " (`over` $over^ `:` type($over))? (`only` $only^ `:` type($only))? (`acc` $acc^ `:` type($acc))?"
        " attr-dict `:` type($lhs) `,` type($rhs) `->` type($result)"
    )

    def __init__(
        self,
        lhs: SSAValue,
        rhs: SSAValue,
        *,
        transpose: bool = False,
        where: SSAValue | None = None,
        over: SSAValue | None = None,
        only: SSAValue | None = None,
        acc: SSAValue | None = None,
        zeros: bool = False,
        cols: int | None = None,
    ):
        """``cols``: the result's columns, where the right side's panels are padded beyond them."""
        rows, covered = unpacked_shape(rhs)
        if cols is None:
            cols = rows if transpose else covered
        super().__init__(
            operands=[lhs, rhs, where, over, only, acc],
            properties={
                "transpose": UnitAttr() if transpose else None,
                "zeros": UnitAttr() if zeros and where is not None else None,
            },
            result_types=[tile(shape_of(lhs)[0], cols, element=computed_in(element_of(lhs)))],
        )

    def but(self, **changes: Any) -> DotOp:
        """A copy, not yet inserted, with some of the constructor's arguments changed; its shape stays."""
        own: dict[str, Any] = {n: getattr(self, n) for n in ("lhs", "rhs", "where", "over", "only", "acc")}
        own |= {n: getattr(self, n) is not None for n in ("transpose", "zeros")}
        own["cols"] = shape_of(self.result)[1]
        return DotOp(**(own | changes))

    def verify_(self) -> None:
        check(len(shape_of(self.lhs)) == 2, "tile.dot: the left side is a matrix")
        (m, k), (rows, covered) = shape_of(self.lhs), unpacked_shape(self.rhs)
        packed, step = len(shape_of(self.rhs)) > 2, prod(shape_of(self.rhs)[3:])
        check(
            not (packed and self.transpose), "tile.dot: panels are as the product wants them, not transposed"
        )
        alike = step == 1 or element_of(self.lhs) == element_of(self.rhs)
        check(alike, "tile.dot: pairs are multiplied by what is of their type")
        k2, most = (covered, rows) if self.transpose else (rows, covered)
        least = most - shape_of(self.rhs)[2] + 1 if packed else most
        result = shape_of(self.result)
        fits = k2 - step < k <= k2 and len(result) == 2 and result[0] == m and least <= result[1] <= most
        shown = "x".join(map(str, result))
        check(fits, f"tile.dot: {m}x{k} by {k2}x{most} does not compose to {shown}")
        elements = {element_of(v) for v in (self.lhs, self.rhs, self.result)}
        known = elements <= {*COMPUTED, *NARROW}
        check(known, "tile.dot: tiles of float32, float64, float16 or bfloat16 wanted")
        check(len(set(map(computed_in, elements))) == 1, "tile.dot: its tiles are computed in two types")
        mask = self.where is None or (shape_of(self.where) == (m, k) and element_of(self.where) == i1)
        check(mask, "tile.dot: where is an i1 tile shaped as the left side")
        check(self.where is not None or self.zeros is None, "tile.dot: zeros without where")
        check_span(self, self.over, m)
        check_span(self, self.only, m)
        check(self.acc is None or self.acc.type == self.result.type, "tile.dot: acc is typed as the result")


def unpacked_shape(v: SSAValue) -> tuple[int, int]:
    """Rows and columns of a matrix, or of the matrix that panels cover (their padding included)."""
    shape = shape_of(v)
    check(len(shape) in (2, 3, 4), "a matrix, or panels of one, wanted")
    if len(shape) == 2:
        return shape[0], shape[1]
    return shape[1] * prod(shape[3:]), shape[0] * shape[2]


@irdl_op_definition
class PackOp(IRDLOperation):
    """`%p = tile.pack %k transpose : tensor<6x8xf32> -> tensor<2x8x4xf32>`: p[a, d, x] = k[4 a + x, d]
    `%p = tile.pack %v : tensor<6x8xf32> -> tensor<2x6x4xf32>`: p[a, n, x] = v[n, 4 a + x]

    Panel x contraction x width: the shape is the layout. Columns beyond the last are 0.

    `%p = tile.pack %v : tensor<5x8xbf16> -> tensor<2x3x4x2xbf16>`: p[a, n, x, e] = v[2 n + e, 4 a + x]

    Of bfloat16 the contraction is packed in pairs, panel x pair x width x 2: a last half is 0, too.
    """

    name = "tile.pack"
    operand = operand_def(TensorType)
    transpose = opt_prop_def(UnitAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$operand (`transpose` $transpose^)? attr-dict `:` type($operand) `->` type($result)"

    def __init__(self, operand: SSAValue, width: int, transpose: bool):
        n, k = shape_of(operand) if transpose else reversed(shape_of(operand))
        pairs = element_of(operand) == bf16
        shape = (-(-n // width), *((-(-k // 2), width, 2) if pairs else (k, width)))
        super().__init__(
            operands=[operand],
            properties={"transpose": UnitAttr() if transpose else None},
            result_types=[tile(*shape, element=element_of(operand))],
        )

    def verify_(self) -> None:
        check(len(shape_of(self.operand)) == 2, "tile.pack: a matrix wanted")
        shape, element = shape_of(self.result), element_of(self.result)
        if element == bf16:
            check(len(shape) == 4 and shape[3] == 2, "tile.pack: pairs wanted, panel x pair x width x 2")
        else:
            check(len(shape) == 3, "tile.pack: panels wanted, panel x contraction x width")
        check(element == element_of(self.operand), "tile.pack: element types differ")
        n, k = shape_of(self.operand) if self.transpose else reversed(shape_of(self.operand))
        panels, k2, width, *pair = shape
        covered = k2 == -(-k // prod(pair)) and panels == -(-n // width)
        check(covered, "tile.pack: the panels do not cover the tile")


@irdl_op_definition
class ScaleRowsOp(IRDLOperation):
    """`%y = tile.scale_rows %x, %f : tensor<4x8xf32>, tensor<4xf32>`: row r times f[r].

    x * 1 is x, so a lowering need not touch a row whose factor is 1.
    """

    name = "tile.scale_rows"
    operand = operand_def(TensorType)
    factor = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$operand `,` $factor attr-dict `:` type($operand) `,` type($factor) `->` type($result)"

    def __init__(self, operand: SSAValue, factor: SSAValue):
        super().__init__(operands=[operand, factor], result_types=[operand.type])

    def verify_(self) -> None:
        check(self.operand.type == self.result.type, f"{self.name}: the result is typed as the tile")
        check(shape_of(self.factor) == shape_of(self.operand)[:1], f"{self.name}: one factor a row")


def one_a_row(v: SSAValue) -> TensorType:
    """The type of one value for each row of a tile."""
    return tile(shape_of(v)[0], element=element_of(v))


class RowReduction(IRDLOperation):
    """One value of each row."""

    operand = operand_def(TensorType)
    over = opt_operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    def verify_(self) -> None:
        check(shape_of(self.operand)[:1] == shape_of(self.result), f"{self.name}: one result a row")
        check_span(self, self.over, shape_of(self.operand)[0])


@irdl_op_definition
class RowMaxOp(RowReduction):
    """`%m = tile.row_max %s (over %span : ...)? (drop_nan)? : tensor<4x8xf32> -> tensor<4xf32>`

    An empty row gives -inf. A NaN wins; with `drop_nan` it is passed over.
    """

    name = "tile.row_max"
    drop_nan = opt_prop_def(UnitAttr)
    assembly_format = (
        "$operand (`over` $over^ `:` type($over))? (`drop_nan` $drop_nan^)? attr-dict"
        " `:` type($operand) `->` type($result)"
    )

    def __init__(self, operand: SSAValue, over: SSAValue | None = None, drop_nan: bool = False):
        super().__init__(
            operands=[operand, over],
            properties={"drop_nan": UnitAttr() if drop_nan else None},
            result_types=[one_a_row(operand)],
        )


@irdl_op_definition
class RowSumOp(RowReduction):
    """`%l = tile.row_sum %p (over %span : ...)? : tensor<4x8xf32> -> tensor<4xf32>`"""

    name = "tile.row_sum"
    assembly_format = (
        "$operand (`over` $over^ `:` type($over))? attr-dict `:` type($operand) `->` type($result)"
    )

    def __init__(self, operand: SSAValue, over: SSAValue | None = None):
        super().__init__(operands=[operand, over], result_types=[one_a_row(operand)])


@irdl_op_definition
class ReplaceOp(IRDLOperation):
    """`%y = tile.replace %x, 0.0 : f32, 1.0 : f32 : tensor<4xf32> -> tensor<4xf32>`: 1 where x is 0, else x.

    The two guards of online softmax (-inf to 0 before a subtraction, 0 to 1 before a division). NaN passes.
    """

    name = "tile.replace"
    operand = operand_def(TensorType)
    from_ = prop_def(FloatAttr, prop_name="from")
    to = prop_def(FloatAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = "$operand `,` $from `,` $to attr-dict `:` type($operand) `->` type($result)"

    def __init__(self, operand: SSAValue, from_: float, to: float):
        super().__init__(
            operands=[operand],
            properties={"from": number(from_, element_of(operand)), "to": number(to, element_of(operand))},
            result_types=[operand.type],
        )

    def verify_(self) -> None:
        check(self.operand.type == self.result.type, f"{self.name}: the result is typed as the operand")
        check_numbers(self, self.from_, self.to)


@irdl_op_definition
class HoldOp(IRDLOperation):
    """`%r = tile.hold %m, %x, 8.0 : f32 : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>`

    m where x - m <= 8, else x: what is followed only when it has gone further ahead. Where the difference is
    NaN that is x, too.
    """

    name = "tile.hold"
    held = operand_def(TensorType)
    followed = operand_def(TensorType)
    by = prop_def(FloatAttr)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$held `,` $followed `,` $by attr-dict `:` type($held) `,` type($followed) `->` type($result)"
    )

    def __init__(self, held: SSAValue, followed: SSAValue, by: float):
        super().__init__(
            operands=[held, followed],
            properties={"by": number(by, element_of(held))},
            result_types=[held.type],
        )

    def verify_(self) -> None:
        alike = self.held.type == self.followed.type == self.result.type
        check(alike, f"{self.name}: operand types differ")
        check_numbers(self, self.by)


def check_numbers(op: ReplaceOp | HoldOp, *numbers: FloatAttr) -> None:
    """What an operation states is of its tile's element type."""
    alike = {x.type for x in numbers} == {element_of(op.result)}
    check(alike, f"{op.name}: numbers of the tile's element type wanted")


@irdl_op_definition
class SelectOp(IRDLOperation):
    """`%t = tile.select %vis, %s, %c : tensor<4x8xi1>, tensor<4x8xf32>, tensor<4x8xf32> -> tensor<4x8xf32>`

    Elementwise (arith.select takes no i1 tile in xDSL).
    """

    name = "tile.select"
    cond = operand_def(TensorType)
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())
    assembly_format = (
        "$cond `,` $lhs `,` $rhs attr-dict `:` type($cond) `,` type($lhs) `,` type($rhs) `->` type($result)"
    )

    def __init__(self, cond: SSAValue, lhs: SSAValue, rhs: SSAValue):
        super().__init__(operands=[cond, lhs, rhs], result_types=[lhs.type])

    def verify_(self) -> None:
        check(self.lhs.type == self.rhs.type == self.result.type, f"{self.name}: operand types differ")
        mask = shape_of(self.cond) == shape_of(self.lhs) and element_of(self.cond) == i1
        check(mask, f"{self.name}: the condition is an i1 tile of the same shape")
