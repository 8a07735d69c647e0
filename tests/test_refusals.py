"""Texts that are no pipeline, and pipelines that lack something; for passes see test_refusals_*."""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.utils.exceptions import VerifyException

from flashgen.errors import InvalidArgument, ParseFailure
from flashgen.ir.dialect import parse
from flashgen.passes.base import TilePass
from flashgen.passes.edit import insert_before
from flashgen.passes.pipeline import OWN, parse_passes, pipeline, run
from flashgen.passes.sink_loads import SinkLoadsPass
from flashgen.problem import Problem
from flashgen.schedule import Schedule
from tests.head import HEAD, head, refused


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("interchang", "no pass is called 'interchang'; known: group-rows, lazy-rescale, sink-loads"),
        ("pack", "pass 'pack' has no 'panel'; a whole number is allowed"),
        ("pack{panel=x}", "option 'panel' of pass 'pack' is 'x'; a whole number is allowed"),
        ("fuse-sweeps{apart=1}", "option 'apart' of pass 'fuse-sweeps' is 1; true or false is allowed"),
        ("pack{panel=16,width=3}", "width"),
        ("interchange{x=1}", "x"),
        ("interchange,,", "passes 'interchange,,'"),
        ("pack{panel=", "passes 'pack{panel='"),
    ],
)
def test_pipelines_that_are_none(text, message):
    with pytest.raises(ParseFailure, match=re.escape(message)):
        parse_passes(text)


def test_a_panel_is_at_least_one_column():
    with pytest.raises(InvalidArgument, match="panel is 0"):
        run(parse(head()), parse_passes("pack{panel=0}"))


def test_a_pipeline_needs_every_field():
    with pytest.raises(InvalidArgument, match="fills its open fields first"):
        pipeline(Schedule(br=4), Problem(8))


OPTIONS = {
    "pack": "pack{panel=16}",
    "rescale-threshold": "rescale-threshold{threshold=8.0}",
    "split-keys": "split-keys{keys=64}",
}
"""How passes that need an option are spelled."""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + HEAD.replace("@head", "@tail"), "builtin.module: 2 functions; one is wanted"),
        (HEAD + "func.func private @g() -> ()", "builtin.module: 2 functions; one is wanted"),
        ("", "builtin.module: no functions; one is wanted"),
        ("%two = arith.constant 2.0 : f32" + HEAD, "arith.constant: stands outside a function"),
        (f"builtin.module {{ {HEAD} }} {HEAD}", "builtin.module: stands outside a function"),
    ],
    ids=["two", "a declaration", "none", "a constant", "a module"],
)
@pytest.mark.parametrize("name", [OPTIONS.get(p.name, p.name) for p in OWN])
def test_a_module_is_one_function(name, text, message):
    refused(name, f"builtin.module {{ {text} }}", message)


@dataclass(frozen=True)
class TurnAround(TilePass[Operation]):
    """A pass that is wrong: it puts the first operation of a function behind all that use it."""

    name = "turn-around"

    def match(self, module: ModuleOp) -> Operation:
        first = next(iter(module.ops)).regions[0].block.first_op
        assert first is not None
        return first

    def rewrite(self, module: ModuleOp, match: Operation) -> None:
        block = match.parent
        assert block is not None
        assert block.last_op is not None
        insert_before(block.last_op, match)


def test_the_driver_verifies_after_each_pass():
    seen: list[str] = []
    with pytest.raises(VerifyException, match="does not dominate its use"):
        run(
            parse(head()), [SinkLoadsPass(), TurnAround(), SinkLoadsPass()], lambda name, _: seen.append(name)
        )
    assert seen == ["sink-loads"]
