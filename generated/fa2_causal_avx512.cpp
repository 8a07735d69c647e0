// attention_d64_dv64_f32_causal_bottom_right_q_outer_br64_bc512_lazy_skip_panel32_hoisted_head_avx512
//
// Written by flashgen 0.1.0; to write it again:
//   flashgen emit --target avx512 --head-dim 64 --dtype float32 --causal bottom-right --order q-outer --br 64 --bc 512 --lazy-rescale --causal-skip --panel 32 --hoist-packs --no-group-rows
// Problem: Problem(head_dim=64, head_dim_v=64, dtype='float32', causal='bottom-right')
// Schedule: Schedule(order='q-outer', br=64, bc=512, lazy_rescale=True, causal_skip=True, panel=32, hoist_packs=True, group_rows=False, rescale_threshold=0.0, split_keys=0, fetch_ahead=False, products='float32')
// A remark `by X` names the pass that made what follows; `as stated` is FlashAttention-1's own.
//
// Compile with g++ or clang++ -std=c++17 -O2 -march=x86-64-v4 -mprefer-vector-width=512 -ffp-contract=off -pthread. What is to
// be fused is written so; without -ffp-contract=off compilers fuse more, and not the same in all kernels: results
// then differ in bits.
#include <immintrin.h>
#include <math.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

// A strided array of up to four dimensions; strides count elements, not bytes.
typedef struct flashgen_tensor {
  void *data;
  int64_t size[4];
  int64_t stride[4];
} flashgen_tensor;

// O = softmax(scale * Q K^T) V over the visible keys of each row, and lse, the natural logarithm of the sum
// of the row's exponentials. A row that sees no key gives 0 and -inf. Hq is a multiple of Hkv.
//   q    (B, Hq, Nq, 64)   float32, any strides, as all arrays
//   k    (B, Hkv, Nk, 64)   float32
//   v    (B, Hkv, Nk, 64)   float32
//   o    (B, Hq, Nq, 64)   float32, written; overlaps no other array
//   lse  (B, Hq, Nq)   float32, written
//   scale    what scores are multiplied by, usually 1 / sqrt(64); scale * q and the scores times
//            log2 e stay within float32: up to 2.3e38
//   threads  at most so many; below 1 it counts as 1, above 1024 as 1024
// Returns 0, or 1 where memory could not be had; then o and lse hold nothing of use.
// Memory: 181600 bytes of scratch for each thread, kept for the next call, and arrays while it runs:
//   float k_panels[tiles][16][64][32]
//   float v_panels[tiles][2][512][32]
//   where tiles = ceildiv(Nk, 512)
extern "C" int attention_d64_dv64_f32_causal_bottom_right_q_outer_br64_bc512_lazy_skip_panel32_hoisted_head_avx512(
    const flashgen_tensor *q, const flashgen_tensor *k, const flashgen_tensor *v,
    const flashgen_tensor *o, const flashgen_tensor *lse, float scale, int threads);

namespace {
typedef int64_t isize;
typedef float real;  // what is computed in
constexpr isize lanes = 16, unroll = 4;  // numbers in a vector; vectors that a sweep takes at a time
constexpr isize micro_rows = 14;  // rows of a register block of a matrix product; columns: a panel's
constexpr int max_threads = 1024;
#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")  // a loop over values in registers: at most as many as a vector's lanes, or 16

// Vectors of 16 floats: AVX-512 F, DQ and VL.
typedef __m512 vec;
typedef __mmask16 lanes_mask;
constexpr lanes_mask every = 0xffff;  // g++ 12 takes the unmasked forms' unused operand for uninitialised

INLINE vec all(float x) { return _mm512_set1_ps(x); }
INLINE vec load(const float *p) { return _mm512_loadu_ps(p); }
INLINE void store(float *p, vec x) { _mm512_storeu_ps(p, x); }
INLINE vec fma(vec a, vec b, vec c) { return _mm512_fmadd_ps(a, b, c); }
INLINE vec drop_nan_max(vec x, vec kept) { return _mm512_maskz_max_ps(every, x, kept); }  // kept where x is NaN
INLINE vec choose(lanes_mask m, vec a, vec b) { return _mm512_mask_blend_ps(m, b, a); }
INLINE lanes_mask is_nan(vec x) { return _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q); }
INLINE lanes_mask equal(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_EQ_OQ); }
INLINE lanes_mask at_most(vec a, vec b) { return _mm512_cmp_ps_mask(a, b, _CMP_LE_OQ); }
INLINE float first(vec x) { return _mm_cvtss_f32(_mm512_maskz_extractf32x4_ps(0xf, x, 0)); }
INLINE vec swap_lanes(vec x, int n) {  // lane m is x's lane m ^ n
  const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return _mm512_maskz_permutexvar_ps(every, _mm512_xor_si512(count, _mm512_set1_epi32(n)), x);
}

template <class T> INLINE vec load(const T *p) {  // of 16 bits each
  return _mm512_insertf32x8(_mm512_castps256_ps512(get_8(p)), get_8(p + 8), 1);
}

// Lanes whose column, counted from c, lies in [lo, hi).
INLINE lanes_mask columns(isize c, isize lo, isize hi) {
  const __m512i count = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  const __m512i at = _mm512_add_epi32(count, _mm512_set1_epi32((int)c));
  const lanes_mask from = _mm512_cmpgt_epi32_mask(at, _mm512_set1_epi32((int)lo - 1));
  return _mm512_mask_cmpgt_epi32_mask(from, _mm512_set1_epi32((int)hi), at);
}

// The first n floats; what lies beyond is not read, and 0.
INLINE vec load_first(const float *p, isize n) { return _mm512_maskz_loadu_ps((lanes_mask)((1u << n) - 1), p); }

// Of each four lanes of a and of b the lower or the upper two.
template <bool upper> INLINE vec unpack_pairs(vec a, vec b) {
  const __m512d x = _mm512_castps_pd(a), y = _mm512_castps_pd(b);
  return _mm512_castpd_ps(upper ? _mm512_maskz_unpackhi_pd(0xff, x, y) : _mm512_maskz_unpacklo_pd(0xff, x, y));
}
template <class T> INLINE vec load_first(const T *p, isize n) {
  float x[lanes] = {};
  for (isize i = 0; i < n; ++i) x[i] = get(p + i);
  return load(x);
}

