"""Masks, scores and their inputs as text: what ``str`` of an expression prints, and what users type.

The text is an expression of Python: ``k <= q + (Nk - Nq) and doc[q] == doc[k]``. Names are the positions b,
h, q, k, the lengths Nq, Nk, ``score``, ``inf``, the operations of flashgen.expression that have no operator,
and inputs, which are declared: ``window_left:index,slope:float,doc:int32[1]`` (name:kind of a number,
name:type[rank] of an array). Whole numbers beside floats become floats; nothing is folded, so that what is
printed is read back as it was.
"""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from flashgen.errors import InvalidArgument
from flashgen.expression import KINDS, LENGTHS, OPERATIONS, POSITIONS, SYMBOLS, Array, Expression, Scalar

CALLS = [op for op in OPERATIONS if op not in SYMBOLS and op != "not"]
"""Operations that are written as functions."""

WORDS = {*POSITIONS, *LENGTHS, *CALLS, "score", "inf", "nan", *keyword.kwlist}
"""Names that mean something in a text, and can be no input's."""

SHOWN = 200
"""Characters of a refused text that a message repeats."""

Input = Array | Scalar
ORDER = ("index", "float")

BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "div",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.And: "and",
    ast.Or: "or",
}
COMPARISONS = {ast.Lt: "lt", ast.LtE: "le", ast.Eq: "eq", ast.NotEq: "ne"}
FLIPPED = {ast.Gt: "lt", ast.GtE: "le"}


def declare(inputs: Iterable[Input]) -> str:
    """The inputs as ``inputs`` reads them."""
    return ",".join(
        f"{i.name}:{i.dtype}[{i.rank}]" if isinstance(i, Array) else f"{i.name}:{i.kind}" for i in inputs
    )


def inputs(text: str) -> dict[str, Input]:
    """The inputs that a text declares, by their names. Raises InvalidArgument."""
    found: dict[str, Input] = {}
    for word in filter(None, (w.strip() for w in text.split(","))):
        read = re.fullmatch(r"(\w+)\s*:\s*(\w+)\s*(?:\[(\d{1,3})\])?", word, re.ASCII)
        name, kind, rank = read.groups() if read else ("", "", None)
        known = kind in ORDER if rank is None else kind in KINDS
        if not known or not name.isidentifier() or name in WORDS or name in found:
            types = f"TYPE one of {', '.join(KINDS)}"
            allowed = f"name:index, name:float and name:TYPE[RANK], {types}, are allowed, each name once"
            raise InvalidArgument("inputs", repr(word), allowed)
        found[name] = Scalar(name, kind) if rank is None else Array(name, int(rank), kind)
    return found


