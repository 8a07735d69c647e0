"""What is to be computed. Knows nothing of loops, tiles or machines."""

from __future__ import annotations

import hashlib
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flashgen.errors import InvalidArgument, check_choice, check_positive
from flashgen.expression import Array, Expression, Scalar
from flashgen.layouts import INPUTS, LAYOUTS

DTYPES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16", "float64": "f64"}
"""Storage types, and what names of kernels call them."""

CAUSAL = ("bottom-right", "top-left")
ALIGNMENTS = (None, *CAUSAL)


@dataclass(frozen=True)
class Problem:
    """One attention problem: O = softmax(scale * Q K^T, masked) V, and the logsumexp of each row.

    Batch, heads, lengths, strides, ``scale``, and the arrays and numbers that the mask and the score read are
    run-time values: one kernel serves them all.

    head_dim: D, the length of a query and of a key.
    head_dim_v: Dv, the length of a value and of an output row; D where it is not given or None.
    dtype: storage of q, k, v and o, "float32", "float16", "bfloat16" or "float64"; arithmetic and lse are
        float64 with the last of these, else float32 (``computed``).
    causal: None (every key is visible), "bottom-right" (key j is visible to row i when
        j <= i + Nk - Nq: the last row sees every key) or "top-left" (j <= i).
    mask: an expression (flashgen.expression) of kind "bool" that says which keys a row sees, of those that
        ``causal`` shows; None: all of them.
    score: an expression of kind "float" that takes the place of a score, which is its leaf "score"; where it
        is -inf, the row does not see the key. None: the score itself.
    sink: whether each query head has a logit of its own in every row's sum (the array "sink"), to which no
        value belongs.
    layout: how sequences lie in the arrays (flashgen.layouts). "dense": one length for all. "packed": one
        behind the other, as the arrays "cu_seqlens_q" and "cu_seqlens_k" say. "paged": keys and values in
        pages, as "block_table" and "seqlens_k" say. "packed-paged": packed queries, keys in pages. Positions,
        Nq and Nk are those of each sequence.

    Raises InvalidArgument.
    """

    head_dim: int
    head_dim_v: int = None  # pyright: ignore[reportAssignmentType]  # an int from __post_init__ on
    dtype: str = "float32"
    causal: str | None = None
    mask: Expression | None = None
    score: Expression | None = None
    sink: bool = False
    layout: str = "dense"

    if TYPE_CHECKING:  # None may be given and is never found

        def __init__(
            self,
            head_dim: int,
            head_dim_v: int | None = None,
            dtype: str = "float32",
            causal: str | None = None,
            mask: Expression | None = None,
            score: Expression | None = None,
            sink: bool = False,
            layout: str = "dense",
        ): ...

    def __post_init__(self) -> None:
        check_positive("head_dim", self.head_dim)
        if self.head_dim_v is None:
            object.__setattr__(self, "head_dim_v", self.head_dim)
        check_positive("head_dim_v", self.head_dim_v)
        check_choice("dtype", self.dtype, DTYPES)
        if self.causal is not None:
            check_choice("causal", self.causal, ALIGNMENTS)
        check_expression("mask", self.mask, "bool")
        check_expression("score", self.score, "float")
        check_choice("sink", self.sink, (True, False))
        check_choice("layout", self.layout, LAYOUTS)
        check_names([*self.arrays, *self.scalars])
        check_types(self.read_arrays, self.dtype)
        check_constants([v for v in self._values() if isinstance(v, float)], self.computed)

    @property
    def arrays(self) -> tuple[Array, ...]:
        """What a kernel reads beside q, k and v: to find a sequence, then of the mask, of the score, and the
        sink, in this order."""
        sink = (Array("sink", 1, computed(self.dtype)),) if self.sink else ()
        return (*LAYOUTS[self.layout].arrays, *self.read_arrays, *sink)

    @property
    def read_arrays(self) -> tuple[Array, ...]:
        """Those of the mask and of the score."""
        return tuple(dict.fromkeys(v for v in self._values() if isinstance(v, Array)))

    @property
    def stored(self) -> tuple[str, ...]:
        """Floating types of all arrays, that of q, k, v and o first."""
        return tuple(dict.fromkeys([self.dtype, *(a.dtype for a in self.arrays if a.kind == "float")]))

    @property
    def scalars(self) -> tuple[Scalar, ...]:
        """The numbers that a kernel is told beside the scale, in the order in which they first stand."""
        return tuple(dict.fromkeys(v for v in self._values() if isinstance(v, Scalar)))

    def _values(self) -> list[object]:
        return [e.value for part in (self.mask, self.score) if part is not None for e in part.walk()]

    @property
    def computed(self) -> str:
        """The type of scores, of all arithmetic, and of lse: "float32" or "float64"."""
        return computed(self.dtype)

    @property
    def name(self) -> str:
        """Made of every field, safe as a file name and as a C identifier; expressions are hashed."""
        mask = f"causal_{self.causal.replace('-', '_')}" if self.causal else "full"
        parts = {"mask": self.mask, "score": self.score}
        mods = "".join(f"_{part}_{digest(e)}" for part, e in parts.items() if e is not None)
        sink = "_sink" if self.sink else ""
        layout = f"_{self.layout.replace('-', '_')}" if self.layout != "dense" else ""
        dims = f"d{self.head_dim}_dv{self.head_dim_v}"
        return f"attention_{dims}_{DTYPES[self.dtype]}_{mask}{mods}{sink}{layout}"


