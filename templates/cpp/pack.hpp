// Panels of the right side of a product, read from where it lies in memory. Columns beyond the last are 0.

// Panels of rows: out[a][d][x] = in[W a + x][d].
template <isize P, isize K, isize W, class T> INLINE void pack_transposed(Panels<P, K, W> out, View<T> in) {
  const isize panels = smaller(P, ceildiv(in.rows, W));  // that hold something
  for (isize n = 0; n < panels * W; n += square) {
    real *const to = out.p + n / W * (K * W) + n % W;
    const T *const from = in.p + n * in.row_stride;
    isize k = 0;
    if (in.col_stride == 1 && n + square <= in.rows)
      for (; k + square <= K; k += square) transpose(to + k * W, W, from + k, in.row_stride);
    for (; k < K; ++k)
      for (isize x = 0; x < square; ++x)
        to[k * W + x] = n + x < in.rows ? get(from + x * in.row_stride + k * in.col_stride) : real(0);
  }
  memset(out.p + panels * K * W, 0, (P - panels) * K * W * sizeof(real));
}

// Panels of columns: out[a][k][x] = in[k][W a + x], where `in` has C columns; row by row, as they lie in memory.
template <isize C, isize P, isize K, isize W, class T> INLINE void pack(Panels<P, K, W> out, View<T> in) {
  for (isize k = 0; k < in.rows; ++k)
    for (isize a = 0; a < P; ++a) {
      real *const to = out.p + (a * K + k) * W;
      const T *const from = in.p + k * in.row_stride + a * W * in.col_stride;
      if (in.col_stride == 1 && (a + 1) * W <= C)
        copy<W>(to, from);
      else
        for (isize x = 0; x < W; ++x) to[x] = a * W + x < C ? get(from + x * in.col_stride) : real(0);
    }
  for (isize a = 0; a < P; ++a) memset(out.p + (a * K + in.rows) * W, 0, (K - in.rows) * W * sizeof(real));
}
