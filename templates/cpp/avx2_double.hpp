// Vectors of 4 doubles: AVX2 and FMA.
typedef __m256d vec;
typedef __m256d lanes_mask;

INLINE vec all(double x) { return _mm256_set1_pd(x); }
INLINE vec load(const double *p) { return _mm256_loadu_pd(p); }
INLINE void store(double *p, vec x) { _mm256_storeu_pd(p, x); }
INLINE vec fma(vec a, vec b, vec c) { return _mm256_fmadd_pd(a, b, c); }
INLINE vec drop_nan_max(vec x, vec kept) { return _mm256_max_pd(x, kept); }  // kept where x is NaN
INLINE vec choose(lanes_mask m, vec a, vec b) { return _mm256_blendv_pd(b, a, m); }
INLINE lanes_mask is_nan(vec x) { return _mm256_cmp_pd(x, x, _CMP_UNORD_Q); }
INLINE lanes_mask equal(vec a, vec b) { return _mm256_cmp_pd(a, b, _CMP_EQ_OQ); }
INLINE lanes_mask at_most(vec a, vec b) { return _mm256_cmp_pd(a, b, _CMP_LE_OQ); }
INLINE double first(vec x) { return _mm256_cvtsd_f64(x); }

// Lane m is x's lane index[m] mod 4, where each lane of the index holds one in its lower half.
INLINE vec permute(vec x, __m256i index) {
  const __m256i halves = _mm256_slli_epi32(_mm256_shuffle_epi32(index, 0xA0), 1);  // x moves as pairs of halves
  const __m256i pairs = _mm256_add_epi32(halves, _mm256_setr_epi32(0, 1, 0, 1, 0, 1, 0, 1));
  return _mm256_castps_pd(_mm256_permutevar8x32_ps(_mm256_castpd_ps(x), pairs));
}
INLINE vec swap_lanes(vec x, int n) {  // lane m is x's lane m ^ n
  return permute(x, _mm256_xor_si256(_mm256_setr_epi64x(0, 1, 2, 3), _mm256_set1_epi64x(n)));
}

// Lanes whose column, counted from c, lies in [lo, hi).
INLINE lanes_mask columns(isize c, isize lo, isize hi) {
  const __m256i at = _mm256_add_epi64(_mm256_setr_epi64x(0, 1, 2, 3), _mm256_set1_epi64x(c));
  const __m256i from = _mm256_cmpgt_epi64(at, _mm256_set1_epi64x(lo - 1));
  return _mm256_castsi256_pd(_mm256_and_si256(from, _mm256_cmpgt_epi64(_mm256_set1_epi64x(hi), at)));
}

// The first n doubles; what lies beyond is not read, and 0.
INLINE vec load_first(const double *p, isize n) {
  return _mm256_maskload_pd(p, _mm256_castpd_si256(columns(0, 0, n)));
}

// Lane n is the sum of the lanes of x[n], added in the same order for every n.
INLINE vec totals(const vec (&x)[lanes]) {
  vec pairs[2];
  UNROLL for (int n = 0; n < 2; ++n)
    pairs[n] = _mm256_unpacklo_pd(x[2 * n], x[2 * n + 1]) + _mm256_unpackhi_pd(x[2 * n], x[2 * n + 1]);
  return _mm256_permute2f128_pd(pairs[0], pairs[1], 0x20) + _mm256_permute2f128_pd(pairs[0], pairs[1], 0x31);
}

// What exp2 takes from the bits of t: the number that their lower two choose, and the power of two whose
// exponent the others are, 0 for that of subnormal numbers.
INLINE vec pick(vec t, double a, double b, double c, double d) {
  return permute(_mm256_setr_pd(a, b, c, d), _mm256_castpd_si256(t));
}
INLINE vec power(vec t) {
  const __m256i exponent = _mm256_slli_epi64(_mm256_castpd_si256(t), 50);
  return _mm256_castsi256_pd(_mm256_and_si256(exponent, _mm256_set1_epi64x(0x7ff0000000000000)));
}
