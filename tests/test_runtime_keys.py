"""F17: a new key of the cache exactly where the emitted source or the flags change."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest

import flashgen
from flashgen import FA2, Problem, Schedule
from flashgen.runtime import cpu as cpu_module
from flashgen.targets.avx512bf16 import Avx512Bf16
from flashgen.targets.cpu import Avx2, Avx512
from tests.mods import DOCUMENT, SOFTCAP, WINDOW

VARIANTS = [
    (Problem(8), FA2, Avx2()),
    (Problem(9, 8), FA2, Avx2()),
    (Problem(8, 9), FA2, Avx2()),
    (Problem(8, causal="bottom-right"), FA2, Avx2()),
    (Problem(8, causal="top-left"), FA2, Avx2()),
    (Problem(8, dtype="float16"), FA2, Avx2()),
    (Problem(8, mask=WINDOW), FA2, Avx2()),
    (Problem(8, mask=DOCUMENT), FA2, Avx2()),
    (Problem(8, score=SOFTCAP), FA2, Avx2()),
    (Problem(8, sink=True), FA2, Avx2()),
    (Problem(8, layout="packed"), FA2, Avx2()),
    (Problem(8, layout="paged"), FA2, Avx2()),
    (Problem(8), replace(FA2, order="kv-outer"), Avx2()),
    (Problem(8), replace(FA2, br=6), Avx2()),
    (Problem(8), replace(FA2, bc=64), Avx2()),
    (Problem(8), replace(FA2, lazy_rescale=False), Avx2()),
    (Problem(8), replace(FA2, causal_skip=False), Avx2()),
    (Problem(8), replace(FA2, hoist_packs=False), Avx2()),
    (Problem(8), replace(FA2, panel=0), Avx2()),
    (Problem(8), replace(FA2, group_rows=True), Avx2()),
    (Problem(8), replace(FA2, rescale_threshold=8.0), Avx2()),
    (Problem(8), replace(FA2, split_keys=1024), Avx2()),
    (Problem(8), replace(FA2, fetch_ahead=True), Avx2()),
    (Problem(8), FA2, Avx512()),
    (Problem(8, dtype="bfloat16"), FA2, Avx512Bf16()),
    (Problem(8, dtype="bfloat16"), replace(FA2, products="bfloat16"), Avx512Bf16()),
]


def key_of(monkeypatch: pytest.MonkeyPatch, problem: Problem, schedule: Schedule, target: Avx2) -> str:
    """The cache's key of a variant."""
    keys: list[str] = []
    with monkeypatch.context() as patch:
        patch.setattr(cpu_module, "fetch", lambda key, build: keys.append(key))
        cpu_module.library(flashgen.emit(problem, schedule, target), "f", target)
    return keys[0]


def test_each_field_changes_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    changed = {
        f.name
        for problem, schedule, _ in VARIANTS
        for value, base in ((problem, VARIANTS[0][0]), (schedule, VARIANTS[0][1]))
        for f in fields(value)
        if getattr(value, f.name) != getattr(base, f.name)
    }
    everything = {f.name for kind in (Problem, Schedule) for f in fields(kind)}
    assert everything == changed
    assert len({key_of(monkeypatch, *variant) for variant in VARIANTS}) == len(VARIANTS)


def test_what_changes_no_source_changes_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    first = key_of(monkeypatch, Problem(8), FA2, Avx2())
    filled = Avx2().complete(Problem(8), FA2)
    assert key_of(monkeypatch, Problem(8, 8), filled, Avx2()) == first
