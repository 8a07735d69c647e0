"""What is measured: shapes of attention, and how much work each is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from flashgen.errors import InvalidArgument
from flashgen.problem import Problem

FLOAT, DOUBLE = 4, 8  # bytes
MOST_DIGITS = 18
"""Of a number; Python itself refuses to read thousands."""
FEW_ROWS = 8
"""A product of so many query rows with K or V does at most four operations a byte, less than any CPU's ratio
of floating-point peak to memory bandwidth: it waits for memory."""


@dataclass(frozen=True)
class Case:
    """A shape, float32. causal: row i sees no key after i + Nk - Nq, where Nq <= Nk."""

    name: str
    batch: int
    hq: int
    hkv: int
    nq: int
    nk: int
    head_dim: int
    causal: bool = False

    @property
    def label(self) -> str:
        sizes = f"{self.batch},{self.hq},{self.hkv},{self.nq},{self.nk},{self.head_dim}"
        return sizes + (",causal" if self.causal else "")

    @property
    def words(self) -> str:
        """What it is: how many queries and keys, heads and sequences."""
        keys = several(self.nk, "key")
        if self.nq == 1:
            what = f"decoding: 1 query, {keys}"
        else:
            what = f"prefill: {self.nq} queries" + (" and keys" if self.nq == self.nk else f", {keys}")
        heads = f"{several(self.hq, 'head')} of {self.head_dim}"
        heads += f" on {self.hkv} of K and V" if self.hkv < self.hq else ""
        sequences = f", {self.batch} sequences" if self.batch > 1 else ""
        return f"{what}, {heads}{sequences}{', causal' if self.causal else ''}"

    @property
    def rows(self) -> int:
        """Queries of all heads of a group."""
        return self.nq * (self.hq // self.hkv)

    @property
    def problem(self) -> Problem:
        return Problem(self.head_dim, causal="bottom-right" if self.causal else None)

    @property
    def operations(self) -> int:
        """Floating-point operations of the two products: 4 B Hq Nq Nk D, less half of Nq Nq for causal."""
        pairs = self.nq * self.nk - (self.nq**2 // 2 if self.causal else 0)
        return 4 * self.batch * self.hq * pairs * self.head_dim

    @property
    def kv_bytes(self) -> int:
        """Bytes of K and V."""
        return 2 * FLOAT * self.batch * self.hkv * self.nk * self.head_dim

    @property
    def array_bytes(self) -> int:
        """Bytes of Q, K, V, O and, in float64, of the reference's O and lse: without them nothing can run."""
        rows = self.batch * self.hq * self.nq
        return self.kv_bytes + 2 * FLOAT * rows * self.head_dim + DOUBLE * rows * (self.head_dim + 1)

    @property
    def reads(self) -> bool:
        """Whether memory bandwidth is what bounds it, not arithmetic."""
        return self.rows <= FEW_ROWS

    @property
    def work(self) -> int:
        """Of a call, in what its rate counts: bytes of K and V, or floating-point operations."""
        return self.kv_bytes if self.reads else self.operations

    @property
    def unit(self) -> str:
        return "GB/s" if self.reads else "GFLOP/s"


CASES = {
    case.name: case
    for case in (
        Case("P1", 1, 8, 8, 2048, 2048, 64),
        Case("P2", 1, 8, 8, 2048, 2048, 64, causal=True),
        Case("P3", 1, 8, 8, 2048, 2048, 128),
        Case("P4", 1, 8, 8, 2048, 2048, 128, causal=True),
        Case("P5", 1, 4, 4, 8192, 8192, 128),
        Case("P6", 1, 4, 4, 8192, 8192, 128, causal=True),
        Case("P7", 1, 32, 8, 1024, 1024, 128, causal=True),
        Case("P8", 8, 12, 12, 128, 128, 64),
        Case("P9", 1, 12, 12, 512, 512, 64),
        Case("D1", 1, 32, 8, 1, 8192, 128),
        Case("D2", 1, 8, 8, 1, 65536, 128),
    )
}
"""P: prefill, long and short, with and without a mask, grouped heads; D: decoding, one query row."""

SIZES = tuple(field.name for field in fields(Case) if field.type == "int")
FORM = "B,Hq,Hkv,Nq,Nk,D[,causal]"


def several(number: int, thing: str) -> str:
    """(2, "key") ~> "2 keys" """
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def choose_cases(names: str | None, shapes: Sequence[str]) -> list[Case]:
    """The cases of ``--cases`` and of each ``--shape``. Raises InvalidArgument."""
    chosen = [] if names is None else list(CASES) if names == "all" else names.split(",")
    for name in chosen:
        if name not in CASES:
            raise InvalidArgument("cases", repr(name), f"all, or some of {','.join(CASES)} is allowed")
    return [*(CASES[name] for name in dict.fromkeys(chosen)), *map(parse_shape, dict.fromkeys(shapes))]


def parse_shape(text: str) -> Case:
    """ "1,8,8,512,512,64,causal" ~> a case of that name. Raises InvalidArgument."""
    words = [word.strip() for word in text.split(",")]
    if causal := words[-1] == "causal":
        words.pop()
    numbers = [number for number in map(whole_number, words) if number is not None]
    if not len(words) == len(numbers) == len(SIZES):
        raise InvalidArgument(
            "shape", repr(text), f"{FORM} is allowed, numbers of up to {MOST_DIGITS} digits"
        )
    sizes = dict(zip(SIZES, numbers, strict=True))
    if 0 in numbers:
        raise InvalidArgument("shape", repr(text), "sizes above 0 are allowed")
    if sizes["hq"] % sizes["hkv"]:
        raise InvalidArgument("shape", repr(text), "a multiple of Hkv is allowed as Hq")
    if causal and sizes["nq"] > sizes["nk"]:
        raise InvalidArgument("shape", repr(text), "with causal, at most Nk is allowed as Nq")
    case = Case("", **sizes, causal=causal)
    return Case(case.label, **sizes, causal=causal)


def whole_number(word: str) -> int | None:
    """What a word of up to MOST_DIGITS plain digits says; None for any other."""
    return int(word) if word.isascii() and word.isdigit() and len(word) <= MOST_DIGITS else None
