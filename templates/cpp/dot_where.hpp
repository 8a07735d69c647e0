// Products with panels, where a mask says which elements of the left side take part. The others are 0, and so
// add nothing, unless they meet what is not finite: then rows are taken apart.

template <isize P, isize K, isize W> INLINE bool finite(Panels<P, K, W> b) {
  constexpr isize NV = W / lanes;
  vec sum[NV];
  UNROLL for (isize v = 0; v < NV; ++v) sum[v] = all(real(0));
  for (isize n = 0; n < P * K; ++n)
    UNROLL for (isize v = 0; v < NV; ++v) sum[v] = fma(load(b.p + n * W + v * lanes), all(real(0)), sum[v]);
  bool all_finite = true;
  UNROLL for (isize v = 0; v < NV; ++v) all_finite &= !some(is_nan(sum[v]));
  return all_finite;
}

template <bool accumulate, isize R, isize C, isize SO, isize K, isize SA, isize P, isize W, isize SM, class Part,
          class... Ahead>
INLINE void product(Tile<R, C, SO> out, Tile<R, K, SA> a, Panels<P, K, W> b, const Part &part, Mask<R, K, SM> seen,
                    const Ahead &...ahead) {
  if (finite(b)) return product<accumulate>(out, a, b, part, ahead...);
  for (isize r = 0; r < R; ++r) {
    const Taken t = taken<K>(part, r);
    for (isize n = 0; n < P; ++n) {
      Block<1, W / lanes> block;
      if (accumulate)
        block.load_from(out.at(r, n * W), SO);
      else
        block.clear();
      for (isize k = t.lo; k < t.hi; ++k)
        if (*seen.at(r, k)) block.step(a.at(r, k), SA, b.p + (n * K + k) * W);
      block.store_to(out.at(r, n * W), SO);
    }
  }
}
