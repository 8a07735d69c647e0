"""The arrays of a kernel for each layout: what all sequences share, and one sequence of an array."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.ir import SSAValue

from flashgen.ir.construct import dim, named, sub
from flashgen.ir.sequences import PagesOp, SequenceOp
from flashgen.layouts import Layout

Arguments = Mapping[str, SSAValue]
"""Of the function, by name."""


def sizes(layout: Layout, args: Arguments, c0: SSAValue, c1: SSAValue) -> tuple[SSAValue, SSAValue, SSAValue]:
    """B, Hq and Hkv: numbers of sequences, of query heads and of key heads."""
    packed = layout.queries == "packed"
    batch = sub(dim(args["cu_seqlens_q"], c0), c1) if packed else dim(args["q"], c0)
    heads = dim(args["q"], c0 if packed else c1)
    kv_heads = dim(args["k"], c0 if layout.keys == "packed" else c1)
    return named("B", batch), named("Hq", heads), named("Hkv", kv_heads)


def queries_of(layout: Layout, args: Arguments, b: SSAValue | None) -> list[SSAValue]:
    """q, o and lse as (B, Hq, Nq, ...); where they are packed, sequence b of them, as a batch of one."""
    found = [args[name] for name in ("q", "o", "lse")]
    if layout.queries == "dense":
        return found
    assert b is not None
    return [one(array, SequenceOp(array, args["cu_seqlens_q"], b)) for array in found]


def keys_of(layout: Layout, args: Arguments, b: SSAValue | None) -> list[SSAValue]:
    """k and v as (B, Hkv, Nk, ...); where they are packed or paged, sequence b of them, as a batch of one."""
    found = [args[name] for name in ("k", "v")]
    if layout.keys == "dense":
        return found
    assert b is not None
    if layout.keys == "packed":
        return [one(array, SequenceOp(array, args["cu_seqlens_k"], b)) for array in found]
    return [one(array, PagesOp(array, args["block_table"], args["seqlens_k"], b)) for array in found]


def one(array: SSAValue, op: SequenceOp | PagesOp) -> SSAValue:
    """The sequence, named after its array."""
    return named(f"{array.name_hint}_b", op.result)
