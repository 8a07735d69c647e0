"""Our own kernels, as methods of the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from flashgen.bench.cases import Case
from flashgen.bench.peers.base import Peer, Prepared
from flashgen.schedule import Schedule
from flashgen.targets.base import Target


class Ours(Peer):
    """flashgen.attention as users call it; schedule and threads are its own choice, unless one is given."""

    key, name, package = "flashgen", "flashgen", "flashgen"

    def __init__(self, threads: int, target: Target, schedule: Schedule | None = None):
        super().__init__(threads)
        self.target, self.schedule = target, schedule

    def forms(
        self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray
    ) -> Mapping[str, Callable[[], Prepared]]:
        from flashgen import api

        def call() -> np.ndarray:
            return api.attention(  # pyright: ignore[reportReturnType]  # O alone
                q, k, v, is_causal=case.causal, enable_gqa=True, schedule=self.schedule, target=self.target
            )

        return {"attention": lambda: Prepared(call)}
