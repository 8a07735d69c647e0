// 2^x of doubles for x < 1024, as math.hpp says, with y a multiple of 1/4. Adding 1.5 * 2^50 + 1023 rounds to
// the nearest one, and an eighth less makes that the one below. The sum's low bits hold 4 (y + 1023): the lower
// two choose the root, the others are the exponent of the power, which makes that 0 for all y from -1023 up to
// -1022.
//
// Of all polynomials of this degree 1 + r p(r) is the one whose largest error, as a share of 2^r with r from 0
// to 1/4, is least: 2^-58. It was found by Remez's exchange in 60 digits, coefficients that follow a rounded one
// anew each time.
INLINE vec exp2(vec x) {
  const vec magic = all(1688849860264959.0);
  x = drop_nan_max(all(-1023.0), x);  // a NaN stays: it is the second operand
  const vec t = (x - all(0.125)) + magic, r = x - (t - magic);
  const vec root = pick(t, 1.0, 1.189207115002721, 1.4142135623730951, 1.681792830507429);
  const vec lost = pick(t, 0.0, 3.348e-17, -6.836e-17, 4.875e-17);  // in rounding the roots, as a share of them
  const vec whole = root * power(t);
  vec p = all(1.44028128320508e-06);
  p = fma(p, r, all(1.5196919993028231e-05));
  p = fma(p, r, all(0.00015404929307252953));
  p = fma(p, r, all(0.0013333537888220856));
  p = fma(p, r, all(0.00961812927812519));
  p = fma(p, r, all(0.055504108656901745));
  p = fma(p, r, all(0.2402265069592782));
  p = fma(p, r, all(0.693147180559944));
  return fma(whole, fma(p, r, lost), whole);
}
