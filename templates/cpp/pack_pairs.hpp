// Panels of pairs, read from where the right side of a product lies in memory. Columns beyond the last are 0.

// Two numbers side by side are turned like one of 32 bits.
struct NumberPair {
  bfloat16 first, second;
};
INLINE __m256 get_8(const NumberPair *p) { return _mm256_loadu_ps((const float *)p); }

// Panels of rows of K numbers: out[a][d][x] = in[W a + x][2 d] and [2 d + 1].
template <isize K, isize P, isize N, isize W> INLINE void pack_transposed(Pairs<P, N, W> out, View<bfloat16> in) {
  const isize panels = smaller(P, ceildiv(in.rows, W));  // that hold something
  for (isize n = 0; n < panels * W; n += square) {
    const bfloat16 *const from = in.p + n * in.row_stride;
    isize k = 0;
    if (in.col_stride == 1 && in.row_stride % 2 == 0 && n + square <= in.rows)
      for (; k + 2 * square <= K; k += 2 * square)
        transpose((float *)out.at(n / W, k / 2, n % W), W, (const NumberPair *)(from + k), in.row_stride / 2);
    for (; k < 2 * N; ++k)
      for (isize x = 0; x < square; ++x)
        out.at(n / W, k / 2, n % W + x)[k % 2] =
            k < K && n + x < in.rows ? from[x * in.row_stride + k * in.col_stride] : bfloat16{0};
  }
  memset(out.at(panels, 0, 0), 0, (P - panels) * N * W * sizeof(NumberPair));
}

// Panels of columns, of which `in` has C: out[a][d][x] = in[2 d][W a + x] and [2 d + 1].
template <isize C, isize P, isize N, isize W> INLINE void pack(Pairs<P, N, W> out, View<bfloat16> in) {
  const isize pairs = ceildiv(in.rows, 2);
  for (isize k = 0; k < 2 * pairs; k += 2)
    for (isize a = 0; a < P; ++a) {
      bfloat16 *const to = out.at(a, k / 2, 0);
      const bfloat16 *const from = in.p + k * in.row_stride + a * W * in.col_stride;
      if (in.col_stride == 1 && (a + 1) * W <= C && k + 1 < in.rows)
        interleave<W>(to, from, from + in.row_stride);
      else
        for (isize x = 0; x < 2 * W; ++x)
          to[x] = a * W + x / 2 < C && k + x % 2 < in.rows
                      ? from[x / 2 * in.col_stride + x % 2 * in.row_stride]
                      : bfloat16{0};
    }
  for (isize a = 0; a < P; ++a) memset(out.at(a, pairs, 0), 0, (N - pairs) * W * sizeof(NumberPair));
}
