// Products in place, where a mask says which elements of the left side take part. The others are 0, and so add
// nothing, unless they meet what is not finite: then rows are taken apart.

template <isize C, class Right> INLINE bool finite(const Right &b) {
  vec sum = all(real(0));
  real rest = real(0);
  for (isize k = 0; k < b.rows; ++k) {
    const auto *const row = b.row(k);
    isize c = 0;
    if (b.col_stride == 1)
      for (; c + lanes <= C; c += lanes) sum = fma(load(row + c), all(real(0)), sum);
    for (; c < C; ++c) rest += get(row + c * b.col_stride) * real(0);
  }
  return !some(is_nan(sum + all(rest)));
}

template <bool accumulate, isize R, isize C, isize SO, isize K, isize SA, isize SM, class Right, class Part>
INLINE void product(Tile<R, C, SO> out, Tile<R, K, SA> a, const Right &b, const Part &part, Mask<R, K, SM> seen) {
  if (finite<C>(b)) return product<accumulate>(out, a, b, part);
  for (isize r = 0; r < R; ++r) {
    if (!accumulate) memset(out.at(r, 0), 0, C * sizeof(real));
    for (isize k = part.lo(r); k < smaller(part.hi(r), b.rows); ++k)
      if (*seen.at(r, k))
        for (isize c = 0; c < C; ++c) {
          real &to = *out.at(r, c);
          to = ::fma(*a.at(r, k), get(b.row(k) + c * b.col_stride), to);
        }
  }
}
