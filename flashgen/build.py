"""Problem -> FlashAttention-1, as Algorithm 1 of its paper has it (Dao et al. 2022, section 3.1).

The key loop is outermost; K and V are loaded there. The accumulator, the row maximum m and the row sum l
lie in memory, are read and written in every inner step, and the accumulator is normalised in every step.
What differs from the paper's listing:

- Loops run over the batch b, the key head g and the query head r of its group (h = g * group + r), so
  that what belongs to a key head stands outside r.
- The state is kept in a workspace of the type computed in, whatever the storage type; o and lse are written
  once, in an epilogue. lse = m + ln l is what FlashAttention-2 keeps for the backward pass.
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
from flashgen.build_layout import keys_of, queries_of, sizes
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
from flashgen.ir.types import NEG_INF, bf16, computed_in, f16, f32, f64, i1, index, strided, tile
from flashgen.layouts import LAYOUTS
from flashgen.problem import Problem

STORAGE: dict[str, Attribute] = {"float32": f32, "float16": f16, "bfloat16": bf16, "float64": f64}
ELEMENTS: dict[str, Attribute] = {"bool": i1, "int32": i32, "int64": i64, **STORAGE}
"""What the arrays of masks and scores hold."""


def build(problem: Problem, br: int, bc: int) -> ModuleOp:
    """The FlashAttention-1 module for query tiles of ``br`` rows and key tiles of ``bc`` rows.

    One function `@attention(q, k, v, o, lse, ARRAYS..., scale, SCALARS...)`: q (B, Hq, Nq, D),
    k (B, Hkv, Nk, D), v (B, Hkv, Nk, Dv), o (B, Hq, Nq, Dv) in the storage type, lse (B, Hq, Nq) and scale
    of the type computed in, or what the problem's layout has for these; the problem's arrays and scalars, of
    their own types.
    All extents but D and Dv, and all strides, are run-time values; extents of one name in Layout.shapes are
    equal, and named so on the function's arguments (analysis.extents).
    """
    storage, shapes = STORAGE[problem.dtype], LAYOUTS[problem.layout].shapes
    computed = computed_in(storage)
    static = {"D": problem.head_dim, "Dv": problem.head_dim_v}
    arrays = {a.name: strided(*[None] * a.rank, element=ELEMENTS[a.dtype]) for a in problem.arrays}
    scalars = {s.name: index if s.kind == "index" else computed for s in problem.scalars}
    params: dict[str, Attribute] = {
        **{n: strided(*map(static.get, shapes[n]), element=storage) for n in ("q", "k", "v", "o")},
        "lse": strided(*map(static.get, shapes["lse"]), element=computed),
        **arrays,
        "scale": computed,
        **scalars,
    }
    function = func.FuncOp("attention", (list(params.values()), []))
    name_extents(function, [shapes.get(name, ()) for name in params])
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
    """What is known of the sequence, or of all of them."""

    def __post_init__(self) -> None:
        self.scale, self.layout = self.args["scale"], LAYOUTS[self.problem.layout]
        self.masks, self.score = stated_masks(self.problem)

    def build(self) -> None:
        self.c0, c1, self.c2 = (named(f"c{n}", const(n)) for n in (0, 1, 2))
        self.by_br, self.by_bc = named("br", const(self.br)), named("bc", const(self.bc))
        self.zero, self.neg_inf = named("zero", self.real(0.0)), named("neg_inf", self.real(NEG_INF))
        batch, heads, kv_heads = sizes(self.layout, self.args, self.c0, c1)
        self.scope = Scalars(self.args, self.computed)
        self.scope.set(ZERO, self.c0)
        self.locate()
        group = named("group", floordiv(heads, kv_heads))

        def over_group(g: SSAValue) -> None:
            first = mul(g, group)
            loop("r", self.c0, group, c1, lambda r: self.head(g, named("h", add(first, r))))

        def over_kv_heads(b: SSAValue) -> None:
            self.locate(b)
            loop("g", self.c0, kv_heads, c1, over_group)

        loop("b", self.c0, batch, c1, over_kv_heads)

    def locate(self, b: SSAValue | None = None) -> None:
        """Arrays, lengths, and what masks and scores make of them, as far as all sequences share them; or,
        given b, what sequence b has to itself."""
        shared_q, shared_k = self.layout.queries == "dense", self.layout.keys == "dense"
        if b is not None:
            self.scope = self.scope.within(b=b)
            self.q_at, self.k_at = b if shared_q else self.c0, b if shared_k else self.c0
        if shared_q == (b is None):
            self.q, self.o, self.lse = queries_of(self.layout, self.args, b)
            self.nq = named("Nq", dim(self.q, self.c2))
            self.scope.set(NQ, self.nq)
        if shared_k == (b is None):
            self.k, self.v = keys_of(self.layout, self.args, b)
            self.nk = named("Nk", dim(self.k, self.c2))
            self.scope.set(NK, self.nk)
        if b is not None or (shared_q and shared_k):
            for e in (*self.masks, self.score):
                self.scope.hoist(e, frozenset() if b is None else frozenset("b"))

    def head(self, g: SSAValue, h: SSAValue) -> None:
        """One query head: initialise the state, go over the keys, write the results."""
        acc_memory = MemRefType(self.computed, [DYNAMIC_INDEX, self.problem.head_dim_v])
        row_memory = MemRefType(self.computed, [DYNAMIC_INDEX])
        self.acc = named("acc", alloc(acc_memory, self.nq))
        self.m = named("m", alloc(row_memory, self.nq))
        self.l = named("l", alloc(row_memory, self.nq))
        self.over_query_tiles(self.initialise)
        self.over_key_tiles(lambda j: self.over_queries(g, h, j))
        self.over_query_tiles(lambda i: self.finish(h, i))

    def over_query_tiles(self, body: Callable[[SSAValue], None]) -> None:
        loop("i", self.c0, self.nq, self.by_br, body)

    def over_key_tiles(self, body: Callable[[SSAValue], None]) -> None:
        loop("j", self.c0, self.nk, self.by_bc, body)

    @property
    def computed(self) -> Attribute:
        """The type computed in."""
        return self.scale.type

    def real(self, x: float) -> SSAValue:
        return real(x, self.computed)

    def tile(self, *shape: int) -> TensorType:
        return tile(*shape, element=self.computed)

    @property
    def acc_tile(self) -> TensorType:
        return self.tile(self.br, self.problem.head_dim_v)

    @property
    def row_tile(self) -> TensorType:
        return self.tile(self.br)

    def initialise(self, i: SSAValue) -> None:
        StoreOp(fill(self.zero, self.acc_tile), self.acc, [i, self.c0])
        StoreOp(fill(self.zero, self.row_tile), self.l, [i])
        StoreOp(fill(self.neg_inf, self.row_tile), self.m, [i])

    def over_queries(self, g: SSAValue, h: SSAValue, j: SSAValue) -> None:
        """The outer step: load a tile of K and of V, then update every query tile."""
        d, dv = self.problem.head_dim, self.problem.head_dim_v
        kj = named("kj", LoadOp(self.k, [self.k_at, g, j, self.c0], self.tile(self.bc, d)).result)
        vj = named("vj", LoadOp(self.v, [self.k_at, g, j, self.c0], self.tile(self.bc, dv)).result)
        self.over_query_tiles(lambda i: self.update(h, i, j, kj, vj))

    def update(self, h: SSAValue, i: SSAValue, j: SSAValue, kj: SSAValue, vj: SSAValue) -> None:
        """The inner step: lines 9 to 13 of Algorithm 1."""
        qi = named(
            "qi", LoadOp(self.q, [self.q_at, h, i, self.c0], self.tile(self.br, self.problem.head_dim)).result
        )
        acc = named("acc_i", LoadOp(self.acc, [i, self.c0], self.acc_tile).result)
        l_old = named("l_i", LoadOp(self.l, [i], self.row_tile).result)
        m_old = named("m_i", LoadOp(self.m, [i], self.row_tile).result)

        x = DotOp(qi, kj, transpose=True).result
        x = mulf(x, rows(self.scale, x))
        scope, shape = self.scope.within(h=h), (self.br, self.bc)
        t = Tiles(scope, i, j, shape, x).value(self.score)
        visible = self.visible(scope, i, j)
        hidden = fill(self.neg_inf, self.tile(*shape))
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

    def finish(self, h: SSAValue, i: SSAValue) -> None:
        """The epilogue: o and lse from the state."""
        acc = named("o_i", LoadOp(self.acc, [i, self.c0], self.acc_tile).result)
        if not self.problem.sink:
            StoreOp(acc, self.o, [self.q_at, h, i, self.c0])
        m_i = named("m_i", LoadOp(self.m, [i], self.row_tile).result)
        l_i = named("l_i", LoadOp(self.l, [i], self.row_tile).result)
        lse = named("lse_i", addf(finite(m_i), log(l_i)))
        if self.problem.sink:
            acc, lse = self.with_sink(h, i, acc, lse)
            StoreOp(acc, self.o, [self.q_at, h, i, self.c0])
        StoreOp(lse, self.lse, [self.q_at, h, i])

    def with_sink(self, h: SSAValue, i: SSAValue, acc: SSAValue, lse: SSAValue) -> tuple[SSAValue, SSAValue]:
        """o and lse where the head's sink is one more logit, without a value: ln(e^lse + e^sink), and o times
        the share of the sum that is not the sink's. A sink of -inf leaves both as they are, to the bit."""
        row = self.args["sink"]
        sink = named(
            "sink_i", mask(i, self.c0, (self.br,), self.computed, lambda *_: ElementOp(row, [h]).result)
        )
        top = named("sink_top", finite(maxf(lse, sink)))
        kept = named("kept", exp(subf(lse, top)))
        total = named("with_sink", addf(kept, exp(subf(sink, top))))
        share = named("share", divf(kept, nonzero(total)))
        return mulf(acc, rows(share, acc)), named("lse_sink", addf(top, log(total)))
