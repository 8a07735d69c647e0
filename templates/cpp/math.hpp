// Elementwise functions that are the same on every vector, and on a single float.
INLINE vec maximum(vec a, vec b) { return choose(is_nan(a), a, drop_nan_max(a, b)); }  // a NaN wins
INLINE vec replace(vec x, float from, float to) { return choose(equal(x, all(from)), all(to), x); }

// 2^x to 1 ulp for x <= 0: exact at integers (so 1 at 0), 0 from -126.5 down, NaN stays (x is the maximum's
// second operand). x = n + r with |r| <= 1/2 by adding 1.5 * 2^23 + 127, whose sum holds n + 127 in its low
// bits; 2^r by a polynomial that is 1 at 0. Multiplying by the power keeps a NaN a NaN, whatever its payload.
// Monotone but for neighbours in (-1/2, 0), which may differ by an ulp in the wrong direction.
INLINE vec exp2(vec x) {
  const vec magic = all(12583039.0f);
  x = drop_nan_max(all(-127.0f), x);
  const vec t = x + magic, r = x - (t - magic);
  vec p = all(0.000153533619596f);
  p = fma(p, r, all(0.001339887385257f));
  p = fma(p, r, all(0.009618436917663f));
  p = fma(p, r, all(0.055503323674202f));
  p = fma(p, r, all(0.240226477384567f));
  p = fma(p, r, all(0.693147182464600f));
  p = fma(p, r, all(1.0f));
  return scale_by_power(p, t);
}

INLINE vec log(vec x) {  // once a row: not worth a polynomial
  float lane[lanes];
  store(lane, x);
  for (isize n = 0; n < lanes; ++n) lane[n] = logf(lane[n]);
  return load(lane);
}
