"""The NumPy meaning of a module: what every operation does, written for being right.

Tiles are arrays, scalars are numbers. A region is evaluated once for all its elements: index arithmetic
works on arrays of positions as it does on numbers. What a module leaves unspecified is NaN here (results
outside a span, a workspace at first), so whoever reads it shows. A product adds its terms in ascending
order, as kernels do, so that what must not change a bit can be tested here to the bit.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.dialects import arith, func, memref, scf
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Operation, SSAValue
from xdsl.traits import IsTerminator

from flashgen.analysis.extents import names_of
from flashgen.analysis.numbers import ORDERINGS, lookup
from flashgen.interpret_arrays import Array, GroupedRows, Violation, window
from flashgen.interpret_elements import REAL_ORDERINGS, SIMPLE
from flashgen.interpret_sequences import PagedRows, sequence
from flashgen.ir.compare import PREDICATES, CompareOp
from flashgen.ir.compute import (
    BroadcastOp,
    DotOp,
    HoldOp,
    PackOp,
    ReplaceOp,
    RowMaxOp,
    RowSumOp,
    ScaleRowsOp,
)
from flashgen.ir.memory import ElementOp, ExtremesOp, FetchOp, GroupRowsOp, LoadOp, StoreOp
from flashgen.ir.regions import MaskOp, RowSpanOp, SweepOp
from flashgen.ir.sequences import PagesOp, SequenceOp
from flashgen.ir.types import bf16, element_of, f16, i1, shape_of


def interpret(
    module: ModuleOp, *args: Any, dtype: type = np.float64, shuffle: np.random.Generator | None = None
) -> Counter[str]:
    """Call a module's function on arrays and numbers; outputs are written in place.

    dtype: what float32 is computed in: np.float64 shows what the arithmetic means, np.float32 what it rounds
        to. A module that computes in float64 wants np.float64. Arrays of np.float16 stand for float16
        storage, those of ml_dtypes.bfloat16 for bfloat16.
    shuffle: run the iterations of parallel loops in random order; they are to be independent.

    Returns how often each kind of operation was executed: two `tile.dot` are one tile of keys, a `tile.mask`
    or `tile.row_span` one that is masked. Raises Violation.
    """
    function = next(op for op in module.walk() if isinstance(op, func.FuncOp))
    check_extents(function, args)
    frame = Frame(dtype, shuffle)
    with np.errstate(all="ignore"):
        frame.block(function.body.block, args)
    return frame.executed


def check_extents(function: func.FuncOp, args: Sequence[Any]) -> None:
    """Extents of one name are equal, and static ones are what they say."""
    sizes: dict[str, int] = {}
    for value, array in zip(function.body.block.args, args, strict=True):
        for n, static in enumerate(shape_of(value)):
            if static >= 0 and static != array.shape[n]:
                raise Violation(f"extent {n} of %{value.name_hint} is {array.shape[n]}, not {static}")
        names = names_of(value)
        for name, size in zip(names, np.shape(array), strict=True) if names is not None else ():
            if sizes.setdefault(name, size) != size:
                raise Violation(f"extent {name} of %{value.name_hint} is {size}, elsewhere {sizes[name]}")


class Frame:
    """One call: the values so far."""

    def __init__(self, dtype: type, shuffle: np.random.Generator | None):
        self.dtype, self.shuffle = dtype, shuffle
        self.values: dict[SSAValue, Any] = {}
        self.executed: Counter[str] = Counter()

    def get(self, v: SSAValue | None) -> Any:
        return None if v is None else self.values[v]

    def block(self, block: Block, args: Sequence[Any]) -> list[Any]:
        """Run a block; what its terminator passes on."""
        self.values.update(zip(block.args, args, strict=True))
        for op in block.ops:
            operands = [self.values[v] for v in op.operands]
            if op.has_trait(IsTerminator):
                return operands
            self.executed[op.name] += 1
            self.values.update(zip(op.results, self.operation(op, operands), strict=True))
        return []

    def operation(self, op: Operation, operands: list[Any]) -> Sequence[Any]:
        if (simple := SIMPLE.get(type(op))) is not None:
            return [simple(*operands)]
        if (meaning := MEANINGS.get(type(op))) is not None:
            return [meaning(self, op, *operands)]
        if (effect := EFFECTS.get(type(op))) is not None:
            return effect(self, op, *operands)
        raise Violation(f"{op.name} has no meaning here")


def constant(frame: Frame, op: arith.ConstantOp) -> Any:
    value: Any = op.value
    return value.value.data


def compare(frame: Frame, op: arith.CmpiOp, a: Any, b: Any) -> Any:
    return ORDERINGS[op.predicate.value.data](a, b)


def compare_reals(frame: Frame, op: arith.CmpfOp | CompareOp, a: Any, b: Any) -> Any:
    number = PREDICATES[op.predicate.data] if isinstance(op, CompareOp) else op.predicate.value.data
    if number not in REAL_ORDERINGS:
        raise Violation(f"{op.name} {number} has no meaning here")
    return REAL_ORDERINGS[number](a, b)


def to_real(frame: Frame, op: arith.SIToFPOp, n: Any) -> Any:
    return np.asarray(n).astype(frame.dtype)[()]


def truncate(frame: Frame, op: arith.TruncFOp, x: Any) -> Any:
    return np.asarray(x).astype(numpy_type(element_of(op.result), frame.dtype))[()]


def alloc(frame: Frame, op: memref.AllocOp, *sizes: int) -> Array:
    given = iter(sizes)
    shape = [next(given) if n < 0 else n for n in shape_of(op.memref)]
    return np.full(shape, np.nan, numpy_type(element_of(op.memref), frame.dtype))


def numpy_type(element: Attribute, computed: type) -> type:
    """Of an array or a tile; ``computed`` is what float32, or float64, is computed in."""
    if element == bf16:
        from ml_dtypes import bfloat16

        return bfloat16
    return np.float16 if element == f16 else computed


def load(frame: Frame, op: LoadOp, array: Array, *indices: int) -> Array:
    shape = shape_of(op.result)
    out = np.zeros(shape, numpy_type(element_of(op.result), frame.dtype))
    there, here = window(array, indices, shape)
    if op.in_bounds is not None and out[here].shape != shape:
        at, bounds = tuple(map(int, indices)), array.shape
        raise Violation(f"in_bounds does not hold: a tile of {shape} at {at} in an array of shape {bounds}")
    out[here] = array[there]
    return out


def store(frame: Frame, op: StoreOp, tile: Array, array: Array, *indices: int) -> Sequence[Any]:
    there, here = window(array, indices, tile.shape)
    array[there] = tile[here]
    return []


def fetch(frame: Frame, op: FetchOp, array: Array, *indices: int) -> Sequence[Any]:
    """Nothing; but it is of an array's tiles, as loads are."""
    window(array, indices, op.tile_type.get_shape())
    return []


