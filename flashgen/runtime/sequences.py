"""Calls whose sequences are packed, or have keys in pages: shapes that fit, and tables that say what is so.

A caller's arrays have heads behind rows, as the libraries have them that pack sequences: q (total_q, Hq, D),
k (total_k, Hkv, D), or (pages, page_size, Hkv, D). Kernels have heads in front, which is a matter of strides.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from flashgen.errors import InvalidArgument
from flashgen.layouts import LAYOUTS
from flashgen.problem import Problem
from flashgen.runtime.arrays import View, bits
from flashgen.runtime.tensors import BHND, Form, Layout, check_groups, layout_of

T = TypeVar("T")
HEADS = {"packed": (0, 1), "paged": (1, 2)}
"""The dimensions of heads and rows, where they change places."""
OF_QUERIES = ("q", "o")


def kind_of(layout: str, name: str) -> str:
    """How rows of q, k, v or o lie: "dense", "packed" or "paged"."""
    found = LAYOUTS[layout]
    return found.queries if name in OF_QUERIES else found.keys


def swapped(kind: str, sizes: tuple[T, ...]) -> tuple[T, ...]:
    """Sizes, strides or their names with heads in front of rows as a caller has them, and the way back."""
    if kind == "dense":
        return sizes
    a, b = HEADS[kind]
    found = list(sizes)
    found[a], found[b] = found[b], found[a]
    return tuple(found)


def in_front(layout: str, q: View, k: View, v: View, o: View | None) -> list[Any]:
    """Views of a caller's q, k, v and o, as kernels have them. Raises InvalidArgument for a wrong rank."""
    views = zip("qkvo", (q, k, v, o), strict=True)
    return [None if view is None else heads_in_front(layout, name, view) for name, view in views]


def heads_in_front(layout: str, name: str, view: View) -> View:
    """One of them: q, k, v or o."""
    kind, names = kind_of(layout, name), LAYOUTS[layout].shapes[name]
    if len(view.shape) != len(names):
        count = {3: "three", 4: "four"}[len(names)]
        allowed = f"{count} dimensions are allowed: {spelled(kind, names)}"
        raise InvalidArgument(f"{view.name}.shape", view.shape, allowed)
    return view._replace(shape=swapped(kind, view.shape), strides=swapped(kind, view.strides))


def spelled(kind: str, names: tuple[str, ...]) -> str:
    """A shape as a caller has it, by the names of its sizes."""
    return f"({', '.join(swapped(kind, names))})"


def lay_out_sequences(
    problem: Problem,
    q: Form,
    k: Form,
    v: Form,
    out: Form | None,
    lse: Form | None,
    order: str = BHND,
    inputs: tuple[Form, ...] = (),
) -> Layout:
    """As tensors.lay_out, of arrays with heads in front of rows. Raises InvalidArgument."""
    named = [*zip("qkv", (q, k, v), strict=True)]
    named += [(a.name, x) for a, x in zip(LAYOUTS[problem.layout].arrays, inputs, strict=False)]
    shapes = [(name, form.shape) for name, form in named]
    sizes = sizes_of(problem.layout, shapes, {"D": problem.head_dim, "Dv": problem.head_dim_v})
    turn = functools.partial(swapped, kind_of(problem.layout, "o"))
    for name, called, form in (("o", "out", out), ("lse", "lse", lse)):
        if form is not None:
            fit(problem.layout, name, called, form.shape, sizes)
    o_shape, rows = (tuple(sizes[n] for n in LAYOUTS[problem.layout].shapes[x]) for x in ("o", "lse"))
    work = work_of(problem, sizes)
    return layout_of(problem, (q, k, v), (out, lse), inputs, (o_shape, rows), turn, order, work)


def sizes_of(
    layout: str, shapes: Sequence[tuple[str, tuple[int, ...]]], known: Mapping[str, int], grouped: bool = True
) -> dict[str, int]:
    """The sizes B, Hq, D, total_q, ... of a call, by name. Raises InvalidArgument where arrays disagree.

    shapes: of q, k, v and the layout's arrays, with heads in front of rows, each behind what the caller calls
        the array. known: sizes that are given. grouped: as of check_groups.
    """
    sizes = dict(known)
    names = ("q", "k", "v", *(array.name for array in LAYOUTS[layout].arrays))
    for name, (called, shape) in zip(names, shapes, strict=True):
        fit(layout, name, called, shape, sizes)
    shape = swapped(kind_of(layout, "q"), shapes[0][1])
    check_groups(shape, sizes["Hq"], sizes["Hkv"], grouped)
    return sizes


