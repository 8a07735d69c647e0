// Sequence b of an array (pages, H, slots, ...) as (1, H, N, ...): row n is in slot n % slots of page n / slots.
template <class T, int N> struct Pages {
  const Array<T, N> &source;
  const int32_t *const table;
  const isize apart;  // entries of the table
  isize size[N], stride[N];  // of the dimensions behind rows alone
  INLINE Pages(const Array<T, N> &a, const Array<int32_t, 2> &tables, const Array<int32_t, 1> &lengths, isize b)
      : source(a), table(tables.at({b, 0})), apart(tables.stride[1]) {
    for (int n = 0; n < N; ++n) size[n] = a.size[n], stride[n] = a.stride[n];
    size[0] = 1, size[2] = *lengths.at({b});
  }
  // Row index[2] + r; d is 2.
  INLINE T *row(const isize (&index)[N], int, isize r) const {
    const isize slots = source.size[2], n = index[2] + r;
    isize there[N];
    for (int i = 0; i < N; ++i) there[i] = index[i];
    there[0] = table[n / slots * apart], there[2] = n % slots;
    return source.at(there);
  }
};

// A tile that is used where it lies, in pages; as View.
template <class T> struct PagedView {
  const T *p;  // slot 0 of page 0
  const int32_t *table;
  isize apart, first, slots, page_stride, rows, row_stride, col_stride;
  INLINE const T *row(isize r) const {
    const isize n = first + r, page = table[n / slots * apart];
    return p + page * page_stride + n % slots * row_stride;
  }
  // The rows of a page are evenly spaced.
  INLINE isize stretch(isize r, isize most) const {
    return smaller(smaller(r + most, rows), r + slots - (first + r) % slots);
  }
};
template <class T> INLINE PagedView<T> view(const Pages<T, 4> &a, const isize (&index)[4], isize rows) {
  const Array<T, 4> &all = a.source;
  return {all.at({0, index[1], 0, index[3]}), a.table, a.apart, index[2], all.size[2], all.stride[0],
          larger(0, smaller(rows, a.size[2] - index[2])), all.stride[2], all.stride[3]};
}
// Rows r to r + square, which may lie in different pages, as columns; as that of View.
template <isize K, isize W, class T> INLINE isize turn(real *out, const PagedView<T> &in, isize r) {
  const T *row[square];
  for (isize x = 0; x < square; ++x) row[x] = in.row(r + x);
  isize k = 0;
  for (; k + square <= K; k += square) {
    T block[square * square];
    for (isize x = 0; x < square; ++x) memcpy(block + x * square, row[x] + k, square * sizeof(T));
    transpose(out + k * W, W, block, square);
  }
  return k;
}
