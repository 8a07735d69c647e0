// Elementwise functions that scores are made of.
INLINE vec minimum(vec a, vec b) { return -maximum(-a, -b); }  // a NaN wins
INLINE vec absolute(vec x) { return drop_nan_max(-x, x) + all(0.0f); }

// e^x, within 2 ulp, inf beyond the largest number and 0 where it would be subnormal: exp2 of x log2 e, whose
// rounding error is made good behind it.
INLINE vec exp(vec x) {
  const vec y = x * all(1.44269502f), lost = fma(x, all(1.44269502f), -y) + x * all(1.925963e-8f);
  const vec whole = exp2(y), exact = fma(whole, lost * all(0.693147182f), whole);
  return choose(below(y, all(-126.0f)), all(0.0f), choose(at_most(all(128.0f), y), all(INFINITY), exact));
}

// tanh x, within 3 ulp: near 0 a polynomial (of Cephes' tanhf), which keeps small results exact in relation to
// themselves; else 1 - 2 / (e^2|x| + 1), where beyond 10 nothing is left of the quotient.
INLINE vec tanh(vec x) {
  const vec size = absolute(x), z = x * x;
  const vec a = choose(below(all(10.0f), size), all(10.0f), size);
  const vec far = all(1.0f) - all(2.0f) / (exp2(a * all(2.88539004f)) + all(1.0f));
  vec p = all(-5.70498872745e-3f);
  p = fma(p, z, all(2.06390887954e-2f));
  p = fma(p, z, all(-5.37397155531e-2f));
  p = fma(p, z, all(1.33314422036e-1f));
  p = fma(p, z, all(-3.33332819422e-1f));
  const vec near = fma(p * z, x, x);
  return choose(below(size, all(0.625f)), near, choose(below(x, all(0.0f)), -far, far));
}
