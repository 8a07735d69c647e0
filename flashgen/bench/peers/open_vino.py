"""OpenVINO's ScaledDotProductAttention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from flashgen.bench.cases import Case
from flashgen.bench.peers.base import Peer, Prepared, grouped, masked, need, top_left, ungrouped, visible


class OpenVino(Peer):
    """A model of that one operation, in float32: on processors with AMX its default is bfloat16.

    Query heads of a group share K and V by a broadcast in the model or, where no mask tells them apart, as
    rows of one head.
    """

    key, name, package = "openvino", "OpenVINO", "openvino"

    def __init__(self, threads: int):
        super().__init__(threads)
        self.openvino, self.operations = need("openvino"), need("openvino.opset15")

    def forms(
        self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray
    ) -> Mapping[str, Callable[[], Prepared]]:
        """causal aligns its mask top-left; where that is not the mask, one is given."""
        mask = "" if top_left(case) else ", mask"
        if case.hq == case.hkv:
            return {f"as is{mask}": lambda: self.prepare(case, q, k, v)}
        forms = {f"K and V broadcast{mask}": lambda: self.prepare(case, q, k, v)}
        if mask or not masked(case):
            forms[f"heads of a group as rows{mask}"] = lambda: self.prepare(case, grouped(case, q), k, v)
        return forms

    def prepare(self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Prepared:
        arrays, operations = [q, k, v], self.operations
        given = not top_left(case)
        if given:
            arrays.append(visible(case, q.shape[2] // case.nq))
        inputs = [operations.parameter(x.shape, x.dtype) for x in arrays]
        keys, values = inputs[1:3]
        if q.shape[1] != k.shape[1]:
            keys, values = (self.broadcast(case, x) for x in (keys, values))
        o = operations.scaled_dot_product_attention(
            inputs[0], keys, values, *inputs[3:], causal=masked(case) and not given
        )
        core = self.openvino.Core()
        compiled = core.compile_model(self.openvino.Model([o], inputs), "CPU", self.configuration())
        request = compiled.create_infer_request()
        for index, x in enumerate(arrays):
            request.set_input_tensor(index, self.openvino.Tensor(x, shared_memory=True))

        def call(kept: object = arrays) -> None:  # tensors share their memory without keeping it
            request.infer()

        return Prepared(call, lambda _: ungrouped(case, request.get_output_tensor(0).data))

    def broadcast(self, case: Case, x: Any) -> Any:
        """(B, Hkv, Nk, D) ~> (B, Hq, Nk, D)."""
        operations, each = self.operations, (case.batch, case.hkv, 1, case.nk, case.head_dim)
        repeated = (*each[:2], case.hq // case.hkv, *each[3:])
        whole = (case.batch, case.hq, *each[3:])
        grouped_heads = operations.broadcast(operations.reshape(x, each, False), repeated)
        return operations.reshape(grouped_heads, whole, False)

    def configuration(self) -> dict[str, Any]:
        return {
            "INFERENCE_PRECISION_HINT": "f32",
            "INFERENCE_NUM_THREADS": self.threads,
            "NUM_STREAMS": 1,
            "ENABLE_CPU_PINNING": False,  # a thread that is pinned would pin those that other methods start
        }
