// Elementwise functions that are the same on every vector, and on a single float.
INLINE vec maximum(vec a, vec b) { return choose(is_nan(a), a, drop_nan_max(a, b)); }  // a NaN wins
INLINE vec replace(vec x, float from, float to) { return choose(equal(x, all(from)), all(to), x); }
INLINE vec hold(vec held, vec x, float by) { return choose(at_most(x - held, all(by)), held, x); }

// exp2 is in the layer of each kind of vector: x = y + r, with r >= 0 and y a multiple of a small fraction, and
// 2^x = 2^y + 2^y r p(r), with 2^y a root of two from a table times a power of two. It is within 1 ulp where it is
// at least 2^-126, and 0 below (one subnormal number costs a product as much as a hundred others); exact at integers;
// NaN for NaN. It never falls as x rises: no coefficient is negative, so each step of Horner's rule rounds what does
// not fall as r rises; where y changes, and all else that is said here, tests/check_exp2.py looks at every float.

INLINE vec log(vec x) {  // once a row: not worth a polynomial
  float lane[lanes];
  store(lane, x);
  for (isize n = 0; n < lanes; ++n) lane[n] = logf(lane[n]);
  return load(lane);
}
