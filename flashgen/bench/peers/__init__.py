"""Libraries that compute attention on a CPU: one file each."""

from __future__ import annotations

from collections.abc import Sequence

from flashgen.bench.peers.base import Peer
from flashgen.bench.peers.numpy_peer import NumPy
from flashgen.bench.peers.onnx_runtime import OnnxRuntime
from flashgen.bench.peers.open_vino import OpenVino
from flashgen.bench.peers.torch_flex import TorchFlex
from flashgen.bench.peers.torch_sdpa import TorchSdpa
from flashgen.errors import InvalidArgument

PEERS: dict[str, type[Peer]] = {
    peer.key: peer for peer in (TorchSdpa, TorchFlex, OnnxRuntime, OpenVino, NumPy)
}
EXTRA = "pip install 'flashgen[bench]'"


def choose_peers(names: str) -> tuple[list[str], list[str]]:
    """The peers of ``--peers`` that are installed, and those that are not.

    names: "all", "none" or keys between commas. Raises InvalidArgument, also for one that is asked for by its
    key and not installed.
    """
    keys = {"all": list(PEERS), "none": []}.get(names, names.split(","))
    check_peers(keys)
    present = [key for key in dict.fromkeys(keys) if PEERS[key].version() is not None]
    absent = [key for key in keys if key not in present]
    if absent and names != "all":
        raise InvalidArgument("peers", repr(names), f"{', '.join(absent)} is not installed: {EXTRA}")
    return present, absent


def check_peers(keys: Sequence[str]) -> None:
    for key in keys:
        if key not in PEERS:
            raise InvalidArgument("peers", repr(key), f"all, none, or some of {','.join(PEERS)} is allowed")
