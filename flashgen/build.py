"""Problem -> FlashAttention-1, as Algorithm 1 of its paper has it (Dao et al. 2022, section 3.1).

The key loop is outermost; K and V are loaded there. The accumulator, the row maximum m and the row sum l
lie in memory, are read and written in every inner step, and the accumulator is normalised in every step.
What differs from the paper's listing:

- Loops run over the batch b, the key head g and the query head r of its group (h = g * group + r), so
  that what belongs to a key head stands outside r.
- The state is kept in a workspace of the type computed in, whatever the storage type; o and lse are written
  once, in an epilogue. lse = m + ln l is what FlashAttention-2 keeps for the backward pass.
- A predicate says which (row, key) pairs are visible: inside both lengths, and below the diagonal where
  the problem is causal. An invisible score is -inf, and an invisible value takes no part in the product.
- A row that has seen no key yet has m = -inf and l = 0; `finite` and `nonzero` guard the two places
  where that would give NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import func
from xdsl.dialects.builtin import DYNAMIC_INDEX, MemRefType, ModuleOp, TensorType
from xdsl.ir import Attribute, Block, Region, SSAValue

from flashgen.analysis.extents import name_extents
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
    sub,
    subf,
)
from flashgen.ir.memory import LoadOp, StoreOp
from flashgen.ir.regions import MaskOp, YieldOp
from flashgen.ir.types import NEG_INF, bf16, computed_in, f16, f32, f64, index, strided, tile
from flashgen.problem import Problem

STORAGE: dict[str, Attribute] = {"float32": f32, "float16": f16, "bfloat16": bf16, "float64": f64}


def build(problem: Problem, br: int, bc: int) -> ModuleOp:
    """The FlashAttention-1 module for query tiles of ``br`` rows and key tiles of ``bc`` rows.

    One function `@attention(q, k, v, o, lse, scale)`: q (B, Hq, Nq, D), k (B, Hkv, Nk, D),
    v (B, Hkv, Nk, Dv), o (B, Hq, Nq, Dv) in the storage type, lse (B, Hq, Nq) and scale in the type computed
    in. All extents but D and Dv, and all strides, are run-time values; extents of one name here are equal,
    and named so on the function's arguments (analysis.extents).
    """
    storage, d, dv = STORAGE[problem.dtype], problem.head_dim, problem.head_dim_v
    computed = computed_in(storage)
    params: dict[str, Attribute] = {
        "q": strided(None, None, None, d, element=storage),
        "k": strided(None, None, None, d, element=storage),
        "v": strided(None, None, None, dv, element=storage),
        "o": strided(None, None, None, dv, element=storage),
        "lse": strided(None, None, None, element=computed),
        "scale": computed,
    }
    function = func.FuncOp("attention", (list(params.values()), []))
    rows, keys = ["B", "Hq", "Nq"], ["B", "Hkv", "Nk"]
    name_extents(function, [[*rows, "D"], [*keys, "D"], [*keys, "Dv"], [*rows, "Dv"], rows, []])
    for arg, name in zip(function.body.block.args, params, strict=True):
        arg.name_hint = name
    with ImplicitBuilder(function.body.block):
        Forward(problem, br, bc, *function.body.block.args).build()
        func.ReturnOp()
    return ModuleOp([function])


@dataclass
class Forward:
    """The function's body; the fields are its arguments."""

    problem: Problem
    br: int
    bc: int
    q: SSAValue
    k: SSAValue
    v: SSAValue
    o: SSAValue
    lse: SSAValue
    scale: SSAValue

    def build(self) -> None:
        self.c0, c1, c2 = (named(f"c{n}", const(n)) for n in (0, 1, 2))
        self.by_br, self.by_bc = named("br", const(self.br)), named("bc", const(self.bc))
        self.zero, self.neg_inf = named("zero", self.real(0.0)), named("neg_inf", self.real(NEG_INF))
        batch, heads = named("B", dim(self.q, self.c0)), named("Hq", dim(self.q, c1))
        kv_heads = named("Hkv", dim(self.k, c1))
        self.nq, self.nk = named("Nq", dim(self.q, c2)), named("Nk", dim(self.k, c2))
        if self.problem.causal == "bottom-right":
            self.offset = named("offset", sub(self.nk, self.nq))
        group = named("group", floordiv(heads, kv_heads))

        def over_group(b: SSAValue, g: SSAValue) -> None:
            first = mul(g, group)
            loop("r", self.c0, group, c1, lambda r: self.head(b, g, named("h", add(first, r))))

        def over_kv_heads(b: SSAValue) -> None:
            loop("g", self.c0, kv_heads, c1, lambda g: over_group(b, g))

        loop("b", self.c0, batch, c1, over_kv_heads)

    def head(self, b: SSAValue, g: SSAValue, h: SSAValue) -> None:
        """One query head: initialise the state, go over the keys, write the results."""
        acc_memory = MemRefType(self.computed, [DYNAMIC_INDEX, self.problem.head_dim_v])
        row_memory = MemRefType(self.computed, [DYNAMIC_INDEX])
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

    def over_queries(self, b: SSAValue, g: SSAValue, h: SSAValue, j: SSAValue) -> None:
        """The outer step: load a tile of K and of V, then update every query tile."""
        d, dv = self.problem.head_dim, self.problem.head_dim_v
        kj = named("kj", LoadOp(self.k, [b, g, j, self.c0], self.tile(self.bc, d)).result)
        vj = named("vj", LoadOp(self.v, [b, g, j, self.c0], self.tile(self.bc, dv)).result)
        self.over_query_tiles(lambda i: self.update(b, h, i, j, kj, vj))

    def update(self, b: SSAValue, h: SSAValue, i: SSAValue, j: SSAValue, kj: SSAValue, vj: SSAValue) -> None:
        """The inner step: lines 9 to 13 of Algorithm 1."""
        qi = named("qi", LoadOp(self.q, [b, h, i, self.c0], self.tile(self.br, self.problem.head_dim)).result)
        acc = named("acc_i", LoadOp(self.acc, [i, self.c0], self.acc_tile).result)
        l_old = named("l_i", LoadOp(self.l, [i], self.row_tile).result)
        m_old = named("m_i", LoadOp(self.m, [i], self.row_tile).result)

        x = DotOp(qi, kj, transpose=True).result
        x = mulf(x, rows(self.scale, x))
        visible = self.visible(i, j)
        s = named("s", SelectOp(visible, x, fill(self.neg_inf, self.tile(self.br, self.bc))).result)
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

    def visible(self, i: SSAValue, j: SSAValue) -> SSAValue:
        """The one place that says which keys a row sees, on absolute positions."""
        block = Block(arg_types=[index, index])
        row, col = block.args
        row.name_hint, col.name_hint = "row", "col"
        mask = MaskOp(i, j, Region(block), (self.br, self.bc))
        with ImplicitBuilder(block):
            inside = both(compare(col, "slt", self.nk), compare(row, "slt", self.nq))
            if self.problem.causal:
                bottom_right = self.problem.causal == "bottom-right"
                position = add(row, self.offset) if bottom_right else row
                inside = both(inside, compare(col, "sle", position))
            YieldOp(inside)
        return named("visible", mask.result)

    def finish(self, b: SSAValue, h: SSAValue, i: SSAValue) -> None:
        """The epilogue: o and lse from the state."""
        acc = named("o_i", LoadOp(self.acc, [i, self.c0], self.acc_tile).result)
        StoreOp(acc, self.o, [b, h, i, self.c0])
        m_i = named("m_i", LoadOp(self.m, [i], self.row_tile).result)
        l_i = named("l_i", LoadOp(self.l, [i], self.row_tile).result)
        StoreOp(named("lse_i", addf(finite(m_i), log(l_i))), self.lse, [b, h, i])
