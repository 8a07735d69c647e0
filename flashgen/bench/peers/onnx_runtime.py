"""ONNX Runtime: each of its operators for attention, the fastest counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from flashgen.bench.cases import Case
from flashgen.bench.peers.base import Peer, Prepared, grouped, masked, need, top_left, ungrouped, visible

MICROSOFT = "com.microsoft"
OPSET = 23
"""The first with an operator for attention."""
IR_VERSION = 10


class OnnxRuntime(Peer):
    """A model of one node each: Attention of ONNX, MultiHeadAttention and GroupQueryAttention of its own."""

    key, name, package = "onnxruntime", "ONNX Runtime", "onnxruntime"

    def __init__(self, threads: int):
        super().__init__(threads)
        self.ort, self.onnx = need("onnxruntime"), need("onnx")

    @classmethod
    def version(cls) -> str | None:
        """Models are built with the package onnx: without it there is nothing to run."""
        return super().version() if find_spec("onnx") else None

    def forms(
        self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray
    ) -> Mapping[str, Callable[[], Prepared]]:
        """is_causal and unidirectional align their mask top-left; where that is not the mask, one is given,
        or all keys but those of the last Nq positions are in a cache."""
        forms: dict[str, Callable[[], Prepared]] = {}
        if top_left(case):
            forms["Attention"] = lambda: self.attention(case, q, k, v)
        else:
            forms["Attention, mask"] = lambda: self.attention(case, q, k, v, visible(case))
        if top_left(case) and case.hq == case.hkv:
            forms["MultiHeadAttention"] = lambda: self.multi_head(case, q, k, v)
        elif not masked(case):
            forms["MultiHeadAttention, heads of a group as rows"] = lambda: self.multi_head(
                case, grouped(case, q), k, v
            )
        # It has no other mask, and needs none for one row; of several rows and a cache it takes one batch.
        if case.nq == 1 or (case.causal and (case.nq == case.nk or case.batch == 1)):
            forms["GroupQueryAttention"] = lambda: self.group_query(case, q, k, v)
        return forms

    def attention(
        self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray, mask: np.ndarray | None = None
    ) -> Prepared:
        """mask: which keys a row sees, in place of is_causal."""
        inputs = {"q": q, "k": k, "v": v} | ({} if mask is None else {"mask": mask})
        is_causal = int(masked(case) and mask is None)
        node = self.onnx.helper.make_node("Attention", list(inputs), ["o"], is_causal=is_causal)
        return self.run(node, inputs, {"o": np.empty_like(q)}, lambda o: o)

    def multi_head(self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Prepared:
        """Queries and output (B, N, H * D), keys and values (B, H, N, D)."""
        node = self.onnx.helper.make_node(
            "MultiHeadAttention",
            ["q", "k", "v"],
            ["o"],
            domain=MICROSOFT,
            num_heads=q.shape[1],
            unidirectional=int(masked(case)),
        )
        rows = heads_last(q)
        inputs, outputs = {"q": rows, "k": k, "v": v}, {"o": np.empty_like(rows)}
        return self.run(node, inputs, outputs, lambda o: ungrouped(case, heads_first(o, q.shape[1])))

    def group_query(self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> Prepared:
        """All keys but those of the last Nq positions lie in a cache, which the operator writes in place."""
        names = ["q", "k", "v", "past_k", "past_v", "seqlens", "total"]
        node = self.onnx.helper.make_node(
            "GroupQueryAttention",
            names,
            ["o", "present_k", "present_v"],
            domain=MICROSOFT,
            num_heads=case.hq,
            kv_num_heads=case.hkv,
        )
        past = case.nk - case.nq
        rows, keys, values = heads_last(q), heads_last(k[:, :, past:]), heads_last(v[:, :, past:])
        cache_k, cache_v = k.copy(), v.copy()
        last = np.full(case.batch, case.nk - 1, np.int32)
        inputs = (rows, keys, values, cache_k, cache_v, last, np.array([case.nk], np.int32))
        outputs = {"o": np.empty_like(rows), "present_k": cache_k, "present_v": cache_v}
        return self.run(
            node, dict(zip(names, inputs, strict=True)), outputs, lambda o: heads_first(o, case.hq)
        )

    def run(
        self,
        node: Any,
        inputs: Mapping[str, np.ndarray],
        outputs: Mapping[str, np.ndarray],
        read: Callable[[np.ndarray], np.ndarray],
    ) -> Prepared:
        """A session of one node, with its inputs and outputs bound to memory that is there."""
        helper = self.onnx.helper

        def describe(arrays: Mapping[str, np.ndarray]) -> list[Any]:
            kind = helper.np_dtype_to_tensor_dtype
            return [helper.make_tensor_value_info(n, kind(x.dtype), x.shape) for n, x in arrays.items()]

        graph = helper.make_graph([node], "attention", describe(inputs), describe(outputs))
        opsets = [helper.make_opsetid("", OPSET), helper.make_opsetid(MICROSOFT, 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION)
        session = self.ort.InferenceSession(
            model.SerializeToString(), self.options(), ["CPUExecutionProvider"]
        )
        binding, tensor = session.io_binding(), self.ort.OrtValue.ortvalue_from_numpy
        tensors = {id(x): tensor(x) for x in (*inputs.values(), *outputs.values())}
        for name, x in inputs.items():
            binding.bind_ortvalue_input(name, tensors[id(x)])
        for name, x in outputs.items():
            binding.bind_ortvalue_output(name, tensors[id(x)])
        o = tensors[id(outputs["o"])]
        copies = sum(x.nbytes for x in inputs.values())
        return Prepared(lambda: session.run_with_iobinding(binding), lambda _: read(o.numpy()), copies)

    def options(self) -> Any:
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Its threads spin between the parts of a call, and stop behind it: other methods have the next turn.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        return options


def heads_last(x: np.ndarray) -> np.ndarray:
    """(B, H, N, D) ~> (B, N, H * D), copied."""
    batch, heads, length, head_dim = x.shape
    return np.ascontiguousarray(x.swapaxes(1, 2)).reshape(batch, length, heads * head_dim)


def heads_first(x: np.ndarray, heads: int) -> np.ndarray:
    """(B, N, H * D) ~> (B, H, N, D), a view."""
    batch, length, width = x.shape
    return x.reshape(batch, length, heads, width // heads).swapaxes(1, 2)
