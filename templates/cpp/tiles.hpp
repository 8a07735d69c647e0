// Tiles in scratch memory, arrays in memory, and what moves between them.

constexpr isize round_up(isize n, isize to) { return (n + to - 1) / to * to; }
INLINE isize smaller(isize a, isize b) { return a < b ? a : b; }
INLINE isize larger(isize a, isize b) { return a > b ? a : b; }
INLINE isize floordiv(isize a, isize b) {
  if (b == -1) return (isize)-(unsigned long long)a;  // of the least number, too, by which processors trap
  return b ? a / b - (a % b != 0 && (a < 0) != (b < 0)) : 0;
}
INLINE isize ceildiv(isize a, isize b) { return -floordiv(-a, b); }

// R x C, rows S apart. Rows and columns are padded to whole register blocks; the padding holds anything.
template <isize R, isize C, isize S> struct Tile {
  real *const p;
  INLINE explicit Tile(void *memory) : p((real *)memory) {}
  INLINE real *at(isize r, isize c) const { return p + r * S + c; }
};
// One value a row.
template <isize R> struct Rows {
  real *const p;
  INLINE explicit Rows(void *memory) : p((real *)memory) {}
  INLINE real &operator[](isize r) const { return p[r]; }
};
// P panels of K x W: the right side of a product as its register blocks read it.
template <isize P, isize K, isize W> struct Panels {
  real *const p;
  INLINE explicit Panels(void *memory) : p((real *)memory) {}
};
// The columns [lo, hi) that each row may see, lo <= hi; the rows of the padding see none.
template <isize R> struct Spans {
  isize *const p;
  INLINE explicit Spans(void *memory) : p((isize *)memory) {
    for (isize r = R; r < round_up(R, micro_rows); ++r) p[2 * r] = p[2 * r + 1] = 0;
  }
  INLINE isize lo(isize r) const { return p[2 * r]; }
  INLINE isize hi(isize r) const { return p[2 * r + 1]; }
  // The columns [lo, hi) of the whole matrix, as those of a tile of `width` columns from `first` on.
  INLINE void set(isize r, isize first, isize lo, isize hi, isize width) const {
    p[2 * r] = smaller(larger(lo - first, 0), width);
    p[2 * r + 1] = smaller(larger(hi - first, p[2 * r]), width);
  }
};

// N dimensions of numbers of type T, sizes and strides in elements.
template <class T, int N> struct Array {
  T *p;
  isize size[N], stride[N];
  INLINE T *at(const isize (&index)[N]) const {
    T *here = p;
    for (int n = 0; n < N; ++n) here += index[n] * stride[n];
    return here;
  }
  // What lies r rows further on, where dimension d counts rows.
  INLINE T *row(const isize (&index)[N], int d, isize r) const { return at(index) + r * stride[d]; }
};
template <class T, int N> INLINE Array<T, N> array(const flashgen_tensor *t) {
  Array<T, N> a;
  a.p = (T *)t->data;
  for (int n = 0; n < N; ++n) a.size[n] = t->size[n], a.stride[n] = t->stride[n];
  return a;
}

// A tile that is used where it lies: `rows` of it are inside the array.
template <class T> struct View {
  const T *p;
  isize rows, row_stride, col_stride;
  INLINE const T *row(isize r) const { return p + r * row_stride; }
  // The end of at most so many rows from r on that are evenly spaced.
  INLINE isize stretch(isize r, isize most) const { return smaller(r + most, rows); }
};
template <class T, int N> INLINE View<T> view(const Array<T, N> &a, const isize (&index)[N], isize rows) {
  const isize inside = larger(0, smaller(rows, a.size[N - 2] - index[N - 2]));
  return {inside ? a.at(index) : a.p, inside, a.stride[N - 2], a.stride[N - 1]};
}

// Moves between tiles and arrays: rows that lie outside the array read as 0 and are not written.
template <isize R, isize C, isize S, template <class, int> class A, class T, int N>
INLINE void read(Tile<R, C, S> t, const A<T, N> &a, const isize (&index)[N]) {
  const isize rows = larger(0, smaller(R, a.size[N - 2] - index[N - 2])), each = a.stride[N - 1];
  for (isize r = 0; r < rows; ++r) {
    const T *const from = a.row(index, N - 2, r);
    if (each == 1)
      copy<C>(t.at(r, 0), from);
    else
      for (isize c = 0; c < C; ++c) *t.at(r, c) = get(from + c * each);
  }
  for (isize r = rows; r < R; ++r) memset(t.at(r, 0), 0, C * sizeof(real));
}
template <isize R, template <class, int> class A, class T, int N>
INLINE void read(Rows<R> t, const A<T, N> &a, const isize (&index)[N]) {
  const isize rows = larger(0, smaller(R, a.size[N - 1] - index[N - 1]));
  for (isize r = 0; r < rows; ++r) t[r] = get(a.row(index, N - 1, r));
  for (isize r = rows; r < R; ++r) t[r] = real(0);
}
template <isize R, isize C, isize S, template <class, int> class A, class T, int N>
INLINE void write(Tile<R, C, S> t, const A<T, N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 2] - index[N - 2]), each = a.stride[N - 1];
  for (isize r = 0; r < rows; ++r) {
    T *const to = a.row(index, N - 2, r);
    if (each == 1)
      copy<C>(to, t.at(r, 0));
    else
      for (isize c = 0; c < C; ++c) put(to + c * each, *t.at(r, c));
  }
}
template <isize R, template <class, int> class A, class T, int N>
INLINE void write(Rows<R> t, const A<T, N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 1] - index[N - 1]);
  for (isize r = 0; r < rows; ++r) put(a.row(index, N - 1, r), t[r]);
}

// The extents of a tile that has no memory of its own: x in all of its elements.
template <isize... extents> struct Shape {};
template <isize R, isize C, template <class, int> class A, class T, int N>
INLINE void fill(Shape<R, C>, real x, const A<T, N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 2] - index[N - 2]);
  for (isize r = 0; r < rows; ++r) {
    T *const to = a.row(index, N - 2, r);
    for (isize c = 0; c < C; ++c) put(to + c * a.stride[N - 1], x);
  }
}
template <isize R, template <class, int> class A, class T, int N>
INLINE void fill(Shape<R>, real x, const A<T, N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 1] - index[N - 1]);
  for (isize r = 0; r < rows; ++r) put(a.row(index, N - 1, r), x);
}
