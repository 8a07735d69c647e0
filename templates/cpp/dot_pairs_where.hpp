// Products with panels of pairs, where a mask says which elements of the left side take part. The others are 0, and
// so add nothing, unless they meet what is not finite: then rows are taken apart.

template <isize P, isize N, isize W> INLINE bool finite(Pairs<P, N, W> b) {
  constexpr isize NV = W / lanes;
  const bfloat16 zeros[2] = {};
  const pair_vec zero = all_pairs(zeros);
  vec sum[NV];
  UNROLL for (isize v = 0; v < NV; ++v) sum[v] = all(0.0f);
  for (isize n = 0; n < P * N; ++n)
    UNROLL for (isize v = 0; v < NV; ++v)
      sum[v] = add_products(sum[v], zero, load_pairs(b.p + 2 * (n * W + v * lanes)));
  bool all_finite = true;
  UNROLL for (isize v = 0; v < NV; ++v) all_finite &= !some(is_nan(sum[v]));
  return all_finite;
}

template <bool accumulate, isize R, isize C, isize SO, isize K, isize SA, isize P, isize N, isize W, isize SM,
          class Part, class... Ahead>
INLINE void product(Tile<R, C, SO> out, NarrowTile<R, K, SA> a, Pairs<P, N, W> b, const Part &part,
                    Mask<R, K, SM> seen, const Ahead &...ahead) {
  constexpr isize NV = W / lanes;
  if (finite(b)) return product<accumulate>(out, a, b, part, ahead...);
  for (isize r = 0; r < R; ++r) {
    const Taken t = taken<K>(part, r);
    for (isize n = 0; n < P; ++n) {
      Block<1, NV> block;
      if (accumulate)
        block.load_from(out.at(r, n * W), SO);
      else
        block.clear();
      for (isize k = t.lo / 2 * 2; k < t.hi; k += 2) {
        const bool first = t.lo <= k && *seen.at(r, k), second = k + 1 < t.hi && *seen.at(r, k + 1);
        const uint32_t which = (first ? 0xffffu : 0) | (second ? 0xffff0000u : 0);
        if (!which) continue;
        const pair_vec x = halves(all_pairs(a.at(r, k)), which);
        UNROLL for (int v = 0; v < NV; ++v)
          block.c[0][v] = add_products(block.c[0][v], x, halves(load_pairs(b.at(n, k / 2, v * lanes)), which));
      }
      block.store_to(out.at(r, n * W), SO);
    }
  }
}