def fit(layout: str, name: str, called: str, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    """Note the sizes that an array is the first to have; raise InvalidArgument for those that are others.

    called: what the caller calls the array.
    """
    names = LAYOUTS[layout].shapes[name]
    kind = kind_of(layout, name) if name in ("q", "k", "v", "o") else "dense"
    if len(shape) != len(names):
        raise InvalidArgument(f"{called}.shape", shape, f"{spelled(kind, names)} is allowed")
    if names == ("B + 1",):
        if not shape[0]:
            allowed = "one more element than there are sequences is allowed"
            raise InvalidArgument(f"{called}.shape", shape, allowed)
        names, shape = ("B",), (shape[0] - 1,)
    right = tuple(sizes.setdefault(n, size) for n, size in zip(names, shape, strict=True))
    if right != shape:
        more = 1 if name.startswith("cu_seqlens") else 0
        given, want = (tuple(n + more for n in swapped(kind, t)) for t in (shape, right))
        spelling = spelled(kind, LAYOUTS[layout].shapes[name])
        raise InvalidArgument(f"{called}.shape", given, f"{want} is allowed: {spelling}")


def work_of(problem: Problem, sizes: Mapping[str, int]) -> int:
    """Multiply-adds of a call whose sequences are all as long; tables say more, but not to a layout."""
    batch = max(sizes["B"], 1)
    rows = sizes["total_q"] if "total_q" in sizes else batch * sizes["Nq"]
    if "total_k" in sizes:
        keys = sizes["total_k"] / batch
    else:
        keys = min(sizes["max_pages"], sizes["pages"]) * sizes["page_size"]
    return int(sizes["Hq"] * rows * keys * (problem.head_dim + problem.head_dim_v))


def check_tables(layout: str, q: View, k: View, tables: Sequence[View]) -> tuple[int, int]:
    """Nq and Nk of the longest sequences, where tables name nothing that is not there; else InvalidArgument.

    q, k: with heads in front of rows. tables: at least those of the layout, in its order, of fitting shapes.
    """
    told = {a.name: bits(x) for a, x in zip(LAYOUTS[layout].arrays, tables, strict=False)}
    query_len = q.shape[2] if "cu_seqlens_q" not in told else check_starts("cu_seqlens_q", told, q)
    if "cu_seqlens_k" in told:
        return query_len, check_starts("cu_seqlens_k", told, k)
    return query_len, check_pages(told["block_table"], told["seqlens_k"], k)


def check_starts(name: str, tables: Mapping[str, np.ndarray], of: View) -> int:
    """From 0 to all rows, never falling: the rows of the longest sequence."""
    starts, total = tables[name].astype(np.int64), of.shape[1]
    if starts[0] != 0:
        raise InvalidArgument(f"{name}[0]", int(starts[0]), "0 is allowed")
    lengths = np.diff(starts)
    if (falls := np.flatnonzero(lengths < 0)).size:
        n = int(falls[0]) + 1
        allowed = f"at least {name}[{n - 1}], which is {starts[n - 1]}, is allowed"
        raise InvalidArgument(f"{name}[{n}]", int(starts[n]), allowed)
    if starts[-1] != total:
        last, allowed = len(starts) - 1, f"{total} is allowed: all rows of {of.name}"
        raise InvalidArgument(f"{name}[{last}]", int(starts[-1]), allowed)
    return int(lengths.max(initial=0))


def check_pages(table: np.ndarray, lengths: np.ndarray, k: View) -> int:
    """Each sequence is as long as its pages allow, and these are there: the keys of the longest one."""
    pages, _, slots, _ = k.shape
    most = table.shape[1] * slots
    if (wrong := np.flatnonzero((lengths < 0) | (lengths > most))).size:
        b = int(wrong[0])
        allowed = f"from 0 to {most} is allowed: block_table has {table.shape[1]} pages of {slots} keys"
        raise InvalidArgument(f"seqlens_k[{b}]", int(lengths[b]), allowed)
    counts = -(-lengths.astype(np.int64) // max(slots, 1))
    used = np.arange(table.shape[1]) < counts[:, None]
    if (where := np.argwhere(used & ((table < 0) | (table >= pages)))).size:
        b, n = map(int, where[0])
        allowed = f"from 0 to {pages - 1} is allowed: {k.name} has {pages} pages"
        raise InvalidArgument(f"block_table[{b}, {n}]", int(table[b, n]), allowed)
    return int(lengths.max(initial=0))
