"""Everything that flashgen raises on purpose.

A message is one line: the argument, its value and what is allowed. The command line prints it after
``error:`` and exits with status 2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping


class FlashgenError(Exception):
    """The root of the hierarchy; catch it to catch every deliberate refusal."""


class InvalidArgument(FlashgenError, ValueError):
    """An argument is outside what is allowed: names it, gives its value and what would be right."""

    def __init__(self, argument: str, value: object, allowed: str):
        super().__init__(f"{argument} is {value}; {allowed}")
        self.argument, self.value, self.allowed = argument, value, allowed


class ConflictingOptions(FlashgenError):
    """Two options of a command that do not go together: names both, each with its value if it takes one."""

    def __init__(self, given: str, refused: str):
        super().__init__(f"with {given}, {refused} is not allowed")
        self.given, self.refused = given, refused


class IllegalPass(FlashgenError):
    """A pass was asked for where it is not legal: names the pass, the operation and the reason."""

    def __init__(self, pass_name: str, op_name: str, reason: str):
        super().__init__(f"{pass_name}: {op_name}: {reason}")
        self.pass_name, self.op_name, self.reason = pass_name, op_name, reason


class ParseFailure(FlashgenError):
    """A text is not a module, or a pipeline is not a list of passes."""


class TargetLimit(FlashgenError):
    """A kernel does not fit its target: which resource, how much, and what would fit."""


class MissingTool(FlashgenError):
    """A compiler or a device is not here: what to install, and what works without it."""


class CannotEmit(FlashgenError):
    """A module that verifies has a form that plans or templates do not have: passes are missing."""


class CompileFailure(FlashgenError):
    """A compiler refused an emitted file; carries the compiler's own words."""


class KernelFailure(FlashgenError):
    """A compiled kernel reported that it could not run (for instance, out of memory)."""


def check_one(options: Mapping[str, object]) -> None:
    """Raise ConflictingOptions where more than one is given; None and False stand for one that is not."""
    given = [
        name if value is True else f"{name} {str(value)!r}"
        for name, value in options.items()
        if value is not None and value is not False
    ]
    if len(given) > 1:
        raise ConflictingOptions(given[0], given[1])


def check_choice(argument: str, value: object, choices: Iterable[object]) -> None:
    """Raise InvalidArgument unless ``value`` is one of ``choices``, of its type: 1 is not True."""
    known = list(choices)
    if not any(isinstance(value, type(choice)) and value == choice for choice in known):
        raise InvalidArgument(argument, repr(value), f"one of {', '.join(map(repr, known))} is allowed")


def check_positive(argument: str, value: object, least: int = 1, most: int | None = None) -> None:
    """Raise InvalidArgument unless ``value`` is an int of at least ``least``, and of at most ``most``."""
    too_large = isinstance(value, int) and most is not None and value > most
    if isinstance(value, bool) or not isinstance(value, int) or value < least or too_large:
        allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InvalidArgument(argument, repr(value), f"a whole number {allowed} is allowed")
