"""Plan -> source text: a walk over the statements, each spelled by a macro of the target's templates."""

from __future__ import annotations

import math
import textwrap
import threading
from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.metadata import version
from importlib.resources import files
from typing import Any

import jinja2

from flashgen.errors import FlashgenError, InvalidArgument
from flashgen.passes.pipeline import lower
from flashgen.passes.provenance import BUILD
from flashgen.plan.barriers import with_barriers
from flashgen.plan.launch import LaunchPlan, launch_plan
from flashgen.plan.model import KernelPlan, Operand, Statement
from flashgen.plan.planner import plan
from flashgen.problem import Problem
from flashgen.schedule import Schedule
from flashgen.targets.base import Target

BUILDING = threading.Lock()
"""xDSL has one implicit builder for the whole process, so only one thread may build and rewrite a module."""


class CannotSpell(FlashgenError):
    """An operation that the target's templates have no macro for: says which pass replaces it."""


def source(problem: Problem, schedule: Schedule, target: Target, with_main: bool = False) -> str:
    """The whole file for one kernel. The schedule's open fields are filled by the target.

    with_main: add a ``main`` that checks the kernel on random input; of C++ only.

    Raises InvalidArgument or TargetLimit where the two do not fit, IllegalPass where a pass refuses.
    """
    if with_main and target.language != "cpp":
        raise InvalidArgument("with_main", with_main, f"target {target.name} has none; those in C++ do")
    schedule = target.complete(problem, schedule)
    language = languages(target.language)
    kernel = kernel_plan(problem, schedule, target)
    body = Walker(language, kernel).block(kernel.body)
    return language.environment.get_template(f"{target.language}/kernel.jinja").render(
        name=variant(problem, schedule, target),
        command=command(problem, schedule, target) + (" --with-main" if with_main else ""),
        version=version("flashgen"),
        problem=problem,
        schedule=schedule,
        target=target,
        layers=[f"{target.language}/{layer}" for layer in target.layers],
        kernel=kernel,
        launch=launch_plan(kernel, target.threads) if target.threads else None,
        body=body,
        with_main=with_main,
    )


def kernel_plan(problem: Problem, schedule: Schedule, target: Target) -> KernelPlan:
    """What is emitted for a complete schedule."""
    with BUILDING:
        module = lower(problem, schedule)
    kernel = plan(module, target.layout, languages(target.language).reserved)
    return with_barriers(kernel) if target.threads else kernel


def launch(problem: Problem, schedule: Schedule, target: Target) -> LaunchPlan | None:
    """How the kernel is launched, on targets that launch blocks of threads; raises what ``source`` raises."""
    if not target.threads:
        return None
    return launch_plan(kernel_plan(problem, target.complete(problem, schedule), target), target.threads)


def variant(problem: Problem, schedule: Schedule, target: Target) -> str:
    """The kernel's name, made of every field: safe as a file name and as a C identifier."""
    return f"{problem.name}_{schedule.name}_{target.name}"


def command(problem: Problem, schedule: Schedule, target: Target) -> str:
    """The command line that emits this kernel."""
    words = ["flashgen emit", f"--target {target.name}", f"--head-dim {problem.head_dim}"]
    if problem.head_dim_v != problem.head_dim:
        words.append(f"--head-dim-v {problem.head_dim_v}")
    words.append(f"--dtype {problem.dtype}")
    if problem.causal:
        words.append(f"--causal {problem.causal}")
    words += [f"--order {schedule.order}", f"--br {schedule.br}", f"--bc {schedule.bc}"]
    words.append("--lazy-rescale" if schedule.lazy_rescale else "--no-lazy-rescale")
    words.append("--causal-skip" if schedule.causal_skip else "--no-causal-skip")
    return " ".join(words)


@dataclass(frozen=True)
class Language:
    """A folder of templates: its macros, and the names that they use."""

    environment: jinja2.Environment
    operations: Any
    expressions: Any
    reserved: frozenset[str]


