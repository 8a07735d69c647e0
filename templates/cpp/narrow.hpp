// Numbers of 16 bits in memory: T holds the bits of one, and says how eight become float32 and back.
template <class T> INLINE __m256 get_8(const T *p) { return T::widen(_mm_loadu_si128((const __m128i *)p)); }
template <class T> INLINE void put_8(T *p, __m256 x) { _mm_storeu_si128((__m128i *)p, T::narrow(x)); }
template <class T> INLINE float get(const T *p) { return _mm256_cvtss_f32(T::widen(_mm_cvtsi32_si128(p->bits))); }
template <class T> INLINE void put(T *p, float x) {
  p->bits = (uint16_t)_mm_cvtsi128_si32(T::narrow(_mm256_set1_ps(x)));
}
