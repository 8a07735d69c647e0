// The most that one thread can read: several streams through one array, each fetched ahead of its loads.
//
// One stream waits for the hardware's prefetchers; with eight, each fetched a kilobyte ahead, enough cache
// lines are on their way at once. The instruction is spelled out, so that no compiler drops a load.

#include <immintrin.h>
#include <stdint.h>

static const int streams = 8;
static const int64_t line = 64, step = 4 * line, ahead = 1024;

#define READ(address) __asm__ volatile("vpor %1, %0, %0" : "+x"(sum) : "m"(*(const __m256i *)(address)))

// Reads what lies in whole cache lines of ``bytes`` bytes, down to a whole number of steps a stream; returns
// how much that was.
extern "C" int64_t flashgen_read(const char *data, int64_t bytes) {
    __m256i sum = _mm256_setzero_si256();
    const int64_t skip = -(intptr_t)data & (line - 1);
    data += skip;
    const int64_t part = bytes > skip ? (bytes - skip) / streams / step * step : 0;
    for (int64_t at = 0; at < part; at += step) {
        for (int stream = 0; stream < streams; ++stream) {
            const char *block = data + stream * part + at;
            for (int64_t of = 0; of < step; of += line) {
                _mm_prefetch(block + of + ahead, _MM_HINT_T0);
                READ(block + of);
                READ(block + of + line / 2);
            }
        }
    }
    return streams * part;
}
