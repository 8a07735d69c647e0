// Square blocks of doubles, as packing turns them.

// A block of 4 x 4 numbers: out[c][r] = in[r][c].
constexpr isize square = 4;
INLINE void transpose(double *out, isize out_stride, const double *in, isize in_stride) {
  __m256d a[4], b[4];
  UNROLL for (int i = 0; i < 4; ++i) a[i] = _mm256_loadu_pd(in + i * in_stride);
  UNROLL for (int i = 0; i < 4; i += 2) {
    b[i] = _mm256_unpacklo_pd(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_pd(a[i], a[i + 1]);
  }
  UNROLL for (int i = 0; i < 2; ++i) {
    _mm256_storeu_pd(out + i * out_stride, _mm256_permute2f128_pd(b[i], b[i + 2], 0x20));
    _mm256_storeu_pd(out + (i + 2) * out_stride, _mm256_permute2f128_pd(b[i], b[i + 2], 0x31));
  }
}
