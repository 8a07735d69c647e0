"""What templates may ask and plans may say: shapes, kinds, operands and types, never a pass or a schedule."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import jinja2
import pytest
from jinja2 import nodes

from flashgen.emission import kernel_plan
from flashgen.passes.pipeline import REGISTRY
from flashgen.plan import model
from flashgen.problem import ALIGNMENTS, Problem
from flashgen.render import languages
from flashgen.schedule import Schedule
from flashgen.targets import TARGETS
from tests.compiled import pairwise

ROOT = Path(__file__).parent.parent
TEMPLATES = sorted((ROOT / "templates").rglob("*.jinja"))
KERNELS = [path for path in TEMPLATES if ".svg" not in path.suffixes]
LAYERS = sorted(p for s in ("*.hpp", "*.cuh") for p in (ROOT / "templates").rglob(s))
SCHEDULE_FIELDS = {f.name for f in dataclasses.fields(Schedule)}

CONDITIONS = {
    # Kinds of operands: a tile, one value a row, an array.
    "o.kind == 'tile'": "an element of a tile",
    "o.kind == 'mask'": "a truth value of a tile",
    "o.kind == 'row' and out.kind == 'row'": "one value a row, for a result of one value a row",
    "o.kind == 'row'": "one value a row, for a tile",
    "out.kind == 'row'": "a loop over rows alone",
    "input.kind == 'row'": "what a sweep reads once a row",
    "input.kind == 'tile'": "what a sweep reads for each element",
    "input.kind == 'mask'": "what a sweep reads for each element, of truth values",
    "p.kind == 'memory'": "the arguments that are arrays",
    "p.kind == 'scalar'": "the arguments that are numbers",
    # Optional operands and results.
    "s.attrs.over": "a product, or a sweep, within a span",
    "s.attrs.only": "a product of which columns are wanted",
    "span": "a sweep's span, or that of a product in place, as a name",
    "kind": "a sweep's result that is a reduction",
    "not kind": "a sweep's result that is elementwise",
    "o.memory": "panels in an array, not in scratch memory",
    "s.attrs.shared": "a parallel loop whose iterations threads can share",
    "s.attrs.transpose": "a tile that is packed, or multiplied by in place, with its rows as columns",
    "s.attrs.fence": "a sweep whose rows the next statement reads, on a GPU",
    "launch.workspace": "a kernel with arrays of its own, on a GPU",
    "not loop.last": "a separator",
    # Element types and what is asked for besides the kernel.
    "changed": "lines of a picture that differ from the one before",
    "with_main": "a program that checks the kernel",
}
"""Every condition of every template, with what it distinguishes. Think twice before you add one: a question
about how a kernel came to be belongs into a pass, and its answer into an operation or an operand."""

TABLES = {
    "o.kind": "constructors",
    "s.outs[0].element": "types of numbers",
    "p.element": "types of numbers",
    "kind": "reductions",
    "s.attrs.predicate": "comparisons",
    "s.attrs.among": "barriers",
    "problem.computed": "types of numbers, and the largest",
    "problem.dtype": "types of numbers",
    "dtype": "the headers that bring a type",
    "problem.causal": "which keys the checking program's own definition sees",
}
"""What is looked up in a literal dict or list, which is a condition too."""


def spell(node: nodes.Node) -> str:  # noqa: PLR0911
    """An expression as it is written."""
    match node:
        case nodes.Name():
            return node.name
        case nodes.Const():
            return repr(node.value)
        case nodes.Getattr():
            return f"{spell(node.node)}.{node.attr}"
        case nodes.Getitem():
            return f"{spell(node.node)}[{spell(node.arg)}]"
        case nodes.Compare():
            assert [operand.op for operand in node.ops] == ["eq"]
            return f"{spell(node.expr)} == {spell(node.ops[0].expr)}"
        case nodes.And():
            return f"{spell(node.left)} and {spell(node.right)}"
        case nodes.Not():
            return f"not {spell(node.node)}"
    raise AssertionError(f"line {node.lineno}: a condition made of {type(node).__name__}")


def conditions(tree: nodes.Node) -> Iterator[str]:
    """Of if, elif, inline if and filtered loops."""
    for node in tree.find_all((nodes.If, nodes.CondExpr, nodes.For)):
        test = node.test  # pyright: ignore[reportAttributeAccessIssue]
        if test is not None:
            yield spell(test)


def tables(tree: nodes.Node) -> Iterator[str]:
    """What literal dicts and lists are asked for, given a name or not."""
    literal = nodes.Dict | nodes.List
    named = {spell(node.target) for node in tree.find_all(nodes.Assign) if isinstance(node.node, literal)}
    for node in tree.find_all(nodes.Getitem):
        if isinstance(node.node, literal) or (isinstance(node.node, nodes.Name) and node.node.name in named):
            yield spell(node.arg)


def parse(path: Path) -> nodes.Template:
    return jinja2.Environment().parse(path.read_text())


def test_conditions_are_the_listed_ones() -> None:
    found = {c for path in TEMPLATES for c in conditions(parse(path))}
    assert found == set(CONDITIONS)


def test_tables_are_the_listed_ones() -> None:
    found = {t for path in TEMPLATES for t in tables(parse(path))}
    assert found == set(TABLES)


def test_no_other_way_to_ask() -> None:
    """Filters that select, and tests, are conditions as well."""
    asking = ("select", "selectattr", "reject", "rejectattr", "default", "d", "groupby")
    asked = [f for path in TEMPLATES for f in parse(path).find_all(nodes.Filter) if f.name in asking]
    assert not asked
    assert not [node for path in TEMPLATES for node in parse(path).find_all((nodes.Test, nodes.Or))]


@pytest.mark.parametrize(
    "text",
    [
        "{% if s.made_by == 'pack' %}{% endif %}",
        "{% if span %}{% elif lazy %}{% endif %}",
        "{{ 1 if order else 2 }}",
        "{% for x in y if skip %}{% endfor %}",
    ],
)
def test_a_new_condition_is_found(text: str) -> None:
    assert set(conditions(jinja2.Environment().parse(text))) - set(CONDITIONS)


@pytest.mark.parametrize("language", sorted({t.language for t in TARGETS.values()}))
def test_an_undefined_name_is_an_error(language: str) -> None:
    environment = languages(language).environment
    with pytest.raises(jinja2.UndefinedError, match="'made_up' is undefined"):
        environment.from_string("{{ made_up }}").render()


def test_templates_read_no_schedule_and_no_pass() -> None:
    """But for the header, which prints the schedule whole."""
    for path in KERNELS:
        tree = parse(path)
        attributes = {node.attr for node in tree.find_all(nodes.Getattr)}
        names = {node.name for node in tree.find_all(nodes.Name)}
        constants = {node.value for node in tree.find_all(nodes.Const)}
        said = (attributes | names | constants) - {"schedule"}
        assert not said & (SCHEDULE_FIELDS | PASS_NAMES), path
        assert not {"made_by", "schedule"} & attributes, path


OPERATIONS = {"pack", "accumulate", "group-rows"}
"""Passes that are called as the operation, or the operand, that they make."""
PASS_NAMES = set(REGISTRY) - OPERATIONS


def test_layers_name_no_pass() -> None:
    for path in [*KERNELS, *LAYERS]:
        text = path.read_text().replace("_", "-")
        assert not [name for name in PASS_NAMES if re.search(rf"\b{name}\b", text)], path


def values(x: object) -> Iterator[object]:
    """All that a plan holds, down to strings and numbers; not the passes' names, which only remarks tell."""
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        for f in dataclasses.fields(x):
            yield f.name
            if f.name != "made_by":
                yield from values(getattr(x, f.name))
    elif isinstance(x, dict):
        yield from (v for item in x.items() for v in values(item))
    elif isinstance(x, list | tuple):
        yield from (v for item in x for v in values(item))
    else:
        yield x


