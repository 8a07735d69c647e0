// An array (B, Hq, Nq, ...) as (B, heads, rows, ...): the rows of all heads of a group, numbered on.
template <class T, int N> struct GroupedRows {
  const Array<T, N> &source;
  isize size[N], stride[N];  // of the dimensions behind rows alone
  INLINE GroupedRows(const Array<T, N> &a, isize heads, isize rows) : source(a) {
    for (int n = 0; n < N; ++n) size[n] = a.size[n], stride[n] = a.stride[n];
    size[1] = heads, size[2] = rows;
  }
  // Row index[2] + r; d is 2.
  INLINE T *row(const isize (&index)[N], int, isize r) const {
    const isize length = source.size[2], n = index[2] + r;
    isize there[N];
    for (int i = 0; i < N; ++i) there[i] = index[i];
    there[1] = index[1] * (size[2] / length) + n / length, there[2] = n % length;
    return source.at(there);
  }
};