def element(frame: Frame, op: ElementOp, array: Array, *indices: Any) -> Any:
    found = lookup(array, indices)
    return found if found.dtype.kind == "b" else found.astype(frame.dtype if found.dtype.kind == "f" else int)


def extremes(frame: Frame, op: ExtremesOp, array: Array, *box: int) -> Sequence[Any]:
    rank = array.ndim
    sides = [np.arange(a, b + 1) for a, b in zip(box[:rank], box[rank:], strict=True)]
    found = lookup(array, np.meshgrid(*sides, indexing="ij"))
    kind = bool if found.dtype.kind == "b" else int
    return (kind(found.min()), kind(found.max())) if found.size else (kind(0), kind(0))


def group_rows(frame: Frame, op: GroupRowsOp, source: Array, heads: int, rows: int) -> GroupedRows:
    return GroupedRows(source, heads, rows)


def one_sequence(frame: Frame, op: SequenceOp, source: Array, starts: Array, number: int) -> Array:
    return sequence(source, starts, number)


def pages(frame: Frame, op: PagesOp, source: Array, table: Array, lengths: Array, number: int) -> PagedRows:
    return PagedRows(source, table[number], int(lengths[number]))


def broadcast(frame: Frame, op: BroadcastOp, x: Any) -> Array:
    x, shape = np.asarray(x, frame.dtype), shape_of(op.result)
    return np.broadcast_to(x.reshape(x.shape + (1,) * (len(shape) - x.ndim)), shape)


