"""hoist-packs says where it is not legal, and changes nothing then; each case changes one thing."""

from __future__ import annotations

import pytest

from flashgen.ir.dialect import parse
from flashgen.passes.pipeline import parse_passes, run
from tests.head import example, refused

HEADS = example("hoist-packs/heads")
KEYS = "scf.for %j = %c0 to %Nk step %c4 {"
LOAD_K = "%kj = tile.load %k[%j, %c0] : memref<?x8xf32> -> tensor<4x8xf32>"
PACK_K = "%kp = tile.pack %kj transpose : tensor<4x8xf32> -> tensor<1x8x4xf32>"
STORE = "tile.store %y,"
EFFECT = "%one = arith.constant 1.0 : f32 memref.store %one, %k[%r, %c0] : memref<?x8xf32>"

CASES = {
    "nothing to do": (
        "func.func @f() { func.return }",
        "builtin.module: nothing is packed",
    ),
    "no loop": (
        f"func.func @f(%k: memref<?x8xf32>, %j: index, %c0: index) {{ {LOAD_K} {PACK_K} func.return }}",
        "tile.pack: stands in no loop",
    ),
    "loaded in front of the loop": (
        HEADS.replace(LOAD_K, "").replace(KEYS, f"{LOAD_K.replace('%j', '%i')}\n{KEYS}"),
        "tile.load: its position is not the counter of the loop around it in one dimension",
    ),
    "at a distance from the counter": (
        HEADS.replace(LOAD_K, f"%next = arith.addi %j, %c4 : index\n{LOAD_K.replace('%j', '%next')}"),
        "tile.load: its position is not the counter of the loop around it in one dimension",
    ),
    "a diagonal": (
        HEADS.replace(LOAD_K, LOAD_K.replace("%c0", "%j")),
        "tile.load: its position is not the counter of the loop around it in one dimension",
    ),
    "a step that is not known": (
        HEADS.replace(KEYS, KEYS.replace("%c4", "%R")),
        "scf.for: does not start at 0 with a constant step",
    ),
    "keys that an unknown effect changes": (
        HEADS.replace(STORE, f"{EFFECT} {STORE}"),
        "memref.store: has an effect that may change what is packed",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(case: str) -> None:
    text, message = CASES[case]
    refused("hoist-packs", text, message)


def test_legal_without_a_reason() -> None:
    run(parse(HEADS), parse_passes("hoist-packs"))
