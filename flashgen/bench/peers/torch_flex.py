"""PyTorch's flex_attention, compiled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flashgen.bench.cases import Case
from flashgen.bench.peers.base import Peer, Prepared, need


class TorchFlex(Peer):
    key, name, package = "flex", "flex", "torch"

    def __init__(self, threads: int):
        super().__init__(threads)
        self.torch, self.flex = need("torch"), need("torch.nn.attention.flex_attention")
        self.torch.set_num_threads(threads)

    def forms(
        self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray
    ) -> Mapping[str, Callable[[], Prepared]]:
        return {"compiled": lambda: self.prepare(case, q, k, v)}

    def prepare(self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Prepared:
        """Compiled for this shape; the causal mask is a block mask, by which it skips tiles."""
        torch = self.torch
        need("torch._dynamo").reset()  # else it compiles no more after eight shapes
        need("torch._inductor.config").fx_graph_cache = False  # which does not tell numbers of threads apart
        inputs = [torch.from_numpy(x) for x in (q, k, v)]
        enable_gqa, mask = case.hq != case.hkv, self.mask(case)
        compiled = torch.compile(self.flex.flex_attention, dynamic=False)

        def call() -> Any:
            with torch.no_grad():
                return compiled(*inputs, block_mask=mask, enable_gqa=enable_gqa)

        return Prepared(call, lambda o: o.numpy())

    def mask(self, case: Case) -> Any:
        if not case.causal:
            return None
        offset = case.nk - case.nq
        return self.flex.create_block_mask(
            lambda b, h, i, j: j <= i + offset, None, None, case.nq, case.nk, device="cpu"
        )
