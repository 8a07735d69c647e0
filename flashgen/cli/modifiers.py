"""Masks, scores and sinks from the options of a command: named ones, texts, and functions in Python files."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashgen import notation
from flashgen.errors import InvalidArgument, check_choice
from flashgen.expression import Array, Expression
from flashgen.problem import CAUSAL, Problem

if TYPE_CHECKING:
    from flashgen.combine import Combined

OPTIONS = ("mask", "score", "inputs", "window", "alibi", "softcap", "sink", "mask_mod", "score_mod")


def make_problem(options: Mapping[str, Any]) -> Problem:
    """Of the parameters, by name, of a command that emits: values of inputs are not known, and need not be.

    Raises InvalidArgument.
    """
    head_dim, head_dim_v = options["head_dim"], options["head_dim_v"]
    dtype, causal = options["dtype"], options["causal"]
    if causal is not None:
        check_choice("causal", causal, CAUSAL)
    if all(options[name] is None or options[name] is False for name in OPTIONS):
        return Problem(head_dim, head_dim_v, dtype, causal, layout=options["layout"])
    mask, score, _ = made(options, declared(options))
    return Problem(head_dim, head_dim_v, dtype, causal, mask, score, options["sink"], options["layout"])


def declared(options: Mapping[str, Any]) -> dict[str, notation.Input]:
    """The inputs of texts. Raises InvalidArgument where they are declared for none."""
    text = options["inputs"]
    if text is not None and options["mask"] is None and options["score"] is None:
        raise InvalidArgument("inputs", repr(text), "it needs --mask or --score, which read them")
    return notation.inputs(text or "")


def made(
    options: Mapping[str, Any], inputs: Mapping[str, notation.Input]
) -> tuple[Expression | None, Expression | None, dict[str, Any]]:
    """The mask and the score of all options but ``causal``, and the values of what is not in ``inputs``."""
    from flashgen import mods
    from flashgen.trace import trace_both

    masks, scores = masks_of(options, inputs), []
    if options["softcap"] is not None:
        scores.append(mods.softcap(options["softcap"]))
    if options["score"] is not None:
        scores.append(mods.written(text_of(options["score"], inputs, "score", "float")))
    if options["score_mod"] is not None:
        scores.append(function_of("score_mod", options["score_mod"]))
    if options["alibi"]:
        alignment = options["causal"] or mods.DEFAULT
        scores.append(mods.alibi(1, alignment))  # of how many heads is known at the call
    return trace_both(
        masks[0] if len(masks) == 1 else mods.and_masks(*masks) if masks else None,
        scores[0] if len(scores) == 1 else mods.chain(*scores) if scores else None,
    )


def masks_of(options: Mapping[str, Any], inputs: Mapping[str, notation.Input]) -> list[Callable[..., Any]]:
    """What --window, --mask and --mask-mod show. Raises InvalidArgument."""
    from flashgen import mods

    masks = []
    if options["window"] is not None:
        masks.append(mods.sliding_window(*bounds(options["window"]), options["causal"] or mods.DEFAULT))
    if options["mask"] is not None:
        masks.append(mods.written(text_of(options["mask"], inputs, "mask", "bool")))
    if options["mask_mod"] is not None:
        masks.append(function_of("mask_mod", options["mask_mod"]))
    return masks


def bounds(window: str) -> tuple[int | None, int | None]:
    """LEFT,RIGHT; what is empty is no bound. Raises InvalidArgument."""
    words = [word.strip() for word in window.split(",")]
    try:
        left, right = (int(word) if word else None for word in words)
    except ValueError as error:
        allowed = "two whole numbers with a comma between them are allowed, or nothing for no bound"
        raise InvalidArgument("window", repr(window), allowed) from error
    return left, right


def text_of(text: str, inputs: Mapping[str, notation.Input], argument: str, kind: str) -> Expression:
    """An expression of this kind. Raises InvalidArgument."""
    e = notation.parse(text, inputs, argument)
    if e.kind != kind:
        raise InvalidArgument(argument, repr(text), f"an expression of kind {kind} is allowed, not {e.kind}")
    if argument == "mask" and any(x.op == "score" for x in e.walk()):
        raise InvalidArgument(
            argument, repr(text), "positions, lengths and inputs are allowed, not the score"
        )
    return e


def names_in(text: str, argument: str) -> list[str]:
    """The inputs that a text reads, of what kind they may be. Raises InvalidArgument where it is no text."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        notation.refuse(argument, text, getattr(error, "msg", None) or str(error))
    names = (node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    return [name for name in dict.fromkeys(names) if name not in notation.WORDS]


def function_of(argument: str, place: str) -> Callable[..., Any]:
    """The mask_mod or score_mod FILE.py:NAME, of a file that is run. Raises InvalidArgument, too, where it
    cannot be traced: that is said of it here, since other functions may call it."""
    path, _, name = place.rpartition(":")
    if not path.endswith(".py") or not name.isidentifier() or not Path(path).is_file():
        raise InvalidArgument(argument, repr(place), "FILE.py:NAME is allowed, of a file that is there")
    try:
        found = runpy.run_path(path)
    except Exception as error:
        reason = f"the file does not run: {type(error).__name__}: {error}"
        raise InvalidArgument(argument, repr(place), reason) from error
    if name not in found:
        raise InvalidArgument(argument, repr(place), f"the file defines no {name!r}")
    from flashgen.trace import check_function, trace

    check_function(argument, found[name])
    trace(found[name], argument.removesuffix("_mod"), argument)
    return found[name]


@dataclass(frozen=True)
class Call:
    """What `flashgen run` asks for: ``options`` of flashgen.attention, and what they come to."""

    options: dict[str, Any]
    combined: Combined


def made_for(arrays: list[Any], options: Mapping[str, Any], load: Callable[[list[str]], list[Any]]) -> Call:
    """Of the parameters, by name, of a command that computes on q, k and v.

    load: gives arrays, by their names, that texts read. Raises InvalidArgument.
    """
    from flashgen import mods
    from flashgen.combine import combine

    q, k, _ = arrays
    masks, scores = [], []
    for argument, kind in (("mask", "bool"), ("score", "float")):
        text = options[argument]
        if text is not None:
            inputs, values = given_arrays(text, argument, load)
            e = text_of(text, inputs, argument, kind)
            (masks if kind == "bool" else scores).append(mods.written(e, values))
    if options["mask_mod"] is not None:
        masks.append(function_of("mask_mod", options["mask_mod"]))
    if options["score_mod"] is not None:
        scores.append(function_of("score_mod", options["score_mod"]))
    asked = {
        "window": None if options["window"] is None else bounds(options["window"]),
        "softcap": options["softcap"],
        "alibi": options["alibi"] or None,
        "mask_mod": mods.and_masks(*masks) if masks else None,
        "score_mod": mods.chain(*scores) if scores else None,
        "sinks": load(["sink"])[0] if options["sink"] else None,
    }
    asked = {name: value for name, value in asked.items() if value is not None}
    causal = {
        "is_causal": options["causal"] is not None,
        "causal_alignment": options["causal"] or mods.DEFAULT,
    }
    return Call(asked, combine((*q.shape[:3], k.shape[2]), **causal, **asked))


def given_arrays(
    text: str, argument: str, load: Callable[[list[str]], list[Any]]
) -> tuple[dict[str, notation.Input], dict[str, Any]]:
    """The inputs of a text as ``load`` finds them by their names: what they are, and their values."""
    from flashgen.capture import type_of

    names = names_in(text, argument)
    values = dict(zip(names, load(names), strict=True)) if names else {}
    return {name: Array(name, x.ndim, type_of(x, name)) for name, x in values.items()}, values