// Lane n is the sum of the lanes of x[n], added in the same order for every n.
INLINE vec totals(const vec (&x)[lanes]) {
  vec pairs[8], fours[4], eights[2];
  UNROLL for (int n = 0; n < 8; ++n)
    pairs[n] = _mm512_maskz_unpacklo_ps(every, x[2 * n], x[2 * n + 1]) +
               _mm512_maskz_unpackhi_ps(every, x[2 * n], x[2 * n + 1]);
  UNROLL for (int n = 0; n < 4; ++n)
    fours[n] = unpack_pairs<false>(pairs[2 * n], pairs[2 * n + 1]) + unpack_pairs<true>(pairs[2 * n], pairs[2 * n + 1]);
  UNROLL for (int n = 0; n < 2; ++n)
    eights[n] = _mm512_maskz_shuffle_f32x4(every, fours[2 * n], fours[2 * n + 1], 0x88) +
                _mm512_maskz_shuffle_f32x4(every, fours[2 * n], fours[2 * n + 1], 0xDD);
  return _mm512_maskz_shuffle_f32x4(every, eights[0], eights[1], 0x88) +
         _mm512_maskz_shuffle_f32x4(every, eights[0], eights[1], 0xDD);
}

// 2^x for every x, as math.hpp says, with y a multiple of 1/16. scalef finds the power of two itself.
INLINE vec exp2(vec x) {
  constexpr int down = _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC;
  const vec roots = _mm512_setr_ps(
      1.0f, 1.0442737f, 1.0905077f, 1.1387886f, 1.1892071f, 1.2418578f, 1.2968396f, 1.3542556f,
      1.4142135f, 1.4768262f, 1.5422108f, 1.6104903f, 1.6817929f, 1.7562522f, 1.8340081f, 1.9152066f);
  const vec r = _mm512_maskz_reduce_ps(every, x, 4 << 4 | down);
  const vec t = _mm512_maskz_add_round_ps(every, x, all(786432.0f), down);  // its low bits hold 16 y
  const vec root = _mm512_maskz_permutexvar_ps(every, _mm512_castps_si512(t), roots);
  vec p = all(0.0566856265f);
  p = fma(p, r, all(0.240182474f));
  p = fma(p, r, all(0.693147719f));
  const lanes_mask kept = _mm512_cmp_ps_mask(x, all(-126.0f), _CMP_NLT_UQ);  // a NaN, too
  return _mm512_maskz_scalef_ps(kept, fma(root, p * r, root), x);
}

// Elementwise functions that are the same on every vector, and on a single number.
INLINE vec maximum(vec a, vec b) { return choose(is_nan(a), a, drop_nan_max(a, b)); }  // a NaN wins
INLINE vec replace(vec x, real from, real to) { return choose(equal(x, all(from)), all(to), x); }
INLINE vec hold(vec held, vec x, real by) { return choose(at_most(x - held, all(by)), held, x); }

// exp2 is in the layer of each kind of vector. x = y + r, with y a multiple of a small fraction and r >= 0,
// and 2^x = 2^y + 2^y r p(r): 2^y is a root of two from a table times a power of two, p goes by Horner's
// rule.
// - It is within 1 ulp where it is a normal number, and 0 below: a product with a subnormal number would cost
//   as much as a hundred others. It is exact at integers, and NaN for NaN.
// - It never falls as x rises. No coefficient is negative, so each of Horner's steps rounds what does not
//   fall as r rises. Where y changes tests look: tests/check_exp2.py at every float, tests/test_double_math.py at
//   the doubles on both sides.

INLINE vec log(vec x) {  // once a row: not worth a polynomial
  real lane[lanes];
  store(lane, x);
  for (isize n = 0; n < lanes; ++n) lane[n] = ::log(lane[n]);
  return load(lane);
}

// How arrays hold numbers: one of them, or eight that lie side by side.
INLINE float get(const float *p) { return *p; }
INLINE void put(float *p, float x) { *p = x; }
INLINE __m256 get_8(const float *p) { return _mm256_loadu_ps(p); }
INLINE void put_8(float *p, __m256 x) { _mm256_storeu_ps(p, x); }

// N numbers that lie side by side, from one type to another.
template <isize N, class To, class From> INLINE void copy(To *to, const From *from) {
  isize n = 0;
  for (; n + 8 <= N; n += 8) put_8(to + n, get_8(from + n));
  for (; n < N; ++n) put(to + n, get(from + n));
}

// Tiles in scratch memory, arrays in memory, and what moves between them.

constexpr isize round_up(isize n, isize to) { return (n + to - 1) / to * to; }
INLINE isize smaller(isize a, isize b) { return a < b ? a : b; }
INLINE isize larger(isize a, isize b) { return a > b ? a : b; }
INLINE isize floordiv(isize a, isize b) {
  if (b == -1) return (isize)-(unsigned long long)a;  // of the least number, too, by which processors trap
  return b ? a / b - (a % b != 0 && (a < 0) != (b < 0)) : 0;
}
INLINE isize ceildiv(isize a, isize b) { return -floordiv(-a, b); }

// R x C, rows S apart. Rows and columns are padded to whole register blocks; the padding holds anything.
template <isize R, isize C, isize S> struct Tile {
  real *const p;
  INLINE explicit Tile(void *memory) : p((real *)memory) {}
  INLINE real *at(isize r, isize c) const { return p + r * S + c; }
};
// One value a row.
template <isize R> struct Rows {
  real *const p;
  INLINE explicit Rows(void *memory) : p((real *)memory) {}
  INLINE real &operator[](isize r) const { return p[r]; }
};
// P panels of K x W: the right side of a product as its register blocks read it.
template <isize P, isize K, isize W> struct Panels {
  real *const p;
  INLINE explicit Panels(void *memory) : p((real *)memory) {}
};
// The columns [lo, hi) that each row may see, lo <= hi; the rows of the padding see none.
template <isize R> struct Spans {
  isize *const p;
  INLINE explicit Spans(void *memory) : p((isize *)memory) {
    for (isize r = R; r < round_up(R, micro_rows); ++r) p[2 * r] = p[2 * r + 1] = 0;
  }
  INLINE isize lo(isize r) const { return p[2 * r]; }
  INLINE isize hi(isize r) const { return p[2 * r + 1]; }
  // The columns [lo, hi) of the whole matrix, as those of a tile of `width` columns from `first` on.
  INLINE void set(isize r, isize first, isize lo, isize hi, isize width) const {
    p[2 * r] = smaller(larger(lo - first, 0), width);
    p[2 * r + 1] = smaller(larger(hi - first, p[2 * r]), width);
  }
};

