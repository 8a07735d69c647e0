// Matrix products whose right side is read where it lies in memory, row by row: for left sides of few rows,
// where fetching the right side takes longer than multiplying by it. Rows that take part in nothing cost nothing.

constexpr isize most_rows = 4;  // rows of the left side that share what is read of the right side
constexpr isize chunk = lanes;  // rows of the right side that all of the left side use before the next are read
constexpr isize ahead = 1024;   // numbers of the right side fetched ahead, for each row that shares what is read

// How a row of the right side is read: from column c on, a whole vector, or `count` numbers and 0 beyond; and how
// what is read later is fetched, `rows` further on.
struct Adjacent {
  // Into the second-level cache: what waits for memory then holds up no reads from the first.
  template <class T> INLINE void fetch(const T *row, isize rows, isize row_stride, isize c) const {
    if (c * sizeof(T) % 64 == 0)
      _mm_prefetch((const char *)(row + c) + rows * row_stride * (isize)sizeof(T), _MM_HINT_T1);
  }
  template <class T> INLINE vec read(const T *row, isize c) const { return load(row + c); }
  template <class T> INLINE vec read(const T *row, isize c, isize count) const { return load_first(row + c, count); }
};
struct Apart {
  isize step;
  template <class T> INLINE void fetch(const T *, isize, isize, isize) const {}
  template <class T> INLINE vec read(const T *row, isize c) const { return read(row, c, lanes); }
  template <class T> INLINE vec read(const T *row, isize c, isize count) const {
    real x[lanes] = {};
    for (isize n = 0; n < count; ++n) x[n] = get(row + (c + n) * step);
    return load(x);
  }
};

// The span of every row where there is none.
template <isize C> struct Whole {
  INLINE isize lo(isize) const { return 0; }
  INLINE isize hi(isize) const { return C; }
};
template <isize N> struct Count {
  static constexpr isize value = N;
};

// Calls step(Count<n>(), r, from, to) for groups of n rows from r on, whose spans within [lo, hi) are [from, to).
template <isize R, class Part, class Step>
INLINE void row_groups(const Part &part, isize lo, isize hi, Step step) {
  for (isize r = 0, n; r < R; r += n) {
    const isize from = larger(lo, part.lo(r)), to = smaller(hi, part.hi(r));
    n = 1;
    while (n < most_rows && r + n < R && part.lo(r + n) == part.lo(r) && part.hi(r + n) == part.hi(r)) ++n;
    if (n == 3) n = 2;
    if (from >= to) continue;
    if constexpr (R >= 4)
      if (n == 4) step(Count<4>(), r, from, to);
    if constexpr (R >= 2)
      if (n == 2) step(Count<2>(), r, from, to);
    if (n == 1) step(Count<1>(), r, from, to);
  }
}

// Of a left side of R rows: whether to read the right side takes longer than to multiply by it. It is then read in
// order, as processors expect it, and in whole rows; else in the order that keeps arithmetic units busy.
// A product then takes two rows at a time where it could take four: so a row of 8 vectors is read in one stretch.
template <isize R> constexpr bool waits_for_memory = R <= lanes / 4;

// out[i][n] = <a[i], b[n]>, or that added to it, for NR rows of a and `count` rows of b: lanes / NR of them at a
// time, with an accumulator for each pair, a lane of it for each lane of a row.
template <isize NR, isize K, bool accumulate, bool in_order, class T, class Reader>
void inner_products(real *out, isize out_stride, const real *a, isize a_stride, const T *b, isize b_stride,
                    isize count, Reader reader) {
  constexpr isize NB = lanes / NR, whole = K / lanes * lanes, later = (ahead * NR + K - 1) / K;
  for (; count > 0; count -= NB, b += NB * b_stride, out += NB) {
    const T *row[NB];
    UNROLL for (isize n = 0; n < NB; ++n) row[n] = b + smaller(n, count - 1) * b_stride;
    vec sum[lanes];
    UNROLL for (isize n = 0; n < lanes; ++n) sum[n] = all(real(0));
    const auto take = [&](isize n, isize k) INLINE_LAMBDA {
      reader.fetch(row[n], later, b_stride, k);
      const vec y = reader.read(row[n], k);
      UNROLL for (isize i = 0; i < NR; ++i) sum[i * NB + n] = fma(load(a + i * a_stride + k), y, sum[i * NB + n]);
    };
    if constexpr (in_order)
      UNROLL for (isize n = 0; n < NB; ++n)
        for (isize k = 0; k < whole; k += lanes) take(n, k);
    else
      for (isize k = 0; k < whole; k += lanes)
        UNROLL for (isize n = 0; n < NB; ++n) take(n, k);
    if (whole < K)
      UNROLL for (isize n = 0; n < NB; ++n) {
        const vec y = reader.read(row[n], whole, K - whole);
        UNROLL for (isize i = 0; i < NR; ++i)
          sum[i * NB + n] = fma(load_first(a + i * a_stride + whole, K - whole), y, sum[i * NB + n]);
      }
    real each[lanes];
    store(each, totals(sum));
    if (!accumulate && count >= NB)
      UNROLL for (isize i = 0; i < NR; ++i) memcpy(out + i * out_stride, each + i * NB, NB * sizeof(real));
    else
      UNROLL for (isize i = 0; i < NR; ++i)
        for (isize n = 0; n < smaller(NB, count); ++n) {
          real &to = out[i * out_stride + n];
          to = accumulate ? to + each[i * NB + n] : each[i * NB + n];
        }
  }
}

