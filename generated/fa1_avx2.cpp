// attention_d64_dv64_f32_full_kv_outer_br192_bc512_eager_noskip_panel16_avx2
//
// Written by flashgen 0.1.0; to write it again:
//   flashgen emit --target avx2 --head-dim 64 --dtype float32 --order kv-outer --br 192 --bc 512 --no-lazy-rescale --no-causal-skip
// Problem: Problem(head_dim=64, head_dim_v=64, dtype='float32', causal=None)
// Schedule: Schedule(order='kv-outer', br=192, bc=512, lazy_rescale=False, causal_skip=False, panel=16)
// A remark `by X` names the pass that made what follows; `as stated` is FlashAttention-1's own.
//
// Compile with g++ or clang++ -std=c++17 -O3 -march=x86-64-v3 -ffp-contract=off -pthread. What is to
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
//   k    (B, Hkv, Nk, 64)
//   v    (B, Hkv, Nk, 64)
//   o    (B, Hq, Nq, 64)   written; overlaps no other array
//   lse  (B, Hq, Nq)   written
//   scale    what scores are multiplied by, usually 1 / sqrt(64); scale * q and the scores times
//            log2 e stay within float32: up to 2.3e38
//   threads  at most so many, from 1 to 1024; each keeps 761344 bytes of scratch memory for the next call
// Returns 0, or 1 where memory could not be had; then o and lse hold nothing of use.
extern "C" int attention_d64_dv64_f32_full_kv_outer_br192_bc512_eager_noskip_panel16_avx2(
    const flashgen_tensor *q, const flashgen_tensor *k, const flashgen_tensor *v,
    const flashgen_tensor *o, const flashgen_tensor *lse, float scale, int threads);

namespace {
typedef int64_t isize;
constexpr isize lanes = 8, unroll = 4;  // floats in a vector; vectors that a sweep takes at a time
constexpr isize micro_rows = 6;  // rows of a register block of a matrix product; columns: a panel's
constexpr int max_threads = 1024;
#define INLINE inline __attribute__((always_inline))
#define INLINE_LAMBDA __attribute__((always_inline))

// Vectors of 8 floats: AVX2 and FMA.
typedef __m256 vec;
typedef __m256 lanes_mask;

INLINE vec all(float x) { return _mm256_set1_ps(x); }
INLINE vec load(const float *p) { return _mm256_loadu_ps(p); }
INLINE void store(float *p, vec x) { _mm256_storeu_ps(p, x); }
INLINE vec fma(vec a, vec b, vec c) { return _mm256_fmadd_ps(a, b, c); }
INLINE vec drop_nan_max(vec x, vec kept) { return _mm256_max_ps(x, kept); }  // kept where x is NaN
INLINE vec choose(lanes_mask m, vec a, vec b) { return _mm256_blendv_ps(b, a, m); }
INLINE lanes_mask is_nan(vec x) { return _mm256_cmp_ps(x, x, _CMP_UNORD_Q); }
INLINE lanes_mask equal(vec a, vec b) { return _mm256_cmp_ps(a, b, _CMP_EQ_OQ); }

// Lanes whose column, counted from c, lies in [lo, hi).
INLINE lanes_mask columns(isize c, isize lo, isize hi) {
  const __m256i at = _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32((int)c));
  const __m256i from = _mm256_cmpgt_epi32(at, _mm256_set1_epi32((int)lo - 1));
  return _mm256_castsi256_ps(_mm256_and_si256(from, _mm256_cmpgt_epi32(_mm256_set1_epi32((int)hi), at)));
}

// The low bits of t hold n + 127: x * 2^n, and 0 where n is -127.
INLINE vec scale_by_power(vec x, vec t) {
  return x * _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(t), 23));
}

// Elementwise functions that are the same on every vector, and on a single float.
INLINE vec maximum(vec a, vec b) { return choose(is_nan(a), a, drop_nan_max(a, b)); }  // a NaN wins
INLINE vec replace(vec x, float from, float to) { return choose(equal(x, all(from)), all(to), x); }

