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
INLINE lanes_mask at_most(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_LE_OQ); }
INLINE float first(vec x) { return _mm256_cvtss_f32(x); }
INLINE vec swap_lanes(vec x, int n) {  // lane m is x's lane m ^ n
  const __m256i count = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_permutevar8x32_ps(x, _mm256_xor_si256(count, _mm256_set1_epi32(n)));
}

template <class T> INLINE vec load(const T *p) { return get_8(p); }  // of 16 bits each

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
template <class T> INLINE vec load_first(const T *p, isize n) {
  float x[lanes] = {};
  for (isize i = 0; i < n; ++i) x[i] = get(p + i);
  return load(x);
}

// Lane n is the sum of the lanes of x[n], added in the same order for every n.
INLINE vec totals(const vec (&x)[lanes]) {
  vec pairs[4], fours[2];
  UNROLL for (int n = 0; n < 4; ++n)
    pairs[n] = _mm256_unpacklo_ps(x[2 * n], x[2 * n + 1]) + _mm256_unpackhi_ps(x[2 * n], x[2 * n + 1]);
  UNROLL for (int n = 0; n < 2; ++n)
    fours[n] = _mm256_shuffle_ps(pairs[2 * n], pairs[2 * n + 1], 0x44) +
               _mm256_shuffle_ps(pairs[2 * n], pairs[2 * n + 1], 0xEE);
  return _mm256_permute2f128_ps(fours[0], fours[1], 0x20) + _mm256_permute2f128_ps(fours[0], fours[1], 0x31);
}

// 2^x for x < 128, as math.hpp says, with y a multiple of 1/8. Adding 1.5 * 2^20 + 127 rounds to the nearest
// one, and a sixteenth less makes that the one below. The sum's low bits hold 8 (y + 127): the lower three
// choose the root, the others are the exponent of the power, which makes that 0 for all y from -127 up to
// -126.
INLINE vec exp2(vec x) {
  const vec magic = all(1572991.0f);
  const vec roots = _mm256_setr_ps(
      1.0f, 1.0905077f, 1.1892071f, 1.2968396f, 1.4142135f, 1.5422108f, 1.6817929f, 1.8340081f);
  const vec lost = _mm256_setr_ps(  // in rounding the roots, as a share of them
      0.0f, -1.199e-8f, 3.193e-8f, -3.099e-8f, 1.711e-8f, 5.233e-9f, -1.472e-8f, -6.128e-9f);
  x = drop_nan_max(all(-127.0f), x);  // a NaN stays: it is the second operand
  const vec t = (x - all(0.0625f)) + magic, r = x - (t - magic);
  const __m256i y = _mm256_castps_si256(t);
  const __m256i power = _mm256_and_si256(_mm256_slli_epi32(y, 20), _mm256_set1_epi32(0x7f800000));
  const vec whole = _mm256_permutevar8x32_ps(roots, y) * _mm256_castsi256_ps(power);
  vec p = all(0.05790336f);
  p = fma(p, r, all(0.24004765f));
  p = fma(p, r, all(0.693151f));
  return fma(whole, fma(p, r, _mm256_permutevar8x32_ps(lost, y)), whole);
}
