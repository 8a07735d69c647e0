"""From the name of a method to what computes it."""

from __future__ import annotations

from flashgen.bench.ours import Ours
from flashgen.bench.peers import PEERS
from flashgen.bench.peers.base import Peer
from flashgen.bench.tasks import OURS
from flashgen.targets.cpu import Cpu


def make_method(name: str, target: Cpu, threads: int) -> Peer:
    return Ours(threads, target) if name == OURS else PEERS[name](threads)
