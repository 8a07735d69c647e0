"""Comparisons of tiles."""

from __future__ import annotations

from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import IRDLOperation, irdl_op_definition, operand_def, prop_def, result_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import Pure

from flashgen.ir.types import COMPUTED, check, element_of, i1, shape_of, tile

PREDICATES = {"oeq": 1, "olt": 4, "ole": 5, "uge": 10, "ugt": 9, "une": 13}
"""Of tile.compare, and arith.cmpf's encoding: three that do not hold of a NaN, and what holds where one of
these does not."""


@irdl_op_definition
class CompareOp(IRDLOperation):
    """`%c = tile.compare olt, %a, %b : tensor<4x8xf32> -> tensor<4x8xi1>`

    Elementwise, by arith.cmpf's predicates (arith.cmpf gives no i1 tile in xDSL).
    """

    name = "tile.compare"
    predicate = prop_def(StringAttr)
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    result = result_def(TensorType)
    traits = traits_def(Pure())

    def __init__(self, predicate: str, lhs: SSAValue, rhs: SSAValue):
        super().__init__(
            operands=[lhs, rhs],
            properties={"predicate": StringAttr(predicate)},
            result_types=[tile(*shape_of(lhs), element=i1)],
        )

    @classmethod
    def parse(cls, parser: Parser) -> CompareOp:
        predicate = parser.parse_identifier()
        parser.parse_punctuation(",")
        lhs = parser.parse_unresolved_operand()
        parser.parse_punctuation(",")
        rhs = parser.parse_unresolved_operand()
        attributes = parser.parse_optional_attr_dict()
        parser.parse_punctuation(":")
        sides = parser.parse_type()
        parser.parse_punctuation("->")
        result = parser.parse_type()
        lhs, rhs = (parser.resolve_operand(v, sides) for v in (lhs, rhs))
        return cls.create(
            operands=[lhs, rhs],
            result_types=[result],
            properties={"predicate": StringAttr(predicate)},
            attributes=attributes,
        )

    def print(self, printer: Printer) -> None:
        printer.print_string(f" {self.predicate.data}, ")
        printer.print_operand(self.lhs)
        printer.print_string(", ")
        printer.print_operand(self.rhs)
        printer.print_op_attributes(self.attributes)
        printer.print_string(" : ")
        printer.print_attribute(self.lhs.type)
        printer.print_string(" -> ")
        printer.print_attribute(self.result.type)

    def verify_(self) -> None:
        check(self.predicate.data in PREDICATES, f"{self.name}: predicates are {', '.join(PREDICATES)}")
        check(self.lhs.type == self.rhs.type, f"{self.name}: operand types differ")
        fits = shape_of(self.result) == shape_of(self.lhs) and element_of(self.result) == i1
        check(
            fits and element_of(self.lhs) in COMPUTED,
            f"{self.name}: float tiles give an i1 tile of their shape",
        )