def within(span: Array | None, shape: tuple[int, ...]) -> Array:
    """Which elements of a tile a span holds; all without one."""
    if span is None:
        return np.ones(shape, bool)
    columns = np.arange(shape[1])[None]
    return (columns >= span[:, :1]) & (columns < span[:, 1:])


def dot(frame: Frame, op: DotOp, *operands: Any) -> Array:
    lhs, rhs, acc = frame.get(op.lhs), frame.get(op.rhs), frame.get(op.acc)
    shape = shape_of(op.result)
    if rhs.ndim == 3:
        rhs = rhs.transpose(1, 0, 2).reshape(rhs.shape[1], -1)
    elif rhs.ndim == 4:
        rhs = rhs.transpose(1, 3, 0, 2).reshape(2 * rhs.shape[1], -1)
    elif op.transpose is not None:
        rhs = rhs.T
    rhs = rhs[:, : shape[1]]
    narrow = element_of(op.lhs) == element_of(op.rhs) == bf16
    if narrow:
        lhs, rhs = (flushed(x).astype(frame.dtype) for x in (lhs, rhs))
    part = within(frame.get(op.over), lhs.shape)
    if op.where is not None:
        part = part & frame.get(op.where)
    out = np.zeros(shape, frame.dtype) if acc is None else acc.copy()
    for r in steps(lhs.shape[1], narrow):  # what takes no part adds 0, whatever it is
        out = out + np.where(part[:, r : r + 1], lhs[:, r : r + 1] * rhs[r], frame.dtype(0))
        out = flushed(out) if narrow else out
    return np.where(within(frame.get(op.only), shape), out, np.nan).astype(frame.dtype, copy=False)


def steps(k: int, pairs: bool) -> list[int]:
    """The steps of a contraction, in order: of each pair the second first."""
    return sorted(range(k), key=lambda n: n ^ 1) if pairs else list(range(k))


def flushed(x: Array) -> Array:
    """0 in place of what is subnormal in the type of x."""
    from ml_dtypes import finfo

    return np.where(np.abs(x) < finfo(x.dtype).tiny, x.dtype.type(0), x)


def pack(frame: Frame, op: PackOp, x: Array) -> Array:
    panels, k, width, *pair = shape_of(op.result)
    columns = x.T if op.transpose is not None else x
    padded = np.zeros((k * (2 if pair else 1), panels * width), x.dtype)
    padded[: columns.shape[0], : columns.shape[1]] = columns
    if pair:
        return padded.reshape(k, 2, panels, width).transpose(2, 0, 3, 1)
    return padded.reshape(k, panels, width).transpose(1, 0, 2)


def scale_rows(frame: Frame, op: ScaleRowsOp, x: Array, factor: Array) -> Array:
    return x * factor[:, None]


def replace(frame: Frame, op: ReplaceOp, x: Any) -> Any:
    return np.where(x == op.from_.value.data, frame.dtype(op.to.value.data), x)


def hold(frame: Frame, op: HoldOp, held: Array, followed: Array) -> Array:
    return np.where(followed - held <= op.by.value.data, held, followed)


REDUCE: dict[str, tuple[float, Callable[[Array], Array]]] = {
    "max": (-np.inf, lambda x: np.max(x, axis=1, initial=-np.inf)),
    "maxnum": (-np.inf, lambda x: np.fmax.reduce(x, axis=1, initial=-np.inf)),
    "add": (0.0, lambda x: np.sum(x, axis=1)),
}
"""For each reduction: its neutral element, and what it does to the rows of a tile."""


def reduce(kind: str, x: Array, part: Array) -> Array:
    neutral, over_rows = REDUCE[kind]
    return over_rows(np.where(part, x, x.dtype.type(neutral)))


def row_max(frame: Frame, op: RowMaxOp, x: Array, span: Array | None = None) -> Array:
    return reduce("max" if op.drop_nan is None else "maxnum", x, within(span, x.shape))


