"""Calls whose sequences are packed, or have keys in pages: shapes that fit, and tables that say what is so.

A caller's arrays have heads behind rows, as the libraries have them that pack sequences: q (total_q, Hq, D),
k (total_k, Hkv, D), or (pages, page_size, Hkv, D). Kernels have heads in front, which is a matter of strides.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from flashgen.errors import InvalidArgument
from flashgen.layouts import LAYOUTS
from flashgen.problem import Problem, computed
from flashgen.runtime.arrays import View, bits
from flashgen.runtime.tensors import (
    BHND,
    ITEMSIZE,
    Form,
    Layout,
    check_addresses,
    contiguous,
    steps_align,
    words_of,
)

HEADS = {"packed": (0, 1), "paged": (1, 2)}
"""The dimensions of heads and rows, where they change places."""
OF_QUERIES = ("q", "o")


def kind_of(problem: Problem, name: str) -> str:
    """How rows of q, k, v or o lie: "dense", "packed" or "paged"."""
    layout = LAYOUTS[problem.layout]
    return layout.queries if name in OF_QUERIES else layout.keys


def swapped(kind: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Sizes or strides with heads in front of rows as a caller has them, and the way back as well."""
    if kind == "dense":
        return sizes
    a, b = HEADS[kind]
    found = list(sizes)
    found[a], found[b] = found[b], found[a]
    return tuple(found)


def heads_in_front(problem: Problem, name: str, view: View) -> View:
    """The view of a caller's array, as kernels have it. Raises InvalidArgument for a wrong rank."""
    kind, names = kind_of(problem, name), LAYOUTS[problem.layout].shapes[name]
    if len(view.shape) != len(names):
        count = {3: "three", 4: "four"}[len(names)]
        allowed = f"{count} dimensions are allowed: {spelled(kind, names)}"
        raise InvalidArgument(f"{shown(name)}.shape", view.shape, allowed)
    return view._replace(shape=swapped(kind, view.shape), strides=swapped(kind, view.strides))


def in_front(
    problem: Problem, q: View, k: View, v: View, o: View | None
) -> tuple[View, View, View, View | None]:
    """All arrays of a call, as kernels have them. Raises InvalidArgument."""
    found = [
        None if x is None else heads_in_front(problem, n, x)
        for n, x in zip("qkvo", (q, k, v, o), strict=True)
    ]
    return tuple(found)  # pyright: ignore[reportReturnType]


def shown(name: str) -> str:
    """What an argument is called."""
    return "out" if name == "o" else name


def spelled(kind: str, names: tuple[str, ...]) -> str:
    a, b = HEADS.get(kind, (0, 0))
    order = list(names)
    order[a], order[b] = order[b], order[a]
    return f"({', '.join(order)})"


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
    shapes = LAYOUTS[problem.layout].shapes
    forms = {"q": q, "k": k, "v": v, **dict(zip((a.name for a in problem.arrays), inputs, strict=True))}
    sizes = {"D": problem.head_dim, "Dv": problem.head_dim_v}
    for name in ("q", "k", "v", *(a.name for a in LAYOUTS[problem.layout].arrays)):
        fit(problem, name, forms[name].shape, sizes)
    hq, hkv = sizes["Hq"], sizes["Hkv"]
    if hq % hkv if hkv else hq:
        shape = swapped(kind_of(problem, "q"), q.shape)
        raise InvalidArgument("q.shape", shape, f"heads that are a multiple of k's {hkv} are allowed")
    stored, summed = ITEMSIZE[problem.dtype], ITEMSIZE[computed(problem.dtype)]
    kind = kind_of(problem, "o")
    o_shape = swapped(kind, tuple(sizes[n] for n in shapes["o"]))
    lse_shape = tuple(sizes[n] for n in shapes["lse"])
    o_form = out or Form(*(swapped(kind, t) for t in contiguous(o_shape, stored)))
    lse_form = lse or contiguous(lse_shape, summed)
    fit(problem, "o", o_form.shape, sizes)
    fit(problem, "lse", lse_form.shape, sizes)
    check_addresses("out", Form(*(swapped(kind, t) for t in o_form)), stored)
    check_addresses("lse", lse_form, summed)
    if problem.sink and inputs[-1].shape != (hq,):
        raise InvalidArgument("sink.shape", inputs[-1].shape, f"({hq},) is allowed: one for each query head")
    types = [stored] * 3, [ITEMSIZE[array.dtype] for array in problem.arrays]
    read = [*zip((q, k, v), types[0], strict=True), *zip(inputs, types[1], strict=True)]
    tensors = [*read[:3], (o_form, stored), (lse_form, summed), *read[3:]]
    return Layout(
        order,
        o_shape,
        lse_shape,
        tuple(word for form, itemsize in tensors for word in words_of(form, itemsize)),
        work_of(problem, sizes),
        hkv == 0,
        stored - 1,
        not all(steps_align(form, itemsize) for form, itemsize in read),
    )