// 2^x to 1 ulp for x <= 0: exact at integers (so 1 at 0), 0 from -126.5 down, NaN stays (x is the maximum's
// second operand). x = n + r with |r| <= 1/2 by adding 1.5 * 2^23 + 127, whose sum holds n + 127 in its low
// bits; 2^r by a polynomial that is 1 at 0. Multiplying by the power keeps a NaN a NaN, whatever its payload.
// Monotone but for neighbours in (-1/2, 0), which may differ by an ulp in the wrong direction.
INLINE vec exp2(vec x) {
  const vec magic = all(12583039.0f);
  x = drop_nan_max(all(-127.0f), x);
  const vec t = x + magic, r = x - (t - magic);
  vec p = all(0.000153533619596f);
  p = fma(p, r, all(0.001339887385257f));
  p = fma(p, r, all(0.009618436917663f));
  p = fma(p, r, all(0.055503323674202f));
  p = fma(p, r, all(0.240226477384567f));
  p = fma(p, r, all(0.693147182464600f));
  p = fma(p, r, all(1.0f));
  return scale_by_power(p, t);
}

INLINE vec log(vec x) {  // once a row: not worth a polynomial
  float lane[lanes];
  store(lane, x);
  for (isize n = 0; n < lanes; ++n) lane[n] = logf(lane[n]);
  return load(lane);
}

// Tiles in scratch memory, arrays in memory, and what moves between them.

constexpr isize round_up(isize n, isize to) { return (n + to - 1) / to * to; }
INLINE isize smaller(isize a, isize b) { return a < b ? a : b; }
INLINE isize larger(isize a, isize b) { return a > b ? a : b; }
INLINE isize floordiv(isize a, isize b) { return b ? a / b - (a % b != 0 && (a < 0) != (b < 0)) : 0; }
INLINE isize ceildiv(isize a, isize b) { return -floordiv(-a, b); }

// R x C, rows S apart. Rows and columns are padded to whole register blocks; the padding holds anything.
template <isize R, isize C, isize S> struct Tile {
  float *const p;
  INLINE explicit Tile(void *memory) : p((float *)memory) {}
  INLINE float *at(isize r, isize c) const { return p + r * S + c; }
};
// One value a row.
template <isize R> struct Rows {
  float *const p;
  INLINE explicit Rows(void *memory) : p((float *)memory) {}
  INLINE float &operator[](isize r) const { return p[r]; }
};
// P panels of K x W: the right side of a product as its register blocks read it.
template <isize P, isize K, isize W> struct Panels {
  float *const p;
  INLINE explicit Panels(void *memory) : p((float *)memory) {}
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

// N dimensions, sizes and strides in elements.
template <int N> struct Array {
  float *p;
  isize size[N], stride[N];
  INLINE float *at(const isize (&index)[N]) const {
    float *here = p;
    for (int n = 0; n < N; ++n) here += index[n] * stride[n];
    return here;
  }
};
template <int N> INLINE Array<N> array(const flashgen_tensor *t) {
  Array<N> a;
  a.p = (float *)t->data;
  for (int n = 0; n < N; ++n) a.size[n] = t->size[n], a.stride[n] = t->stride[n];
  return a;
}

// An array in memory of the kernel's own; p is null where there is none to be had.
template <int N> struct Workspace : Array<N> {
  explicit Workspace(const isize (&extents)[N]) {
    isize count = 1;
    for (int n = N; n-- > 0; count *= extents[n]) this->size[n] = extents[n], this->stride[n] = count;
    this->p = (float *)aligned_alloc(64, round_up(larger(count, 1) * sizeof(float), 64));
  }
  Workspace(const Workspace &) = delete;
  Workspace &operator=(const Workspace &) = delete;
  ~Workspace() { free(this->p); }
};

// A tile that is used where it lies: `rows` of it are inside the array.
struct View {
  const float *p;
  isize rows, row_stride, col_stride;
};
template <int N> INLINE View view(const Array<N> &a, const isize (&index)[N], isize rows) {
  const isize inside = larger(0, smaller(rows, a.size[N - 2] - index[N - 2]));
  return {inside ? a.at(index) : a.p, inside, a.stride[N - 2], a.stride[N - 1]};
}

template <isize R, isize C, isize S, int N>
INLINE void read(Tile<R, C, S> t, const Array<N> &a, const isize (&index)[N]) {
  const View v = view(a, index, R);
  for (isize r = 0; r < v.rows; ++r)
    if (v.col_stride == 1)
      memcpy(t.at(r, 0), v.p + r * v.row_stride, C * sizeof(float));
    else
      for (isize c = 0; c < C; ++c) *t.at(r, c) = v.p[r * v.row_stride + c * v.col_stride];
  for (isize r = v.rows; r < R; ++r) memset(t.at(r, 0), 0, C * sizeof(float));
}
template <isize R, int N> INLINE void read(Rows<R> t, const Array<N> &a, const isize (&index)[N]) {
  const isize inside = larger(0, smaller(R, a.size[N - 1] - index[N - 1]));
  for (isize r = 0; r < inside; ++r) t[r] = a.at(index)[r * a.stride[N - 1]];
  for (isize r = inside; r < R; ++r) t[r] = 0.0f;
}
template <isize R, isize C, isize S, int N>
INLINE void write(Tile<R, C, S> t, const Array<N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 2] - index[N - 2]), step = a.stride[N - 2], each = a.stride[N - 1];
  for (isize r = 0; r < rows; ++r)
    if (each == 1)
      memcpy(a.at(index) + r * step, t.at(r, 0), C * sizeof(float));
    else
      for (isize c = 0; c < C; ++c) a.at(index)[r * step + c * each] = *t.at(r, c);
}
template <isize R, int N> INLINE void write(Rows<R> t, const Array<N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 1] - index[N - 1]);
  for (isize r = 0; r < rows; ++r) a.at(index)[r * a.stride[N - 1]] = t[r];
}

