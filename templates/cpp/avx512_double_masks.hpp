// Masks of the lanes of a vector, and as bytes in memory: one that is not 0 is true.
INLINE lanes_mask unequal(vec a, vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_NEQ_UQ); }
INLINE lanes_mask below(vec a, vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_LT_OQ); }
INLINE lanes_mask not_below(vec a, vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_NLT_UQ); }
INLINE lanes_mask not_at_most(vec a, vec b) { return _mm512_cmp_pd_mask(a, b, _CMP_NLE_UQ); }
INLINE lanes_mask both(lanes_mask a, lanes_mask b) { return a & b; }
INLINE lanes_mask either(lanes_mask a, lanes_mask b) { return a | b; }
INLINE bool some(lanes_mask m) { return m != 0; }
INLINE lanes_mask load(const uint8_t *p) {
  const __m128i lane = _mm_loadl_epi64((const __m128i *)p);
  return (lanes_mask)_mm_test_epi8_mask(lane, lane);
}
INLINE void store(uint8_t *p, lanes_mask m) { _mm_storel_epi64((__m128i *)p, _mm_movm_epi8(m)); }
