// How arrays hold numbers: one of them, or eight that lie side by side.
INLINE float get(const float *p) { return *p; }
INLINE void put(float *p, float x) { *p = x; }
INLINE __m256 get_8(const float *p) { return _mm256_loadu_ps(p); }
INLINE void put_8(float *p, __m256 x) { _mm256_storeu_ps(p, x); }

// N numbers that lie side by side, from one type to another.
template <isize N, class To, class From> INLINE void copy(To *to, const From *from) {
  isize n = 0;
  for (; n + 8 <= N; n += 8) put_8(to + n, get_8(from + n));
  for (; n < N; ++n) put(to + n, get(from + n));
}