WORDS = re.compile(r"order|outer|lazy|eager|rescale|skip|causal|schedule|panel")


def test_a_plan_holds_no_field_of_the_schedule() -> None:
    """In the names of its fields, and in all values: of any schedule, on any target."""
    for target, causal in product(TARGETS.values(), ALIGNMENTS):
        for schedule in pairwise():
            problem = Problem(16, causal=causal)
            plan = kernel_plan(problem, target.complete(problem, schedule), target)
            words = {v for v in values(plan) if isinstance(v, str)}
            found = {w for w in words if WORDS.search(w)}
            assert not [w for w in found if not re.fullmatch(r"[kv]j?_panels(_\d)?", w)]


def test_the_plans_classes_have_no_field_of_the_schedule() -> None:
    classes = [c for c in vars(model).values() if dataclasses.is_dataclass(c)]
    assert {c.__name__ for c in classes} == {"Buffer", "Operand", "Statement", "KernelPlan"}
    for c in classes:
        assert not [f.name for f in dataclasses.fields(c) if WORDS.search(f.name)]


def defined(text: str) -> set[str]:
    """Types, functions and constants of a layer, at its outermost level."""
    text = re.sub(r"//.*", "", text)
    types = re.findall(r"^(?:template <[^>]*> )?struct (\w+)", text, re.M)
    types += re.findall(r"^typedef \w+ (\w+);", text, re.M)
    constants = re.findall(r"^(?:static )?constexpr \w+ (\w+)(?= =|,)", text, re.M)
    returns = r"^(?:template <.*> ?\n?)?(?:INLINE|__device__|inline|constexpr|int|void) [^;{=]*?"
    functions = re.findall(returns + r"(\w+)\(", text, re.M)
    return {*types, *constants, *functions}


def test_reserved_names_are_all_that_the_text_uses() -> None:
    """An IR value of such a name would hide what a macro means."""
    for language in ("cpp", "cuda"):
        folder = ROOT / "templates" / language
        listed = (folder / "reserved.txt").read_text().split()
        reserved = set(listed)
        assert listed == sorted(reserved, key=lambda name: (name.lower(), name)), language
        assert all(name.isidentifier() for name in reserved), language
        literal = "".join(
            node.data for node in parse(folder / "operations.jinja").find_all(nodes.TemplateData)
        )
        names = set(re.findall(r"(?<![\w.:])[A-Za-z]\w*", re.sub(r"//.*", "", literal)))
        layers = [path.read_text() for path in LAYERS if path.parent == folder]
        named = {name for text in layers for name in defined(text)}
        assert {"Tile", "read"} <= named
        assert names <= reserved, language
        assert named & set(re.findall(r"\w+", literal)) <= reserved, language


def test_no_file_is_long() -> None:
    """400 lines are more than one subject."""
    suffixes = (".py", ".jinja", ".hpp", ".cuh", ".cpp", ".cu", ".mlir")
    files = [
        p
        for folder in ("flashgen", "targets", "templates", "tests")
        for p in (ROOT / folder).rglob("*")
        if p.suffix in suffixes
    ]
    assert len(files) > 100
    assert not [p for p in files if len(p.read_text().splitlines()) > 400]
