"""Merges results of attention over disjoint sets of keys, as Flash-Decoding and ring attention need it.

    lse = ln(e^lse1 + e^lse2)        o = (e^lse1 * o1 + e^lse2 * o2) / (e^lse1 + e^lse2)

(Dao et al. 2023, "Flash-Decoding for long-context inference").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flashgen.errors import InvalidArgument, check_choice
from flashgen.problem import DTYPES
from flashgen.runtime.arrays import View, check_type, look, numbers_of
from flashgen.runtime.tensors import AXES, BHND

OUTPUT_TYPES, LSE_TYPES = tuple(dict.fromkeys((*DTYPES, "float64"))), ("float32", "float64")


def merge(o1: Any, lse1: Any, o2: Any, lse2: Any, *more: Any, layout: str = BHND) -> tuple[Any, Any]:
    """(o, lse) over all keys, from (o1, lse1) over some and (o2, lse2) over others, and so on in ``more``.

    o1, o2: (..., N, Dv), of one shape and type: float32, float16, bfloat16 or float64.
    lse1, lse2: (..., N), natural logarithms, of float32 or float64, of one type.
    layout: "BNHD" where outputs are (B, N, H, Dv); lse is (B, H, N) all the same.

    Arrays of any library that ``attention`` takes, in the processor's memory; results are new ones, of the
    types of o1 and lse1, and of o1's library. Computed in float64. Merging two is commutative to the bit, and
    any number associative to rounding. A row of (0, -inf), which saw no key, changes nothing, to the bit; of
    such rows alone comes another. NaN spreads to all that it takes part in.

    Raises InvalidArgument, and MissingTool where bfloat16 needs a package.
    """
    check_choice("layout", layout, AXES)
    if len(more) % 2:
        raise InvalidArgument("more", f"{len(more)} arrays", "pairs are allowed: o, lse, o, lse, ...")
    given = (o1, lse1, o2, lse2, *more)
    outputs = [look(f"o{n}", o) for n, o in enumerate(given[::2], 1)]
    sums = [look(f"lse{n}", lse) for n, lse in enumerate(given[1::2], 1)]
    _check(outputs, sums, layout)
    o, lse = _wide(outputs[0], sums[0], layout)
    for output, total in zip(outputs[1:], sums[1:], strict=True):
        o, lse = _merge(o, lse, *_wide(output, total, layout))
    like = outputs[0]
    return _narrow(o, like.dtype, like), _narrow(_turned(lse[..., 0], layout), sums[0].dtype, like)


def _check(outputs: list[View], sums: list[View], layout: str) -> None:
    first, total = outputs[0], sums[0]
    for view, types in ((first, OUTPUT_TYPES), (total, LSE_TYPES)):
        check_type(view, view.dtype if view.dtype in types else None, " or ".join(types))
    shape = first.shape
    if not shape or (layout != BHND and len(shape) != 4):
        allowed = f"{AXES[layout]} is allowed" if layout != BHND else "(..., N, Dv) is allowed"
        raise InvalidArgument("o1.shape", shape, allowed)
    rows = shape[:-1] if layout == BHND else (shape[0], shape[2], shape[1])
    for o, lse in zip(outputs, sums, strict=True):
        check_type(o, first.dtype)
        check_type(lse, total.dtype)
        if o.shape != shape:
            raise InvalidArgument(f"{o.name}.shape", o.shape, f"{shape} is allowed, as o1 has it")
        if lse.shape != rows:
            raise InvalidArgument(
                f"{lse.name}.shape", lse.shape, f"{rows} is allowed: one for each row of o1"
            )


def _turned(lse: np.ndarray, layout: str) -> np.ndarray:
    """lse beside (B, H, N, Dv) as it is beside (B, N, H, Dv), and the way back as well."""
    return lse if layout == BHND else lse.swapaxes(1, 2)


def _wide(o: View, lse: View, layout: str) -> tuple[np.ndarray, np.ndarray]:
    rows = _turned(numbers_of(lse).astype(np.float64), layout)
    return numbers_of(o).astype(np.float64), rows[..., None]


def _narrow(x: np.ndarray, dtype: str, like: View) -> Any:
    made = like.kind.empty(x.shape, dtype, like)
    with np.errstate(over="ignore", invalid="ignore"):
        np.copyto(numbers_of(look("result", made)), x, casting="unsafe")
    return like.kind.finish(made, like)


def _merge(
    o1: np.ndarray, lse1: np.ndarray, o2: np.ndarray, lse2: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Each operation commutes, but the choice between two NaNs, which is made here."""
    none1, none2 = np.isneginf(lse1), np.isneginf(lse2)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        top = np.maximum(lse1, lse2)
        base = np.where(np.isneginf(top), 0, top)
        w1, w2 = np.exp(lse1 - base), np.exp(lse2 - base)
        total = w1 + w2
        o = (w1 * o1 + w2 * o2) / np.where(none1 & none2, 1, total)
        lse = base + np.log(total)
    o, lse = np.where(np.isnan(o), np.nan, o), np.where(np.isnan(lse), np.nan, lse)
    # What saw no key gives way, so that arithmetic does not change even the sign of a zero.
    for none, empty, other, other_lse, others in (
        (none2, o2, o1, lse1, none1),
        (none1, o1, o2, lse2, none2),
    ):
        alone = none & ~others
        o = np.where(alone & (empty == 0), other, o)
        lse = np.where(alone, other_lse, lse)
    return o, lse
