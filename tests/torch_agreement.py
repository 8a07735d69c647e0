"""PyTorch's own scaled_dot_product_attention as a second opinion: random problems of what both define alike.

    python tests/torch_agreement.py [HOW_MANY] [SEED]

PyTorch computes in float64 by its plain path (SDPBackend.MATH), on the very numbers that our kernel is given.
What both define in the same way is drawn: is_causal (with our causal_alignment="top-left", which is
PyTorch's), boolean and additive masks of every broadcast shape, rows that see nothing (0 in both), grouped
heads, scales, storage types, strides, sizes of 0 and 1. What they define differently is not drawn, and stands
in DIFFERENT.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

import flashgen
from flashgen.combine import combine
from flashgen.problem import Problem, computed
from flashgen.reference import bound

DIFFERENT = {
    "is_causal with Nq != Nk": "ours is bottom-right unless causal_alignment says otherwise",
    "is_causal beside attn_mask": "PyTorch refuses it; ours means both",
    "NaN or infinities in K or V where the mask is False": "PyTorch multiplies them by 0, which is NaN",
    "a scale below 2^-126 or beyond 2.35e38": "ours refuses it",
    "dropout_p, requires_grad": "ours has no backward pass",
}
SIZES = (0, 1, 2, 3, 5, 16, 17, 31, 33, 64, 65, 70)
DIMS = ((24, 24), (64, 40), (1, 3))
"""D and Dv; few, as each pair is a kernel for every kind of problem."""
SCHEDULES = (flashgen.Schedule(br=16, bc=64), flashgen.Schedule(order="kv-outer", br=32, bc=64))
DTYPES = ("float64", "float32", "float16", "bfloat16")


@dataclass(frozen=True)
class Drawn:
    """Tensors of PyTorch, (B, H, N, D), and what both are called with."""

    q: Any
    k: Any
    v: Any
    mask: Any
    is_causal: bool
    scale: float | None
    schedule: flashgen.Schedule | None

    @property
    def words(self) -> str:
        mask = None if self.mask is None else (self.mask.dtype, tuple(self.mask.shape))
        shapes = [tuple(x.shape) for x in (self.q, self.k, self.v)]
        return f"{shapes} {self.q.dtype} mask {mask} is_causal {self.is_causal} scale {self.scale}"


def draw(rng: np.random.Generator, torch: Any) -> Drawn:
    batch, heads_kv, group = (int(rng.choice(n)) for n in ((1, 2, 3), (1, 2), (1, 2, 3)))
    nq, nk = (int(rng.choice(SIZES)) for _ in range(2))
    d, dv = DIMS[int(rng.integers(len(DIMS)))]
    dtype = getattr(torch, str(rng.choice(DTYPES)))
    q, k, v = (
        strided(rng, torch, (batch, h, n, width)).to(dtype)
        for h, n, width in ((heads_kv * group, nq, d), (heads_kv, nk, d), (heads_kv, nk, dv))
    )
    kind = rng.choice(("none", "causal", "bool", "bias"))
    mask = None
    if kind in ("bool", "bias"):
        shape = [int(rng.choice((1, n))) for n in (batch, heads_kv * group, nq, nk)]
        shape = shape[int(rng.integers(0, 3)) :] if min(shape) else shape
        mask = drawn_mask(rng, torch, shape, kind == "bool", dtype)
    scale = None if rng.random() < 0.5 else float(rng.choice((-1.0, 0.0, 0.3, 2.0)))
    schedule = None if rng.random() < 0.1 else SCHEDULES[int(rng.integers(len(SCHEDULES)))]
    return Drawn(q, k, v, mask, kind == "causal", scale, schedule)


def strided(rng: np.random.Generator, torch: Any, shape: tuple[int, ...]) -> Any:
    """Numbers, of float32, in one of several layouts."""
    x = torch.from_numpy(rng.standard_normal((*shape[:-1], 2 * shape[-1]), dtype=np.float32))
    layouts = (
        x[..., : shape[-1]].clone,
        lambda: x[..., ::2],
        lambda: x[..., : shape[-1]].transpose(1, 2).contiguous().transpose(1, 2),
        lambda: x[:, :1, :, : shape[-1]].expand(shape),
    )
    return layouts[int(rng.integers(len(layouts)))]()


def drawn_mask(rng: np.random.Generator, torch: Any, shape: list[int], boolean: bool, dtype: Any) -> Any:
    seen = torch.from_numpy(rng.random(shape) < rng.choice((0.0, 0.3, 0.9)))
    if boolean:
        return seen
    bias = torch.from_numpy(rng.standard_normal(shape)).to(dtype)
    return torch.where(seen, bias, float("-inf")) if rng.random() < 0.5 else bias


def compare(drawn: Drawn, torch: Any) -> None:
    """Raise AssertionError, with what was drawn, where the two disagree by more than the bound."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q, k, v, mask = drawn.q, drawn.k, drawn.v, drawn.mask
    wide = [x.double() for x in (q, k, v)]
    wide_mask = mask if mask is None or mask.dtype == torch.bool else mask.double()
    with sdpa_kernel(SDPBackend.MATH):
        want = torch.nn.functional.scaled_dot_product_attention(
            *wide, attn_mask=wide_mask, is_causal=drawn.is_causal, scale=drawn.scale, enable_gqa=True
        )
    causal = {"causal_alignment": "top-left"} if drawn.is_causal else {}
    got = flashgen.attention(
        q,
        k,
        v,
        attn_mask=mask,
        is_causal=drawn.is_causal,
        scale=drawn.scale,
        enable_gqa=True,
        schedule=drawn.schedule,
        **causal,
    )
    assert got.dtype == q.dtype and got.shape == want.shape, drawn.words
    allowed = bound_of(drawn, torch)
    apart = (got.double() - want).abs()
    assert bool((apart <= torch.from_numpy(allowed)).all()), f"{drawn.words}: {float(apart.max())} apart"


