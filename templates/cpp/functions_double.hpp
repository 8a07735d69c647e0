// Elementwise functions that scores are made of.
INLINE vec minimum(vec a, vec b) { return -maximum(-a, -b); }  // a NaN wins
INLINE vec absolute(vec x) { return drop_nan_max(-x, x) + all(0.0); }

// The C library's, one lane after the other.
template <class Function> INLINE vec each(vec x, Function f) {
  real lane[lanes];
  store(lane, x);
  for (isize n = 0; n < lanes; ++n) lane[n] = f(lane[n]);
  return load(lane);
}
INLINE vec exp(vec x) {
  return each(x, [](real y) { return ::exp(y); });
}
INLINE vec tanh(vec x) {
  return each(x, [](real y) { return ::tanh(y); });
}