// out = a b^T, or out + a b^T, in the columns of each row's span. What lies beyond the array is 0.
template <bool accumulate, isize R, isize C, isize SO, isize K, isize SA, class Right, class Part, class Reader>
INLINE void product_transposed(Tile<R, C, SO> out, Tile<R, K, SA> a, const Right &b, const Part &part, Reader reader) {
  for (isize n = 0, end; n < b.rows; n = end) {
    end = b.stretch(n, chunk);
    row_groups<R>(part, n, end, [&](auto rows, isize r, isize lo, isize hi) INLINE_LAMBDA {
      inner_products<decltype(rows)::value, K, accumulate, waits_for_memory<R>>(
          out.at(r, lo), SO, a.at(r, 0), SA, b.row(lo), b.row_stride, hi - lo, reader);
    });
  }
  if (!accumulate)
    for (isize r = 0; r < R; ++r)
      for (isize c = larger(b.rows, part.lo(r)); c < part.hi(r); ++c) *out.at(r, c) = real(0);
}

// out[i] += sum of a[i][k] * b[k] over `count` rows of b, for NR rows; of NV vectors
// from column c of C on, the last of `last` lanes.
template <isize NR, isize NV, isize last, isize C, class T, class Reader>
void weighted_rows(real *out, isize out_stride, const real *a, isize a_stride, const T *b, isize b_stride,
                   isize c, isize count, Reader reader) {
  constexpr isize later = (ahead * NR + C - 1) / C;
  vec sum[NR][NV];
  UNROLL for (isize i = 0; i < NR; ++i)
    UNROLL for (isize v = 0; v < NV; ++v) sum[i][v] = load(out + i * out_stride + v * lanes);
  for (isize k = 0; k < count; ++k, b += b_stride) {
    vec row[NV];
    UNROLL for (isize v = 0; v < NV; ++v) reader.fetch(b, later, b_stride, c + v * lanes);
    UNROLL for (isize v = 0; v + 1 < NV; ++v) row[v] = reader.read(b, c + v * lanes);
    row[NV - 1] = last == lanes ? reader.read(b, c + (NV - 1) * lanes) : reader.read(b, c + (NV - 1) * lanes, last);
    UNROLL for (isize i = 0; i < NR; ++i) {
      const vec x = all(a[i * a_stride + k]);
      UNROLL for (isize v = 0; v < NV; ++v) sum[i][v] = fma(x, row[v], sum[i][v]);
    }
  }
  UNROLL for (isize i = 0; i < NR; ++i)
    UNROLL for (isize v = 0; v < NV; ++v) store(out + i * out_stride + v * lanes, sum[i][v]);
}

// out = a b, or out + a b, over the steps of each row's span. What lies beyond the array takes no part.
template <bool accumulate, isize R, isize C, isize SO, isize K, isize SA, class Right, class Part, class Reader>
INLINE void product(Tile<R, C, SO> out, Tile<R, K, SA> a, const Right &b, const Part &part, Reader reader) {
  if (!accumulate)
    for (isize r = 0; r < R; ++r)
      for (isize c = 0; c < C; c += lanes) store(out.at(r, c), all(real(0)));
  for (isize n = 0, end; n < b.rows; n = end) {
    end = b.stretch(n, chunk);
    row_groups<R>(part, n, end, [&](auto rows, isize r, isize lo, isize hi) INLINE_LAMBDA {
      constexpr isize together = decltype(rows)::value, NR = waits_for_memory<R> && together == 4 ? 2 : together;
      constexpr isize NV = lanes / NR, rest = C % (NV * lanes);
      const auto *const from = b.row(lo);
      for (const isize behind = r + together; r < behind; r += NR) {
        const real *const weights = a.at(r, lo);
        for (isize c = 0; c + NV * lanes <= C; c += NV * lanes)
          weighted_rows<NR, NV, lanes, C>(out.at(r, c), SO, weights, SA, from, b.row_stride, c, hi - lo, reader);
        if constexpr (rest > 0)
          weighted_rows<NR, (rest + lanes - 1) / lanes, (rest - 1) % lanes + 1, C>(
              out.at(r, C - rest), SO, weights, SA, from, b.row_stride, C - rest, hi - lo, reader);
      }
    });
  }
}

template <bool accumulate, class Out, class Left, class Right, class Part>
INLINE void product_transposed(Out out, Left a, const Right &b, const Part &part) {
  if (b.col_stride == 1)
    product_transposed<accumulate>(out, a, b, part, Adjacent());
  else
    product_transposed<accumulate>(out, a, b, part, Apart{b.col_stride});
}
template <bool accumulate, class Out, class Left, class Right, class Part>
INLINE void product(Out out, Left a, const Right &b, const Part &part) {
  if (b.col_stride == 1)
    product<accumulate>(out, a, b, part, Adjacent());
  else
    product<accumulate>(out, a, b, part, Apart{b.col_stride});
}