def fit(problem: Problem, name: str, shape: tuple[int, ...], sizes: dict[str, int]) -> None:
    """Note the sizes that an array is the first to have; raise InvalidArgument for those that are others."""
    names = LAYOUTS[problem.layout].shapes[name]
    kind = kind_of(problem, name) if name in ("q", "k", "v", "o") else "dense"
    if len(shape) != len(names):
        raise InvalidArgument(f"{shown(name)}.shape", shape, f"{spelled(kind, names)} is allowed")
    if names == ("B + 1",):
        if not shape[0]:
            raise InvalidArgument(
                f"{name}.shape", shape, "one more element than there are sequences is allowed"
            )
        names, shape = ("B",), (shape[0] - 1,)
    right = tuple(sizes.setdefault(n, size) for n, size in zip(names, shape, strict=True))
    if right != shape:
        more = 1 if name.startswith("cu_seqlens") else 0
        given, want = (tuple(n + more for n in swapped(kind, t)) for t in (shape, right))
        spelling = spelled(kind, LAYOUTS[problem.layout].shapes[name])
        raise InvalidArgument(f"{shown(name)}.shape", given, f"{want} is allowed: {spelling}")


def work_of(problem: Problem, sizes: Mapping[str, int]) -> int:
    """Multiply-adds of a call whose sequences are all as long; tables say more, but not to a layout."""
    batch = max(sizes["B"], 1)
    rows = sizes["total_q"] if "total_q" in sizes else batch * sizes["Nq"]
    if "total_k" in sizes:
        keys = sizes["total_k"] / batch
    else:
        keys = min(sizes["max_pages"], sizes["pages"]) * sizes["page_size"]
    return int(sizes["Hq"] * rows * keys * (problem.head_dim + problem.head_dim_v))


def check_tables(problem: Problem, q: View, k: View, tables: Mapping[str, View]) -> None:
    """What tells sequences apart says nothing that is not there. Raises InvalidArgument.

    q, k: with heads in front of rows. tables: at least those of the problem's layout, of fitting shapes.
    """
    layout = LAYOUTS[problem.layout]
    if layout.queries == "packed":
        check_starts("cu_seqlens_q", bits(tables["cu_seqlens_q"]), "q", q.shape[1])
    if layout.keys == "packed":
        check_starts("cu_seqlens_k", bits(tables["cu_seqlens_k"]), "k", k.shape[1])
    if layout.keys == "paged":
        check_pages(bits(tables["block_table"]), bits(tables["seqlens_k"]), k.shape[0], k.shape[2])


def check_starts(name: str, starts: np.ndarray, of: str, total: int) -> None:
    """From 0 to all rows, never falling."""
    if starts[0] != 0:
        raise InvalidArgument(f"{name}[0]", int(starts[0]), "0 is allowed")
    if (falls := np.flatnonzero(starts[1:] < starts[:-1])).size:
        n = int(falls[0]) + 1
        allowed = f"at least {name}[{n - 1}], which is {starts[n - 1]}, is allowed"
        raise InvalidArgument(f"{name}[{n}]", int(starts[n]), allowed)
    if starts[-1] != total:
        last = len(starts) - 1
        raise InvalidArgument(f"{name}[{last}]", int(starts[-1]), f"{total} is allowed: all rows of {of}")


def check_pages(table: np.ndarray, lengths: np.ndarray, pages: int, slots: int) -> None:
    """Each sequence is as long as its pages allow, and these are there."""
    most = table.shape[1] * slots
    if (wrong := np.flatnonzero((lengths < 0) | (lengths > most))).size:
        b = int(wrong[0])
        allowed = f"from 0 to {most} is allowed: block_table has {table.shape[1]} pages of {slots} keys"
        raise InvalidArgument(f"seqlens_k[{b}]", int(lengths[b]), allowed)
    counts = -(-lengths.astype(np.int64) // max(slots, 1))
    used = np.arange(table.shape[1]) < counts[:, None]
    if (where := np.argwhere(used & ((table < 0) | (table >= pages)))).size:
        b, n = map(int, where[0])
        allowed = f"from 0 to {pages - 1} is allowed: k has {pages} pages"
        raise InvalidArgument(f"block_table[{b}, {n}]", int(table[b, n]), allowed)
