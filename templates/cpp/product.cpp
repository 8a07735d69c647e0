// A product of tiles, 192 x 64 times 64 x 512: a packed panel in the first-level cache, all else in the second.
//
// Chains on registers (peak.cpp) tell little of a neighbour that shares a core and its caches; this has the
// mix of loads and fused multiply-adds that a kernel has, and sees both.

#include <immintrin.h>
#include <stdint.h>

#if defined(__AVX512F__)
typedef __m512 vector;
#define LOAD _mm512_load_ps
#define STORE _mm512_store_ps
#define SET1 _mm512_set1_ps
#define FMA _mm512_fmadd_ps
static const int rows = 14;  // of a register block
#else
typedef __m256 vector;
#define LOAD _mm256_load_ps
#define STORE _mm256_store_ps
#define SET1 _mm256_set1_ps
#define FMA _mm256_fmadd_ps
static const int rows = 6;
#endif

#define UNROLL _Pragma("GCC unroll 16")

static const int lanes = sizeof(vector) / sizeof(float), depth = 64, width = 512;
static const int blocks = 192 / rows, panels = width / (2 * lanes);

// Floats of the tiles, each after the other: Q, the panels of K; then come the scores.
static const int q_size = blocks * rows * depth, k_size = depth * width;

// Does the product ``rounds`` times, in 560 KiB of memory that begin at a multiple of 64 bytes; returns the
// number of floating-point operations done.
extern "C" double flashgen_product(float *memory, int64_t rounds) {
    const float *const q = memory, *const k = q + q_size;
    float *const s = memory + q_size + k_size;
    for (int64_t round = 0; round < rounds; ++round)
        for (int n = 0; n < panels; ++n)
            for (int m = 0; m < blocks; ++m) {
                const float *const left = q + m * rows * depth, *const panel = k + n * depth * 2 * lanes;
                float *const out = s + m * rows * width + n * 2 * lanes;
                vector sum[rows][2];
                UNROLL for (int i = 0; i < rows; ++i) sum[i][0] = sum[i][1] = SET1(0.0f);
                for (int d = 0; d < depth; ++d) {
                    const vector first = LOAD(panel + d * 2 * lanes), second = LOAD(panel + d * 2 * lanes + lanes);
                    UNROLL for (int i = 0; i < rows; ++i) {
                        const vector x = SET1(left[i * depth + d]);
                        sum[i][0] = FMA(x, first, sum[i][0]);
                        sum[i][1] = FMA(x, second, sum[i][1]);
                    }
                }
                UNROLL for (int i = 0; i < rows; ++i)
                    UNROLL for (int v = 0; v < 2; ++v) STORE(out + i * width + v * lanes, sum[i][v]);
            }
    return 2.0 * blocks * rows * depth * width * (double)rounds;
}