// N dimensions of numbers of type T, sizes and strides in elements.
template <class T, int N> struct Array {
  T *p;
  isize size[N], stride[N];
  INLINE T *at(const isize (&index)[N]) const {
    T *here = p;
    for (int n = 0; n < N; ++n) here += index[n] * stride[n];
    return here;
  }
  // What lies r rows further on, where dimension d counts rows.
  INLINE T *row(const isize (&index)[N], int d, isize r) const { return at(index) + r * stride[d]; }
};
template <class T, int N> INLINE Array<T, N> array(const flashgen_tensor *t) {
  Array<T, N> a;
  a.p = (T *)t->data;
  for (int n = 0; n < N; ++n) a.size[n] = t->size[n], a.stride[n] = t->stride[n];
  return a;
}

// A tile that is used where it lies: `rows` of it are inside the array.
template <class T> struct View {
  const T *p;
  isize rows, row_stride, col_stride;
  INLINE const T *row(isize r) const { return p + r * row_stride; }
  // The end of at most so many rows from r on that are evenly spaced.
  INLINE isize stretch(isize r, isize most) const { return smaller(r + most, rows); }
};
template <class T, int N> INLINE View<T> view(const Array<T, N> &a, const isize (&index)[N], isize rows) {
  const isize inside = larger(0, smaller(rows, a.size[N - 2] - index[N - 2]));
  return {inside ? a.at(index) : a.p, inside, a.stride[N - 2], a.stride[N - 1]};
}

// Moves between tiles and arrays: rows that lie outside the array read as 0 and are not written.
template <isize R, isize C, isize S, template <class, int> class A, class T, int N>
INLINE void read(Tile<R, C, S> t, const A<T, N> &a, const isize (&index)[N]) {
  const isize rows = larger(0, smaller(R, a.size[N - 2] - index[N - 2])), each = a.stride[N - 1];
  for (isize r = 0; r < rows; ++r) {
    const T *const from = a.row(index, N - 2, r);
    if (each == 1)
      copy<C>(t.at(r, 0), from);
    else
      for (isize c = 0; c < C; ++c) *t.at(r, c) = get(from + c * each);
  }
  for (isize r = rows; r < R; ++r) memset(t.at(r, 0), 0, C * sizeof(real));
}
template <isize R, template <class, int> class A, class T, int N>
INLINE void read(Rows<R> t, const A<T, N> &a, const isize (&index)[N]) {
  const isize rows = larger(0, smaller(R, a.size[N - 1] - index[N - 1]));
  for (isize r = 0; r < rows; ++r) t[r] = get(a.row(index, N - 1, r));
  for (isize r = rows; r < R; ++r) t[r] = real(0);
}
template <isize R, isize C, isize S, template <class, int> class A, class T, int N>
INLINE void write(Tile<R, C, S> t, const A<T, N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 2] - index[N - 2]), each = a.stride[N - 1];
  for (isize r = 0; r < rows; ++r) {
    T *const to = a.row(index, N - 2, r);
    if (each == 1)
      copy<C>(to, t.at(r, 0));
    else
      for (isize c = 0; c < C; ++c) put(to + c * each, *t.at(r, c));
  }
}
template <isize R, template <class, int> class A, class T, int N>
INLINE void write(Rows<R> t, const A<T, N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 1] - index[N - 1]);
  for (isize r = 0; r < rows; ++r) put(a.row(index, N - 1, r), t[r]);
}

// The extents of a tile that has no memory of its own: x in all of its elements.
template <isize... extents> struct Shape {};
template <isize R, isize C, template <class, int> class A, class T, int N>
INLINE void fill(Shape<R, C>, real x, const A<T, N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 2] - index[N - 2]);
  for (isize r = 0; r < rows; ++r) {
    T *const to = a.row(index, N - 2, r);
    for (isize c = 0; c < C; ++c) put(to + c * a.stride[N - 1], x);
  }
}
template <isize R, template <class, int> class A, class T, int N>
INLINE void fill(Shape<R>, real x, const A<T, N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 1] - index[N - 1]);
  for (isize r = 0; r < rows; ++r) put(a.row(index, N - 1, r), x);
}

// Rows times a factor each; a row whose factor is 1 is left alone, for x * 1 is x.
template <isize R, isize C, isize S> INLINE void scale_rows(Tile<R, C, S> t, Rows<R> factor) {
  for (isize r = 0; r < R; ++r)
    if (factor[r] != real(1))
      for (isize c = 0; c < C; c += lanes) store(t.at(r, c), load(t.at(r, c)) * all(factor[r]));
}

// Square blocks of floats, as packing turns them.

// A block of 8 x 8 numbers: out[c][r] = in[r][c].
constexpr isize square = 8;
template <class T> INLINE void transpose(float *out, isize out_stride, const T *in, isize in_stride) {
  __m256 a[8], b[8];
  UNROLL for (int i = 0; i < 8; ++i) a[i] = get_8(in + i * in_stride);
  UNROLL for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
  UNROLL for (int i = 0; i < 8; i += 4)
    UNROLL for (int j = 0; j < 2; ++j) {
      a[i + 2 * j] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0x44);
      a[i + 2 * j + 1] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0xEE);
    }
  UNROLL for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * out_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * out_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
  }
}

// Panels of the right side of a product, read from where it lies in memory. Columns beyond the last are 0.

