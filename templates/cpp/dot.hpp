// Matrix products: a tile times panels, in register blocks of micro_rows x W; the last may have fewer rows.

// Of a group of rows: [lo, hi) holds every column that some row sees, [full_lo, full_hi) only columns that
// all of them see.
struct Hull {
  isize lo, full_lo, full_hi, hi;
};
template <isize R> INLINE Hull hull(Spans<R> s, isize r) {
  Hull h = {s.lo(r), s.lo(r), s.hi(r), s.hi(r)};
  for (isize n = r + 1; n < smaller(r + micro_rows, R); ++n) {
    h.full_lo = larger(h.full_lo, s.lo(n));
    h.full_hi = smaller(h.full_hi, s.hi(n));
    if (s.lo(n) == s.hi(n)) continue;
    h.lo = h.lo == h.hi ? s.lo(n) : smaller(h.lo, s.lo(n));
    h.hi = larger(h.hi, s.hi(n));
  }
  if (h.full_lo >= h.full_hi) h.full_lo = h.full_hi = h.hi;  // no column that all see
  return h;
}

template <isize R> INLINE void hulls(Spans<R> s, Hull *groups) {
  for (isize r = 0; r < R; r += micro_rows) groups[r / micro_rows] = hull(s, r);
}

// The accumulators of a register block of M rows x NV vectors.
template <int M, int NV> struct Block {
  vec c[M][NV];
  INLINE void clear() {
    UNROLL for (int i = 0; i < M; ++i)
      UNROLL for (int v = 0; v < NV; ++v) c[i][v] = all(real(0));
  }
  INLINE void load_from(const real *p, isize stride) {
    UNROLL for (int i = 0; i < M; ++i)
      UNROLL for (int v = 0; v < NV; ++v) c[i][v] = load(p + i * stride + v * lanes);
  }
  INLINE void store_to(real *p, isize stride) const {
    UNROLL for (int i = 0; i < M; ++i)
      UNROLL for (int v = 0; v < NV; ++v) store(p + i * stride + v * lanes, c[i][v]);
  }
  // One step of the contraction: a column of the left side times a row of the panel.
  INLINE void step(const real *a, isize a_stride, const real *b) {
    vec row[NV];
    UNROLL for (int v = 0; v < NV; ++v) row[v] = load(b + v * lanes);
    UNROLL for (int i = 0; i < M; ++i) {
      const vec x = all(a[i * a_stride]);
      UNROLL for (int v = 0; v < NV; ++v) c[i][v] = fma(x, row[v], c[i][v]);
    }
  }
  // The same, for the rows that see column k.
  template <isize R>
  INLINE void step_seen(const real *a, isize a_stride, const real *b, Spans<R> s, isize r, isize k) {
    UNROLL for (int i = 0; i < M; ++i)
      if (s.lo(r + i) <= k && k < s.hi(r + i))
        UNROLL for (int v = 0; v < NV; ++v) c[i][v] = fma(all(a[i * a_stride]), load(b + v * lanes), c[i][v]);
  }
};

// Which part of a product is wanted, for a group of rows from r on; see the operands of tile.dot.
struct Everything {
  template <isize K> INLINE Hull contraction(isize) const { return {0, 0, K, K}; }
  INLINE bool wants(isize, isize, isize) const { return true; }
};
template <isize R> struct Only {  // result columns in the span
  Hull groups[(R + micro_rows - 1) / micro_rows];
  INLINE explicit Only(Spans<R> s) { hulls(s, groups); }
  template <isize K> INLINE Hull contraction(isize) const { return {0, 0, K, K}; }
  INLINE bool wants(isize r, isize c, isize width) const {
    const Hull &h = groups[r / micro_rows];
    return c < h.hi && h.lo < c + width;
  }
};
template <isize R> struct Over {  // steps of the contraction in the span
  Spans<R> span;
  Hull groups[(R + micro_rows - 1) / micro_rows];
  INLINE explicit Over(Spans<R> s) : span(s) { hulls(s, groups); }
  template <isize K> INLINE Hull contraction(isize r) const { return groups[r / micro_rows]; }
  INLINE bool wants(isize, isize, isize) const { return true; }
};

