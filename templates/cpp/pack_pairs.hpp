// Panels of pairs, read from where the right side of a product lies in memory. Columns beyond the last are 0.

// Two numbers side by side are turned like one of 32 bits.
struct NumberPair {
  bfloat16 first, second;
};
INLINE __m256 get_8(const NumberPair *p) { return _mm256_loadu_ps((const float *)p); }

// Panels of rows of K numbers: out[a][d][x] = in[W a + x][2 d] and [2 d + 1].
template <isize K, isize P, isize N, isize W, class In> INLINE void pack_transposed(Pairs<P, N, W> out, const In &in) {
  const isize panels = smaller(P, ceildiv(in.rows, W));  // that hold something
  for (isize n = 0; n < panels * W; n += square) {
    isize k = 0;
    if (in.col_stride == 1 && in.row_stride % 2 == 0 && in.stretch(n, square) == n + square)
      for (const bfloat16 *const from = in.row(n); k + 2 * square <= K; k += 2 * square)
        transpose((float *)out.at(n / W, k / 2, n % W), W, (const NumberPair *)(from + k), in.row_stride / 2);
    for (; k < 2 * N; ++k)
      for (isize x = 0; x < square; ++x)
        out.at(n / W, k / 2, n % W + x)[k % 2] =
            k < K && n + x < in.rows ? in.row(n + x)[k * in.col_stride] : bfloat16{0};
  }
  memset(out.at(panels, 0, 0), 0, (P - panels) * N * W * sizeof(NumberPair));
}

// Panels of columns, of which `in` has C: out[a][d][x] = in[2 d][W a + x] and [2 d + 1].
template <isize C, isize P, isize N, isize W, class In> INLINE void pack(Pairs<P, N, W> out, const In &in) {
  const isize pairs = ceildiv(in.rows, 2);
  for (isize d = 0; d < pairs; ++d) {
    const bool both = 2 * d + 1 < in.rows;
    const bfloat16 *const first = in.row(2 * d), *const second = both ? in.row(2 * d + 1) : first;
    for (isize a = 0; a < P; ++a) {
      bfloat16 *const to = out.at(a, d, 0);
      if (in.col_stride == 1 && (a + 1) * W <= C && both)
        interleave<W>(to, first + a * W, second + a * W);
      else
        for (isize x = 0, n = a * W; x < W; ++x, ++n) {
          to[2 * x] = n < C ? first[n * in.col_stride] : bfloat16{0};
          to[2 * x + 1] = n < C && both ? second[n * in.col_stride] : bfloat16{0};
        }
    }
  }
  for (isize a = 0; a < P; ++a) memset(out.at(a, pairs, 0), 0, (N - pairs) * W * sizeof(NumberPair));
}