def bound_of(drawn: Drawn, torch: Any) -> np.ndarray:
    """The reference's bound, (B, Hq, 1, 1)."""
    q, k, v = (x.double().numpy() for x in (drawn.q, drawn.k, drawn.v))
    mask = drawn.mask  # read as the kernel reads it: a bias of 16 bits is one of float32, to a reference
    if mask is not None:
        whole = mask if mask.dtype in (torch.bool, torch.float64) else mask.float()
        mask = whole.numpy()
    dtype = str(drawn.q.dtype).removeprefix("torch.")
    shape = (*q.shape[:3], k.shape[2])
    options = combine(shape, attn_mask=mask, is_causal=drawn.is_causal, causal_alignment="top-left")
    problem = Problem(q.shape[3], v.shape[3], dtype, options.causal, options.mask, options.score)
    scale = 1 / np.sqrt(q.shape[3]) if drawn.scale is None else drawn.scale
    found = bound(problem, q, k, v, scale, computed(dtype), values=options.values)
    return found.o[:, :, None, None]


def agree(count: int, seed: int = 0) -> dict[str, int]:
    """Hold so many random problems to PyTorch; how many there were of each kind."""
    import torch

    rng = np.random.default_rng(seed)
    kinds: dict[str, int] = {}
    for _ in range(count):
        drawn = draw(rng, torch)
        compare(drawn, torch)
        mask = "none" if drawn.mask is None else "bool" if drawn.mask.dtype == torch.bool else "bias"
        kind = f"{str(drawn.q.dtype).removeprefix('torch.')} {'causal' if drawn.is_causal else mask}"
        kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


if __name__ == "__main__":
    count, seed = (int(a) for a in (*sys.argv[1:], *("1000", "0")[len(sys.argv) - 1 :]))
    for kind, times in sorted(agree(count, seed).items()):
        print(f"{times:5} {kind}")
    print(f"{count} problems agree with PyTorch")
