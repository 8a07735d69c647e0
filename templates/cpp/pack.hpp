// Panels of the right side of a product, read from where it lies in memory. Columns beyond the last are 0.

// An 8 x 8 block: out[c][r] = in[r][c].
template <class T> INLINE void transpose_8x8(float *out, isize out_stride, const T *in, isize in_stride) {
  __m256 a[8], b[8];
  UNROLL for (int i = 0; i < 8; ++i) a[i] = get_8(in + i * in_stride);
  UNROLL for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
  UNROLL for (int i = 0; i < 8; i += 4)
    UNROLL for (int j = 0; j < 2; ++j) {
      a[i + 2 * j] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0x44);
      a[i + 2 * j + 1] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0xEE);
    }
  UNROLL for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * out_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * out_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
  }
}

// Panels of rows: out[a][d][x] = in[W a + x][d].
template <isize P, isize K, isize W, class T> INLINE void pack_transposed(Panels<P, K, W> out, View<T> in) {
  const isize panels = smaller(P, ceildiv(in.rows, W));  // that hold something
  for (isize n = 0; n < panels * W; n += 8) {
    float *const to = out.p + n / W * (K * W) + n % W;
    const T *const from = in.p + n * in.row_stride;
    isize k = 0;
    if (in.col_stride == 1 && n + 8 <= in.rows)
      for (; k + 8 <= K; k += 8) transpose_8x8(to + k * W, W, from + k, in.row_stride);
    for (; k < K; ++k)
      for (isize x = 0; x < 8; ++x)
        to[k * W + x] = n + x < in.rows ? get(from + x * in.row_stride + k * in.col_stride) : 0.0f;
  }
  memset(out.p + panels * K * W, 0, (P - panels) * K * W * sizeof(float));
}

// Panels of columns: out[a][k][x] = in[k][W a + x], where `in` has C columns; row by row, as they lie in memory.
template <isize C, isize P, isize K, isize W, class T> INLINE void pack(Panels<P, K, W> out, View<T> in) {
  for (isize k = 0; k < in.rows; ++k)
    for (isize a = 0; a < P; ++a) {
      float *const to = out.p + (a * K + k) * W;
      const T *const from = in.p + k * in.row_stride + a * W * in.col_stride;
      if (in.col_stride == 1 && (a + 1) * W <= C)
        copy<W>(to, from);
      else
        for (isize x = 0; x < W; ++x) to[x] = a * W + x < C ? get(from + x * in.col_stride) : 0.0f;
    }
  for (isize a = 0; a < P; ++a) memset(out.p + (a * K + in.rows) * W, 0, (K - in.rows) * W * sizeof(float));
}
