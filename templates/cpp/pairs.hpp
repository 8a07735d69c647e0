// Tiles and panels of bfloat16.

// As Tile; the padding holds anything here, too.
template <isize R, isize C, isize S> struct NarrowTile {
  bfloat16 *const p;
  INLINE explicit NarrowTile(void *memory) : p((bfloat16 *)memory) {}
  INLINE bfloat16 *at(isize r, isize c) const { return p + r * S + c; }
};
// P panels of N x W pairs: the right side of a product, two steps of the contraction side by side. A last step
// without a second has 0 in its place.
template <isize P, isize N, isize W> struct Pairs {
  bfloat16 *const p;
  INLINE explicit Pairs(void *memory) : p((bfloat16 *)memory) {}
  INLINE bfloat16 *at(isize panel, isize pair, isize column) const { return p + 2 * ((panel * N + pair) * W + column); }
};

// Rows that lie outside the array read as 0.
template <isize R, isize C, isize S, template <class, int> class A, int N>
INLINE void read(NarrowTile<R, C, S> t, const A<bfloat16, N> &a, const isize (&index)[N]) {
  const isize rows = larger(0, smaller(R, a.size[N - 2] - index[N - 2])), each = a.stride[N - 1];
  for (isize r = 0; r < rows; ++r) {
    const bfloat16 *const from = a.row(index, N - 2, r);
    if (each == 1)
      memcpy(t.at(r, 0), from, C * sizeof(bfloat16));
    else
      for (isize c = 0; c < C; ++c) *t.at(r, c) = from[c * each];
  }
  for (isize r = rows; r < R; ++r) memset(t.at(r, 0), 0, C * sizeof(bfloat16));
}
