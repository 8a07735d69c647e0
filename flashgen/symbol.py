"""What stands for a number while a mask or a score is traced: Python's operators on it make expressions.

Kinds mix as Python's numbers do: a bool counts as 0 or 1, a whole number becomes a float beside a float, and
``/`` of whole numbers is a float. ``&``, ``|``, ``^`` and ``~`` are of bools alone, ``//`` and ``%`` of whole
numbers. What asks for the value (``if``, ``and``, ``float()``) is refused, since there is none yet. Constants
are folded; otherwise an expression says what the function said.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from flashgen import making
from flashgen.errors import InvalidArgument
from flashgen.expression import Array, Expression, Scalar
from flashgen.making import WORDS, build


class Symbol:
    """A number that is not known before a kernel runs; ``expression`` says what it is."""

    __slots__ = ("expression",)
    __hash__ = None  # pyright: ignore[reportAssignmentType]  # == makes an expression

    if TYPE_CHECKING:  # what `_give_operators` gives

        def _with(self, other: object) -> Symbol: ...

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _with
        __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __and__ = __rand__ = __or__ = __ror__ = _with
        __xor__ = __rxor__ = __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _with  # pyright: ignore

        def _alone(self) -> Symbol: ...

        __neg__ = __pos__ = __abs__ = __invert__ = _alone

    def __init__(self, expression: Expression):
        self.expression = expression

    def __repr__(self) -> str:
        return str(self.expression)

    def __pow__(self, exponent: object) -> Symbol:
        if type(exponent) is not int or not 1 <= exponent <= 8:
            raise InvalidArgument("exponent", repr(exponent), "a whole number from 1 to 8 is allowed")
        power = self
        for _ in range(exponent - 1):
            power = power * self
        return power

    def __rpow__(self, base: object) -> Symbol:
        if base != 2:
            raise InvalidArgument("base of a power", repr(base), "2 is allowed, or exp(x) for e")
        return exp2(self)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: object, **options: object) -> Symbol:
        return called(
            ufunc.__name__ if method == "__call__" else f"{ufunc.__name__}.{method}", inputs, options
        )

    def __array_function__(self, function: Any, _types: object, inputs: tuple, options: dict) -> Symbol:
        return called(function.__name__, inputs, options)

    @classmethod
    def __torch_function__(
        cls, function: Any, _types: object, inputs: tuple = (), options: dict | None = None
    ) -> Symbol:
        return called(function.__name__, inputs, options or {})


def called(name: str, inputs: tuple, options: dict) -> Symbol:
    """A function of NumPy's or PyTorch's, of a symbol."""
    if name not in FUNCTIONS or options:
        refused = ", ".join([name, *options])
        allowed = f"without options are allowed: {', '.join(FUNCTIONS)}"
        raise InvalidArgument("function of a traced value", refused, allowed)
    return FUNCTIONS[name](*inputs)


def lift(value: object) -> Expression:
    """The expression of a symbol or of a number. Raises InvalidArgument."""
    if type(value) is Symbol:
        return value.expression
    if isinstance(value, np.generic) or (isinstance(value, np.ndarray) and value.ndim == 0):
        value = value.item()
    if not isinstance(value, bool | int | float):
        what = value if isinstance(value, Element) else f"of type {type(value).__name__}"
        allowed = "a traced value, a number, or an array with an index for each dimension is allowed"
        raise InvalidArgument("operand", what, allowed)
    return making.constant(value)


def make(op: str, *operands: object) -> Symbol:
    """An operation on symbols and numbers. Raises InvalidArgument."""
    return Symbol(making.make(op, *map(lift, operands)))


def replaced(e: Expression, score: Symbol | None, inputs: Mapping[str, Any]) -> Symbol:
    """The expression with another score in place of its own, and symbols and arrays for its inputs."""
    if e.op == "score":
        return Symbol(e) if score is None else score
    args = tuple(replaced(a, score, inputs) for a in e.args)
    if isinstance(e.value, Array | Scalar) and e.value.name in inputs:
        return inputs[e.value.name][args] if e.op == "element" else Symbol(lift(inputs[e.value.name]))
    return Symbol(build(e.op, tuple(a.expression for a in args), e.value) if args else e)


def where(condition: object, a: object, b: object) -> Symbol:
    """``a`` where the condition holds, else ``b``."""
    return make("where", condition, a, b)


def minimum(a: object, b: object) -> Symbol:
    """The smaller of two; NaN where one is NaN."""
    return make("minimum", a, b)


def maximum(a: object, b: object) -> Symbol:
    """The larger of two; NaN where one is NaN."""
    return make("maximum", a, b)


def exp(x: object) -> Symbol:
    """e to the power of x."""
    return make("exp", x)


def exp2(x: object) -> Symbol:
    """2 to the power of x."""
    return make("exp2", x)


def log(x: object) -> Symbol:
    """The natural logarithm: -inf of 0, NaN below it."""
    return make("log", x)


def tanh(x: object) -> Symbol:
    """The hyperbolic tangent."""
    return make("tanh", x)


def clip(x: object, least: object, most: object) -> Symbol:
    """x, and at least and at most so much."""
    return minimum(maximum(x, least), most)


def logical_not(x: object) -> Symbol:
    """Of a bool that may be Python's, of which ``~`` is a number."""
    return make("not", x)


