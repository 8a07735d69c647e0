"""What a method of attention is to the benchmark: ours, or a library's."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

import numpy as np

from flashgen.bench.cases import Case


@dataclass(frozen=True)
class Prepared:
    """A call that is ready to be timed.

    call: computes O of the inputs that it was made with. read: O as (B, Hq, Nq, D), from what ``call`` gave.
    copies: bytes of inputs that preparing it copied.
    """

    call: Callable[[], Any]
    read: Callable[[Any], np.ndarray] = np.asarray
    copies: int = 0


class Peer(ABC):
    """A library that computes attention. What it needs is imported in its methods.

    Each gets its inputs in the layout that it likes, outside the time that is measured, and is free to offer
    several forms of a call: the fastest that is right is the one compared.
    """

    key: ClassVar[str]
    """What --peers calls it."""
    name: ClassVar[str]
    """What its column is called."""
    package: ClassVar[str]
    """What has to be installed."""

    def __init__(self, threads: int):
        """Has the library use so many threads; the environment says so, too, to those that read it."""
        self.threads = threads

    @classmethod
    def version(cls) -> str | None:
        """What is installed; None if it is not."""
        try:
            return version(cls.package)
        except PackageNotFoundError:
            return None

    def cannot(self, case: Case) -> str | None:
        """Why it has no answer to a case; None if it has one."""
        return None

    @abstractmethod
    def forms(
        self, case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray
    ) -> Mapping[str, Callable[[], Prepared]]:
        """By name, what prepares a call: compiles, converts, allocates. q, k, v: (B, H, N, D), contiguous."""


def need(module: str) -> Any:
    """A module of a library that need not be there, so that nothing is known of its types."""
    return importlib.import_module(module)


def masked(case: Case) -> bool:
    """Whether some row does not see every key: a single one of a causal case sees them all."""
    return case.causal and case.nq > 1


def top_left(case: Case) -> bool:
    """Whether a causal mask that is aligned top-left will do, or none."""
    return not masked(case) or case.nq == case.nk


def visible(case: Case, heads: int = 1) -> np.ndarray:
    """(heads * Nq, Nk), bool: which keys a row of a causal case sees, for heads one below the other."""
    return np.tile(np.tri(case.nq, case.nk, case.nk - case.nq, bool), (heads, 1))


def grouped(case: Case, q: np.ndarray) -> np.ndarray:
    """(B, Hq, Nq, D) as (B, Hkv, Hq / Hkv * Nq, D): heads that share K and V as rows of one; no copy.

    Exact where no mask tells rows apart, or with a mask for these rows.
    """
    return q.reshape(case.batch, case.hkv, case.rows, case.head_dim)


def ungrouped(case: Case, o: np.ndarray) -> np.ndarray:
    """(B, Hkv, Hq / Hkv * Nq, D) as (B, Hq, Nq, D)."""
    return o.reshape(case.batch, case.hq, case.nq, case.head_dim)
