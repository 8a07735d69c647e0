"""PyTorch's scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flashgen.bench.cases import Case
from flashgen.bench.peers.base import Peer, Prepared, grouped, need, ungrouped


class TorchSdpa(Peer):
    """Called as it is, and with the query heads of a group as rows of one: it reads K and V once then."""

    key, name, package = "torch", "torch SDPA", "torch"

    def __init__(self, threads: int):
        super().__init__(threads)
        self.torch = need("torch")
        self.torch.set_num_threads(threads)

    def cannot(self, case: Case) -> str | None:
        if case.causal and case.nq != case.nk:
            return "is_causal aligns its mask top-left"
        return None

    def forms(
        self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray
    ) -> Mapping[str, Callable[[], Prepared]]:
        forms = {"as is": lambda: self.prepare(case, q, k, v)}
        if case.hq != case.hkv and not case.causal:
            forms["heads of a group as rows"] = lambda: self.prepare(case, grouped(case, q), k, v)
        return forms

    def prepare(self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Prepared:
        torch = self.torch
        attend = torch.nn.functional.scaled_dot_product_attention
        inputs = [torch.from_numpy(x) for x in (q, k, v)]
        enable_gqa = q.shape[1] != k.shape[1]

        def call() -> Any:
            with torch.inference_mode():
                return attend(*inputs, is_causal=case.causal, enable_gqa=enable_gqa)

        return Prepared(call, lambda o: ungrouped(case, o.numpy()))
