"""Problem -> FlashAttention-1, as Algorithm 1 of its paper has it (Dao et al. 2022, section 3.1).

The key loop is outermost; K and V are loaded there. The accumulator, the row maximum m and the row sum l
lie in memory, are read and written in every inner step, and the accumulator is normalised in every step.
What differs from the paper's listing:

- Loops run over the batch b, the key head g and the query head r of its group (h = g * group + r), so
  that what belongs to a key head stands outside r.
- The state is kept in a float32 workspace whatever the storage type; o and lse are written once, in an
  epilogue. lse = m + ln l is what FlashAttention-2 keeps for the backward pass.
- A predicate says which (row, key) pairs are visible: inside both lengths, below the diagonal where the
  problem is causal, and where its mask holds. An invisible score is -inf, and an invisible value takes no
  part in the product. Where a problem's own score gives -inf, the key is invisible, too.
- A sink is one more logit in a row's sum; what is found of the keys meets it in the epilogue.
- A row that has seen no key yet has m = -inf and l = 0; `finite` and `nonzero` guard the two places
  where that would give NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import func
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType, ModuleOp, TensorType, i32, i64
from xdsl.ir import Attribute, SSAValue

from flashgen.analysis.extents import name_extents
from flashgen.build_expression import (
    NK,
    NQ,
    ZERO,
    Scalars,
    Tiles,
    conjuncts,
    mask,
    may_hide,
    stated_masks,
)
from flashgen.ir.compare import CompareOp
from flashgen.ir.compute import DotOp, RowMaxOp, RowSumOp, SelectOp
from flashgen.ir.construct import (
    add,
    addf,
    alloc,
    both,
    compare,
    const,
    dim,
    divf,
    exp,
    fill,
    finite,
    floordiv,
    log,
    loop,
    maxf,
    mul,
    mulf,
    named,
    nonzero,
    real,
    rows,
    subf,
)
from flashgen.ir.memory import ElementOp, LoadOp, StoreOp
from flashgen.ir.types import NEG_INF, bf16, f16, f32, i1, index, strided, tile
from flashgen.problem import Problem

STORAGE: dict[str, Attribute] = {"float32": f32, "float16": f16, "bfloat16": bf16}
ELEMENTS: dict[str, Attribute] = {"bool": i1, "int32": i32, "int64": i64, **STORAGE}
"""What the arrays of masks and scores hold."""


def build(problem: Problem, br: int, bc: int) -> ModuleOp:
    """The FlashAttention-1 module for query tiles of ``br`` rows and key tiles of ``bc`` rows.

    One function `@attention(q, k, v, o, lse, ARRAYS..., scale, SCALARS...)`: q (B, Hq, Nq, D),
    k (B, Hkv, Nk, D), v (B, Hkv, Nk, Dv), o (B, Hq, Nq, Dv) in the storage type, lse (B, Hq, Nq) and scale
    float32; the problem's arrays and scalars, of their own types. All extents but D and Dv, and all strides,
    are run-time values; extents of one name here are equal, and named so on the function's arguments
    (analysis.extents).
    """
    storage, d, dv = STORAGE[problem.dtype], problem.head_dim, problem.head_dim_v
    arrays = {a.name: strided(*[None] * a.rank, element=ELEMENTS[a.dtype]) for a in problem.arrays}
    scalars = {s.name: index if s.kind == "index" else f32 for s in problem.scalars}
    params: dict[str, Attribute] = {
        "q": strided(None, None, None, d, element=storage),
        "k": strided(None, None, None, d, element=storage),
        "v": strided(None, None, None, dv, element=storage),
        "o": strided(None, None, None, dv, element=storage),
        "lse": strided(None, None, None),
        **arrays,
        "scale": f32,
        **scalars,
    }
    function = func.FuncOp("attention", (list(params.values()), []))
    rows, keys = ["B", "Hq", "Nq"], ["B", "Hkv", "Nk"]
    extents = [[*rows, "D"], [*keys, "D"], [*keys, "Dv"], [*rows, "Dv"], rows]
    name_extents(function, [*extents, *[[]] * (len(params) - len(extents))])
    for arg, name in zip(function.body.block.args, params, strict=True):
        arg.name_hint = name
    with ImplicitBuilder(function.body.block):
        Forward(problem, br, bc, dict(zip(params, function.body.block.args, strict=True))).build()
        func.ReturnOp()
    return ModuleOp([function])


@dataclass
class Forward:
    """The function's body. args: its arguments, by name."""

    problem: Problem
    br: int
    bc: int
    args: dict[str, SSAValue]
    scope: Scalars = field(init=False)
    """What is known of the batch."""

    def __post_init__(self) -> None:
        self.q, self.k, self.v, self.o, self.lse, self.scale = (
            self.args[name] for name in ("q", "k", "v", "o", "lse", "scale")
        )
        self.masks, self.score = stated_masks(self.problem)

    def build(self) -> None:
        self.c0, c1, c2 = (named(f"c{n}", const(n)) for n in (0, 1, 2))
        self.by_br, self.by_bc = named("br", const(self.br)), named("bc", const(self.bc))
        self.zero, self.neg_inf = named("zero", real(0.0)), named("neg_inf", real(NEG_INF))
        batch, heads = named("B", dim(self.q, self.c0)), named("Hq", dim(self.q, c1))
        kv_heads = named("Hkv", dim(self.k, c1))
        self.nq, self.nk = named("Nq", dim(self.q, c2)), named("Nk", dim(self.k, c2))
        top = Scalars(self.args)
        for e, value in ((ZERO, self.c0), (NQ, self.nq), (NK, self.nk)):
            top.set(e, value)
        for e in (*self.masks, self.score):
            top.hoist(e)
        group = named("group", floordiv(heads, kv_heads))

        def over_group(b: SSAValue, g: SSAValue) -> None:
            first = mul(g, group)
            loop("r", self.c0, group, c1, lambda r: self.head(b, g, named("h", add(first, r))))

        def over_kv_heads(b: SSAValue) -> None:
            self.scope = top.within(b=b)
            for e in (*self.masks, self.score):
                self.scope.hoist(e, frozenset("b"))
            loop("g", self.c0, kv_heads, c1, lambda g: over_group(b, g))

        loop("b", self.c0, batch, c1, over_kv_heads)

    def head(self, b: SSAValue, g: SSAValue, h: SSAValue) -> None:
        """One query head: initialise the state, go over the keys, write the results."""
        acc_memory = MemRefType(f32, [DYNAMIC_INDEX, self.problem.head_dim_v])
        row_memory = MemRefType(f32, [DYNAMIC_INDEX])
        self.acc = named("acc", alloc(acc_memory, self.nq))
        self.m = named("m", alloc(row_memory, self.nq))
        self.l = named("l", alloc(row_memory, self.nq))
        self.over_query_tiles(self.initialise)
        self.over_key_tiles(lambda j: self.over_queries(b, g, h, j))
        self.over_query_tiles(lambda i: self.finish(b, h, i))

    def over_query_tiles(self, body: Callable[[SSAValue], None]) -> None:
        loop("i", self.c0, self.nq, self.by_br, body)

    def over_key_tiles(self, body: Callable[[SSAValue], None]) -> None:
        loop("j", self.c0, self.nk, self.by_bc, body)

    @property
    def acc_tile(self) -> TensorType:
        return tile(self.br, self.problem.head_dim_v)

    @property
    def row_tile(self) -> TensorType:
        return tile(self.br)

    def initialise(self, i: SSAValue) -> None:
        StoreOp(fill(self.zero, self.acc_tile), self.acc, [i, self.c0])
        StoreOp(fill(self.zero, self.row_tile), self.l, [i])
        StoreOp(fill(self.neg_inf, self.row_tile), self.m, [i])

    def over_queries(self, b: SSAValue, g: SSAValue, h: SSAValue, j: SSAValue) -> None:
        """The outer step: load a tile of K and of V, then update every query tile."""
        d, dv = self.problem.head_dim, self.problem.head_dim_v
        kj = named("kj", LoadOp(self.k, [b, g, j, self.c0], tile(self.bc, d)).result)
        vj = named("vj", LoadOp(self.v, [b, g, j, self.c0], tile(self.bc, dv)).result)
        self.over_query_tiles(lambda i: self.update(b, h, i, j, kj, vj))

    def update(self, b: SSAValue, h: SSAValue, i: SSAValue, j: SSAValue, kj: SSAValue, vj: SSAValue) -> None:
        """The inner step: lines 9 to 13 of Algorithm 1."""
        qi = named("qi", LoadOp(self.q, [b, h, i, self.c0], tile(self.br, self.problem.head_dim)).result)
        acc = named("acc_i", LoadOp(self.acc, [i, self.c0], self.acc_tile).result)
        l_old = named("l_i", LoadOp(self.l, [i], self.row_tile).result)
        m_old = named("m_i", LoadOp(self.m, [i], self.row_tile).result)

        x = DotOp(qi, kj, transpose=True).result
        x = mulf(x, rows(self.scale, x))
        scope, shape = self.scope.within(h=h), (self.br, self.bc)
        t = Tiles(scope, i, j, shape, x).value(self.score)
        visible = self.visible(scope, i, j)
        hidden = fill(self.neg_inf, tile(*shape))
        if may_hide(self.score):
            visible = named("seen", both(visible, CompareOp("une", t, hidden).result))
        s = named("s", SelectOp(visible, t, hidden).result)
        m_tile = named("m_tile", RowMaxOp(s).result)
        tile_top = named("tile_top", finite(m_tile))
        p = named("p", exp(subf(s, rows(tile_top, s))))
        l_tile = named("l_tile", RowSumOp(p).result)

        m_new = named("m_new", maxf(m_old, m_tile))
        top = named("top", finite(m_new))
        alpha = named("alpha", exp(subf(m_old, top)))
        beta = named("beta", exp(subf(m_tile, top)))
        l_kept = named("l_kept", mulf(l_old, alpha))
        l_new = named("l_new", addf(l_kept, mulf(beta, l_tile)))
        pv = named("pv", DotOp(p, vj, where=visible).result)
        total = named("total", addf(mulf(rows(l_kept, acc), acc), mulf(rows(beta, pv), pv)))
        divisor = named("divisor", nonzero(l_new))
        acc_new = named("acc_new", divf(total, rows(divisor, total)))

        StoreOp(acc_new, self.acc, [i, self.c0])
        StoreOp(l_new, self.l, [i])
        StoreOp(m_new, self.m, [i])

    def visible(self, scope: Scalars, i: SSAValue, j: SSAValue) -> SSAValue:
        """The one place that says which keys a row sees, on absolute positions."""

        def predicate(row: SSAValue, col: SSAValue) -> SSAValue:
            here = scope.within(q=row, k=col)
            inside = both(compare(col, "slt", self.nk), compare(row, "slt", self.nq))
            for e, holds in (each for whole in self.masks for each in conjuncts(whole)):
                inside = both(inside, here.condition(e, holds))
            return inside

        return named("visible", mask(i, j, (self.br, self.bc), i1, predicate))

    def finish(self, b: SSAValue, h: SSAValue, i: SSAValue) -> None:
        """The epilogue: o and lse from the state."""
        acc = named("o_i", LoadOp(self.acc, [i, self.c0], self.acc_tile).result)
        if not self.problem.sink:
            StoreOp(acc, self.o, [b, h, i, self.c0])
        m_i = named("m_i", LoadOp(self.m, [i], self.row_tile).result)
        l_i = named("l_i", LoadOp(self.l, [i], self.row_tile).result)
        lse = named("lse_i", addf(finite(m_i), log(l_i)))
        if self.problem.sink:
            acc, lse = self.with_sink(h, i, acc, lse)
            StoreOp(acc, self.o, [b, h, i, self.c0])
        StoreOp(lse, self.lse, [b, h, i])

    def with_sink(self, h: SSAValue, i: SSAValue, acc: SSAValue, lse: SSAValue) -> tuple[SSAValue, SSAValue]:
        """o and lse where the head's sink is one more logit, without a value: ln(e^lse + e^sink), and o times
        the share of the sum that is not the sink's. A sink of -inf leaves both as they are, to the bit."""
        row = self.args["sink"]
        sink = named("sink_i", mask(i, self.c0, (self.br,), f32, lambda *_: ElementOp(row, [h]).result))
        top = named("sink_top", finite(maxf(lse, sink)))
        kept = named("kept", exp(subf(lse, top)))
        total = named("with_sink", addf(kept, exp(subf(sink, top))))
        share = named("share", divf(kept, nonzero(total)))
        return mulf(acc, rows(share, acc)), named("lse_sink", addf(top, log(total)))