// The steps lo <= k < hi that every row takes.
template <int M, int NV>
INLINE void steps(Block<M, NV> &block, const real *a, isize a_stride, const real *b, isize lo, isize hi) {
#pragma GCC unroll 4
  for (isize k = lo; k < hi; ++k) block.step(a + k, a_stride, b + k * NV * lanes);
}
// The steps lo <= k < hi that some rows take.
template <int M, int NV, isize R>
INLINE void ragged_steps(Block<M, NV> &block, const real *a, isize a_stride, const real *b, isize lo, isize hi,
                         const Over<R> &part, isize r) {
  for (isize k = lo; k < hi; ++k) block.step_seen(a + k, a_stride, b + k * NV * lanes, part.span, r, k);
}
template <int M, int NV, class Part>
INLINE void ragged_steps(Block<M, NV> &, const real *, isize, const real *, isize, isize, const Part &, isize) {}

// Rows r to r + M of one panel's part of the product.
template <bool accumulate, int M, isize K, int NV, class Part>
INLINE void block_product(real *out, isize out_stride, const real *a, isize a_stride, const real *panel,
                          const Part &part, isize r) {
  const Hull h = part.template contraction<K>(r);
  Block<M, NV> block;
  if (accumulate)
    block.load_from(out, out_stride);
  else
    block.clear();
  ragged_steps(block, a, a_stride, panel, h.lo, h.full_lo, part, r);
  steps(block, a, a_stride, panel, h.full_lo, h.full_hi);
  ragged_steps(block, a, a_stride, panel, h.full_hi, h.hi, part, r);
  block.store_to(out, out_stride);
}

// A tile of R x C numbers that is wanted soon, brought into the second-level cache in equal parts beside a product's
// register blocks: few lines can be waited for at a time, and a panel stays in the first-level cache.
template <isize R, isize C, class T> struct Fetch {
  const View<T> tile;
  INLINE void part(isize n, isize of) const {
    const isize end = tile.col_stride == 1 ? smaller((n + 1) * R / of, tile.rows) : 0;
    for (isize r = n * R / of; r < end; ++r)
      UNROLL for (isize c = 0; c < C; c += 64 / (isize)sizeof(T))
        _mm_prefetch((const char *)(tile.p + r * tile.row_stride + c), _MM_HINT_T1);
  }
};
template <isize R, isize C, class T, int N> INLINE Fetch<R, C, T> fetch(const Array<T, N> &a, const isize (&index)[N]) {
  return {view(a, index, R)};
}

// out = a b, or out + a b: panels outermost, so that one panel stays in the first-level cache.
template <bool accumulate, isize R, isize C, isize SO, isize K, isize SA, isize P, isize W, class Part, class... Ahead>
INLINE void product(Tile<R, C, SO> out, Tile<R, K, SA> a, Panels<P, K, W> b, const Part &part, const Ahead &...ahead) {
  static_assert(P * W <= SO && W % lanes == 0, "the panels fit in a padded row");
  constexpr isize rest = R % micro_rows, each = (R + micro_rows - 1) / micro_rows;
  for (isize n = 0, block = 0; n < P; ++n) {
    const real *const panel = b.p + n * K * W;
    for (isize r = 0; r < R - rest; r += micro_rows, ++block) {
      (ahead.part(block, P * each), ...);
      if (part.wants(r, n * W, W))
        block_product<accumulate, micro_rows, K, W / lanes>(out.at(r, n * W), SO, a.at(r, 0), SA, panel, part, r);
    }
    if constexpr (rest > 0) {
      (ahead.part(block++, P * each), ...);
      if (constexpr isize r = R - rest; part.wants(r, n * W, W))
        block_product<accumulate, rest, K, W / lanes>(out.at(r, n * W), SO, a.at(r, 0), SA, panel, part, r);
    }
  }
}
