"""What every pass is: it matches completely, then edits; or it refuses and has changed nothing."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Generic, NoReturn, TypeVar

from xdsl.context import Context
from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from flashgen.errors import IllegalPass

Match = TypeVar("Match")


@dataclass(frozen=True)
class TilePass(ModulePass, Generic[Match]):
    """One legal transformation of a module; its fields are its options.

    A subclass's docstring shows before ~> after, says when that is legal, and what it does not handle.
    """

    @abstractmethod
    def match(self, module: ModuleOp) -> Match:
        """All that the rewrite needs. Raises IllegalPass where the pass is not legal; changes nothing."""

    @abstractmethod
    def rewrite(self, module: ModuleOp, match: Match) -> None:
        """Carry it out. Never refuses."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.check_module(op)
        self.rewrite(op, self.match(op))

    def check_module(self, module: ModuleOp) -> None:
        """A module is one function: a match looks at all that is in it, and takes it for one kernel."""
        for op in module.ops:
            if not isinstance(op, func.FuncOp):
                self.refuse(op, "stands outside a function")
        functions = len(list(module.ops))
        if functions != 1:
            self.refuse(module, f"{functions or 'no'} functions; one is wanted")

    @classmethod
    def refuse(cls, op: Operation, reason: str) -> NoReturn:
        """Raise IllegalPass: this pass, that operation, the reason."""
        raise IllegalPass(cls.name, op.name, reason)
