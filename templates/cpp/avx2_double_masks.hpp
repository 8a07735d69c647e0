// Masks of the lanes of a vector, and as bytes in memory: one that is not 0 is true.
INLINE lanes_mask unequal(vec a, vec b) { return _mm256_cmp_pd(a, b, _CMP_NEQ_UQ); }
INLINE lanes_mask below(vec a, vec b) { return _mm256_cmp_pd(a, b, _CMP_LT_OQ); }
INLINE lanes_mask not_below(vec a, vec b) { return _mm256_cmp_pd(a, b, _CMP_NLT_UQ); }
INLINE lanes_mask not_at_most(vec a, vec b) { return _mm256_cmp_pd(a, b, _CMP_NLE_UQ); }
INLINE lanes_mask both(lanes_mask a, lanes_mask b) { return _mm256_and_pd(a, b); }
INLINE lanes_mask either(lanes_mask a, lanes_mask b) { return _mm256_or_pd(a, b); }
INLINE bool some(lanes_mask m) { return _mm256_movemask_pd(m) != 0; }
INLINE lanes_mask load(const uint8_t *p) {
  int32_t bytes;
  memcpy(&bytes, p, 4);
  const __m256i lane = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(bytes));
  return _mm256_castsi256_pd(_mm256_cmpgt_epi64(lane, _mm256_setzero_si256()));
}
INLINE void store(uint8_t *p, lanes_mask m) {
  const __m256i lane = _mm256_castpd_si256(m);
  const __m128i pairs = _mm_packs_epi32(_mm256_castsi256_si128(lane), _mm256_extracti128_si256(lane, 1));
  const __m128i each = _mm_packs_epi32(pairs, pairs);  // 16 bits a lane
  const int32_t bytes = _mm_cvtsi128_si32(_mm_packs_epi16(each, each));
  memcpy(p, &bytes, 4);
}
