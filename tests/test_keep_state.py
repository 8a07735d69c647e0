"""keep-state on a module in which each of its four steps could go too far: what it computes stays."""

from __future__ import annotations

import numpy as np
import pytest

from flashgen.build import build
from flashgen.interpret import interpret
from flashgen.ir.dialect import parse
from flashgen.passes.pipeline import parse_passes, run
from flashgen.problem import Problem
from tests.modules import check
from tests.strategies import make_inputs

TEXT = """
func.func @f(%o: memref<16xf32>, %in: memref<16xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %c8 = arith.constant 8 : index
  %one = arith.constant 1.0 : f32
  %ones = tile.broadcast %one : f32 -> tensor<4xf32>
  %acc = memref.alloc() : memref<16xf32>
  %w = memref.alloc() : memref<16xf32>
  %unread = memref.alloc() : memref<16xf32>
  tile.store %ones, %unread[%c0] : tensor<4xf32>, memref<16xf32>
  tile.store %ones, %w[%c0] : tensor<4xf32>, memref<16xf32>
  tile.store %ones, %acc[%c0] : tensor<4xf32>, memref<16xf32>
  tile.store %ones, %acc[%c4] : tensor<4xf32>, memref<16xf32>
  scf.for %j = %c0 to %n step %c4 {
    %old = tile.load %acc[%c0] : memref<16xf32> -> tensor<4xf32>
    %x = tile.load %w[%c0] : memref<16xf32> -> tensor<4xf32>
    %y = tile.load %in[%c0] : memref<16xf32> -> tensor<4xf32>
    %xy = arith.addf %x, %y : tensor<4xf32>
    %new = arith.addf %old, %xy : tensor<4xf32>
    tile.store %new, %acc[%c0] : tensor<4xf32>, memref<16xf32>
    tile.store %new, %w[%j] : tensor<4xf32>, memref<16xf32>
  }
  %first = tile.load %acc[%c0] : memref<16xf32> -> tensor<4xf32>
  tile.store %first, %o[%c0] : tensor<4xf32>, memref<16xf32>
  scf.for %k = %c0 to %c8 step %c4 {
    tile.store %ones, %acc[%k] : tensor<4xf32>, memref<16xf32>
  }
  %second = tile.load %acc[%c0] : memref<16xf32> -> tensor<4xf32>
  tile.store %second, %o[%c4] : tensor<4xf32>, memref<16xf32>
  func.return
}"""


def results(module, n: int) -> np.ndarray:
    o = np.zeros(16)
    interpret(module, o, np.arange(16.0), n)
    return o


@pytest.mark.parametrize("n", [0, 4, 12])
def test_what_it_computes_stays(n):
    """n = 0: the loop runs not at all. w is read at a place that a later iteration has written."""
    module = parse(TEXT)
    before = results(module, n)
    run(module, parse_passes("keep-state"))
    np.testing.assert_array_equal(results(module, n), before)


def test_a_load_that_moves_in_front_of_a_loop_may_lie_beyond_its_bound():
    """In each iteration it lies in bounds; behind causal-skip the loop over whole tiles has none for some."""
    problem = Problem(4, causal="bottom-right")
    module = build(problem, 3, 4)
    run(module, parse_passes("sink-loads,interchange,fuse-loops,causal-skip"))
    assert "%q[%b, %h, %i, %c0] in_bounds" in str(module)
    run(module, parse_passes("keep-state"))
    check(module, problem, make_inputs(problem, "plain", (1, 2, 1, 4, 9), 0.5))


def test_what_it_moves():
    module = parse(TEXT)
    run(module, parse_passes("keep-state"))
    text = str(module)
    loop = text[text.index("scf.for %j") : text.index("scf.yield")]
    assert "%acc[" not in loop, "the state is carried"
    assert "%in[" not in loop, "what is only read is loaded in front"
    assert "tile.load %w[%c0]" in loop, "what the loop stores to is loaded where it was"
    assert "%unread" not in text, "a workspace that nobody reads is gone"
    assert "%w = memref.alloc" in text


ALONE = """
func.func @f(%o: memref<16xf32>, %in: memref<16xf32>, %n: index) {
  %c0 = arith.constant 0 : index
  %c4 = arith.constant 4 : index
  %one = arith.constant 1.0 : f32
  %ones = tile.broadcast %one : f32 -> tensor<4xf32>
  %acc = memref.alloc() : memref<16xf32>
  tile.store %ones, %acc[%c0] : tensor<4xf32>, memref<16xf32>
  BETWEEN
  scf.for %j = %c0 to %n step %c4 {
    %old = tile.load %acc[%c0] : memref<16xf32> -> tensor<4xf32>
    %new = arith.addf %old, %ones : tensor<4xf32>
    tile.store %new, %acc[%c0] : tensor<4xf32>, memref<16xf32>
  }
  BEHIND
  %first = tile.load %acc[%c0] : memref<16xf32> -> tensor<4xf32>
  tile.store %first, %o[%c0] : tensor<4xf32>, memref<16xf32>
  func.return
}"""
READS = "%x = memref.load %acc[%c0] : memref<16xf32> memref.store %x, %o[%c0] : memref<16xf32>"
WRITES = "memref.store %one, %acc[%c0] : memref<16xf32>"


def kept(between: str = "", behind: str = "") -> str:
    """ALONE behind keep-state."""
    module = parse(ALONE.replace("BETWEEN", between).replace("BEHIND", behind))
    run(module, parse_passes("keep-state"))
    return str(module)


def test_what_is_stored_is_forwarded():
    assert "%acc = memref.alloc" not in kept()


@pytest.mark.parametrize("effect", [READS, WRITES, f"scf.for %k = %c0 to %n step %c4 {{ {READS} }}"])
def test_an_effect_that_is_not_understood_ends_what_is_known(effect):
    """In front of the loop it may read what was stored, behind it write what is loaded."""
    name = "memref.store" if effect is WRITES else "memref.load"
    text = kept(between=effect)
    assert text.index("tile.store %ones, %acc[") < text.index(name) < text.index("tile.load %acc[")
    text = kept(behind=effect)
    assert text.index("tile.store %new, %acc[") < text.index(name) < text.index("tile.load %acc[")
