"""Processors with 512-bit vectors and products of bfloat16 pairs."""

from __future__ import annotations

from typing import ClassVar

from flashgen.plan.model import KernelPlan
from flashgen.problem import Problem
from flashgen.targets.cpu import Avx512

PRODUCTS = {"tile_dot_pairs", "tile_dot_pairs_where"}
LAYERS = {
    "avx512bf16.hpp": PRODUCTS,
    "pairs.hpp": PRODUCTS,
    "pack_pairs.hpp": {"tile_pack_pairs"},
    "dot_pairs.hpp": PRODUCTS,
    "dot_pairs_where.hpp": {"tile_dot_pairs_where"},
}
"""Files that a kernel has, behind those of every CPU's, only with one of these operations."""


class Avx512Bf16(Avx512):
    """x86-64-v4 with AVX512-BF16 (Cooper Lake, Sapphire Rapids, Zen 4, and later): vdpbf16ps.

    A schedule gets such products only when it asks for them: they round P, and what they gain has not been
    measured. They have the register block of float32's: an accumulator is as wide, and an instruction does
    two steps of the contraction with as many operands.
    """

    name = "avx512bf16"
    products: ClassVar = ("float32", "bfloat16")
    flags = (*Avx512.flags, "-mavx512bf16")
    features = (*Avx512.features, "avx512_bf16")

    def layers(self, problem: Problem, kernel: KernelPlan) -> tuple[str, ...]:
        operations = kernel.operations
        some = (name for name, wanted in LAYERS.items() if wanted & operations)
        return (*super().layers(problem, kernel), *some)
