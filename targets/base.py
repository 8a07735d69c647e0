"""What a machine is, as far as emission needs to know: a description, never code that runs on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from flashgen.errors import InvalidArgument
from flashgen.plan.layout import TileLayout
from flashgen.plan.model import KernelPlan
from flashgen.problem import Problem
from flashgen.schedule import Schedule

SHORT_QUERIES, SHORT_KEYS = (16, 32), (64, 128, 256)
"""Numbers of queries, and of keys, up to which a smaller tile may pay."""
MANY_QUERIES, MANY_KEYS = 1024, 4096
"""With more of both larger tiles may pay, and with more keys to split them."""
QUERY_STEPS, KEY_STEPS = (*SHORT_QUERIES, MANY_QUERIES), (*SHORT_KEYS, MANY_KEYS)
ROW_STEPS = (1, 4, 8, 16)
"""Rows that a group has, its heads times their queries, up to which tiles of as many rows may pay."""


class Target(ABC):
    """One kind of machine. Subclasses are stateless, so two of a kind are equal; limits are of the class."""

    name: ClassVar[str]
    """What --target takes; part of every variant's name."""
    language: ClassVar[str]
    """Folder of templates: "cpp" or "cuda"."""
    suffix: ClassVar[str]
    """File name ending of its source."""
    dtypes: ClassVar[dict[str, tuple[str, ...]]]
    """Storage types that its templates know; for each, the files that only kernels of that type include."""
    products: ClassVar[tuple[str, ...]] = ("float32",)
    """Types that it multiplies in; see Schedule."""
    block_threads: ClassVar[int] = 0
    """Threads of a block that share its tiles; barriers are then part of the plan. 0: each has its own."""

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other)

    def __hash__(self) -> int:
        return hash(type(self))

    def complete(self, problem: Problem, schedule: Schedule) -> Schedule:
        """The schedule with its open fields filled, checked to fit.

        Raises InvalidArgument (a type, panel or product that this target does not have) or TargetLimit (which
        resource, how much of it, and the nearest tiles that fit).
        """
        if problem.dtype not in self.dtypes:
            allowed = f"target {self.name} has {', '.join(self.dtypes)}"
            raise InvalidArgument("dtype", repr(problem.dtype), allowed)
        self.check_products(problem, schedule)
        filled = self.fill(problem, schedule)
        self.check(problem, filled)
        return filled

    def check_products(self, problem: Problem, schedule: Schedule) -> None:
        """Raise InvalidArgument unless the target has such products, and the problem's type fits them."""
        if schedule.products not in self.products:
            allowed = f"target {self.name} multiplies in {', '.join(self.products)}"
            raise InvalidArgument("products", repr(schedule.products), allowed)
        if schedule.products not in ("float32", problem.dtype):
            allowed = f"dtype {problem.dtype!r} would be rounded; 'float32' or the problem's dtype is allowed"
            raise InvalidArgument("products", repr(schedule.products), allowed)

    def suit(self, problem: Problem, schedule: Schedule, query_len: int, key_len: int, rows: int) -> Schedule:
        """The schedule with open fields chosen for a call of these lengths.

        rows: queries of all heads of a group. What a target leaves open here is the same for every length
        (``fill``). Its choice may change at QUERY_STEPS, KEY_STEPS and ROW_STEPS alone: kernels are
        remembered by where a call lies among them.
        """
        return schedule

    @abstractmethod
    def layout(self, problem: Problem) -> TileLayout:
        """How tiles lie in scratch memory."""

    @abstractmethod
    def layers(self, problem: Problem, kernel: KernelPlan) -> tuple[str, ...]:
        """Files of the language's folder that a kernel includes, in order."""

    @abstractmethod
    def fill(self, problem: Problem, schedule: Schedule) -> Schedule:
        """The schedule with br, bc and panel decided."""

    @abstractmethod
    def check(self, problem: Problem, schedule: Schedule) -> None:
        """Raise unless the complete schedule fits this machine."""
