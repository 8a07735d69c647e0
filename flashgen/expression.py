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
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

POSITIONS, LENGTHS = ("b", "h", "q", "k"), ("Nq", "Nk")
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


@dataclass(frozen=True)
class Expression:
    """One operation, and what it is of. Raises ValueError where the parts do not fit."""

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

    @property
    def kind(self) -> str:
        """ "index", "bool" or "float"."""
        if self.op in OPERATIONS:
            return OPERATIONS[self.op][2] or self.args[-1].kind
        if isinstance(self.value, Array | Scalar):
            return self.value.kind
        if self.op == "constant":
            return {bool: "bool", int: "index", float: "float"}[type(self.value)]  # pyright: ignore
        return "float" if self.op == "score" else "index"

    def walk(self) -> Iterator[Expression]:
        """This expression and all that it is made of, arguments first, each as often as it stands there."""
        for a in self.args:
            yield from a.walk()
        yield self

    def __str__(self) -> str:
        return spell(self)


SYMBOLS = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "div": "/",
    "floordiv": "//",
    "mod": "%",
    "lt": "<",
    "le": "<=",
    "eq": "==",
    "ne": "!=",
    "and": "and",
    "or": "or",
}


def spell(e: Expression) -> str:
    """The expression as Python writes it, every operation in parentheses."""
    args = [spell(a) for a in e.args]
    if e.op in SYMBOLS:
        return f"({args[0]} {SYMBOLS[e.op]} {args[1]})"
    if e.op == "not":
        return f"(not {args[0]})"
    if e.op == "element":
        assert isinstance(e.value, Array)
        return f"{e.value.name}[{', '.join(args)}]"
    if e.op in OPERATIONS:
        return f"{e.op}({', '.join(args)})"
    if isinstance(e.value, Scalar):
        return e.value.name
    return "score" if e.op == "score" else str(e.value)
