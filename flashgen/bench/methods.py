"""From the name of a method to what computes it."""

from __future__ import annotations

from flashgen.bench.ours import Ours
from flashgen.bench.peers import PEERS
from flashgen.bench.peers.base import Peer
from flashgen.bench.tasks import EMITTED_1, EMITTED_2, LAZY, OURS, Q_OUTER, WHOLE, WITHOUT
from flashgen.schedule import FA1, FA2, Schedule
from flashgen.targets.cpu import Cpu

SCHEDULES = {
    EMITTED_1: FA1,
    LAZY: Schedule("kv-outer", lazy_rescale=True, causal_skip=False),
    Q_OUTER: Schedule("q-outer", lazy_rescale=True, causal_skip=False),
    EMITTED_2: FA2,
}
"""From FlashAttention-1 on, each adds a choice to the one above it."""


def make_method(name: str, target: Cpu, threads: int) -> Peer:
    """Of a task's methods, any but sgemm."""
    if name == OURS:
        return Ours(threads, target)
    if name in SCHEDULES:
        return Ours(threads, target, SCHEDULES[name])
    if name == WHOLE or name.startswith(WITHOUT):
        from flashgen.bench.ablation import Ablated

        return Ablated(threads, target, name.removeprefix(WITHOUT) if name != WHOLE else "")
    return PEERS[name](threads)
