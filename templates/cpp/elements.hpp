// What an array holds, as it is computed with: a byte that is not 0 is true.
INLINE bool value(const uint8_t *p) { return *p != 0; }
INLINE isize value(const int32_t *p) { return *p; }
INLINE isize value(const int64_t *p) { return *p; }
template <class T> INLINE real value(const T *p) { return get(p); }

// One element of an array; 0 beyond its bounds.
template <class T, int N> INLINE auto element(const Array<T, N> &a, const isize (&index)[N]) {
  bool inside = true;
  for (int n = 0; n < N; ++n) inside &= (uint64_t)index[n] < (uint64_t)a.size[n];
  return inside ? value(a.at(index)) : 0;
}

// The least and the greatest of a box of elements, from index `first` to `last`, both included; 0 counts as one of
// them where the box reaches beyond the array's bounds. Of truth values: whether all are true, and whether any is.
template <class T, int N, class V>
INLINE void extremes(const Array<T, N> &a, const isize (&first)[N], const isize (&last)[N], V &least, V &greatest) {
  isize from[N], to[N], index[N];
  bool beyond = false, some = true;
  for (int n = 0; n < N; ++n) {
    from[n] = index[n] = larger(first[n], 0), to[n] = smaller(last[n], a.size[n] - 1);
    beyond |= from[n] != first[n] || to[n] != last[n], some &= from[n] <= to[n];
  }
  least = greatest = beyond || !some ? V(0) : V(value(a.at(index)));
  while (some) {
    const T *p = a.at(index);
    for (isize n = from[N - 1]; n <= to[N - 1]; ++n, p += a.stride[N - 1]) {
      const V x = value(p);
      least = x < least ? x : least, greatest = greatest < x ? x : greatest;
    }
    int n = N - 2;
    for (; n >= 0 && index[n] == to[n]; --n) index[n] = from[n];
    some = n >= 0;
    if (some) ++index[n];
  }
}
