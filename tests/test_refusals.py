"""Texts that are no pipeline, and pipelines that lack something; for passes see test_refusals_*."""

from __future__ import annotations

import re

import pytest

from flashgen.errors import InvalidArgument, ParseFailure
from flashgen.ir.dialect import parse
from flashgen.passes.pipeline import parse_passes, pipeline, run
from flashgen.schedule import Schedule
from tests.head import head


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("interchang", "no pass is called 'interchang'; known: lazy-rescale, sink-loads, interchange"),
        ("pack", "pack requires argument"),
        ("pack{panel=x}", "panel"),
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
        pipeline(Schedule(br=4))
