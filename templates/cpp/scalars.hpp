// Functions of single numbers, as masks and scores by position have them.
INLINE bool both(bool a, bool b) { return a & b; }
INLINE bool either(bool a, bool b) { return a | b; }
INLINE bool equal(float a, float b) { return a == b; }
INLINE bool unequal(float a, float b) { return a != b; }
INLINE bool below(float a, float b) { return a < b; }
INLINE bool at_most(float a, float b) { return a <= b; }
INLINE bool not_below(float a, float b) { return !(a < b); }
INLINE bool not_at_most(float a, float b) { return !(a <= b); }
INLINE float choose(bool c, float a, float b) { return c ? a : b; }
INLINE float number(isize n) { return (float)n; }
INLINE float maximum(float a, float b) { return a > b || a != a ? a : b; }  // a NaN wins
INLINE float minimum(float a, float b) { return a < b || a != a ? a : b; }
INLINE float absolute(float x) { return fabsf(x); }
INLINE float exp(float x) { return expf(x); }
INLINE float exp2(float x) { return exp2f(x); }
INLINE float log(float x) { return logf(x); }
INLINE float tanh(float x) { return tanhf(x); }

// What an array holds, as it is computed with: a byte that is not 0 is true.
INLINE bool value(const uint8_t *p) { return *p != 0; }
INLINE isize value(const int32_t *p) { return *p; }
INLINE isize value(const int64_t *p) { return *p; }
template <class T> INLINE float value(const T *p) { return get(p); }

// One element of an array; 0 beyond its bounds.
template <class T, int N> INLINE auto element(const Array<T, N> &a, const isize (&index)[N]) {
  bool inside = true;
  for (int n = 0; n < N; ++n) inside &= (uint64_t)index[n] < (uint64_t)a.size[n];
  return inside ? value(a.at(index)) : 0;
}
