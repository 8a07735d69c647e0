// Vectors of 16 floats: AVX-512 F, DQ and VL.
typedef __m512 vec;
typedef __mmask16 lanes_mask;
constexpr lanes_mask every = 0xffff;  // g++ 12 takes the unmasked forms' unused operand for uninitialised

INLINE vec all(float x) { return _mm512_set1_ps(x); }
INLINE vec load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void store(float *p, vec x) { _mm512_storeu_ps(p, x); }
INLINE vec fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vec drop_nan_max(vec x, vec kept) { return _mm512_maskz_max_ps(every, x, kept); }  // kept where x is NaN
INLINE vec choose(lanes_mask m, vec a, vec b) { return _mm512_mask_blend_ps(m, b, a); }
INLINE lanes_mask is_nan(vec x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q); }
INLINE lanes_mask equal(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
INLINE lanes_mask at_most(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
INLINE float first(vec x) { return _mm_cvtss_f32(_mm512_maskz_extractf32x4_ps(0xf, x, 0)); }
INLINE vec swap_lanes(vec x, int n) {  // lane m is x's lane m ^ n
  const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_maskz_permutexvar_ps(every, _mm512_xor_si512(count, _mm512_set1_epi32(n)), x);
}

template <class T> INLINE vec load(const T *p) {  // of 16 bits each
  return _mm512_insertf32x8(_mm512_castps256_ps512(get_8(p)), get_8(p + 8), 1);
}

// Lanes whose column, counted from c, lies in [lo, hi).
INLINE lanes_mask columns(isize c, isize lo, isize hi) {
  const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i at = _mm512_add_epi32(count, _mm512_set1_epi32((int)c));
  const lanes_mask from = _mm512_cmpgt_epi32_mask(at, _mm512_set1_epi32((int)lo - 1));
  return _mm512_mask_cmpgt_epi32_mask(from, _mm512_set1_epi32((int)hi), at);
}

// The first n floats; what lies beyond is not read, and 0.
INLINE vec load_first(const float *p, isize n) { return _mm512_maskz_loadu_ps((lanes_mask)((1u << n) - 1), p); }

// Of each four lanes of a and of b the lower or the upper two.
template <bool upper> INLINE vec unpack_pairs(vec a, vec b) {
  const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
  return _mm512_castpd_ps(upper ? _mm512_maskz_unpackhi_pd(0xff, x, y) : _mm512_maskz_unpacklo_pd(0xff, x, y));
}
template <class T> INLINE vec load_first(const T *p, isize n) {
  float x[lanes] = {};
  for (isize i = 0; i < n; ++i) x[i] = get(p + i);
  return load(x);
}

// Lane n is the sum of the lanes of x[n], added in the same order for every n.
INLINE vec totals(const vec (&x)[lanes]) {
  vec pairs[8], fours[4], eights[2];
  UNROLL for (int n = 0; n < 8; ++n)
    pairs[n] = _mm512_maskz_unpacklo_ps(every, x[2 * n], x[2 * n + 1]) +
               _mm512_maskz_unpackhi_ps(every, x[2 * n], x[2 * n + 1]);
  UNROLL for (int n = 0; n < 4; ++n)
    fours[n] = unpack_pairs<false>(pairs[2 * n], pairs[2 * n + 1]) + unpack_pairs<true>(pairs[2 * n], pairs[2 * n + 1]);
  UNROLL for (int n = 0; n < 2; ++n)
    eights[n] = _mm512_maskz_shuffle_f32x4(every, fours[2 * n], fours[2 * n + 1], 0x88) +
                _mm512_maskz_shuffle_f32x4(every, fours[2 * n], fours[2 * n + 1], 0xDD);
  return _mm512_maskz_shuffle_f32x4(every, eights[0], eights[1], 0x88) +
         _mm512_maskz_shuffle_f32x4(every, eights[0], eights[1], 0xDD);
}

// 2^x for every x, as math.hpp says, with y a multiple of 1/16. scalef finds the power of two itself.
INLINE vec exp2(vec x) {
  constexpr int down = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  const vec roots = _mm512_setr_ps(
      1.0f, 1.0442737f, 1.0905077f, 1.1387886f, 1.1892071f, 1.2418578f, 1.2968396f, 1.3542556f,
      1.4142135f, 1.4768262f, 1.5422108f, 1.6104903f, 1.6817929f, 1.7562522f, 1.8340081f, 1.9152066f);
  const vec r = _mm512_maskz_reduce_ps(every, x, 4 << 4 | down);
  const vec t = _mm512_maskz_add_round_ps(every, x, all(786432.0f), down);  // its low bits hold 16 y
  const vec root = _mm512_maskz_permutexvar_ps(every, _mm512_castps_si512(t), roots);
  vec p = all(0.0566856265f);
  p = fma(p, r, all(0.240182474f));
  p = fma(p, r, all(0.693147719f));
  const lanes_mask kept = _mm512_cmp_ps_mask(x, all(-126.0f), _CMP_NLT_UQ);  // a NaN, too
  return _mm512_maskz_scalef_ps(kept, fma(root, p * r, root), x);
}