// Rows r to r + square of `in`, whose columns are adjacent, as columns: out[k][x] = in[r + x][k], W apart, as far
// as whole blocks go. Returns how many k that is.
template <isize K, isize W, class T> INLINE isize turn(real *out, const View<T> &in, isize r) {
  isize k = 0;
  for (; k + square <= K; k += square) transpose(out + k * W, W, in.row(r) + k, in.row_stride);
  return k;
}

// Panels of rows: out[a][d][x] = in[W a + x][d].
template <isize P, isize K, isize W, class In> INLINE void pack_transposed(Panels<P, K, W> out, const In &in) {
  const isize panels = smaller(P, ceildiv(in.rows, W));  // that hold something
  for (isize n = 0; n < panels * W; n += square) {
    real *const to = out.p + n / W * (K * W) + n % W;
    const bool whole = in.col_stride == 1 && n + square <= in.rows;
    for (isize k = whole ? turn<K, W>(to, in, n) : 0; k < K; ++k)
      for (isize x = 0; x < square; ++x)
        to[k * W + x] = n + x < in.rows ? get(in.row(n + x) + k * in.col_stride) : real(0);
  }
  memset(out.p + panels * K * W, 0, (P - panels) * K * W * sizeof(real));
}

// Panels of columns: out[a][k][x] = in[k][W a + x], where `in` has C columns; row by row, as they lie in memory.
template <isize C, isize P, isize K, isize W, class In> INLINE void pack(Panels<P, K, W> out, const In &in) {
  for (isize k = 0; k < in.rows; ++k) {
    const auto *const row = in.row(k);
    for (isize a = 0; a < P; ++a) {
      real *const to = out.p + (a * K + k) * W;
      const auto *const from = row + a * W * in.col_stride;
      if (in.col_stride == 1 && (a + 1) * W <= C)
        copy<W>(to, from);
      else
        for (isize x = 0; x < W; ++x) to[x] = a * W + x < C ? get(from + x * in.col_stride) : real(0);
    }
  }
  for (isize a = 0; a < P; ++a) memset(out.p + (a * K + in.rows) * W, 0, (K - in.rows) * W * sizeof(real));
}

// Matrix products: a tile times panels, in register blocks of micro_rows x W; the last may have fewer rows.

// Of a group of rows: [lo, hi) holds every column that some row sees, [full_lo, full_hi) only columns that
// all of them see.
struct Hull {
  isize lo, full_lo, full_hi, hi;
};
template <isize R> INLINE Hull hull(Spans<R> s, isize r) {
  Hull h = {s.lo(r), s.lo(r), s.hi(r), s.hi(r)};
  for (isize n = r + 1; n < smaller(r + micro_rows, R); ++n) {
    h.full_lo = larger(h.full_lo, s.lo(n));
    h.full_hi = smaller(h.full_hi, s.hi(n));
    if (s.lo(n) == s.hi(n)) continue;
    h.lo = h.lo == h.hi ? s.lo(n) : smaller(h.lo, s.lo(n));
    h.hi = larger(h.hi, s.hi(n));
  }
  if (h.full_lo >= h.full_hi) h.full_lo = h.full_hi = h.hi;  // no column that all see
  return h;
}

template <isize R> INLINE void hulls(Spans<R> s, Hull *groups) {
  for (isize r = 0; r < R; r += micro_rows) groups[r / micro_rows] = hull(s, r);
}

// The accumulators of a register block of M rows x NV vectors.
template <int M, int NV> struct Block {
  vec c[M][NV];
  INLINE void clear() {
    UNROLL for (int i = 0; i < M; ++i)
      UNROLL for (int v = 0; v < NV; ++v) c[i][v] = all(real(0));
  }
  INLINE void load_from(const real *p, isize stride) {
    UNROLL for (int i = 0; i < M; ++i)
      UNROLL for (int v = 0; v < NV; ++v) c[i][v] = load(p + i * stride + v * lanes);
  }
  INLINE void store_to(real *p, isize stride) const {
    UNROLL for (int i = 0; i < M; ++i)
      UNROLL for (int v = 0; v < NV; ++v) store(p + i * stride + v * lanes, c[i][v]);
  }
  // One step of the contraction: a column of the left side times a row of the panel.
  INLINE void step(const real *a, isize a_stride, const real *b) {
    vec row[NV];
    UNROLL for (int v = 0; v < NV; ++v) row[v] = load(b + v * lanes);
    UNROLL for (int i = 0; i < M; ++i) {
      const vec x = all(a[i * a_stride]);
      UNROLL for (int v = 0; v < NV; ++v) c[i][v] = fma(x, row[v], c[i][v]);
    }
  }
  // The same, for the rows that see column k.
  template <isize R>
  INLINE void step_seen(const real *a, isize a_stride, const real *b, Spans<R> s, isize r, isize k) {
    UNROLL for (int i = 0; i < M; ++i)
      if (s.lo(r + i) <= k && k < s.hi(r + i))
        UNROLL for (int v = 0; v < NV; ++v) c[i][v] = fma(all(a[i * a_stride]), load(b + v * lanes), c[i][v]);
  }
};

// Which part of a product is wanted, for a group of rows from r on; see the operands of tile.dot.
struct Everything {
  template <isize K> INLINE Hull contraction(isize) const { return {0, 0, K, K}; }
  INLINE bool wants(isize, isize, isize) const { return true; }
};
template <isize R> struct Only {  // result columns in the span
  Hull groups[(R + micro_rows - 1) / micro_rows];
  INLINE explicit Only(Spans<R> s) { hulls(s, groups); }
  template <isize K> INLINE Hull contraction(isize) const { return {0, 0, K, K}; }
  INLINE bool wants(isize r, isize c, isize width) const {
    const Hull &h = groups[r / micro_rows];
    return c < h.hi && h.lo < c + width;
  }
};
template <isize R> struct Over {  // steps of the contraction in the span
  Spans<R> span;
  Hull groups[(R + micro_rows - 1) / micro_rows];
  INLINE explicit Over(Spans<R> s) : span(s) { hulls(s, groups); }
  template <isize K> INLINE Hull contraction(isize r) const { return groups[r / micro_rows]; }
  INLINE bool wants(isize, isize, isize) const { return true; }
};

