"""Sequences of different lengths from Python: packed one behind the other, and with keys in pages."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Any

import numpy as np

from flashgen.api import (  # pyright: ignore[reportPrivateUsage]
    ZEROS,
    _check_types,
    _check_variant,
    _expect_causal,
    _expect_flag,
    _kernel,
)
from flashgen.errors import InvalidArgument
from flashgen.layouts import LAYOUTS
from flashgen.problem import DTYPES, Problem
from flashgen.runtime.arrays import View, bits, check_type, look
from flashgen.runtime.sequences import heads_in_front
from flashgen.runtime.tensors import address
from flashgen.schedule import Schedule
from flashgen.targets.base import KEY_STEPS, QUERY_STEPS, ROW_STEPS, Target

Options = Mapping[str, Any]


def attention_varlen(
    q: Any,
    k: Any,
    v: Any,
    cu_seqlens_q: Any,
    cu_seqlens_k: Any = None,
    *,
    block_table: Any = None,
    seqlens_k: Any = None,
    is_causal: bool = False,
    causal_alignment: str = "bottom-right",
    scale: float | None = None,
    enable_gqa: bool = False,
    out: Any = None,
    lse: Any = None,
    return_lse: bool = False,
    schedule: Schedule | None = None,
    target: str | Target | None = None,
    threads: int | None = None,
) -> Any:
    """Attention of each of several sequences, packed one behind the other: O, or (O, lse).

    q: (total_q, Hq, D), k: (total_k, Hkv, D), v: (total_k, Hkv, Dv), arrays as ``attention`` takes them, of
        any strides. O is (total_q, Hq, Dv), lse (Hq, total_q).
    cu_seqlens_q, cu_seqlens_k: (B + 1,) int32, from 0 to total_q and to total_k, never falling: sequence b
        has the queries from cu_seqlens_q[b] up to cu_seqlens_q[b + 1], and the keys alike. A sequence may
        have no query, or no key: then its rows are 0, their lse -inf.
    block_table, seqlens_k: in place of cu_seqlens_k, for keys in pages, as ``attention_paged`` takes them; k
        and v are then (pages, page_size, Hkv, D) and (pages, page_size, Hkv, Dv).
    is_causal, causal_alignment: as in ``attention``, by the positions and the lengths of each sequence alone.
    scale, enable_gqa, out, lse, return_lse, schedule, target, threads: as in ``attention``.

    Nothing is copied or padded, and a sequence's result is, to the bit, what the same kernel would make of it
    alone. Raises what ``attention`` raises; InvalidArgument too, before anything is written, for numbers of
    rows that do not fit.
    """
    options = locals()
    if (cu_seqlens_k is None) == (block_table is None):
        given = "neither" if block_table is None else "both"
        allowed = "one of cu_seqlens_k and block_table is allowed: where the keys of a sequence are"
        raise InvalidArgument("cu_seqlens_k, block_table", f"{given} given", allowed)
    if block_table is None:
        if seqlens_k is not None:
            raise InvalidArgument("seqlens_k", "given", "it is allowed with block_table")
        return _attend("packed", options)
    if seqlens_k is None:
        raise InvalidArgument(
            "seqlens_k", None, "with block_table the number of keys of each sequence is allowed"
        )
    return _attend("packed-paged", options)


def attention_paged(
    q: Any,
    k_pages: Any,
    v_pages: Any,
    block_table: Any,
    seqlens_k: Any,
    *,
    is_causal: bool = False,
    causal_alignment: str = "bottom-right",
    scale: float | None = None,
    enable_gqa: bool = False,
    out: Any = None,
    lse: Any = None,
    return_lse: bool = False,
    schedule: Schedule | None = None,
    target: str | Target | None = None,
    threads: int | None = None,
) -> Any:
    """Attention to keys and values that lie in pages, for decoding and for prompts in chunks: O, or (O, lse).

    q: (B, Hq, Nq, D), an array as ``attention`` takes it, of any strides. O is (B, Hq, Nq, Dv), lse (B, Hq,
        Nq).
    k_pages: (pages, page_size, Hkv, D), v_pages: (pages, page_size, Hkv, Dv), of any page size.
    block_table: (B, max_pages) int32, seqlens_k: (B,) int32: of sequence b the first seqlens_k[b] keys are
        read; key n lies in slot n % page_size of page block_table[b, n // page_size]. Pages may stand in any
        order and be shared. What lies in the rest of a page, or in others, is never read, and further entries
        of the table may be anything.
    is_causal, causal_alignment: as in ``attention``, with seqlens_k[b] for the number of keys: bottom-right,
        the last query sees all of them.
    scale, enable_gqa, out, lse, return_lse, schedule, target, threads: as in ``attention``.

    Raises what ``attention`` raises; InvalidArgument too, before anything is written, for a sequence longer
    than its pages, and for a page that is not there.
    """
    options = locals()
    options["k"], options["v"] = options.pop("k_pages"), options.pop("v_pages")
    return _attend("paged", options)


def _attend(layout: str, options: Options) -> Any:
    """A call of either function, whose arguments these are."""
    flags = {name: _expect_flag(name, options[name]) for name in ("is_causal", "enable_gqa", "return_lse")}
    causal = _expect_causal(flags["is_causal"], options["causal_alignment"], flags["is_causal"])
    schedule, target, out = options["schedule"], options["target"], options["out"]
    _check_variant(schedule, target)
    q, k, v = (look(name, options[name]) for name in "qkv")
    if q.dtype not in DTYPES or not q.dtype == k.dtype == v.dtype:
        _check_types(q, k, v)
    shapes = Problem(1, dtype=q.dtype, layout=layout)
    rows, keys, values = (heads_in_front(shapes, n, x).shape for n, x in zip("qkv", (q, k, v), strict=True))
    where = LAYOUTS[layout].shapes
    hq, hkv = rows[where["q"].index("Hq")], keys[where["k"].index("Hkv")]
    if not flags["enable_gqa"] and hq != hkv:
        allowed = f"{hkv} heads as k has are allowed, or a multiple with enable_gqa=True"
        raise InvalidArgument("q.shape", q.shape, allowed)
    if none := not values[-1]:  # a kernel has at least one column of values; lse is the same for any
        v, out = _one_column(q, v, out)
    inputs = {a.name: look(a.name, options[a.name]) for a in LAYOUTS[layout].arrays}
    most_q = _longest(inputs, "cu_seqlens_q", rows)
    most_k = _longest(inputs, "cu_seqlens_k" if layout == "packed" else "seqlens_k", keys)
    steps = (
        bisect_left(QUERY_STEPS, most_q),
        bisect_left(KEY_STEPS, most_k),
        bisect_left(ROW_STEPS, most_q * (hq // (hkv or 1))),
    )
    problem = Problem(rows[-1], values[-1] or 1, q.dtype, causal, layout=layout)
    kernel = _kernel(problem, schedule, target, *steps)
    told = {} if options["threads"] is None else {"threads": options["threads"]}
    made, row_lse = kernel(
        q, k, v, inputs=inputs, scale=options["scale"], out=out, lse=options["lse"], **told
    )
    o = (made[..., :0] if options["out"] is None else options["out"]) if none else made
    return (o, row_lse) if flags["return_lse"] or options["lse"] is not None else o


def _one_column(q: View, v: View, out: Any) -> tuple[View, None]:
    """For values of no column: one of zeros, and no output. Raises InvalidArgument for a wrong output."""
    right = (*q.shape[:-1], 0)
    if out is not None and look("out", out).shape != right:
        raise InvalidArgument("out.shape", look("out", out).shape, f"{right} is allowed: the output's shape")
    strides = (0,) * len(v.shape)
    return v._replace(address=address(ZEROS), shape=(*v.shape[:-1], 1), strides=strides), None


def _longest(inputs: Mapping[str, View], name: str, shape: tuple[int, ...]) -> int:
    """Rows of the longest sequence; the kernel's call refuses what cannot be so. Raises InvalidArgument."""
    if name not in inputs:
        return shape[2]
    check_type(name, inputs[name], "int32")
    numbers = bits(inputs[name])
    if name.startswith("cu_"):
        numbers = np.diff(numbers.astype(np.int64), axis=0) if numbers.ndim else numbers
    return int(numbers.max(initial=0))
