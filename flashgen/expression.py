"""What masks and scores are made of: expressions over positions, lengths, inputs and the score itself.

A frozen tree, so that a Problem that holds one can be compared and hashed. ``kind`` is "index" (a whole
number), "bool" or "float" (the type computed in). The leaves:

| op       | value                                    | kind                                       |
|----------|------------------------------------------|--------------------------------------------|
| position | "b", "h", "q" or "k"                     | index: batch, query head, query row, key   |
| length   | "Nq" or "Nk"                             | index                                      |
| score    |                                          | float: scale * <q, k>, as far as it is now |
| constant | a Python number                          | any                                        |
| scalar   | a Scalar: a number known at the call     | index or float                             |
| element  | an Array, read at the positions ``args`` | what the array's type is                   |

What lies beyond an array's bounds reads as 0 (False). The other operations are in ``OPERATIONS``; ``gt`` and
``ge`` are not among them: they are ``lt`` and ``le`` with their sides changed, so that one thing is said in
one way.

A tree is at most ``DEEPEST`` operations deep and ``LARGEST`` large, so that every walk of one ends, and
Python reads back what it prints. Its text is Python: flashgen.notation has the way back.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

POSITIONS, LENGTHS = ("b", "h", "q", "k"), ("Nq", "Nk")
DEEPEST, LARGEST = 100, 10_000
LEAST, MOST = -(2**63), 2**63 - 1
"""Of whole numbers, which kernels have in 64 bits."""
KINDS = {
    "bool": "bool",
    "int32": "index",
    "int64": "index",
    "float16": "float",
    "bfloat16": "float",
    "float32": "float",
    "float64": "float",
}
"""Types of an input array, and the kind of an element of it."""

NUMBER, FLOAT, BOOL = ("index", "float"), ("float",), ("bool",)
OPERATIONS: dict[str, tuple[int, tuple[str, ...], str | None]] = {
    "add": (2, NUMBER, None),
    "sub": (2, NUMBER, None),
    "mul": (2, NUMBER, None),
    "div": (2, FLOAT, None),
    "floordiv": (2, ("index",), None),
    "mod": (2, ("index",), None),  # of the divisor's sign, as in Python
    "minimum": (2, NUMBER, None),
    "maximum": (2, NUMBER, None),
    "lt": (2, NUMBER, "bool"),
    "le": (2, NUMBER, "bool"),
    "eq": (2, (*NUMBER, "bool"), "bool"),
    "ne": (2, (*NUMBER, "bool"), "bool"),
    "and": (2, BOOL, None),
    "or": (2, BOOL, None),
    "not": (1, BOOL, None),
    "abs": (1, NUMBER, None),
    "exp": (1, FLOAT, None),
    "exp2": (1, FLOAT, None),
    "log": (1, FLOAT, None),
    "tanh": (1, FLOAT, None),
    "float": (1, ("index",), "float"),
    "where": (3, (*NUMBER, "bool"), None),  # a bool, then two of one kind
}
"""For each operation how many arguments it has, of what kinds (all of one), and the kind of its result, None
where it is the arguments'."""


@dataclass(frozen=True)
class Array:
    """An array that a kernel reads beside q, k and v. ``rank``: its dimensions, of any sizes and strides."""

    name: str
    rank: int
    dtype: str

    @property
    def kind(self) -> str:
        """Of an element."""
        return KINDS[self.dtype]


@dataclass(frozen=True)
class Scalar:
    """A number that a kernel is told at the call. ``kind``: "index" or "float"."""

    name: str
    kind: str


