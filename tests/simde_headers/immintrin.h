// Found before the compiler's own: AVX2, FMA and AVX-512 in whatever the compiler's flags allow, by SIMDe.
// SIMDe itself asks for <immintrin.h> too and gets the real one.
#if defined(SIMDE_AT_WORK)
#include_next <immintrin.h>
#elif !defined(EMULATED_IMMINTRIN_H)
#define EMULATED_IMMINTRIN_H
#define SIMDE_ENABLE_NATIVE_ALIASES
#define SIMDE_AT_WORK
#include <simde/x86/avx2.h>
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
#undef SIMDE_AT_WORK

// What SIMDe 0.8.2 lacks, or has with subnormal numbers as 0: lane by lane.
#include <math.h>
#include <string.h>
template <class F>
static inline simde__m512 each_float(simde__mmask16 mask, simde__m512 a, simde__m512 b, F f) {
  float x[16], y[16];
  simde_mm512_storeu_ps(x, a);
  simde_mm512_storeu_ps(y, b);
  for (int n = 0; n < 16; ++n) x[n] = mask >> n & 1 ? f(x[n], y[n]) : 0.0f;
  return simde_mm512_loadu_ps(x);
}
constexpr int DOWN = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
// What a lies above a multiple of 2^-(how / 16), rounded down as well.
template <int how> static inline simde__m512 reduce(simde__mmask16 mask, simde__m512 a) {
  static_assert((how & 15) == DOWN, "other roundings are not wanted yet");
  return each_float(mask, a, a, [](float x, float) {
    const double rest = isinf(x) ? 0.0 : x - ldexp(floor(ldexp((double)x, how >> 4)), -(how >> 4));
    return (float)rest > rest ? nextafterf((float)rest, -INFINITY) : (float)rest;
  });
}
template <int how> static inline simde__m512 add_round(simde__mmask16 mask, simde__m512 a, simde__m512 b) {
  static_assert(how == DOWN, "other roundings are not wanted yet");
  return each_float(mask, a, b, [](float x, float y) {
    const float sum = x + y;
    return x < (double)sum - y ? nextafterf(sum, -INFINITY) : sum;
  });
}
static inline simde__m512 scalef(simde__mmask16 mask, simde__m512 a, simde__m512 b) {
  return each_float(mask, a, b, [](float x, float y) {
    return isnan(y) ? y : ldexpf(x, (int)fmaxf(-1000, fminf(1000, floorf(y))));
  });
}
// What SIMDe keeps of subnormal numbers, and rounds otherwise or not at all: AVX512-BF16 as Intel's manual has it.
static inline float flushed(float x) { return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x; }
static inline float widened(uint16_t x) {
  const uint32_t bits = (uint32_t)x << 16;
  float wide;
  memcpy(&wide, &bits, sizeof wide);
  return flushed(wide);
}
template <class Pairs> __attribute__((noinline)) static simde__m512 dpbf16(simde__m512 c, Pairs a, Pairs b) {
  float sum[16];
  uint16_t x[32], y[32];
  static_assert(sizeof x == sizeof a, "32 numbers");
  simde_mm512_storeu_ps(sum, c), memcpy(x, &a, sizeof x), memcpy(y, &b, sizeof y);
  for (int n = 0; n < 16; ++n)
    for (int half = 1; half >= 0; --half)
      sum[n] = flushed(fmaf(widened(x[2 * n + half]), widened(y[2 * n + half]), flushed(sum[n])));
  return simde_mm512_loadu_ps(sum);
}
__attribute__((noinline, unused)) static simde__m256i cvtneps(simde__m512 a) {
  float x[16];
  uint16_t y[16];
  simde_mm512_storeu_ps(x, a);
  for (int n = 0; n < 16; ++n) {
    const float number = flushed(x[n]);
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    y[n] = (uint16_t)(isnan(number) ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
  return simde_mm256_loadu_si256(y);
}
static inline simde__mmask16 test_bytes(simde__m128i a, simde__m128i b) {
  const simde__m128i neither = simde_mm_cmpeq_epi8(simde_mm_and_si128(a, b), simde_mm_setzero_si128());
  return (simde__mmask16)~simde_mm_movemask_epi8(neither);
}
// SIMDe reads all that lies under a mask; processors touch nothing of what is masked out.
template <class T> static inline void masked(T *x, int lanes, unsigned mask, const T *p) {
  for (int n = 0; n < lanes; ++n) x[n] = mask >> n & 1 ? p[n] : T(0);
}
static inline simde__m512 masked_load(simde__mmask16 mask, const float *p) {
  float x[16];
  masked(x, 16, mask, p);
  return simde_mm512_loadu_ps(x);
}
static inline simde__m512d masked_load(simde__mmask8 mask, const double *p) {
  double x[8];
  masked(x, 8, mask, p);
  return simde_mm512_loadu_pd(x);
}
#undef _mm512_maskz_loadu_ps
#undef _mm512_maskz_loadu_pd
#define _mm512_maskz_loadu_ps(mask, p) masked_load(mask, p)
#define _mm512_maskz_loadu_pd(mask, p) masked_load(mask, p)
#undef _mm_test_epi8_mask
#define _mm_test_epi8_mask(a, b) test_bytes(a, b)
#undef _mm512_dpbf16_ps
#undef _mm512_cvtneps_pbh
#define _mm512_dpbf16_ps(c, a, b) dpbf16(c, a, b)
#define _mm512_cvtneps_pbh(a) cvtneps(a)
#undef _mm512_maskz_reduce_ps
#undef _mm512_maskz_add_round_ps
#undef _mm512_maskz_scalef_ps
#define _mm512_maskz_reduce_ps(mask, a, how) reduce<how>(mask, a)
#define _mm512_maskz_add_round_ps(mask, a, b, how) add_round<how>(mask, a, b)
#define _mm512_maskz_scalef_ps(mask, a, b) scalef(mask, a, b)
#define _mm512_maskz_slli_epi64(mask, a, n) simde_mm512_maskz_mov_epi64(mask, simde_mm512_slli_epi64(a, n))
#endif
