"""What must hold of masks and scores without a reference."""

from __future__ import annotations

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from xdsl.dialects import scf

from flashgen.analysis.keys import visible, visited_tiles
from flashgen.analysis.linear import induction
from flashgen.emission import source
from flashgen.ir.regions import MaskOp
from flashgen.problem import Problem
from flashgen.schedule import Schedule
from flashgen.targets.cpu import Avx2
from tests.compiled import Build, call, kernels, library
from tests.mods import PROBLEMS, SOFTCAP, random_inputs, what_is_read
from tests.modules import stages

OF_DATA = ("document, causal", "by head", "blocks", "boolean")
SIZES = (1, 4, 2, 50, 70)


@pytest.mark.parametrize("name", OF_DATA)
def test_skipping_tiles_changes_no_bit(name: str) -> None:
    problem, rng = PROBLEMS[name], np.random.default_rng(5)
    pairs = [(problem, Schedule("q-outer", 16, 16, causal_skip=skip)) for skip in (True, False)]
    x = random_inputs(problem, rng, SIZES)
    x.v[0, 1, 30, 2] = np.inf
    inputs = what_is_read(rng, x)
    skipped, whole = (call(kernel, x, values=inputs) for kernel in kernels(Build(Avx2()), tuple(pairs)))
    for a, b in zip(skipped, whole, strict=True):
        np.testing.assert_array_equal(a.view(np.int32), b.view(np.int32))


def test_a_sink_of_minus_infinity_changes_no_bit() -> None:
    plain, rng = Problem(8, causal="bottom-right"), np.random.default_rng(6)
    pairs = [(p, Schedule("q-outer", 16, 16)) for p in (plain, replace(plain, sink=True))]
    without, with_sink = kernels(Build(Avx2()), tuple(pairs))
    x = random_inputs(plain, rng, (1, 2, 1, 20, 12))  # some rows see no key
    none = {"sink": np.full(2, -np.inf, np.float32)}
    for a, b in zip(call(without, x), call(with_sink, x, values=none), strict=True):
        np.testing.assert_array_equal(a.view(np.int32), b.view(np.int32))


@pytest.mark.parametrize("name", [*OF_DATA, "window", "padding", "not", "prefix"])
def test_visited_tiles_contain_the_visible_keys(name: str) -> None:
    """And tiles without a mask are visible as a whole."""
    problem, (batch, heads, _, nq, nk) = PROBLEMS[name], (1, 2, 1, 17, 22)
    schedule = Schedule("q-outer", 4, 5, True, True, 0, False, False, 0.0, 0)
    module = stages(problem, schedule)["nan-in-sum"]
    (mask,) = [op for op in module.walk() if isinstance(op, MaskOp)]
    loop = mask.parent_op()
    assert isinstance(loop, scf.ForOp)
    skipped = 0
    for seed in range(4):
        rng = np.random.default_rng(seed)
        inputs = what_is_read(rng, random_inputs(problem, rng, (batch, heads, 1, nq, nk)))
        if seed == 0:
            inputs["ids"][:] = np.arange(nk) // 11
        known = {**inputs, "Nq": nq, "Nk": nk, "offset": nk - nq, "b": 0}
        for h in range(heads):
            for i in range(0, nq, 4):
                here = {**known, "h": h, "i": i}
                values = {v: here[v.name_hint] for v in outside(module) if v.name_hint in here}
                values |= {v: int(inputs["lens"][0]) for v in outside(module) if is_length(v)}
                arrays = {v: a for v, a in values.items() if isinstance(a, np.ndarray)}
                tiles = visited_tiles(mask, loop, values, arrays)
                visits = {p: each.masked for each in tiles for p in each.positions}
                for j in range(0, nk, 5):
                    shown = visible(mask, np.arange(i, i + 4), np.arange(j, j + 5), values, arrays)
                    assert j in visits or not shown.any(), "a visible key is not visited"
                    assert visits.get(j, True) or shown.all(), "an invisible key is not masked"
                    skipped += j not in visits
    assert skipped or name == "blocks"


def outside(module):
    """Every value that has a name."""
    (function,) = module.ops
    yield from function.body.block.args
    for op in module.walk():
        yield from op.results
        if isinstance(op, scf.ForOp):
            yield induction(op)


def is_length(v) -> bool:
    """lens[b], which is read once a batch."""
    return getattr(v.owner, "name", "") == "tile.element" and v.owner.source.name_hint == "lens"


FUNCTIONS = """
extern "C" void elementwise(const float *in, float *tanh_out, float *exp_out, int64_t n) {
  for (isize i = 0; i < n; i += lanes) {
    store(tanh_out + i, tanh(load(in + i)));
    store(exp_out + i, exp(load(in + i)));
  }
}
"""


def test_tanh_and_exp_are_right_in_ulp_of_the_result() -> None:
    problem = Problem(8, score=SOFTCAP)
    head, end, _ = source(problem, Schedule(br=8, bc=8), Avx2()).partition("}  // namespace\n")
    text = head + end + FUNCTIONS
    x = np.concatenate(
        [s * np.geomspace(1e-30, 87.0, 20000) for s in (1, -1)] + [np.linspace(-2, 2, 20000)]
    ).astype(np.float32)
    found = np.empty_like(x), np.empty_like(x)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (x, *found)]
    ctypes.CDLL(str(library(text, Build(Avx2())))).elementwise(*pointers, ctypes.c_int64(x.size))
    for got, want, ulps in ((found[0], np.tanh(x.astype(float)), 3), (found[1], np.exp(x.astype(float)), 2)):
        apart = np.abs(got - want) / np.spacing(np.abs(want).astype(np.float32))
        assert apart.max() <= ulps
    special = np.array([np.inf, -np.inf, np.nan, 0, 1e30, -1e30, 200, -200], np.float32)
    pointers = [a.ctypes.data_as(ctypes.c_void_p) for a in (special, found[0], found[1])]
    ctypes.CDLL(str(library(text, Build(Avx2())))).elementwise(*pointers, ctypes.c_int64(8))
    np.testing.assert_array_equal(found[0][:8], [1, -1, np.nan, 0, 1, -1, 1, -1])
    np.testing.assert_array_equal(found[1][:8], [np.inf, 0, np.nan, 1, np.inf, 0, np.inf, 0])