// The extents of a tile that has no memory of its own: x in all of its elements.
template <isize... extents> struct Shape {};
template <isize R, isize C, int N>
INLINE void fill(Shape<R, C>, float x, const Array<N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 2] - index[N - 2]);
  for (isize r = 0; r < rows; ++r)
    for (isize c = 0; c < C; ++c) a.at(index)[r * a.stride[N - 2] + c * a.stride[N - 1]] = x;
}
template <isize R, int N> INLINE void fill(Shape<R>, float x, const Array<N> &a, const isize (&index)[N]) {
  const isize rows = smaller(R, a.size[N - 1] - index[N - 1]);
  for (isize r = 0; r < rows; ++r) a.at(index)[r * a.stride[N - 1]] = x;
}

// Rows times a factor each; a row whose factor is 1 is left alone, for x * 1 is x.
template <isize R, isize C, isize S> INLINE void scale_rows(Tile<R, C, S> t, Rows<R> factor) {
  for (isize r = 0; r < R; ++r)
    if (factor[r] != 1.0f)
      for (isize c = 0; c < C; c += lanes) store(t.at(r, c), load(t.at(r, c)) * all(factor[r]));
}

// Panels of the right side of a product, read from where it lies in memory. Columns beyond the last are 0.

// An 8 x 8 block: out[c][r] = in[r][c].
INLINE void transpose_8x8(float *out, isize out_stride, const float *in, isize in_stride) {
  __m256 a[8], b[8];
  for (int i = 0; i < 8; ++i) a[i] = _mm256_loadu_ps(in + i * in_stride);
  for (int i = 0; i < 8; i += 2) {
    b[i] = _mm256_unpacklo_ps(a[i], a[i + 1]);
    b[i + 1] = _mm256_unpackhi_ps(a[i], a[i + 1]);
  }
  for (int i = 0; i < 8; i += 4)
    for (int j = 0; j < 2; ++j) {
      a[i + 2 * j] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0x44);
      a[i + 2 * j + 1] = _mm256_shuffle_ps(b[i + j], b[i + j + 2], 0xEE);
    }
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(out + i * out_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x20));
    _mm256_storeu_ps(out + (i + 4) * out_stride, _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
  }
}

// Panels of rows: out[a][d][x] = in[W a + x][d].
template <isize P, isize K, isize W> INLINE void pack_transposed(Panels<P, K, W> out, View in) {
  for (isize n = 0; n < P * W; n += 8) {
    float *const to = out.p + n / W * (K * W) + n % W;
    const float *const from = in.p + n * in.row_stride;
    isize k = 0;
    if (in.col_stride == 1 && n + 8 <= in.rows)
      for (; k + 8 <= K; k += 8) transpose_8x8(to + k * W, W, from + k, in.row_stride);
    for (; k < K; ++k)
      for (isize x = 0; x < 8; ++x)
        to[k * W + x] = n + x < in.rows ? from[x * in.row_stride + k * in.col_stride] : 0.0f;
  }
}

