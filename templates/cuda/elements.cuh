// What an array holds, as it is computed with: a byte that is not 0 is true.
template <class T> struct Element {
  static __device__ float load(const T *p) { return Stored<T>::load(p); }
};
template <> struct Element<unsigned char> {
  static __device__ bool load(const unsigned char *p) { return *p != 0; }
};
template <> struct Element<int> {
  static __device__ isize load(const int *p) { return *p; }
};
template <> struct Element<isize> {
  static __device__ isize load(const isize *p) { return *p; }
};

// One element of an array; 0 beyond its bounds.
template <class T, int N>
__device__ auto element(const Array<T, N> &a, const isize (&index)[N]) -> decltype(Element<T>::load(a.p)) {
  bool inside = true;
  for (int n = 0; n < N; ++n) inside &= 0 <= index[n] && index[n] < a.size[n];
  return inside ? Element<T>::load(a.at(index)) : 0;
}

// The least and the greatest of a box of elements, from index `first` to `last`, both included; 0 counts as one of
// them where the box reaches beyond the array's bounds. Of truth values: whether all are true, and whether any is.
template <class T, int N, class V>
__device__ void extremes(const Array<T, N> &a, const isize (&first)[N], const isize (&last)[N], V &least, V &greatest) {
  isize from[N], to[N], index[N];
  bool beyond = false, some = true;
  for (int n = 0; n < N; ++n) {
    from[n] = index[n] = larger(first[n], 0), to[n] = smaller(last[n], a.size[n] - 1);
    beyond |= from[n] != first[n] || to[n] != last[n], some &= from[n] <= to[n];
  }
  least = greatest = beyond || !some ? V(0) : V(Element<T>::load(a.at(index)));
  while (some) {
    const V x = Element<T>::load(a.at(index));
    least = x < least ? x : least, greatest = greatest < x ? x : greatest;
    int n = N - 1;
    for (; n >= 0 && index[n] == to[n]; --n) index[n] = from[n];
    some = n >= 0;
    if (some) ++index[n];
  }
}
