"""The machines that flashgen emits for; installed as ``flashgen.targets``."""

from __future__ import annotations

from flashgen.errors import check_choice
from flashgen.targets.avx512bf16 import Avx512Bf16
from flashgen.targets.base import Target, TileLayout
from flashgen.targets.cpu import Avx2, Avx512
from flashgen.targets.cuda import Cuda

TARGETS: dict[str, Target] = {t.name: t for t in (Avx2(), Avx512(), Avx512Bf16(), Cuda())}


def find(name: str) -> Target:
    """The target of that name; raises InvalidArgument, which lists the known ones."""
    check_choice("target", name, TARGETS)
    return TARGETS[name]


__all__ = ["TARGETS", "Target", "TileLayout", "find"]