def row_sum(frame: Frame, op: RowSumOp, x: Array, span: Array | None = None) -> Array:
    return reduce("add", x, within(span, x.shape))


def mask(frame: Frame, op: MaskOp, i: int, j: int, span: Array | None = None) -> Array:
    rows, *cols = shape_of(op.result)
    (found,) = frame.block(
        op.body.block, [i + np.arange(rows)[:, None], j + np.arange(cols[0] if cols else 1)[None]]
    )
    kind = bool if element_of(op.result) == i1 else frame.dtype
    out = np.broadcast_to(found, (rows, *(cols or [1]))).astype(kind)
    return unspecified(within(span, out.shape), out) if cols else out[:, 0]


def row_span(frame: Frame, op: RowSpanOp, i: int, j: int) -> Array:
    rows = shape_of(op.result)[0]
    lo, hi = (np.broadcast_to(x, rows) - j for x in frame.block(op.body.block, [i + np.arange(rows)]))
    lo = np.clip(lo, 0, op.width)
    return np.stack([lo, np.clip(hi, lo, op.width)], axis=1)


def unspecified(part: Array, x: Array) -> Array:
    """x, and outside a part NaN; of a mask, which has no NaN, the opposite."""
    return np.where(part, x, ~x if x.dtype.kind == "b" else x.dtype.type(np.nan))


def sweep(frame: Frame, op: SweepOp, *operands: Array) -> Sequence[Array]:
    inputs = [x[:, None] if x.ndim == 1 else x for x in map(frame.get, op.inputs)]
    part = within(frame.get(op.over), op.shape)
    outs = [np.broadcast_to(x, op.shape) for x in frame.block(op.body.block, inputs)]
    return [
        unspecified(part, x) if kind is None else reduce(kind, x, part)
        for x, kind in zip(outs, op.kinds, strict=True)
    ]


def for_loop(frame: Frame, op: scf.ForOp, start: int, stop: int, step: int, *carried: Any) -> Sequence[Any]:
    for i in range(int(start), int(stop), int(step)):
        carried = tuple(frame.block(op.body.block, [i, *carried]))
    return carried


def branch(frame: Frame, op: scf.IfOp, condition: Any) -> Sequence[Any]:
    region = op.true_region if condition else op.false_region
    return frame.block(region.block, []) if region.blocks else []


def parallel(frame: Frame, op: scf.ParallelOp, *operands: Any) -> Sequence[Any]:
    bounds = zip(op.lowerBound, op.upperBound, op.step, strict=True)
    ranges = [range(*(int(frame.get(v)) for v in each)) for each in bounds]
    positions = list(itertools.product(*ranges))
    if frame.shuffle is not None:
        frame.shuffle.shuffle(positions)
    for position in positions:
        frame.block(op.body.block, position)
    return []


MEANINGS: dict[type[Operation], Callable[..., Any]] = {
    arith.ConstantOp: constant,
    arith.CmpiOp: compare,
    arith.TruncFOp: truncate,
    arith.CmpfOp: compare_reals,
    CompareOp: compare_reals,
    arith.SIToFPOp: to_real,
    ElementOp: element,
    memref.AllocOp: alloc,
    LoadOp: load,
    GroupRowsOp: group_rows,
    SequenceOp: one_sequence,
    PagesOp: pages,
    BroadcastOp: broadcast,
    DotOp: dot,
    PackOp: pack,
    ScaleRowsOp: scale_rows,
    ReplaceOp: replace,
    HoldOp: hold,
    RowMaxOp: row_max,
    RowSumOp: row_sum,
    MaskOp: mask,
    RowSpanOp: row_span,
}
"""Operations of one result."""

EFFECTS: dict[type[Operation], Callable[..., Sequence[Any]]] = {
    StoreOp: store,
    FetchOp: fetch,
    SweepOp: sweep,
    ExtremesOp: extremes,
    scf.IfOp: branch,
    scf.ForOp: for_loop,
    scf.ParallelOp: parallel,
}
"""Operations of any number of results."""