// The steps lo <= k < hi that every row takes.
template <int M, int NV>
INLINE void steps(Block<M, NV> &block, const real *a, isize a_stride, const real *b, isize lo, isize hi) {
#pragma GCC unroll 4
  for (isize k = lo; k < hi; ++k) block.step(a + k, a_stride, b + k * NV * lanes);
}
// The steps lo <= k < hi that some rows take.
template <int M, int NV, isize R>
INLINE void ragged_steps(Block<M, NV> &block, const real *a, isize a_stride, const real *b, isize lo, isize hi,
                         const Over<R> &part, isize r) {
  for (isize k = lo; k < hi; ++k) block.step_seen(a + k, a_stride, b + k * NV * lanes, part.span, r, k);
}
template <int M, int NV, class Part>
INLINE void ragged_steps(Block<M, NV> &, const real *, isize, const real *, isize, isize, const Part &, isize) {}

// Rows r to r + M of one panel's part of the product.
template <bool accumulate, int M, isize K, int NV, class Part>
INLINE void block_product(real *out, isize out_stride, const real *a, isize a_stride, const real *panel,
                          const Part &part, isize r) {
  const Hull h = part.template contraction<K>(r);
  Block<M, NV> block;
  if (accumulate)
    block.load_from(out, out_stride);
  else
    block.clear();
  ragged_steps(block, a, a_stride, panel, h.lo, h.full_lo, part, r);
  steps(block, a, a_stride, panel, h.full_lo, h.full_hi);
  ragged_steps(block, a, a_stride, panel, h.full_hi, h.hi, part, r);
  block.store_to(out, out_stride);
}

// A tile of R x C numbers that is wanted soon, brought into the second-level cache in equal parts beside a product's
// register blocks: few lines can be waited for at a time, and a panel stays in the first-level cache.
template <isize R, isize C, class V> struct Fetch {
  const V tile;
  INLINE void part(isize n, isize of) const {
    constexpr isize line = 64 / (isize)sizeof(*tile.p);
    const isize end = tile.col_stride == 1 ? smaller((n + 1) * R / of, tile.rows) : 0;
    for (isize r = n * R / of; r < end; ++r)
      UNROLL for (isize c = 0; c < C; c += line) _mm_prefetch((const char *)(tile.row(r) + c), _MM_HINT_T1);
  }
};
template <isize R, isize C, class A, int N> INLINE auto fetch(const A &a, const isize (&index)[N]) {
  const auto tile = view(a, index, R);
  return Fetch<R, C, decltype(tile)>{tile};
}

// out = a b, or out + a b: panels outermost, so that one panel stays in the first-level cache.
template <bool accumulate, isize R, isize C, isize SO, isize K, isize SA, isize P, isize W, class Part, class... Ahead>
INLINE void product(Tile<R, C, SO> out, Tile<R, K, SA> a, Panels<P, K, W> b, const Part &part, const Ahead &...ahead) {
  static_assert(P * W <= SO && W % lanes == 0, "the panels fit in a padded row");
  constexpr isize rest = R % micro_rows, each = (R + micro_rows - 1) / micro_rows;
  for (isize n = 0, block = 0; n < P; ++n) {
    const real *const panel = b.p + n * K * W;
    for (isize r = 0; r < R - rest; r += micro_rows, ++block) {
      (ahead.part(block, P * each), ...);
      if (part.wants(r, n * W, W))
        block_product<accumulate, micro_rows, K, W / lanes>(out.at(r, n * W), SO, a.at(r, 0), SA, panel, part, r);
    }
    if constexpr (rest > 0) {
      (ahead.part(block++, P * each), ...);
      if (constexpr isize r = R - rest; part.wants(r, n * W, W))
        block_product<accumulate, rest, K, W / lanes>(out.at(r, n * W), SO, a.at(r, 0), SA, panel, part, r);
    }
  }
}

// One pass over the columns of a row, and the reductions that it feeds.

// Column c of a row always goes to accumulator c / lanes mod 4, whatever the span: a skipped tile or a
// narrower span changes no bit of a result.
static_assert(unroll == 4, "total() adds up four");

struct Add {
  static constexpr real neutral = real(0);
  INLINE static vec combine(vec x, vec kept) { return x + kept; }
};
struct Max {  // a NaN wins
  static constexpr real neutral = -INFINITY;
  INLINE static vec combine(vec x, vec kept) { return maximum(x, kept); }
};
struct MaxNum {  // a NaN is passed over
  static constexpr real neutral = -INFINITY;
  INLINE static vec combine(vec x, vec kept) { return drop_nan_max(x, kept); }
};

template <class Op> struct Reduction {
  vec partial[unroll];
  INLINE Reduction() {
    UNROLL for (isize u = 0; u < unroll; ++u) partial[u] = all(Op::neutral);
  }
  // `seen` are the lanes within the span.
  template <class Seen> INLINE void take(isize u, Seen seen, vec x) {
    partial[u] = Op::combine(seen(x, Op::neutral), partial[u]);
  }
  INLINE real total() const {
    vec x = Op::combine(Op::combine(partial[0], partial[1]), Op::combine(partial[2], partial[3]));
    UNROLL for (int half = lanes / 2; half; half /= 2) x = Op::combine(x, swap_lanes(x, half));
    return first(x);
  }
};

// Calls step(c, u, seen) for vectors at columns c that cover [lo, hi), u = c / lanes mod unroll. At the ends
// whole vectors are taken that reach beyond: there `seen` puts the neutral value in place of what is not
// in the span, elsewhere it passes everything.
template <class Step> INLINE void sweep(isize lo, isize hi, Step step) {
  constexpr isize width = unroll * lanes;
  const auto whole = [](vec x, real) INLINE_LAMBDA { return x; };
  const auto ragged = [&](isize c) INLINE_LAMBDA {
    UNROLL for (isize u = 0; u < unroll; ++u, c += lanes) {
      const lanes_mask inside = columns(c, lo, hi);
      step(c, u, [&](vec x, real neutral) INLINE_LAMBDA { return choose(inside, x, all(neutral)); });
    }
  };
  isize c = lo / width * width;
  if (c < lo && lo < hi) ragged(c), c += width;
  for (; c + width <= hi; c += width)
    UNROLL for (isize u = 0; u < unroll; ++u) step(c + u * lanes, u, whole);
  if (c < hi) ragged(c);
}

