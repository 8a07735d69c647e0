// Vectors of 8 floats: AVX2 and FMA.
typedef __m256 vec;
typedef __m256 lanes_mask;

INLINE vec all(float x) { return _mm256_set1_ps(x); }
INLINE vec load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void store(float *p, vec x) { _mm256_storeu_ps(p, x); }
INLINE vec fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vec drop_nan_max(vec x, vec kept) { return _mm256_max_ps(x, kept); }  // kept where x is NaN
INLINE vec choose(lanes_mask m, vec a, vec b) { return _mm256_blendv_ps(b, a, m); }
INLINE lanes_mask is_nan(vec x) { return _mm256_cmp_ps(x, x, _CMP_UNORD_Q); }
INLINE lanes_mask equal(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }

// Lanes whose column, counted from c, lies in [lo, hi).
INLINE lanes_mask columns(isize c, isize lo, isize hi) {
  const __m256i at = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32((int)c));
  const __m256i from = _mm256_cmpgt_epi32(at, _mm256_set1_epi32((int)lo - 1));
  return _mm256_castsi256_ps(_mm256_and_si256(from, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)hi), at)));
}

// The first n floats; what lies beyond is not read, and 0.
INLINE vec load_first(const float *p, isize n) {
  return _mm256_maskload_ps(p, _mm256_castps_si256(columns(0, 0, n)));
}

// Lane n is the sum of the lanes of x[n], added in the same order for every n.
INLINE vec totals(const vec (&x)[lanes]) {
  vec pairs[4], fours[2];
  for (int n = 0; n < 4; ++n)
    pairs[n] = _mm256_unpacklo_ps(x[2 * n], x[2 * n + 1]) + _mm256_unpackhi_ps(x[2 * n], x[2 * n + 1]);
  for (int n = 0; n < 2; ++n)
    fours[n] = _mm256_shuffle_ps(pairs[2 * n], pairs[2 * n + 1], 0x44) +
               _mm256_shuffle_ps(pairs[2 * n], pairs[2 * n + 1], 0xEE);
  return _mm256_permute2f128_ps(fours[0], fours[1], 0x20) + _mm256_permute2f128_ps(fours[0], fours[1], 0x31);
}

// The low bits of t hold n + 127: x * 2^n, and 0 where n is -127.
INLINE vec scale_by_power(vec x, vec t) {
  return x * _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23));
}
