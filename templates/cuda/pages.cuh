// Sequence b of an array (pages, H, slots, ...) as (1, H, N, ...): row n is in slot n % slots of page n / slots.
template <class T, int N> struct Pages {
  const Array<T, N> &source;
  const int *const table;
  const isize apart;  // entries of the table
  isize size[N];
  __device__ Pages(const Array<T, N> &a, const Array<int, 2> &tables, const Array<int, 1> &lengths, isize b)
      : source(a), table(tables.at({b, 0})), apart(tables.stride[1]) {
    for (int n = 0; n < N; ++n) size[n] = a.size[n];
    size[0] = 1, size[2] = *lengths.at({b});
  }
  // Row index[2] + r.
  __device__ const T *row(const isize (&index)[N], isize r) const {
    const isize slots = source.size[2], n = index[2] + r;
    isize there[N];
    for (int i = 0; i < N; ++i) there[i] = index[i];
    there[0] = table[n / slots * apart], there[2] = n % slots;
    return source.at(there);
  }
};
template <int R, int C, int S, class T>
__device__ void read(Tile<R, C, S> t, const Pages<T, 4> &a, const isize (&index)[4]) {
  const isize inside = a.size[2] - index[2];
  for (int r = warp(); r < R; r += warps) {
    const T *const from = r < inside ? a.row(index, r) : nullptr;
    for (int c = lane(); c < C; c += lanes) t.at(r, c) = from ? Stored<T>::load(from + c * a.source.stride[3]) : 0.0f;
  }
}
