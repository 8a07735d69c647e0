// Vectors of 16 pairs of bfloat16: AVX512-BF16.
typedef __m512i pair_vec;

// As bfloat16.hpp rounds; what is subnormal becomes 0.
INLINE __m256i narrow(vec x) { return (__m256i)_mm512_cvtneps_pbh(x); }
INLINE void store(bfloat16 *p, __m256i x) { _mm256_storeu_si256((__m256i *)p, x); }

INLINE pair_vec load_pairs(const bfloat16 *p) { return _mm512_loadu_si512(p); }
INLINE pair_vec all_pairs(const bfloat16 *p) {  // the pair at p, 16 times
  int pair;
  memcpy(&pair, p, sizeof pair);
  return _mm512_set1_epi32(pair);
}
// The halves of each pair whose bits are set, and 0 in place of the others.
INLINE pair_vec halves(pair_vec x, uint32_t which) { return _mm512_and_si512(x, _mm512_set1_epi32((int)which)); }

// c and the products of each pair. Both are exact and added in turn, the second first, as Intel's manual has it;
// what is subnormal, a number or a sum, counts as 0.
INLINE vec add_products(vec c, pair_vec a, pair_vec b) { return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b); }

// W numbers at first, each beside its own at second.
template <isize W> INLINE void interleave(bfloat16 *to, const bfloat16 *first, const bfloat16 *second) {
  for (isize n = 0; n < W; n += 16) {
    const __m256i a = _mm256_loadu_si256((const __m256i *)(first + n));
    const __m256i b = _mm256_loadu_si256((const __m256i *)(second + n));
    const __m256i lower = _mm256_unpacklo_epi16(a, b), upper = _mm256_unpackhi_epi16(a, b);  // of each four pairs
    _mm256_storeu_si256((__m256i *)(to + 2 * n), _mm256_permute2x128_si256(lower, upper, 0x20));
    _mm256_storeu_si256((__m256i *)(to + 2 * n + 16), _mm256_permute2x128_si256(lower, upper, 0x31));
  }
}
