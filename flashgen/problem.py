"""What is to be computed. Knows nothing of loops, tiles or machines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashgen.errors import check_choice, check_positive

DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}
"""Storage types, and what names of kernels call them."""

CAUSAL = ("bottom-right", "top-left")
ALIGNMENTS = (None, *CAUSAL)


@dataclass(frozen=True)
class Problem:
    """One attention problem: O = softmax(scale * Q K^T, masked) V, and the logsumexp of each row.

    Batch, heads, lengths, strides and ``scale`` are run-time values: one kernel serves them all.

    head_dim: D, the length of a query and of a key.
    head_dim_v: Dv, the length of a value and of an output row; D where it is not given or None.
    dtype: storage of q, k, v and o, "float32", "float16", "bfloat16" or "float64"; arithmetic and lse are
        float64 with the last of these, else float32 (``computed``).
    causal: None (every key is visible), "bottom-right" (key j is visible to row i when
        j <= i + Nk - Nq: the last row sees every key) or "top-left" (j <= i).

    Raises InvalidArgument.
    """

    head_dim: int
    head_dim_v: int = None  # pyright: ignore[reportAssignmentType]  # an int from __post_init__ on
    dtype: str = "float32"
    causal: str | None = None

    if TYPE_CHECKING:  # None may be given and is never found

        def __init__(
            self,
            head_dim: int,
            head_dim_v: int | None = None,
            dtype: str = "float32",
            causal: str | None = None,
        ): ...

    def __post_init__(self) -> None:
        check_positive("head_dim", self.head_dim)
        if self.head_dim_v is None:
            object.__setattr__(self, "head_dim_v", self.head_dim)
        check_positive("head_dim_v", self.head_dim_v)
        check_choice("dtype", self.dtype, DTYPES)
        if self.causal is not None:
            check_choice("causal", self.causal, CAUSAL)

    @property
    def computed(self) -> str:
        """The type of scores, of all arithmetic, and of lse: "float32" or "float64"."""
        return "float64" if self.dtype == "float64" else "float32"

    @property
    def name(self) -> str:
        """Made of every field, safe as a file name and as a C identifier."""
        mask = f"causal_{self.causal.replace('-', '_')}" if self.causal else "full"
        return f"attention_d{self.head_dim}_dv{self.head_dim_v}_{DTYPES[self.dtype]}_{mask}"
