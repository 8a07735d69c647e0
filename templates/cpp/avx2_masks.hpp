// Masks of the lanes of a vector, and as bytes in memory: one that is not 0 is true.
INLINE lanes_mask unequal(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_NEQ_UQ); }
INLINE lanes_mask below(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_LT_OQ); }
INLINE lanes_mask not_below(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_NLT_UQ); }
INLINE lanes_mask not_at_most(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_NLE_UQ); }
INLINE lanes_mask both(lanes_mask a, lanes_mask b) { return _mm256_and_ps(a, b); }
INLINE lanes_mask either(lanes_mask a, lanes_mask b) { return _mm256_or_ps(a, b); }
INLINE bool some(lanes_mask m) { return _mm256_movemask_ps(m) != 0; }
INLINE lanes_mask load(const uint8_t *p) {
  const __m256i lane = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
  return _mm256_castsi256_ps(_mm256_cmpgt_epi32(lane, _mm256_setzero_si256()));
}
INLINE void store(uint8_t *p, lanes_mask m) {
  const __m256i lane = _mm256_castps_si256(m);
  const __m128i pairs = _mm_packs_epi32(_mm256_castsi256_si128(lane), _mm256_extracti128_si256(lane, 1));
  _mm_storel_epi64((__m128i *)p, _mm_packs_epi16(pairs, pairs));
}
