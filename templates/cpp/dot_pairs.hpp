// Matrix products of bfloat16: a tile times panels of pairs, in the register blocks of dot.hpp. A step takes two
// columns of the left side.

template <int M, int NV>
INLINE void step(Block<M, NV> &block, const bfloat16 *a, isize a_stride, const bfloat16 *b) {
  pair_vec row[NV];
  UNROLL for (int v = 0; v < NV; ++v) row[v] = load_pairs(b + 2 * v * lanes);
  UNROLL for (int i = 0; i < M; ++i) {
    const pair_vec x = all_pairs(a + i * a_stride);
    UNROLL for (int v = 0; v < NV; ++v) block.c[i][v] = add_products(block.c[i][v], x, row[v]);
  }
}

// A step at column k for the rows that take both columns, or one: there the other is 0 on both sides, for 0 times
// a NaN is none.
template <isize K, int M, int NV, class Part>
INLINE void ragged_step(Block<M, NV> &block, const bfloat16 *a, isize a_stride, const bfloat16 *b, const Part &part,
                        isize r, isize k) {
  UNROLL for (int i = 0; i < M; ++i) {
    const Taken t = taken<K>(part, r + i);
    const uint32_t which = (t.lo <= k && k < t.hi ? 0xffffu : 0) | (t.lo <= k + 1 && k + 1 < t.hi ? 0xffff0000u : 0);
    if (!which) continue;
    const pair_vec x = halves(all_pairs(a + i * a_stride), which);
    UNROLL for (int v = 0; v < NV; ++v)
      block.c[i][v] = add_products(block.c[i][v], x, halves(load_pairs(b + 2 * v * lanes), which));
  }
}

// Rows r to r + M of one panel's part of the product.
template <bool accumulate, int M, isize K, int NV, class Part>
INLINE void block_product(real *out, isize out_stride, const bfloat16 *a, isize a_stride, const bfloat16 *panel,
                          const Part &part, isize r) {
  const Hull h = part.template contraction<K>(r);
  const isize whole_lo = round_up(h.full_lo, 2), whole_hi = larger(whole_lo, h.full_hi / 2 * 2);
  Block<M, NV> block;
  if (accumulate)
    block.load_from(out, out_stride);
  else
    block.clear();
  for (isize k = h.lo / 2 * 2; k < smaller(whole_lo, h.hi); k += 2)
    ragged_step<K>(block, a + k, a_stride, panel + k * NV * lanes, part, r, k);
#pragma GCC unroll 4
  for (isize k = whole_lo; k < whole_hi; k += 2) step(block, a + k, a_stride, panel + k * NV * lanes);
  for (isize k = whole_hi; k < h.hi; k += 2)
    ragged_step<K>(block, a + k, a_stride, panel + k * NV * lanes, part, r, k);
  block.store_to(out, out_stride);
}

// As product of dot.hpp.
template <bool accumulate, isize R, isize C, isize SO, isize K, isize SA, isize P, isize N, isize W, class Part,
          class... Ahead>
INLINE void product(Tile<R, C, SO> out, NarrowTile<R, K, SA> a, Pairs<P, N, W> b, const Part &part,
                    const Ahead &...ahead) {
  static_assert(P * W <= SO && W % lanes == 0 && K <= 2 * N && 2 * N <= SA, "the panels fit in a padded row");
  constexpr isize rest = R % micro_rows, each = (R + micro_rows - 1) / micro_rows;
  for (isize n = 0, block = 0; n < P; ++n) {
    const bfloat16 *const panel = b.at(n, 0, 0);
    for (isize r = 0; r < R - rest; r += micro_rows, ++block) {
      (ahead.part(block, P * each), ...);
      if (part.wants(r, n * W, W))
        block_product<accumulate, micro_rows, K, W / lanes>(out.at(r, n * W), SO, a.at(r, 0), SA, panel, part, r);
    }
    if constexpr (rest > 0) {
      (ahead.part(block++, P * each), ...);
      if (constexpr isize r = R - rest; part.wants(r, n * W, W))
        block_product<accumulate, rest, K, W / lanes>(out.at(r, n * W), SO, a.at(r, 0), SA, panel, part, r);
    }
  }
}
