// Vectors of 8 doubles: AVX-512 F, DQ and VL.
typedef __m512d vec;
typedef __mmask8 lanes_mask;
constexpr lanes_mask every = 0xff;  // g++ 12 takes the unmasked forms' unused operand for uninitialised

INLINE vec all(double x) { return _mm512_set1_pd(x); }
INLINE vec load(const double *p) { return _mm512_loadu_pd(p); }
INLINE void store(double *p, vec x) { _mm512_storeu_pd(p, x); }
INLINE vec fma(vec a, vec b, vec c) { return _mm512_fmadd_pd(a, b, c); }
INLINE vec drop_nan_max(vec x, vec kept) { return _mm512_maskz_max_pd(every, x, kept); }  // kept where x is NaN
INLINE vec choose(lanes_mask m, vec a, vec b) { return _mm512_mask_blend_pd(m, b, a); }
INLINE lanes_mask is_nan(vec x) { return _mm512_cmp_pd_mask(x, x, _CMP_UNORD_Q); }
INLINE lanes_mask equal(vec a, vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_EQ_OQ); }
INLINE lanes_mask at_most(vec a, vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_LE_OQ); }
INLINE double first(vec x) {
  return _mm_cvtsd_f64(_mm_castps_pd(_mm512_maskz_extractf32x4_ps(0xf, _mm512_castpd_ps(x), 0)));
}
INLINE vec swap_lanes(vec x, int n) {  // lane m is x's lane m ^ n
  const __m512i count = _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm512_maskz_permutexvar_pd(every, _mm512_xor_si512(count, _mm512_set1_epi64(n)), x);
}

// Lanes whose column, counted from c, lies in [lo, hi).
INLINE lanes_mask columns(isize c, isize lo, isize hi) {
  const __m512i at = _mm512_add_epi64(_mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7), _mm512_set1_epi64(c));
  const lanes_mask from = _mm512_cmpgt_epi64_mask(at, _mm512_set1_epi64(lo - 1));
  return _mm512_mask_cmpgt_epi64_mask(from, _mm512_set1_epi64(hi), at);
}

// The first n doubles; what lies beyond is not read, and 0.
INLINE vec load_first(const double *p, isize n) { return _mm512_maskz_loadu_pd((lanes_mask)((1u << n) - 1), p); }

// Lane n is the sum of the lanes of x[n], added in the same order for every n.
INLINE vec totals(const vec (&x)[lanes]) {
  vec pairs[4], fours[2];
  UNROLL for (int n = 0; n < 4; ++n)
    pairs[n] = _mm512_maskz_unpacklo_pd(every, x[2 * n], x[2 * n + 1]) +
               _mm512_maskz_unpackhi_pd(every, x[2 * n], x[2 * n + 1]);
  UNROLL for (int n = 0; n < 2; ++n)
    fours[n] = _mm512_maskz_shuffle_f64x2(every, pairs[2 * n], pairs[2 * n + 1], 0x88) +
               _mm512_maskz_shuffle_f64x2(every, pairs[2 * n], pairs[2 * n + 1], 0xDD);
  return _mm512_maskz_shuffle_f64x2(every, fours[0], fours[1], 0x88) +
         _mm512_maskz_shuffle_f64x2(every, fours[0], fours[1], 0xDD);
}

// What exp2 takes from the bits of t: the number that their lower two choose, and the power of two whose
// exponent the others are, 0 for that of subnormal numbers.
INLINE vec pick(vec t, double a, double b, double c, double d) {
  return _mm512_maskz_permutexvar_pd(every, _mm512_castpd_si512(t), _mm512_setr_pd(a, b, c, d, a, b, c, d));
}
INLINE vec power(vec t) {
  const __m512i exponent = _mm512_maskz_slli_epi64(every, _mm512_castpd_si512(t), 50);
  return _mm512_castsi512_pd(_mm512_and_si512(exponent, _mm512_set1_epi64(0x7ff0000000000000)));
}
