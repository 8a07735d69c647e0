"""How the sequences of a problem lie in its arrays: each as a batch, packed one behind the other, in pages.

A kernel's arrays have heads in front of rows, (B, H, N, D); so shapes are stated here. Where heads stand in
the memory of a caller is a matter of strides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from flashgen.expression import Array


@dataclass(frozen=True)
class Layout:
    """Where the sequences' queries are, and where their keys: "dense", "packed" or "paged".

    dense: (B, H, N, ...), all of one length.
    packed: (H, total, ...), sequence b in the rows from starts[b] up to starts[b + 1].
    paged: (pages, H, page_size, ...), of sequence b the first seqlens_k[b] rows of the pages that line b of
        the block table names.
    """

    queries: str
    keys: str

    @cached_property
    def arrays(self) -> tuple[Array, ...]:
        """What a kernel reads to find a sequence."""
        starts = [Array("cu_seqlens_q", 1, "int32")] if self.queries == "packed" else []
        of_keys = {
            "packed": [Array("cu_seqlens_k", 1, "int32")],
            "paged": [Array("block_table", 2, "int32"), Array("seqlens_k", 1, "int32")],
        }
        return (*starts, *of_keys.get(self.keys, []))

    @cached_property
    def shapes(self) -> Mapping[str, tuple[str, ...]]:
        """A kernel's arrays, and a name for each of their dimensions; those of one name are equal."""
        rows = {"dense": ("B", "Hq", "Nq"), "packed": ("Hq", "total_q")}[self.queries]
        keys = {
            "dense": ("B", "Hkv", "Nk"),
            "packed": ("Hkv", "total_k"),
            "paged": ("pages", "Hkv", "page_size"),
        }[self.keys]
        found = {"q": (*rows, "D"), "k": (*keys, "D"), "v": (*keys, "Dv"), "o": (*rows, "Dv"), "lse": rows}
        return found | {a.name: INPUTS[a.name] for a in self.arrays}


INPUTS = {
    "cu_seqlens_q": ("B + 1",),
    "cu_seqlens_k": ("B + 1",),
    "block_table": ("B", "max_pages"),
    "seqlens_k": ("B",),
}
"""Shapes of the arrays that a kernel reads to find a sequence."""

MEANINGS = {
    "cu_seqlens_q": "sequence b has queries cu_seqlens_q[b] up to cu_seqlens_q[b + 1]; from 0 up to total_q",
    "cu_seqlens_k": "sequence b has keys cu_seqlens_k[b] up to cu_seqlens_k[b + 1]; from 0 up to total_k",
    "block_table": "key n of sequence b is in slot n % page_size of page block_table[b][n / page_size]",
    "seqlens_k": "how many keys a sequence has",
}
"""What these arrays say, for the header of a kernel."""

LAYOUTS = {
    "dense": Layout("dense", "dense"),
    "packed": Layout("packed", "packed"),
    "paged": Layout("dense", "paged"),
    "packed-paged": Layout("packed", "paged"),
}