// Memory of the kernel's own: scratch memory for the tiles of a thread, and arrays.

// Scratch memory of calls that are over, for the next ones.
void *kept_scratch[max_threads];

struct Scratch {
  char *const p;  // null where there is none to be had
  explicit Scratch(size_t bytes) : p(take(bytes)) {}
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  ~Scratch() {
    void *rest = p;
    for (int n = 0; rest && n < max_threads; ++n)
      if (!__atomic_load_n(&kept_scratch[n], __ATOMIC_RELAXED))
        rest = __atomic_exchange_n(&kept_scratch[n], rest, __ATOMIC_ACQ_REL);
    free(rest);
  }
  static char *take(size_t bytes) {
    void *kept = 0;
    for (int n = 0; !kept && n < max_threads; ++n)
      if (__atomic_load_n(&kept_scratch[n], __ATOMIC_RELAXED))
        kept = __atomic_exchange_n(&kept_scratch[n], (void *)0, __ATOMIC_ACQ_REL);
    return (char *)(kept ? kept : aligned_alloc(64, round_up(bytes, 64)));
  }
};

// What a thread's arrays have given back, for its next ones: memory that is fresh costs a page fault every 4 KiB.
struct Pool {
  static constexpr int most = 8;
  struct Piece {
    void *p;
    size_t bytes;
  } pieces[most] = {};

  Pool() = default;
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;
  ~Pool() {
    for (Piece &piece : pieces) free(piece.p);
  }
  void *take(size_t bytes) {
    for (Piece &piece : pieces)
      if (piece.p && piece.bytes == bytes) {
        void *const p = piece.p;
        piece.p = 0;
        return p;
      }
    return aligned_alloc(64, bytes);
  }
  void give(void *p, size_t bytes) {
    for (Piece &piece : pieces)
      if (!piece.p) {
        piece = {p, bytes};
        return;
      }
    free(p);
  }
};

// An array; p is null where there is no memory to be had.
template <int N, class T = real> struct Workspace : Array<T, N> {
  Pool &pool;
  size_t bytes;
  Workspace(Pool &from, const isize (&extents)[N]) : pool(from) {
    isize count = 1, wanted;
    bool too_large = false;  // for any memory
    for (int n = N; n-- > 0; too_large |= __builtin_mul_overflow(count, extents[n], &count))
      this->size[n] = extents[n], this->stride[n] = count;
    too_large |= __builtin_mul_overflow(larger(count, 1), (isize)sizeof(T), &wanted);
    bytes = too_large ? 0 : round_up(wanted, 64);
    this->p = too_large ? 0 : (T *)pool.take(bytes);
  }
  Workspace(const Workspace &) = delete;
  Workspace &operator=(const Workspace &) = delete;
  ~Workspace() {
    if (this->p) pool.give(this->p, bytes);
  }
};

// Independent iterations over threads.

// The threads that share an iteration; the calling one has this memory.
struct Team {
  int threads;
  size_t bytes;  // of each thread's scratch memory
  char *scratch;
  Pool *pool;
};

// N nested loops from 0 to stop[n] in steps of step[n], flattened.
template <int N> struct Nest {
  isize stop[N], step[N];
  INLINE isize trips(int n) const { return ceildiv(stop[n], step[n]); }
  isize count() const {
    isize all_trips = 1;
    for (int n = 0; n < N; ++n) all_trips *= trips(n);
    return all_trips;
  }
  INLINE void locate(isize iteration, isize (&at)[N]) const {
    for (int n = N; n-- > 0; iteration /= trips(n)) at[n] = iteration % trips(n) * step[n];
  }
};

// Iterations from `next` to `end`; the team of each has `each` threads, those before `larger_to` one more.
template <int N, class Body> struct Work {
  const Nest<N> &nest;
  const Body &body;
  size_t bytes;
  isize next;
  const isize end, larger_to;
  const int each;
  int failed;
};

// Iterations one by one until none is left, whoever takes them.
template <int N, class Body> INLINE void take_part(Work<N, Body> &work, char *scratch, Pool *pool) {
  for (;;) {
    const isize iteration = __atomic_fetch_add(&work.next, 1, __ATOMIC_RELAXED);
    if (iteration >= work.end) return;
    isize at[N];
    work.nest.locate(iteration, at);
    const Team team = {work.each + (iteration < work.larger_to), work.bytes, scratch, pool};
    if (work.body(at, team)) __atomic_store_n(&work.failed, 1, __ATOMIC_RELAXED);
  }
}
template <int N, class Body> void *join_in(void *shared) {
  Work<N, Body> &work = *(Work<N, Body> *)shared;
  const Scratch scratch(work.bytes);
  Pool pool;
  if (scratch.p) take_part(work, scratch.p, &pool);
  return 0;
}

// The calling thread and others, `threads` in all, take part. Those that cannot be started, or have no
// memory, are done without.
template <int N, class Body> int share(Work<N, Body> &work, isize threads, const Team &team) {
  pthread_t started[max_threads];
  const isize wanted = smaller(smaller(threads, max_threads), work.end - work.next);
  int others = 0;
  while (others + 1 < wanted && !pthread_create(&started[others], 0, join_in<N, Body>, &work)) ++others;
  take_part(work, team.scratch, team.pool);
  for (int t = 0; t < others; ++t) pthread_join(started[t], 0);
  return work.failed;
}

// body(at, team) for every iteration of the nest, each on one thread; it returns 0, or 1 where it had not
// the memory that it needs. Returns 1 if some iteration did.
template <int N, class Body> int parallel(const Nest<N> &nest, const Team &team, const Body &body) {
  Work<N, Body> work = {nest, body, team.bytes, 0, nest.count(), 0, 1, 0};
  return share(work, team.threads, team);
}