@lru_cache
def languages(name: str) -> Language:
    """The templates of a language, loaded once."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(str(files("flashgen.templates"))),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters |= {"real": real, "nested": nested, "part": part}
    reserved = files("flashgen.templates").joinpath(name, "reserved.txt").read_text().split()
    return Language(
        environment,
        environment.get_template(f"{name}/operations.jinja").module,
        environment.get_template("expressions.jinja").module,
        frozenset(reserved),
    )


def real(x: float) -> str:
    """A float32 literal: the shortest text that reads back as the same number."""
    if math.isinf(x):
        return "-INFINITY" if x < 0 else "INFINITY"
    text = f"{x:.9g}"
    return f"{text}f" if any(c in text for c in ".e") else f"{text}.0f"


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


@dataclass
class Walker:
    """Spells statements in order. A scalar that is used once is spelled where it is used."""

    language: Language
    kernel: KernelPlan
    inlined: dict[str, str] = field(default_factory=dict)

    def block(self, statements: list[Statement]) -> str:
        """The text of a block; a remark names the pass wherever it changes."""
        lines, last = [], ""
        for s in statements:
            text = self.statement(s)
            if text and s.form != "scalar" and s.made_by != last:
                last = s.made_by
                lines.append("// as stated\n" if last == BUILD else f"// by {last}\n")
            lines.append(text)
        return "".join(line for line in "".join(lines).splitlines(keepends=True) if line.strip())

    def statement(self, s: Statement) -> str:
        """The text of a statement, ending in a line break; empty for a scalar that is inlined."""
        body = self.block(s.body)  # first: what it inlines may be an attribute of the statement
        s = self.spelled(s)
        if s.form == "scalar":
            return self.scalar(s)
        declare = self.language.operations.declare
        placed = [
            o for o in s.outs if o.kind in ("row", "tile", "packed", "span") and s.declares and not s.uses
        ]
        places = "".join(str(declare(o)) for o in placed)
        if s.form == "elementwise":
            return places + self.elementwise(s)
        macro = self.macro(self.language.operations, s)
        return places + str(macro(s, body, self.kernel))

    def elementwise(self, s: Statement) -> str:
        spell = self.language.operations.element
        ins = [self.inlined.get(o.name) or str(spell(o, s.outs[0])) for o in s.ins]
        value = str(self.macro(self.language.expressions, s)(s, *ins))
        return self.inline(s, value) if s.uses else str(self.language.operations.elementwise(s, value))

    def scalar(self, s: Statement) -> str:
        value = str(self.macro(self.language.expressions, s)(s, *(o.name for o in s.ins)))
        return self.inline(s, value) if s.uses == 1 else str(self.language.operations.scalar(s, value))

    def inline(self, s: Statement, value: str) -> str:
        """Keep the text for the one use."""
        self.inlined[s.outs[0].name] = value
        return ""

    def macro(self, module: Any, s: Statement) -> Any:
        if not hasattr(module, s.op):
            name = s.op.replace("_", ".", 1)
            raise CannotSpell(f"{name} has no macro: the passes of the pipeline replace it")
        return getattr(module, s.op)

    def spelled(self, s: Statement) -> Statement:
        """The statement with constants and inlined scalars in place of names."""
        return replace(s, ins=self.resolve(s.ins), attrs=self.resolve(s.attrs))

    def resolve(self, x: Any) -> Any:
        match x:
            case Operand(kind="constant", value=int() | float() as value):
                return replace(x, name=real(float(value)) if x.element == "f32" else str(value))
            case Operand(kind="view"):
                return replace(x, memory=self.resolve(x.memory), indices=tuple(map(self.resolve, x.indices)))
            case Operand(kind="scalar", name=name) if name in self.inlined:
                return replace(x, name=self.inlined[name])
            case list() | tuple():
                return type(x)(map(self.resolve, x))
            case dict():
                return {key: self.resolve(value) for key, value in x.items()}
        return x
