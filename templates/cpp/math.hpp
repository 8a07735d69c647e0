// Elementwise functions that are the same on every vector, and on a single number.
INLINE vec maximum(vec a, vec b) { return choose(is_nan(a), a, drop_nan_max(a, b)); }  // a NaN wins
INLINE vec replace(vec x, real from, real to) { return choose(equal(x, all(from)), all(to), x); }
INLINE vec hold(vec held, vec x, real by) { return choose(at_most(x - held, all(by)), held, x); }

// exp2 is in the layer of each kind of vector. x = y + r, with y a multiple of a small fraction and r >= 0,
// and 2^x = 2^y + 2^y r p(r): 2^y is a root of two from a table times a power of two, p goes by Horner's
// rule.
// - It is within 1 ulp where it is a normal number, and 0 below: a product with a subnormal number would cost
//   as much as a hundred others. It is exact at integers, and NaN for NaN.
// - It never falls as x rises. No coefficient is negative, so each of Horner's steps rounds what does not
//   fall as r rises. Where y changes tests look: tests/check_exp2.py at every float, tests/test_double_math.py at
//   the doubles on both sides.

INLINE vec log(vec x) {  // once a row: not worth a polynomial
  real lane[lanes];
  store(lane, x);
  for (isize n = 0; n < lanes; ++n) lane[n] = ::log(lane[n]);
  return load(lane);
}
