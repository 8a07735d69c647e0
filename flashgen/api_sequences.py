"""Sequences of different lengths from Python: packed one behind the other, and with keys in pages."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from flashgen.arguments import check_types, expect_causal, expect_flag, one_column, results
from flashgen.errors import InvalidArgument
from flashgen.layouts import LAYOUTS
from flashgen.options import MODIFIERS, NO_EXTRA, find_extra
from flashgen.problem import DTYPES, Problem, computed
from flashgen.runtime.arrays import look, to_write
from flashgen.runtime.inputs import expect_inputs
from flashgen.runtime.sequences import check_tables, in_front, sizes_of, swapped
from flashgen.runtime.tensors import FORMS
from flashgen.schedule import Schedule
from flashgen.targets.base import Target
from flashgen.variants import check_variant, suited

Options = Mapping[str, Any]
READ = {"paged": ("q", "k_pages", "v_pages")}
"""What callers call q, k and v, where that is something else."""


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
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    alibi: Any = None,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    sinks: Any = None,
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

    q: (total_q, Hq, D), k: (total_k, Hkv, D), v: (total_k, Hkv, Dv), arrays as ``attention`` takes them, in
        the processor's memory, of any strides. O is (total_q, Hq, Dv), lse (Hq, total_q).
    cu_seqlens_q, cu_seqlens_k: (B + 1,) int32, from 0 to total_q and to total_k, never falling: sequence b
        has the queries from cu_seqlens_q[b] up to cu_seqlens_q[b + 1], and the keys alike. A sequence may
        have no query, or no key: then its rows are 0, their lse -inf.
    block_table, seqlens_k: in place of cu_seqlens_k, for keys in pages, as ``attention_paged`` takes them; k
        and v are then (pages, page_size, Hkv, D) and (pages, page_size, Hkv, Dv).
    is_causal, causal_alignment, window, softcap, alibi, score_mod, mask_mod, sinks: as in ``attention``, by
        the positions and the lengths of each sequence alone: q_idx and k_idx count from its start, b is its
        number, and the lengths of flashgen.mods, query_len() and key_len(), are its own.
    scale, enable_gqa, out, lse, return_lse, schedule, target, threads: as in ``attention``; targets are those
        of CPUs.

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
    window: tuple[int | None, int | None] | None = None,
    softcap: float | None = None,
    alibi: Any = None,
    score_mod: Callable[..., Any] | None = None,
    mask_mod: Callable[..., Any] | None = None,
    sinks: Any = None,
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

    q: (B, Hq, Nq, D), an array as ``attention`` takes it, in the processor's memory, of any strides. O is (B,
        Hq, Nq, Dv), lse (B, Hq, Nq).
    k_pages: (pages, page_size, Hkv, D), v_pages: (pages, page_size, Hkv, Dv), of any page size.
    block_table: (B, max_pages) int32, seqlens_k: (B,) int32: of sequence b the first seqlens_k[b] keys are
        read; key n lies in slot n % page_size of page block_table[b, n // page_size]. Pages may stand in any
        order and be shared. What lies in the rest of a page, or in others, is never read, and further entries
        of the table may be anything.
    is_causal, causal_alignment, window, softcap, alibi, score_mod, mask_mod, sinks: as in ``attention``, with
        seqlens_k[b] for the number of keys: bottom-right, the last query sees all of them, and k_idx counts
        keys of sequence b, whatever pages they are in.
    scale, enable_gqa, out, lse, return_lse, schedule, target, threads: as in ``attention``; targets are those
        of CPUs.

    Raises what ``attention`` raises; InvalidArgument too, before anything is written, for a sequence longer
    than its pages, and for a page that is not there.
    """
    return _attend("paged", locals())


def _attend(layout: str, options: Options) -> Any:
    """A call of either function, whose arguments these are."""
    grouped, return_lse = (expect_flag(name, options[name]) for name in ("enable_gqa", "return_lse"))
    causal = expect_causal(*(options[name] for name in ("is_causal", "causal_alignment", "window", "alibi")))
    schedule, target, out, lse = (options[name] for name in ("schedule", "target", "out", "lse"))
    check_variant(schedule, target)
    q, k, v = (look(name, options[name]) for name in READ.get(layout, "qkv"))
    if (dtype := q.dtype) not in DTYPES or not dtype == k.dtype == v.dtype:
        check_types(q, k, v)
    o = None if out is None else to_write(look("out", out), dtype)
    row_lse = None if lse is None else to_write(look("lse", lse), computed(dtype))
    q, k, v, o = in_front(layout, q, k, v, o)
    told = LAYOUTS[layout].arrays
    tables, _ = expect_inputs(told, (), dtype, {array.name: options[array.name] for array in told})
    sizes = sizes_of(layout, [(x.name, x.shape) for x in (q, k, v, *tables)], {}, grouped)
    query_len, key_len = check_tables(layout, q, k, tables)
    extra = NO_EXTRA
    if any(options[name] is not None for name in MODIFIERS):
        scores = sizes["B"], sizes["Hq"], query_len, key_len
        asked = {name: options[name] for name in ("causal_alignment", *MODIFIERS)}
        extra = find_extra(look, scores, dtype, **asked)
    if no_values := sizes["Dv"] == 0:
        v, o = one_column(q, v, o, functools.partial(swapped, LAYOUTS[layout].queries)), None
    mask, score, sink, _ = extra.mods
    problem = problem_of(sizes["D"], v.shape[-1], dtype, causal, mask, score, sink, layout)
    kernel = suited(problem, schedule, target, query_len, key_len, sizes["Hq"] // (sizes["Hkv"] or 1))
    arrays = (*tables, *extra.arrays)
    laid_out = kernel.lay_out(q, k, v, o, row_lse, arrays)
    scale, threads = options["scale"], options["threads"]
    made, made_lse = kernel.run(laid_out, q, k, v, o, row_lse, arrays, extra.numbers, scale, threads)
    return results(made, made_lse, out, lse, return_lse, no_values)


problem_of = functools.lru_cache(FORMS)(Problem)