def query_len() -> Symbol:
    """Nq, the number of queries of a head."""
    return Symbol(Expression("length", value="Nq"))


def key_len() -> Symbol:
    """Nk, the number of keys of a head."""
    return Symbol(Expression("length", value="Nk"))


def _negative(x: object) -> Symbol:
    return make("sub", -0.0 if lift(x).kind == "float" else 0, x)  # -0.0 - x is -x for every x


FUNCTIONS: dict[str, Callable[..., Symbol]] = {
    "where": where,
    "minimum": minimum,
    "maximum": maximum,
    "exp": exp,
    "exp2": exp2,
    "log": log,
    "tanh": tanh,
    "clip": clip,
    "logical_not": logical_not,
    "abs": lambda x: make("abs", x),
    "absolute": lambda x: make("abs", x),
    "negative": _negative,
    "positive": lambda x: Symbol(lift(x)),
    "logical_and": lambda a, b: make("and", a, b),
    "logical_or": lambda a, b: make("or", a, b),
    "logical_xor": lambda a, b: make("ne", *_bools(a, b)),
    "invert": logical_not,
    "bitwise_not": logical_not,
    "bitwise_and": lambda a, b: make("and", a, b),
    "bitwise_or": lambda a, b: make("or", a, b),
    "bitwise_xor": lambda a, b: make("ne", *_bools(a, b)),
    "add": lambda a, b: make("add", a, b),
    "subtract": lambda a, b: make("sub", a, b),
    "multiply": lambda a, b: make("mul", a, b),
    "divide": lambda a, b: make("div", a, b),
    "floor_divide": lambda a, b: make("floordiv", a, b),
    "remainder": lambda a, b: make("mod", a, b),
    "less": lambda a, b: make("lt", a, b),
    "less_equal": lambda a, b: make("le", a, b),
    "greater": lambda a, b: make("lt", b, a),
    "greater_equal": lambda a, b: make("le", b, a),
    "equal": lambda a, b: make("eq", a, b),
    "not_equal": lambda a, b: make("ne", a, b),
}
"""By the names that NumPy and PyTorch give them."""

OPERATORS = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "truediv": "divide",
    "floordiv": "floor_divide",
    "mod": "remainder",
    "and": "logical_and",
    "or": "logical_or",
    "xor": "logical_xor",
}
"""Python's operators of two sides, as NumPy calls them."""

COMPARISONS = {
    "lt": "less",
    "le": "less_equal",
    "gt": "greater",
    "ge": "greater_equal",
    "eq": "equal",
    "ne": "not_equal",
}
VALUES = {
    "bool": "if, and, or, not or a chained comparison",
    "int": "int()",
    "float": "float() or a function of math",
    "complex": "complex()",
    "index": "an index into what tracing does not see as an input, or range()",
    "iter": "iteration",
    "len": "len()",
    "getitem": "an index",
}
"""What asks a symbol for its value."""


