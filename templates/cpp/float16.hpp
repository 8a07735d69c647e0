// float16, binary16 of IEEE 754: to nearest, ties to even, whatever the processor's rounding mode is.
struct float16 {
  uint16_t bits;
  INLINE static __m256 widen(__m128i x) { return _mm256_cvtph_ps(x); }
  INLINE static __m128i narrow(__m256 x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT); }
};