def parse(text: str, inputs: Mapping[str, Input] | None = None, argument: str = "expression") -> Expression:
    """The expression that a text is, over these inputs. Raises InvalidArgument."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        refuse(argument, text, getattr(error, "msg", None) or str(error))
    try:
        return Reader(argument, text, inputs or {}).read(tree.body)
    except RecursionError:
        refuse(argument, text, "it is nested too deeply")
    except ValueError as error:
        if isinstance(error, InvalidArgument):
            raise
        refuse(argument, text, f"it has {error}")


def refuse(argument: str, text: str, reason: str) -> NoReturn:
    allowed = "an expression of Python over b, h, q, k, Nq, Nk, score and declared inputs is allowed"
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
    raise InvalidArgument(argument, repr(shown), f"{allowed}: {reason}")


class Reader:
    """Of one text."""

    def __init__(self, argument: str, text: str, inputs: Mapping[str, Input]):
        self.argument, self.text, self.inputs = argument, text, inputs

    def refuse(self, node: ast.AST, reason: str) -> NoReturn:
        part = ast.get_source_segment(self.text.strip(), node) or ""
        refuse(self.argument, self.text, f"{part[:SHOWN]!r} {reason}")

    def read(self, node: ast.expr) -> Expression:
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            self.refuse(node, "is something else")
        return method(node)

    def _constant(self, node: ast.Constant) -> Expression:
        if type(node.value) not in (bool, int, float):
            self.refuse(node, "is no number")
        return Expression("constant", value=node.value)  # pyright: ignore[reportArgumentType]

    def _name(self, node: ast.Name) -> Expression:
        name = node.id
        if name in POSITIONS:
            return Expression("position", value=name)
        if name in LENGTHS:
            return Expression("length", value=name)
        if name == "score":
            return Expression("score")
        if name == "inf":
            return Expression("constant", value=float("inf"))
        if not isinstance(known := self.inputs.get(name), Scalar):
            self.refuse(node, "is an array, which wants indices" if known else "is not declared")
        return Expression("scalar", value=known)

    def _subscript(self, node: ast.Subscript) -> Expression:
        known = self.inputs.get(node.value.id) if isinstance(node.value, ast.Name) else None
        if not isinstance(known, Array):
            self.refuse(node.value, "is not declared as an array")
        indices = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(indices) != known.rank:
            self.refuse(node, f"has {len(indices)} indices, and {known.rank} dimensions")
        return self._make(node, "element", [self.read(i) for i in indices], known)

    def _unaryop(self, node: ast.UnaryOp) -> Expression:
        e = self.read(node.operand) if not self._number(node) else None
        if e is None:
            assert isinstance(node.operand, ast.Constant | ast.Name)
            value: Any = node.operand.value if isinstance(node.operand, ast.Constant) else float("inf")
            return Expression("constant", value=-value)
        if isinstance(node.op, ast.Not | ast.Invert):
            return self._make(node, "not", [e])
        if isinstance(node.op, ast.UAdd):
            return e
        zero = Expression("constant", value=-0.0 if e.kind == "float" else 0)  # -0.0 - x is -x for every x
        return self._make(node, "sub", [zero, e])

    @staticmethod
    def _number(node: ast.UnaryOp) -> bool:
        """Whether it is a negative constant."""
        inner = node.operand
        number = isinstance(inner, ast.Constant) and type(inner.value) in (int, float)
        infinite = isinstance(inner, ast.Name) and inner.id == "inf"
        return isinstance(node.op, ast.USub) and (number or infinite)

    def _binop(self, node: ast.BinOp) -> Expression:
        if isinstance(node.op, ast.BitXor):
            return self._make(node, "ne", [self.read(node.left), self.read(node.right)])
        if type(node.op) not in BINARY:
            self.refuse(node, "is something else")
        return self._make(node, BINARY[type(node.op)], [self.read(node.left), self.read(node.right)])

    def _boolop(self, node: ast.BoolOp) -> Expression:
        first, *others = map(self.read, node.values)
        for other in others:
            first = self._make(node, BINARY[type(node.op)], [first, other])
        return first

    def _compare(self, node: ast.Compare) -> Expression:
        """a < b <= c ~> a < b and b <= c"""
        terms = [self.read(n) for n in (node.left, *node.comparators)]
        parts = []
        for op, left, right in zip(node.ops, terms, terms[1:], strict=False):
            if type(op) in FLIPPED:
                parts.append(self._make(node, FLIPPED[type(op)], [right, left]))
            elif type(op) in COMPARISONS:
                parts.append(self._make(node, COMPARISONS[type(op)], [left, right]))
            else:
                self.refuse(node, "is something else")
        first, *others = parts
        for other in others:
            first = self._make(node, "and", [first, other])
        return first

    def _call(self, node: ast.Call) -> Expression:
        if not isinstance(node.func, ast.Name) or node.func.id not in CALLS or node.keywords:
            self.refuse(node, f"is none of the functions {', '.join(CALLS)}")
        args = [self.read(a) for a in node.args]
        if node.func.id == "float" and len(args) == 1 and args[0].kind == "float":
            return args[0]
        return self._make(node, node.func.id, args)

    def _make(self, node: ast.AST, op: str, args: list[Expression], value: Any = None) -> Expression:
        """The operation, with whole numbers as floats where one argument, or the operation, is of floats."""
        numbers = range(1 if op == "where" else 0, len(args))
        floats = any(args[n].kind == "float" for n in numbers)
        floats |= op in OPERATIONS and OPERATIONS[op][1] == ("float",)
        for n in numbers:
            if floats and op != "element" and args[n].kind == "index":
                from flashgen.making import convert  # which imports NumPy: a command's help does without

                args[n] = convert(args[n], "float")
        try:
            return Expression(op, tuple(args), value)
        except ValueError as error:
            self.refuse(node, f"is {error}")