def _bools(*operands: object) -> tuple[object, ...]:
    """The operands. Raises InvalidArgument unless all are bools: ^ of whole numbers is no comparison."""
    for x in operands:
        if (kind := lift(x).kind) != "bool":
            raise InvalidArgument("operand of ^", WORDS[kind], "a bool is allowed")
    return operands


def _refusal(asked: str) -> Callable[..., NoReturn]:
    def refuse(self: Symbol, *_: object) -> NoReturn:
        raise InvalidArgument(
            "value of a traced expression",
            f"asked for by {asked}, before there is one ({self})",
            "&, |, ~, where, minimum, maximum, exp and tanh of flashgen.mods or of NumPy are allowed",
        )

    return refuse


def _give_operators() -> None:
    for name, function in OPERATORS.items():
        apply = FUNCTIONS[function]
        setattr(Symbol, f"__{name}__", lambda self, other, apply=apply: apply(self, other))
        setattr(Symbol, f"__r{name}__", lambda self, other, apply=apply: apply(other, self))
    for name, function in COMPARISONS.items():
        setattr(Symbol, f"__{name}__", lambda self, other, apply=FUNCTIONS[function]: apply(self, other))
    for name, function in {"neg": "negative", "pos": "positive", "abs": "abs", "invert": "invert"}.items():
        setattr(Symbol, f"__{name}__", lambda self, apply=FUNCTIONS[function]: apply(self))
    for name, asked in VALUES.items():
        setattr(Symbol, f"__{name}__", _refusal(asked))


_give_operators()


class Element:
    """An input array of which fewer indices are given than it has dimensions; a[i][j] is a[i, j]."""

    __slots__ = ("array", "indices")

    def __init__(self, array: Array, indices: tuple[Expression, ...] = ()):
        self.array, self.indices = array, indices

    def __str__(self) -> str:
        return f"the array {self.array.name} of {self.array.rank} dimensions with {len(self.indices)} indices"

    def __getitem__(self, index: object) -> Symbol | Element:
        indices = self.indices + tuple(
            self._index(i) for i in (index if isinstance(index, tuple) else (index,))
        )
        if len(indices) > self.array.rank:
            allowed = f"{self.array.rank} are allowed, one for each dimension"
            raise InvalidArgument(f"number of indices of {self.array.name}", len(indices), allowed)
        if len(indices) == self.array.rank:
            return Symbol(build("element", indices, self.array))
        return Element(self.array, indices)

    def _index(self, index: object) -> Expression:
        allowed = "a whole number is allowed, traced or from 0 on; what lies beyond the array reads as 0"
        if not isinstance(index, Symbol | int | np.integer) or isinstance(index, bool):
            raise InvalidArgument(f"index of {self.array.name}", repr(index), allowed)
        e = lift(index)
        if e.kind != "index" or (e.op == "constant" and int(e.value) < 0):  # pyright: ignore
            raise InvalidArgument(f"index of {self.array.name}", e, allowed)
        return e

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):  # of protocols, which ask whether there is one
            raise AttributeError(name)
        allowed = (
            "an index for each dimension is allowed; find out all else outside, and keep it in a variable"
        )
        raise InvalidArgument(f"use of the input {self.array.name}", f".{name}", allowed)

    def _refuse(self, *_: object) -> NoReturn:
        raise InvalidArgument("operand", self, "an index for each dimension is allowed")

    __hash__ = None  # pyright: ignore[reportAssignmentType]
    __bool__ = __len__ = __iter__ = __float__ = __int__ = __index__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __and__ = __rand__ = __or__ = __ror__ = _refuse
    __xor__ = __rxor__ = __neg__ = __abs__ = __invert__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse  # pyright: ignore
    __array_ufunc__ = __array_function__ = _refuse
