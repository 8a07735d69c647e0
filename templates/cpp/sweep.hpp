// One pass over the columns of a row, and the reductions that it feeds.

// Column c of a row always goes to accumulator c / lanes mod 4, whatever the span: a skipped tile or a
// narrower span changes no bit of a result.
static_assert(unroll == 4, "total() adds up four");

struct Add {
  static constexpr real neutral = real(0);
  INLINE static vec combine(vec x, vec kept) { return x + kept; }
};
struct Max {  // a NaN wins
  static constexpr real neutral = -INFINITY;
  INLINE static vec combine(vec x, vec kept) { return maximum(x, kept); }
};
struct MaxNum {  // a NaN is passed over
  static constexpr real neutral = -INFINITY;
  INLINE static vec combine(vec x, vec kept) { return drop_nan_max(x, kept); }
};

template <class Op> struct Reduction {
  vec partial[unroll];
  INLINE Reduction() {
    UNROLL for (isize u = 0; u < unroll; ++u) partial[u] = all(Op::neutral);
  }
  // `seen` are the lanes within the span.
  template <class Seen> INLINE void take(isize u, Seen seen, vec x) {
    partial[u] = Op::combine(seen(x, Op::neutral), partial[u]);
  }
  INLINE real total() const {
    vec x = Op::combine(Op::combine(partial[0], partial[1]), Op::combine(partial[2], partial[3]));
    UNROLL for (int half = lanes / 2; half; half /= 2) x = Op::combine(x, swap_lanes(x, half));
    return first(x);
  }
};

// Calls step(c, u, seen) for vectors at columns c that cover [lo, hi), u = c / lanes mod unroll. At the ends
// whole vectors are taken that reach beyond: there `seen` puts the neutral value in place of what is not
// in the span, elsewhere it passes everything.
template <class Step> INLINE void sweep(isize lo, isize hi, Step step) {
  constexpr isize width = unroll * lanes;
  const auto whole = [](vec x, real) INLINE_LAMBDA { return x; };
  const auto ragged = [&](isize c) INLINE_LAMBDA {
    UNROLL for (isize u = 0; u < unroll; ++u, c += lanes) {
      const lanes_mask inside = columns(c, lo, hi);
      step(c, u, [&](vec x, real neutral) INLINE_LAMBDA { return choose(inside, x, all(neutral)); });
    }
  };
  isize c = lo / width * width;
  if (c < lo && lo < hi) ragged(c), c += width;
  for (; c + width <= hi; c += width)
    UNROLL for (isize u = 0; u < unroll; ++u) step(c + u * lanes, u, whole);
  if (c < hi) ragged(c);
}
