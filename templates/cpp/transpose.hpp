// Square blocks of floats, as packing turns them.

// A block of 8 x 8 numbers: out[c][r] = in[r][c].
constexpr isize square = 8;
template <class T> INLINE void transpose(float *out, isize out_stride, const T *in, isize in_stride) {
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
