// Tiles in scratch memory, arrays in memory, and what moves between them.

constexpr isize round_up(isize n, isize to) { return (n + to - 1) / to * to; }
INLINE isize smaller(isize a, isize b) { return a < b ? a : b; }
INLINE isize larger(isize a, isize b) { return a > b ? a : b; }
INLINE isize floordiv(isize a, isize b) { return b ? a / b - (a % b != 0 && (a < 0) != (b < 0)) : 0; }
INLINE isize ceildiv(isize a, isize b) { return -floordiv(-a, b); }

// R x C, rows S apart. Rows and columns are padded to whole register blocks; the padding holds anything.
template <isize R, isize C, isize S> struct Tile {
  float *const p;
  INLINE explicit Tile(void *memory) : p((float *)memory) {}
  INLINE float *at(isize r, isize c) const { return p + r * S + c; }
};
// One value a row.
template <isize R> struct Rows {
  float *const p;
  INLINE explicit Rows(void *memory) : p((float *)memory) {}
  INLINE float &operator[](isize r) const { return p[r]; }
};
// P panels of K x W: the right side of a product as its register blocks read it.
template <isize P, isize K, isize W> struct Panels {
  float *const p;
  INLINE explicit Panels(void *memory) : p((float *)memory) {}
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
};
template <class T, int N> INLINE Array<T, N> array(const flashgen_tensor *t) {
  Array<T, N> a;
  a.p = (T *)t->data;
  for (int n = 0; n < N; ++n) a.size[n] = t->size[n], a.stride[n] = t->stride[n];
  return a;
}

// An array in memory of the kernel's own; p is null where there is none to be had.
template <int N> struct Workspace : Array<float, N> {
  explicit Workspace(const isize (&extents)[N]) {
    isize count = 1;
    for (int n = N; n-- > 0; count *= extents[n]) this->size[n] = extents[n], this->stride[n] = count;
    this->p = (float *)aligned_alloc(64, round_up(larger(count, 1) * sizeof(float), 64));
  }
  Workspace(const Workspace &) = delete;
  Workspace &operator=(const Workspace &) = delete;
  ~Workspace() { free(this->p); }
};

// A tile that is used where it lies: `rows` of it are inside the array.
template <class T> struct View {
  const T *p;
  isize rows, row_stride, col_stride;
};
template <class T, int N> INLINE View<T> view(const Array<T, N> &a, const isize (&index)[N], isize rows) {
  const isize inside = larger(0, smaller(rows, a.size[N - 2] - index[N - 2]));
  return {inside ? a.at(index) : a.p, inside, a.stride[N - 2], a.stride[N - 1]};
}

template <isize R, isize C, isize S, class T, int N>
INLINE void read(Tile<R, C, S> t, const Array<T, N> &a, const isize (&index)[N]) {
  const View<T> v = view(a, index, R);
  for (isize r = 0; r < v.rows; ++r)
    if (v.col_stride == 1)
      copy<C>(t.at(r, 0), v.p + r * v.row_stride);
    else
      for (isize c = 0; c < C; ++c) *t.at(r, c) = get(v.p + r * v.row_stride + c * v.col_stride);
  for (isize r = v.rows; r < R; ++r) memset(t.at(r, 0), 0, C * sizeof(float));
}
template <isize R, class T, int N> INLINE void read(Rows<R> t, const Array<T, N> &a, const isize (&index)[N]) {
  const isize inside = larger(0, smaller(R, a.size[N - 1] - index[N - 1]));
  for (isize r = 0; r < inside; ++r) t[r] = get(a.at(index) + r * a.stride[N - 1]);
  for (isize r = inside; r < R; ++r) t[r] = 0.0f;
}
template <isize R, isize C, isize S, class T, int N>
INLINE void write(Tile<R, C, S> t, const Array<T, N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 2] - index[N - 2]), step = a.stride[N - 2], each = a.stride[N - 1];
  for (isize r = 0; r < rows; ++r)
    if (each == 1)
      copy<C>(a.at(index) + r * step, t.at(r, 0));
    else
      for (isize c = 0; c < C; ++c) put(a.at(index) + r * step + c * each, *t.at(r, c));
}
template <isize R, class T, int N> INLINE void write(Rows<R> t, const Array<T, N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 1] - index[N - 1]);
  for (isize r = 0; r < rows; ++r) put(a.at(index) + r * a.stride[N - 1], t[r]);
}

// The extents of a tile that has no memory of its own: x in all of its elements.
template <isize... extents> struct Shape {};
template <isize R, isize C, class T, int N>
INLINE void fill(Shape<R, C>, float x, const Array<T, N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 2] - index[N - 2]);
  for (isize r = 0; r < rows; ++r)
    for (isize c = 0; c < C; ++c) put(a.at(index) + r * a.stride[N - 2] + c * a.stride[N - 1], x);
}
template <isize R, class T, int N>
INLINE void fill(Shape<R>, float x, const Array<T, N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 1] - index[N - 1]);
  for (isize r = 0; r < rows; ++r) put(a.at(index) + r * a.stride[N - 1], x);
}

// Rows times a factor each; a row whose factor is 1 is left alone, for x * 1 is x.
template <isize R, isize C, isize S> INLINE void scale_rows(Tile<R, C, S> t, Rows<R> factor) {
  for (isize r = 0; r < R; ++r)
    if (factor[r] != 1.0f)
      for (isize c = 0; c < C; c += lanes) store(t.at(r, c), load(t.at(r, c)) * all(factor[r]));
}
