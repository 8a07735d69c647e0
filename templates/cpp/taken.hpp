// The columns [lo, hi) of the left side that row r takes.
struct Taken {
  isize lo, hi;
};
template <isize K, isize R> INLINE Taken taken(const Over<R> &part, isize r) {
  return {part.span.lo(r), part.span.hi(r)};
}
template <isize K, class Part> INLINE Taken taken(const Part &, isize) { return {0, K}; }
