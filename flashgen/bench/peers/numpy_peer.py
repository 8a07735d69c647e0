"""Standard attention in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from flashgen.bench.cases import Case
from flashgen.bench.peers.base import Peer, Prepared
from flashgen.bench.standard import standard_attention


class NumPy(Peer):
    """Its threads are those of OpenBLAS, which the environment sets; the softmax has one."""

    key, name, package = "numpy", "NumPy", "numpy"

    def forms(
        self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray
    ) -> Mapping[str, Callable[[], Prepared]]:
        call = Prepared(lambda: standard_attention(q, k, v, case.causal), lambda result: result[0])
        return {"matmul and exp": lambda: call}
