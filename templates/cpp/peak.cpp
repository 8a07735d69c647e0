// The most fused multiply-adds that one thread can do: chains that fill the registers and touch no memory.
//
// Each FMA has its operands in registers and depends on the one of its chain a round before. Two ports of
// four to five cycles' latency need ten chains; twelve leave room for the operands in AVX2's 16 registers.
// The instruction is spelled out, so that no compiler merges, splits or drops one.

#include <immintrin.h>
#include <stdint.h>

#if defined(__AVX512F__)
typedef __m512 vector;
#define REGISTER "v"
#define SET1 _mm512_set1_ps
#else
typedef __m256 vector;
#define REGISTER "x"
#define SET1 _mm256_set1_ps
#endif

static const int chains = 12;

#define FMA(sum) __asm__ volatile("vfmadd231ps %1, %2, %0" : "+" REGISTER(sum) : REGISTER(a), REGISTER(b))

// Runs ``rounds`` rounds; returns the number of floating-point operations done, two for a lane's FMA.
extern "C" double flashgen_peak(int64_t rounds) {
    // Zeros would draw less power than data do, and leave the clock higher.
    vector a = SET1(0.7853982f), b = SET1(0.3678794f);
    vector s0 = b, s1 = b, s2 = b, s3 = b, s4 = b, s5 = b, s6 = b, s7 = b, s8 = b, s9 = b, s10 = b, s11 = b;
    for (int64_t round = 0; round < rounds; ++round) {
        FMA(s0);
        FMA(s1);
        FMA(s2);
        FMA(s3);
        FMA(s4);
        FMA(s5);
        FMA(s6);
        FMA(s7);
        FMA(s8);
        FMA(s9);
        FMA(s10);
        FMA(s11);
    }
    return 2.0 * (sizeof(vector) / sizeof(float)) * chains * (double)rounds;
}
