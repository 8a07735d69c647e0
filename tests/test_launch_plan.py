"""LaunchPlan: grid and workspace as functions of the sizes."""

from __future__ import annotations

import pytest

from flashgen.plan.launch import LaunchPlan, Sizes, Trips

SIZES = Sizes(batch=2, query_heads=6, kv_heads=3, query_len=65, key_len=7)
HEADS = (Trips("B"), Trips("Hkv"), Trips("group"))


def test_query_tiles_are_blocks_where_the_query_loop_is_parallel():
    plan = LaunchPlan((*HEADS, Trips("Nq", 64)), threads=128, shared_bytes=1024)
    assert plan.blocks(SIZES) == 2 * 3 * 2 * 2
    assert plan.workspace_elements(SIZES) == 0


def test_each_block_has_its_own_workspace():
    plan = LaunchPlan(HEADS, threads=128, shared_bytes=1024, workspace=(("Nq", 40), ("Nq",), ("Nq",)))
    assert plan.blocks(SIZES) == 12
    assert plan.workspace_elements(SIZES) == 12 * (65 * 40 + 65 + 65)


@pytest.mark.parametrize("zero", ["batch", "query_heads", "kv_heads", "query_len"])
def test_no_work_is_no_block(zero: str):
    sizes = Sizes(**{**vars(SIZES), zero: 0})
    assert LaunchPlan((*HEADS, Trips("Nq", 64)), 128, 0).blocks(sizes) == 0


def test_an_unknown_size_is_an_error():
    with pytest.raises(KeyError, match="Nz"):
        LaunchPlan((Trips("Nz"),), 128, 0).blocks(SIZES)
