// Sequence b of an array (H, total, ...), in which sequences lie one behind the other, as (1, H, N, ...).
template <class T, int N>
__device__ Array<T, N + 1> sequence(const Array<T, N> &a, const Array<int, 1> &starts, isize b) {
  const isize first = *starts.at({b}), end = *starts.at({b + 1});
  Array<T, N + 1> one;
  one.p = a.p + first * a.stride[1];
  one.size[0] = 1, one.stride[0] = 0;
  for (int n = 0; n < N; ++n) one.size[n + 1] = a.size[n], one.stride[n + 1] = a.stride[n];
  one.size[2] = end - first;
  return one;
}