@dataclass(frozen=True, eq=False, repr=False)
class Expression:
    """One operation, and what it is of. Raises ValueError where the parts do not fit.

    Two are equal where they are built alike: 1, 1.0 and True are three constants, and -0.0 is not 0.0.
    """

    op: str
    args: tuple[Expression, ...] = ()
    value: bool | int | float | str | Array | Scalar | None = None

    def __post_init__(self) -> None:
        if self.op in OPERATIONS:
            count, kinds, _ = OPERATIONS[self.op]
            last = self.args[1:] if self.op == "where" else self.args
            fit = len(self.args) == count and len({a.kind for a in last}) == 1 and last[0].kind in kinds
            fit = fit and (self.op != "where" or self.args[0].kind == "bool")
        elif self.op == "element":
            fit = isinstance(self.value, Array) and len(self.args) == self.value.rank
            fit = fit and all(a.kind == "index" for a in self.args)
        else:
            fit = not self.args and self.op in ("position", "length", "score", "constant", "scalar")
        if not fit:
            raise ValueError(f"{self.op} of {', '.join(a.kind for a in self.args) or 'nothing'}")
        if self.op == "constant":
            check_constant(self.value)
        self._note("_kind", self._find_kind())
        self._note("depth", 1 + max((a.depth for a in self.args), default=0))
        self._note("size", 1 + sum(a.size for a in self.args))
        if self.depth > DEEPEST or self.size > LARGEST:
            raise ValueError(f"an expression more than {DEEPEST} deep, or of more than {LARGEST} operations")
        value = self.value.hex() if isinstance(self.value, float) else self.value
        self._note("_key", (self.op, self.args, type(self.value), value))
        self._note("_hash", hash(self._key))

    def _note(self, name: str, value: object) -> None:
        """Worked out once: kernels are looked up by expressions at every call."""
        object.__setattr__(self, name, value)

    depth: int = field(init=False)
    size: int = field(init=False)
    _kind: str = field(init=False)
    _key: tuple = field(init=False)
    _hash: int = field(init=False)

    def _find_kind(self) -> str:
        if self.op in OPERATIONS:
            return OPERATIONS[self.op][2] or self.args[-1].kind
        if isinstance(self.value, Array | Scalar):
            return self.value.kind
        if self.op == "constant":
            return {bool: "bool", int: "index", float: "float"}[type(self.value)]  # pyright: ignore
        return "float" if self.op == "score" else "index"

    @property
    def kind(self) -> str:
        """ "index", "bool" or "float"."""
        return self._kind

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Expression) and self._hash == other._hash and self._key == other._key
        )

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple:
        return Expression, (
            self.op,
            self.args,
            self.value,
        )  # not the hash, which another process has otherwise

    def walk(self) -> Iterator[Expression]:
        """This expression and all that it is made of, arguments first, each as often as it stands there."""
        for a in self.args:
            yield from a.walk()
        yield self

    def __str__(self) -> str:
        return spell(self)

    __repr__ = __str__


def check_constant(value: object) -> None:
    """Raise ValueError unless it is a bool, a whole number of 64 bits or a number that is not NaN."""
    if type(value) not in (bool, int, float):
        raise ValueError(f"a constant of type {type(value).__name__}")
    if isinstance(value, int) and not LEAST <= value <= MOST:
        raise ValueError("a whole number of more than 64 bits")
    if isinstance(value, float) and math.isnan(value):
        raise ValueError("a constant that is NaN")


OR, AND, NOT, COMPARE, SUM, PRODUCT, NEGATIVE, ATOM = range(8)
SYMBOLS = {
    "or": ("or", OR),
    "and": ("and", AND),
    "lt": ("<", COMPARE),
    "le": ("<=", COMPARE),
    "eq": ("==", COMPARE),
    "ne": ("!=", COMPARE),
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "div": ("/", PRODUCT),
    "floordiv": ("//", PRODUCT),
    "mod": ("%", PRODUCT),
}
"""How Python writes an operation, and how strongly that binds."""


def spell(e: Expression) -> str:
    """The expression as Python writes it, in parentheses where another tree would be read without them."""
    return _spell(e)[0]


def _spell(e: Expression) -> tuple[str, int]:
    """The text, and how strongly its outermost operation binds."""
    if e.op in SYMBOLS:
        symbol, strength = SYMBOLS[e.op]
        # a - b - c is (a - b) - c; comparisons in a row are something else; `and` within `or` is for readers
        left = _inside(e.args[0], strength + (strength == COMPARE), e.op)
        return f"{left} {symbol} {_inside(e.args[1], strength + 1, e.op)}", strength
    if e.op == "not":
        return f"not {_inside(e.args[0], NOT)}", NOT
    if e.op == "element":
        assert isinstance(e.value, Array)
        return f"{e.value.name}[{', '.join(map(spell, e.args)) or '()'}]", ATOM
    if e.op in OPERATIONS:
        return f"{e.op}({', '.join(map(spell, e.args))})", ATOM
    if e.op == "constant":
        return str(e.value), NEGATIVE if str(e.value)[0] == "-" else ATOM
    return e.value.name if isinstance(e.value, Scalar) else str(e.value or e.op), ATOM


def _inside(e: Expression, least: int, within: str = "") -> str:
    text, strength = _spell(e)
    return text if strength >= least and (within, e.op) != ("or", "and") else f"({text})"
