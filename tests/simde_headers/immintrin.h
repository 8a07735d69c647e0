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

// What SIMDe 0.8.2 lacks.
#undef _mm512_maskz_slli_epi32
#define _mm512_maskz_slli_epi32(mask, a, count) \
  simde_mm512_maskz_mov_epi32(mask, simde_mm512_slli_epi32(a, count))
#endif
