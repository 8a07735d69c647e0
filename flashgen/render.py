"""Plan -> source text: a walk over the statements, each spelled by a macro of a language's templates."""

from __future__ import annotations

import math
import textwrap
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.resources import files
from typing import Any

import jinja2

from flashgen.errors import CannotEmit
from flashgen.plan.model import KernelPlan, Operand, Statement


@dataclass(frozen=True)
class Language:
    """A folder of templates: its macros, and the names that they use."""

    environment: jinja2.Environment
    operations: Any
    expressions: Any
    reserved: frozenset[str]


@lru_cache
def templates() -> jinja2.Environment:
    """The folder of templates. A name that is not defined is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(files("flashgen.templates"))),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {"nested": nested, "part": part}
    return environment


@lru_cache
def languages(name: str) -> Language:
    """The templates of a language, loaded once."""
    environment = templates()
    reserved = files("flashgen.templates").joinpath(name, "reserved.txt").read_text().split()
    return Language(
        environment,
        environment.get_template(f"{name}/operations.jinja").module,
        environment.get_template("expressions.jinja").module,
        frozenset(reserved),
    )


def real(x: float, element: str) -> str:
    """A literal of type "f32" or "f64": the shortest text that reads back as the same number.

    Of float32 nine digits are always enough, and are what is printed at most.
    """
    if math.isinf(x):
        return "-INFINITY" if x < 0 else "INFINITY"
    text = f"{x:.9g}" if element == "f32" else repr(x)
    whole = text if any(c in text for c in ".e") else f"{text}.0"
    return f"{whole}f" if element == "f32" else whole


def nested(text: str, columns: int) -> str:
    """The text of a region, further to the right."""
    return textwrap.indent(text, " " * columns)


def part(text: str) -> str:
    """The text as an operand of an operator: in parentheses unless it is a name, a number or a call."""
    depth = 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == " " and depth == 0:
            return f"({text})"
    return text


LOOPS = ("scf_parallel", "scf_for", "scf_if", "scf_else")
PLACED = ("row", "tile", "narrow", "mask", "packed", "pairs", "span")
"""Kinds of operands that lie in scratch memory, or in an array."""


@dataclass
class Walker:
    """Spells statements in order. A scalar that is used once is spelled where it is used."""

    language: Language
    kernel: KernelPlan
    inlined: dict[str, str] = field(default_factory=dict)

    def block(self, statements: list[Statement], remarks: bool = True) -> str:
        """The text of a block; a remark names the passes wherever they change, and above every loop."""
        lines, last = [], None
        for s in statements:
            text = self.statement(s)
            if text and remarks and (s.made_by != last or s.op == "scf_for"):
                last = s.made_by
                lines.append(f"// by {', '.join(last)}\n" if last else "// as stated\n")
            lines.append(text)
        return "".join(line for line in "".join(lines).splitlines(keepends=True) if line.strip())

    def statement(self, s: Statement) -> str:
        """The text of a statement, ending in a line break; empty for a scalar that is inlined."""
        body = self.block(s.body, remarks=s.op in LOOPS)  # what it inlines may be an attribute
        s = self.spelled(s)
        if s.form == "scalar":
            return self.scalar(s)
        declare = self.language.operations.declare
        placed = [o for o in s.outs if o.kind in PLACED and s.declares and not s.inline]
        places = "".join(str(declare(self.resolve(o))) for o in placed)
        if s.form == "elementwise":
            return places + self.elementwise(s)
        macro = self.macro(self.language.operations, s)
        return places + str(macro(s, body, self.kernel))

    def elementwise(self, s: Statement) -> str:
        spell = self.language.operations.element
        ins = [self.inlined.get(o.name) or str(spell(o, s.outs[0])) for o in s.ins]
        value = str(self.macro(self.language.expressions, s)(s, *ins))
        return self.inline(s, value) if s.inline else str(self.language.operations.elementwise(s, value))

    def scalar(self, s: Statement) -> str:
        value = self.value(s)
        return self.inline(s, value) if s.inline else str(self.language.operations.scalar(s, value))

    def value(self, s: Statement) -> str:
        """The expression of a number, whose operands have been spelled."""
        spread = self.language.operations.spread
        names = (str(spread(o)) if o.kind == "spread" else o.name for o in s.ins)
        return str(self.macro(self.language.expressions, s)(s, *names))

    def extents(self) -> list[str]:
        """What extents of arrays are: `tiles = ceildiv(Nk, 512)`. After ``block``, which inlines numbers.

        Only what one of these is made of is inlined: their own names are read by loops, too, or by nothing.
        """
        named = (self.spelled(s) for s in self.kernel.extents if not s.inline)
        return [f"{s.outs[0].name} = {self.value(s)}" for s in named]

    def inline(self, s: Statement, value: str) -> str:
        """Keep the text for the one use."""
        self.inlined[s.outs[0].name] = value
        return ""

    def macro(self, module: Any, s: Statement) -> Any:
        if not hasattr(module, s.op):
            name = s.op.replace("_", ".", 1)
            raise CannotEmit(f"{name} has no macro: the passes of the pipeline replace it")
        return getattr(module, s.op)

    def spelled(self, s: Statement) -> Statement:
        """The statement with constants and inlined scalars in place of names."""
        return replace(s, ins=self.resolve(s.ins), attrs=self.resolve(s.attrs))

    def resolve(self, x: Any) -> Any:
        match x:
            case Operand(kind="constant" | "spread", value=int() | float() as value):
                floats = x.element in ("f32", "f64")
                return replace(x, name=real(float(value), x.element) if floats else str(value))
            case Operand(memory=Operand()):
                return replace(x, memory=self.resolve(x.memory), indices=tuple(map(self.resolve, x.indices)))
            case Operand(kind="scalar", name=name) if name in self.inlined:
                return replace(x, name=self.inlined[name])
            case list() | tuple():
                return type(x)(map(self.resolve, x))
            case dict():
                return {key: self.resolve(value) for key, value in x.items()}
        return x
