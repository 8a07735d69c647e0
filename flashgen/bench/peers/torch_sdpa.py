"""PyTorch's scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flashgen.bench.cases import Case
from flashgen.bench.peers.base import Peer, Prepared, grouped, masked, need, top_left, ungrouped, visible


class TorchSdpa(Peer):
    """Called as it is, and with the query heads of a group as rows of one: it reads K and V once then."""

    key, name, package = "torch", "torch SDPA", "torch"

    def __init__(self, threads: int):
        super().__init__(threads)
        self.torch = need("torch")
        self.torch.set_num_threads(threads)

    def forms(
        self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray
    ) -> Mapping[str, Callable[[], Prepared]]:
        """is_causal aligns its mask top-left; where that is not the mask, one is given."""
        rows, heads = "heads of a group as rows", case.hq // case.hkv
        if top_left(case):
            forms = {"as is": lambda: self.prepare(case, q, k, v, is_causal=masked(case))}
            if heads > 1 and not masked(case):
                forms[rows] = lambda: self.prepare(case, grouped(case, q), k, v)
            return forms
        forms = {
            "causal_lower_right": lambda: self.prepare(case, q, k, v, attn_mask=self.lower_right(case)),
            "mask": lambda: self.prepare(case, q, k, v, attn_mask=self.mask(case)),
        }
        if heads > 1:
            forms[f"mask, {rows}"] = lambda: self.prepare(
                case, grouped(case, q), k, v, attn_mask=self.mask(case, heads)
            )
        return forms

    def lower_right(self, case: Case) -> Any:
        return need("torch.nn.attention.bias").causal_lower_right(case.nq, case.nk)

    def mask(self, case: Case, heads: int = 1) -> Any:
        return self.torch.from_numpy(visible(case, heads))

    def prepare(self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray, **mask: Any) -> Prepared:
        """mask: arguments that say which keys a row sees; all, without."""
        torch = self.torch
        attend = torch.nn.functional.scaled_dot_product_attention
        inputs = [torch.from_numpy(x) for x in (q, k, v)]
        enable_gqa = q.shape[1] != k.shape[1]

        def call() -> Any:
            with torch.inference_mode():
                return attend(*inputs, enable_gqa=enable_gqa, **mask)

        return Prepared(call, lambda o: ungrouped(case, o.numpy()))