def computed(dtype: str) -> str:
    """The type that scores, sums and lse of a storage type have."""
    return "float64" if dtype == "float64" else "float32"


READ = {"float32": ("float16", "bfloat16", "float32"), "float64": ("float32", "float64")}
"""Floating types that masks and scores may read, by the type that they are computed in."""


def check_types(arrays: tuple[Array, ...], dtype: str) -> None:
    """Raise InvalidArgument for an array of floats that are not read where ``dtype`` is stored."""
    allowed = READ[computed(dtype)]
    for a in arrays:
        if a.kind == "float" and a.dtype not in allowed:
            what = f"with {dtype} for q, k and v {', '.join(allowed)} are allowed"
            raise InvalidArgument(f"type of {a.name}", a.dtype, what)


HELD = {"float32": (2.0**-150, 2.0**128 - 2.0**104), "float64": (0.0, sys.float_info.max)}
"""Of each type computed in, up to which size numbers round to 0, and the largest number."""


def holds(computed: str, x: float) -> bool:
    """Whether a number keeps its kind in that type: a finite one does not become infinite, nor 0."""
    least, most = HELD[computed]
    return x == 0 or not math.isfinite(x) or least < abs(x) <= most


def check_constants(constants: list[float], computed: str) -> None:
    """Raise InvalidArgument for a number that the type computed in does not hold."""
    for x in constants:
        if not holds(computed, x):
            raise InvalidArgument("a constant", x, f"a number that {computed} holds is allowed")


def digest(e: Expression) -> str:
    """Eight hexadecimal digits that stand for an expression and the types of what it reads."""
    typed = [repr(v) for v in dict.fromkeys(x.value for x in e.walk()) if isinstance(v, Array | Scalar)]
    return hashlib.sha256("\n".join([str(e), *typed]).encode()).hexdigest()[:8]


RESERVED = {"q", "k", "v", "o", "lse", "scale", "threads", "out"}
OWN = {"sink", *INPUTS}
"""Arrays that a problem's sink and layout read: no name for what a traced function reads."""


def check_expression(argument: str, value: object, kind: str) -> None:
    """Raise InvalidArgument unless ``value`` is None or an expression of this kind."""
    if value is None:
        return
    if not isinstance(value, Expression):
        allowed = "a flashgen.expression.Expression is allowed, or None"
        raise InvalidArgument(argument, f"of type {type(value).__name__}", allowed)
    if value.kind != kind:
        raise InvalidArgument(argument, f"of kind {value.kind}", f"an expression of kind {kind} is allowed")
    if argument == "mask" and any(e.op == "score" for e in value.walk()):
        raise InvalidArgument("mask", str(value), "positions, lengths and inputs are allowed, not the score")


def check_names(inputs: list[Array | Scalar]) -> None:
    """Raise InvalidArgument where two inputs share a name, or one has a name that means something else."""
    seen: set[str] = set()
    for v in inputs:
        if v.name in seen | RESERVED or not v.name.isidentifier() or not v.name.isascii():
            allowed = f"an identifier is allowed, each once, and none of {', '.join(sorted(RESERVED))}"
            raise InvalidArgument("name of an input", repr(v.name), allowed)
        seen.add(v.name)