// The same, for iterations that threads can share: when fewer are left than there are threads, each gets its
// part of them.
template <int N, class Body> int parallel_teams(const Nest<N> &nest, const Team &team, const Body &body) {
  const isize count = nest.count(), left = count % team.threads, even = count - left;
  Work<N, Body> single = {nest, body, team.bytes, 0, even, 0, 1, 0};
  if (share(single, team.threads, team) || !left) return single.failed;
  const isize larger_to = even + team.threads % left;
  Work<N, Body> shared = {nest, body, team.bytes, even, count, larger_to, (int)(team.threads / left), 0};
  return share(shared, left, team);
}
}  // namespace

extern "C" int attention_d64_dv64_f32_causal_bottom_right_q_outer_br64_bc512_lazy_skip_panel32_hoisted_head_avx512(
    const flashgen_tensor *q_tensor, const flashgen_tensor *k_tensor, const flashgen_tensor *v_tensor,
    const flashgen_tensor *o_tensor, const flashgen_tensor *lse_tensor, float scale, int threads) {
  const auto q = array<float, 4>(q_tensor);
  const auto k = array<float, 4>(k_tensor);
  const auto v = array<float, 4>(v_tensor);
  const auto o = array<float, 4>(o_tensor);
  const auto lse = array<float, 3>(lse_tensor);
  const Scratch scratch(181600);
  if (!scratch.p) return 1;
  Pool pool;
  const Team team = {(int)larger(1, smaller(threads, max_threads)), 181600, scratch.p, &pool};
  // as stated
  const isize B = q.size[0];
  const isize Hq = q.size[1];
  const isize Hkv = k.size[1];
  const isize Nq = q.size[2];
  const isize Nk = k.size[2];
  const isize offset = Nk - Nq;
  const isize group = floordiv(Hq, Hkv);
  // by fold-scale
  const auto factor = scale * 1.44269504f;
  // by parallel-loops
  if (parallel_teams(Nest<2>{{B, Hkv}, {1, 1}}, team, [&](const isize (&at_3)[2], const Team &team_1) {
    (void)team_1;
    const isize b = at_3[0];
    const isize g = at_3[1];
    // by hoist-packs
    const isize tiles = ceildiv(Nk, 512);
    const Workspace<4> k_panels(*team_1.pool, {tiles, 16, 64, 32});
    if (!k_panels.p) return 1;
    const Workspace<4> v_panels(*team_1.pool, {tiles, 2, 512, 32});
    if (!v_panels.p) return 1;
    // by hoist-packs, parallel-loops
    if (parallel(Nest<1>{{tiles}, {1}}, team_1, [&](const isize (&at_1)[1], const Team &team_2) {
      (void)team_2;
      const isize t = at_1[0];
      // by hoist-packs
      const isize j = t * 512;
      // by pack, hoist-packs
      const Panels<16, 64, 32> kj_panels(k_panels.at({t, 0, 0, 0}));
      pack_transposed(kj_panels, view(k, {b, g, j, 0}, 512));
      const Panels<2, 512, 32> vj_panels(v_panels.at({t, 0, 0, 0}));
      pack<64>(vj_panels, view(v, {b, g, j, 0}, 512));
      return 0;
    })) return 1;
    // by interchange, fuse-loops, parallel-loops
    if (parallel(Nest<2>{{group, Nq}, {1, 64}}, team_1, [&](const isize (&at_2)[2], const Team &team_3) {
      (void)team_3;
      const isize r = at_2[0];
      const isize i = at_2[1];
      // as stated
      const isize h = (g * group) + r;
      const Tile<64, 64, 64> qi(team_3.scratch + 0);
      read(qi, q, {b, h, i, 0});
      // by fold-scale
      const Tile<64, 64, 64> qis(team_3.scratch + 0);
      for (isize y = 0; y < 64; ++y)
        for (isize x = 0; x < 64; x += lanes)
          store(qis.at(y, x), load(qi.at(y, x)) * all(factor));
      // by causal-skip
      const isize whole_to = larger(0, smaller(smaller(floordiv(Nk, 512) * 512, ((i + 64) <= Nq) ? Nk : 0), floordiv((offset + i) + 1, 512) * 512));
      const isize seen_to = smaller(Nk, floordiv((offset + i) + 575, 512) * 512);
      // as stated
      const Tile<64, 64, 64> acc(team_3.scratch + 17920);
      for (isize y = 0; y < 64; ++y)
        for (isize x = 0; x < 64; x += lanes)
          store(acc.at(y, x), all(0.0f));
      const Rows<64> l(team_3.scratch + 35840);
      for (isize y = 0; y < 64; y += lanes) store(l.p + y, all(0.0f));
      const Rows<64> m(team_3.scratch + 36096);
      for (isize y = 0; y < 64; y += lanes) store(m.p + y, all(-INFINITY));
      // by interchange, keep-state, causal-skip
      for (isize j_1 = 0; j_1 < whole_to; j_1 += 512) {
        // by hoist-packs
        const isize t_1 = floordiv(j_1, 512);
        // by pack, hoist-packs
        const Panels<16, 64, 32> kj_panels_1(k_panels.at({t_1, 0, 0, 0}));
        const Panels<2, 512, 32> vj_panels_1(v_panels.at({t_1, 0, 0, 0}));
        // by pack
        const Tile<64, 512, 512> s(team_3.scratch + 36352);
        product<false>(s, qis, kj_panels_1, Everything());
        // by nan-in-sum, fuse-sweeps
        const Rows<64> m_tile(team_3.scratch + 179712);
        for (isize y = 0; y < 64; ++y) {
          Reduction<MaxNum> m_tile_row;
          sweep(0, 512, [&](isize x, isize u, auto seen) INLINE_LAMBDA {
            const vec s_1 = load(s.at(y, x));
            m_tile_row.take(u, seen, s_1);
          });
          m_tile[y] = m_tile_row.total();
        }
        // as stated
        const Rows<64> m_new(team_3.scratch + 179712);
        for (isize y = 0; y < 64; y += lanes) store(m_new.p + y, maximum(load(m.p + y), load(m_tile.p + y)));
        const Rows<64> top(team_3.scratch + 179968);
        for (isize y = 0; y < 64; y += lanes) store(top.p + y, replace(load(m_new.p + y), -INFINITY, 0.0f));
        // by lazy-rescale, base-2, fuse-sweeps
        const Tile<64, 512, 512> p(team_3.scratch + 36352);
        const Rows<64> l_tile(team_3.scratch + 180224);
        for (isize y = 0; y < 64; ++y) {
          const vec top_1 = all(top[y]);
          Reduction<Add> l_tile_row;
          sweep(0, 512, [&](isize x, isize u, auto seen) INLINE_LAMBDA {
            const vec s_2 = load(s.at(y, x));
            const auto p_1 = exp2(s_2 - top_1);
            store(p.at(y, x), p_1);
            l_tile_row.take(u, seen, p_1);
          });
          l_tile[y] = l_tile_row.total();
        }
        // by base-2
        const Rows<64> alpha(team_3.scratch + 179968);
        for (isize y = 0; y < 64; y += lanes) store(alpha.p + y, exp2(load(m.p + y) - load(top.p + y)));
        // as stated
        const Rows<64> l_new(team_3.scratch + 35840);
        for (isize y = 0; y < 64; y += lanes) store(l_new.p + y, (load(l.p + y) * load(alpha.p + y)) + load(l_tile.p + y));
        // by lazy-rescale, accumulate
        scale_rows(acc, alpha);
        // by lazy-rescale, pack, causal-skip, accumulate
        product<true>(acc, p, vj_panels_1, Everything());
        // as stated
        for (isize y = 0; y < 64; y += lanes) store(m.p + y, load(m_new.p + y));
      }
      // by interchange, keep-state, causal-skip
      for (isize j_2 = whole_to; j_2 < seen_to; j_2 += 512) {
        // by hoist-packs
        const isize t_2 = floordiv(j_2, 512);
        // by pack, hoist-packs
        const Panels<16, 64, 32> kj_panels_2(k_panels.at({t_2, 0, 0, 0}));
        const Panels<2, 512, 32> vj_panels_2(v_panels.at({t_2, 0, 0, 0}));
        // by mask-to-spans
        const Spans<64> span(team_3.scratch + 180480);
        for (isize y = 0; y < 64; ++y) {
          const isize row = i + y;
          span.set(y, j_2, j_2, (row < Nq) ? smaller(Nk, (row + offset) + 1) : j_2, 512);
        }
        // by pack, mask-to-spans
        const Tile<64, 512, 512> s_3(team_3.scratch + 36352);
        product<false>(s_3, qis, kj_panels_2, Only<64>(span));
        // by nan-in-sum, mask-to-spans, fuse-sweeps
        const Rows<64> m_tile_1(team_3.scratch + 179712);
        for (isize y = 0; y < 64; ++y) {
          Reduction<MaxNum> m_tile_1_row;
          sweep(span.lo(y), span.hi(y), [&](isize x, isize u, auto seen) INLINE_LAMBDA {
            const vec s_4 = load(s_3.at(y, x));
            m_tile_1_row.take(u, seen, s_4);
          });
          m_tile_1[y] = m_tile_1_row.total();
        }
        // as stated
        const Rows<64> m_new_1(team_3.scratch + 179712);
        for (isize y = 0; y < 64; y += lanes) store(m_new_1.p + y, maximum(load(m.p + y), load(m_tile_1.p + y)));
        const Rows<64> top_2(team_3.scratch + 179968);
        for (isize y = 0; y < 64; y += lanes) store(top_2.p + y, replace(load(m_new_1.p + y), -INFINITY, 0.0f));
        // by lazy-rescale, base-2, mask-to-spans, fuse-sweeps
        const Tile<64, 512, 512> p_2(team_3.scratch + 36352);
        const Rows<64> l_tile_1(team_3.scratch + 180224);
        for (isize y = 0; y < 64; ++y) {
          const vec top_3 = all(top_2[y]);
          Reduction<Add> l_tile_1_row;
          sweep(span.lo(y), span.hi(y), [&](isize x, isize u, auto seen) INLINE_LAMBDA {
            const vec s_5 = load(s_3.at(y, x));
            const auto p_3 = exp2(s_5 - top_3);
            store(p_2.at(y, x), p_3);
            l_tile_1_row.take(u, seen, p_3);
          });
          l_tile_1[y] = l_tile_1_row.total();
        }
        // by base-2
        const Rows<64> alpha_1(team_3.scratch + 179968);
        for (isize y = 0; y < 64; y += lanes) store(alpha_1.p + y, exp2(load(m.p + y) - load(top_2.p + y)));
        // as stated
        const Rows<64> l_new_1(team_3.scratch + 35840);
        for (isize y = 0; y < 64; y += lanes) store(l_new_1.p + y, (load(l.p + y) * load(alpha_1.p + y)) + load(l_tile_1.p + y));
        // by lazy-rescale, accumulate
        scale_rows(acc, alpha_1);
        // by lazy-rescale, pack, mask-to-spans, accumulate
        product<true>(acc, p_2, vj_panels_2, Over<64>(span));
        // as stated
        for (isize y = 0; y < 64; y += lanes) store(m.p + y, load(m_new_1.p + y));
      }
      // by reciprocal
      const Rows<64> inverse(team_3.scratch + 179712);
      for (isize y = 0; y < 64; y += lanes) store(inverse.p + y, all(1.0f) / replace(load(l.p + y), 0.0f, 1.0f));
      // by lazy-rescale, reciprocal, accumulate
      scale_rows(acc, inverse);
      // as stated
      write(acc, o, {b, h, i, 0});
      const Rows<64> lse_i(team_3.scratch + 36096);
      for (isize y = 0; y < 64; y += lanes) store(lse_i.p + y, (replace(load(m.p + y), -INFINITY, 0.0f) * all(0.693147181f)) + log(load(l.p + y)));
      write(lse_i, lse, {b, h, i});
      return 0;
    })) return 1;
    return 0;
  })) return 1;
  return 0;
}
