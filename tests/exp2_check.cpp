// Stands behind the layers of an emitted file: compares their exp2 with double precision.
}  // namespace

struct Report {
  double ulps;    // the largest error of a result that is to be normal, in units of the last place,
  float at;       // and where it is
  int64_t wrong;  // results that break one of the rules below, and the first of them
  float first;
};

static float from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

// Whether exp2(x) = y keeps the rules that are not about its error: NaN for NaN, exact at integers, 0 where the
// result would be subnormal, and at x's neighbour nearer to 0 nothing that is out of order.
static bool keeps_rules(float x, float y, float nearer_to_0, float its_y) {
  if (x != x) return y != y;
  if (x < -126) return y == 0 && !signbit(y);
  if (x == floorf(x) && y != ldexpf(1, (int)x)) return false;
  if (nearer_to_0 != nearer_to_0 || signbit(nearer_to_0) != signbit(x)) return true;
  return x < 0 ? y <= its_y : y >= its_y;
}

// All floats below 128, and NaN, among the bit patterns from `from` up to `to`, a whole number of vectors.
extern "C" void check_exp2(uint64_t from, uint64_t to, Report *report) {
  float before_x = from ? from_bits((uint32_t)from - 1) : NAN, before_y = NAN, x[lanes], y[lanes];
  if (from) {
    store(y, exp2(all(before_x)));
    before_y = y[0];
  }
  for (uint64_t bits = from; bits < to; bits += lanes) {
    for (isize n = 0; n < lanes; ++n) x[n] = from_bits((uint32_t)(bits + n));
    store(y, exp2(load(x)));
    for (isize n = 0; n < lanes; before_x = x[n], before_y = y[n], ++n) {
      if (x[n] >= 128) continue;
      if (!keeps_rules(x[n], y[n], before_x, before_y) && !report->wrong++) report->first = x[n];
      if (!(x[n] >= -126)) continue;
      const double exact = ::exp2((double)x[n]);
      const double ulps = fabs(y[n] - exact) / ldexp(1, (int)floorf(x[n]) - 23);
      if (!(ulps <= report->ulps)) report->ulps = ulps, report->at = x[n];
    }
  }
}

extern "C" void apply_exp2(const float *x, float *y, int64_t n) {
  for (isize i = 0; i < n; i += lanes) store(y + i, exp2(load(x + i)));
}