// Panels of columns: out[a][k][x] = in[k][W a + x], where `in` has C columns.
template <isize C, isize P, isize K, isize W> INLINE void pack(Panels<P, K, W> out, View in) {
  for (isize a = 0; a < P; ++a)
    for (isize k = 0; k < K; ++k) {
      float *const to = out.p + (a * K + k) * W;
      const float *const from = in.p + k * in.row_stride + a * W * in.col_stride;
      if (k < in.rows && in.col_stride == 1 && (a + 1) * W <= C)
        memcpy(to, from, W * sizeof(float));
      else
        for (isize x = 0; x < W; ++x) to[x] = k < in.rows && a * W + x < C ? from[x * in.col_stride] : 0.0f;
    }
}

// Matrix products: a tile times panels, in register blocks of micro_rows x W.

// Of a group of rows: [lo, hi) holds every column that some row sees, [full_lo, full_hi) only columns that
// all of them see.
struct Hull {
  isize lo, full_lo, full_hi, hi;
};
template <isize R> INLINE Hull hull(Spans<R> s, isize r) {
  Hull h = {s.lo(r), s.lo(r), s.hi(r), s.hi(r)};
  for (isize n = r + 1; n < r + micro_rows; ++n) {
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

// The accumulators of a register block of micro_rows x NV vectors.
template <int NV> struct Block {
  vec c[micro_rows][NV];
  INLINE void clear() {
    for (int i = 0; i < micro_rows; ++i)
      for (int v = 0; v < NV; ++v) c[i][v] = all(0.0f);
  }
  INLINE void load_from(const float *p, isize stride) {
    for (int i = 0; i < micro_rows; ++i)
      for (int v = 0; v < NV; ++v) c[i][v] = load(p + i * stride + v * lanes);
  }
  INLINE void store_to(float *p, isize stride) const {
    for (int i = 0; i < micro_rows; ++i)
      for (int v = 0; v < NV; ++v) store(p + i * stride + v * lanes, c[i][v]);
  }
  // One step of the contraction: a column of the left side times a row of the panel.
  INLINE void step(const float *a, isize a_stride, const float *b) {
    vec row[NV];
    for (int v = 0; v < NV; ++v) row[v] = load(b + v * lanes);
    for (int i = 0; i < micro_rows; ++i) {
      const vec x = all(a[i * a_stride]);
      for (int v = 0; v < NV; ++v) c[i][v] = fma(x, row[v], c[i][v]);
    }
  }
  // The same, for the rows that see column k.
  template <isize R>
  INLINE void step_seen(const float *a, isize a_stride, const float *b, Spans<R> s, isize r, isize k) {
    for (int i = 0; i < micro_rows; ++i)
      if (s.lo(r + i) <= k && k < s.hi(r + i))
        for (int v = 0; v < NV; ++v) c[i][v] = fma(all(a[i * a_stride]), load(b + v * lanes), c[i][v]);
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
template <int NV>
INLINE void steps(Block<NV> &block, const float *a, isize a_stride, const float *b, isize lo, isize hi) {
#pragma GCC unroll 4
  for (isize k = lo; k < hi; ++k) block.step(a + k, a_stride, b + k * NV * lanes);
}
// The steps lo <= k < hi that some rows take.
template <int NV, isize R>
INLINE void ragged_steps(Block<NV> &block, const float *a, isize a_stride, const float *b, isize lo, isize hi,
                         const Over<R> &part, isize r) {
  for (isize k = lo; k < hi; ++k) block.step_seen(a + k, a_stride, b + k * NV * lanes, part.span, r, k);
}
template <int NV, class Part>
INLINE void ragged_steps(Block<NV> &, const float *, isize, const float *, isize, isize, const Part &, isize) {}

// out = a b, or out + a b: panels outermost, so that one panel stays in the first-level cache.
template <bool accumulate, isize R, isize C, isize SO, isize K, isize SA, isize P, isize W, class Part>
INLINE void product(Tile<R, C, SO> out, Tile<R, K, SA> a, Panels<P, K, W> b, const Part &part) {
  static_assert(P * W <= SO && W % lanes == 0, "the panels fit in a padded row");
  for (isize n = 0; n < P; ++n)
    for (isize r = 0; r < R; r += micro_rows) {
      if (!part.wants(r, n * W, W)) continue;
      const Hull h = part.template contraction<K>(r);
      const float *const left = a.at(r, 0), *const panel = b.p + n * K * W;
      Block<W / lanes> block;
      if (accumulate)
        block.load_from(out.at(r, n * W), SO);
      else
        block.clear();
      ragged_steps(block, left, SA, panel, h.lo, h.full_lo, part, r);
      steps(block, left, SA, panel, h.full_lo, h.full_hi);
      ragged_steps(block, left, SA, panel, h.full_hi, h.hi, part, r);
      block.store_to(out.at(r, n * W), SO);
    }
}

// One pass over the columns of a row, and the reductions that it feeds.

// Column c of a row always goes to accumulator c / lanes mod 4, whatever the span: a skipped tile or a
// narrower span changes no bit of a result.
static_assert(unroll == 4, "total() adds up four");

struct Add {
  static constexpr float neutral = 0.0f;
  template <class V> INLINE static V combine(V x, V kept) { return x + kept; }
};
struct Max {  // a NaN wins
  static constexpr float neutral = -INFINITY;
  INLINE static vec combine(vec x, vec kept) { return maximum(x, kept); }
  INLINE static float combine(float x, float kept) { return x > kept || x != x ? x : kept; }
};
struct MaxNum {  // a NaN is passed over
  static constexpr float neutral = -INFINITY;
  INLINE static vec combine(vec x, vec kept) { return drop_nan_max(x, kept); }
  INLINE static float combine(float x, float kept) { return x > kept ? x : kept; }
};

template <class Op> struct Reduction {
  vec partial[unroll];
  INLINE Reduction() {
    for (isize u = 0; u < unroll; ++u) partial[u] = all(Op::neutral);
  }
  // `seen` are the lanes within the span.
  template <class Seen> INLINE void take(isize u, Seen seen, vec x) {
    partial[u] = Op::combine(seen(x, Op::neutral), partial[u]);
  }
  INLINE float total() const {
    float lane[lanes];
    store(lane, Op::combine(Op::combine(partial[0], partial[1]), Op::combine(partial[2], partial[3])));
    for (isize half = lanes / 2; half; half /= 2)
      for (isize n = 0; n < half; ++n) lane[n] = Op::combine(lane[n], lane[n + half]);
    return lane[0];
  }
};

// Calls step(c, u, seen) for vectors at columns c that cover [lo, hi), u = c / lanes mod unroll. At the ends
// whole vectors are taken that reach beyond: there `seen` puts the neutral value in place of what is not
// in the span, elsewhere it passes everything.
template <class Step> INLINE void sweep(isize lo, isize hi, Step step) {
  constexpr isize width = unroll * lanes;
  const auto whole = [](vec x, float) INLINE_LAMBDA { return x; };
  const auto ragged = [&](isize c) INLINE_LAMBDA {
    for (isize u = 0; u < unroll; ++u, c += lanes) {
      const lanes_mask inside = columns(c, lo, hi);
      step(c, u, [&](vec x, float neutral) INLINE_LAMBDA { return choose(inside, x, all(neutral)); });
    }
  };
  isize c = lo / width * width;
  if (c < lo && lo < hi) ragged(c), c += width;
  for (; c + width <= hi; c += width)
    for (isize u = 0; u < unroll; ++u) step(c + u * lanes, u, whole);
  if (c < hi) ragged(c);
}

// Independent iterations over threads; scratch memory for each.

// Scratch memory of one call, kept for the next: a slot a thread, taken by whoever comes first.
void *kept_scratch[max_threads];

INLINE void *take_scratch(int slot, size_t bytes) {
  void *const kept = __atomic_exchange_n(&kept_scratch[slot], (void *)0, __ATOMIC_ACQ_REL);
  return kept ? kept : aligned_alloc(64, round_up(bytes, 64));
}
INLINE void keep_scratch(int slot, void *scratch) {
  free(__atomic_exchange_n(&kept_scratch[slot], scratch, __ATOMIC_ACQ_REL));
}

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

template <int N, class Body> struct Work {
  const Nest<N> &nest;
  const Body &body;
  size_t bytes;
  isize count, next;
  int slots, failed;
};

// Iterations one by one until none is left, whoever takes them.
template <int N, class Body> void *take_part(void *shared) {
  Work<N, Body> &work = *(Work<N, Body> *)shared;
  const int slot = __atomic_fetch_add(&work.slots, 1, __ATOMIC_RELAXED);
  void *const scratch = take_scratch(slot, work.bytes);
  if (!scratch) __atomic_store_n(&work.failed, 1, __ATOMIC_RELAXED);
  while (scratch) {
    const isize iteration = __atomic_fetch_add(&work.next, 1, __ATOMIC_RELAXED);
    if (iteration >= work.count) break;
    isize at[N];
    work.nest.locate(iteration, at);
    if (!work.body(at, (char *)scratch)) __atomic_store_n(&work.failed, 1, __ATOMIC_RELAXED);
  }
  if (scratch) keep_scratch(slot, scratch);
  return 0;
}

// body(at, scratch) for every iteration of the nest; it returns whether it had the memory it needs. Returns
// 0, or 1 where some iteration did not. Threads that cannot be started are done without.
template <int N, class Body> int parallel(const Nest<N> &nest, int threads, size_t bytes, const Body &body) {
  Work<N, Body> work = {nest, body, bytes, nest.count(), 0, 0, 0};
  pthread_t started[max_threads];
  const isize wanted = smaller(smaller(threads, max_threads), work.count);
  int others = 0;
  while (others + 1 < wanted && !pthread_create(&started[others], 0, take_part<N, Body>, &work)) ++others;
  if (work.count) take_part<N, Body>(&work);
  for (int t = 0; t < others; ++t) pthread_join(started[t], 0);
  return work.failed;
}
}  // namespace

extern "C" int attention_d64_dv64_f32_full_kv_outer_br192_bc512_eager_noskip_panel16_avx2(
    const flashgen_tensor *q_tensor, const flashgen_tensor *k_tensor, const flashgen_tensor *v_tensor,
    const flashgen_tensor *o_tensor, const flashgen_tensor *lse_tensor, float scale, int threads) {
  const Array<4> q = array<4>(q_tensor);
  const Array<4> k = array<4>(k_tensor);
  const Array<4> v = array<4>(v_tensor);
  const Array<4> o = array<4>(o_tensor);
  const Array<3> lse = array<3>(lse_tensor);
  // as stated
  const isize B = q.size[0];
  const isize Hq = q.size[1];
  const isize Hkv = k.size[1];
  const isize Nq = q.size[2];
  const isize Nk = k.size[2];
  const isize group = floordiv(Hq, Hkv);
  // by fold-scale
  const auto factor = scale * 1.44269504f;
  // by parallel-loops
  const Nest<3> nest = {{B, Hkv, group}, {1, 1, 1}};
  return parallel(nest, threads, 761344, [&](const isize (&at)[3], char *scratch) {
    const isize b = at[0];
    const isize g = at[1];
    const isize r = at[2];
    // as stated
    const isize h = (g * group) + r;
    const Workspace<2> acc({Nq, 64});
    if (!acc.p) return false;
    const Workspace<1> m({Nq});
    if (!m.p) return false;
    const Workspace<1> l({Nq});
    if (!l.p) return false;
    // as stated
    for (isize i = 0; i < Nq; i += 192) {
      // as stated
      fill(Shape<192, 64>(), 0.0f, acc, {i, 0});
      fill(Shape<192>(), 0.0f, l, {i});
      fill(Shape<192>(), -INFINITY, m, {i});
    }
    // as stated
    for (isize j = 0; j < Nk; j += 512) {
      // by pack
      const Panels<32, 64, 16> kj_panels(scratch + 0);
      pack_transposed(kj_panels, view(k, {b, g, j, 0}, 512));
      const Panels<4, 512, 16> vj_panels(scratch + 131072);
      pack<64>(vj_panels, view(v, {b, g, j, 0}, 512));
      // as stated
      for (isize i_1 = 0; i_1 < Nq; i_1 += 192) {
        // as stated
        const Tile<192, 64, 64> qi(scratch + 262144);
        read(qi, q, {b, h, i_1, 0});
        // by fold-scale
        const Tile<192, 64, 64> qis(scratch + 262144);
        for (isize y = 0; y < 192; ++y)
          for (isize x = 0; x < 64; x += lanes)
            store(qis.at(y, x), load(qi.at(y, x)) * all(factor));
        // as stated
        const Tile<192, 64, 64> acc_i(scratch + 311296);
        read(acc_i, acc, {i_1, 0});
        const Rows<192> l_i(scratch + 360448);
        read(l_i, l, {i_1});
        const Rows<192> m_i(scratch + 361216);
        read(m_i, m, {i_1});
        // by mask-to-spans
        const Spans<192> span(scratch + 361984);
        for (isize y = 0; y < 192; ++y) {
          const isize row = i_1 + y;
          span.set(y, j, j, (row < Nq) ? Nk : j, 512);
        }
        // by pack, mask-to-spans
        const Tile<192, 512, 512> s(scratch + 365056);
        product<false>(s, qis, kj_panels, Only<192>(span));
        // by nan-in-sum, mask-to-spans, fuse-sweeps
        const Rows<192> m_tile(scratch + 758272);
        for (isize y = 0; y < 192; ++y) {
          Reduction<MaxNum> m_tile_row;
          sweep(span.lo(y), span.hi(y), [&](isize x, isize u, auto seen) INLINE_LAMBDA {
            const vec s_1 = load(s.at(y, x));
            m_tile_row.take(u, seen, s_1);
          });
          m_tile[y] = m_tile_row.total();
        }
        // as stated
        const Rows<192> tile_top(scratch + 759040);
        for (isize y = 0; y < 192; y += lanes) store(tile_top.p + y, replace(load(m_tile.p + y), -INFINITY, 0.0f));
        // by base-2, mask-to-spans, fuse-sweeps
        const Tile<192, 512, 512> p(scratch + 365056);
        const Rows<192> l_tile(scratch + 759040);
        for (isize y = 0; y < 192; ++y) {
          const vec tile_top_1 = all(tile_top[y]);
          Reduction<Add> l_tile_row;
          sweep(span.lo(y), span.hi(y), [&](isize x, isize u, auto seen) INLINE_LAMBDA {
            const vec s_2 = load(s.at(y, x));
            const auto p_1 = exp2(s_2 - tile_top_1);
            store(p.at(y, x), p_1);
            l_tile_row.take(u, seen, p_1);
          });
          l_tile[y] = l_tile_row.total();
        }
        // as stated
        const Rows<192> m_new(scratch + 759808);
        for (isize y = 0; y < 192; y += lanes) store(m_new.p + y, maximum(load(m_i.p + y), load(m_tile.p + y)));
        const Rows<192> top(scratch + 760576);
        for (isize y = 0; y < 192; y += lanes) store(top.p + y, replace(load(m_new.p + y), -INFINITY, 0.0f));
        // by base-2
        const Rows<192> beta(scratch + 758272);
        for (isize y = 0; y < 192; y += lanes) store(beta.p + y, exp2(load(m_tile.p + y) - load(top.p + y)));
        // as stated
        const Rows<192> l_kept(scratch + 360448);
        for (isize y = 0; y < 192; y += lanes) store(l_kept.p + y, load(l_i.p + y) * exp2(load(m_i.p + y) - load(top.p + y)));
        const Rows<192> l_new(scratch + 759040);
        for (isize y = 0; y < 192; y += lanes) store(l_new.p + y, load(l_kept.p + y) + (load(beta.p + y) * load(l_tile.p + y)));
        // by pack, mask-to-spans
        const Tile<192, 64, 64> pv(scratch + 262144);
        product<false>(pv, p, vj_panels, Over<192>(span));
        // by accumulate
        scale_rows(acc_i, l_kept);
        scale_rows(pv, beta);
        // as stated
        const Rows<192> divisor(scratch + 360448);
        for (isize y = 0; y < 192; y += lanes) store(divisor.p + y, replace(load(l_new.p + y), 0.0f, 1.0f));
        const Tile<192, 64, 64> acc_new(scratch + 311296);
        for (isize y = 0; y < 192; ++y)
          for (isize x = 0; x < 64; x += lanes)
            store(acc_new.at(y, x), (load(acc_i.at(y, x)) + load(pv.at(y, x))) / all(divisor[y]));
        write(acc_new, acc, {i_1, 0});
        write(l_new, l, {i_1});
        write(m_new, m, {i_1});
      }
    }
    // as stated
    for (isize i_2 = 0; i_2 < Nq; i_2 += 192) {
      // as stated
      const Tile<192, 64, 64> o_i(scratch + 262144);
      read(o_i, acc, {i_2, 0});
      write(o_i, o, {b, h, i_2, 0});
      const Rows<192> m_i_1(scratch + 360448);
      read(m_i_1, m, {i_2});
      const Rows<192> l_i_1(scratch + 361216);
      read(l_i_1, l, {i_2});
      const Rows<192> lse_i(scratch + 360448);
      for (isize y = 0; y < 192; y += lanes) store(lse_i.p + y, (replace(load(m_i_1.p + y), -INFINITY, 0.0f) * all(0.693147181f)) + log(load(l_i_1.p + y)));
      write(lse_i, lse, {b, h, i_2});
    }
    return true;
  });
}
