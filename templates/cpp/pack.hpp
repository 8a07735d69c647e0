// Panels of the right side of a product, read from where it lies in memory. Columns beyond the last are 0.

// Rows r to r + square of `in`, whose columns are adjacent, as columns: out[k][x] = in[r + x][k], W apart, as far
// as whole blocks go. Returns how many k that is.
template <isize K, isize W, class T> INLINE isize turn(real *out, const View<T> &in, isize r) {
  isize k = 0;
  for (; k + square <= K; k += square) transpose(out + k * W, W, in.row(r) + k, in.row_stride);
  return k;
}

// Panels of rows: out[a][d][x] = in[W a + x][d].
template <isize P, isize K, isize W, class In> INLINE void pack_transposed(Panels<P, K, W> out, const In &in) {
  const isize panels = smaller(P, ceildiv(in.rows, W));  // that hold something
  for (isize n = 0; n < panels * W; n += square) {
    real *const to = out.p + n / W * (K * W) + n % W;
    const bool whole = in.col_stride == 1 && n + square <= in.rows;
    for (isize k = whole ? turn<K, W>(to, in, n) : 0; k < K; ++k)
      for (isize x = 0; x < square; ++x)
        to[k * W + x] = n + x < in.rows ? get(in.row(n + x) + k * in.col_stride) : real(0);
  }
  memset(out.p + panels * K * W, 0, (P - panels) * K * W * sizeof(real));
}

// Panels of columns: out[a][k][x] = in[k][W a + x], where `in` has C columns; row by row, as they lie in memory.
template <isize C, isize P, isize K, isize W, class In> INLINE void pack(Panels<P, K, W> out, const In &in) {
  for (isize k = 0; k < in.rows; ++k) {
    const auto *const row = in.row(k);
    for (isize a = 0; a < P; ++a) {
      real *const to = out.p + (a * K + k) * W;
      const auto *const from = row + a * W * in.col_stride;
      if (in.col_stride == 1 && (a + 1) * W <= C)
        copy<W>(to, from);
      else
        for (isize x = 0; x < W; ++x) to[x] = a * W + x < C ? get(from + x * in.col_stride) : real(0);
    }
  }
  for (isize a = 0; a < P; ++a) memset(out.p + (a * K + in.rows) * W, 0, (K - in.rows) * W * sizeof(real));
}
