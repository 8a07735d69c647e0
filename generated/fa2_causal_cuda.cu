// attention_d64_dv64_f32_causal_bottom_right_q_outer_br64_bc64_lazy_skip_panel0_head_cuda
//
// Written by flashgen 0.1.0; to write it again:
//   flashgen emit --target cuda --head-dim 64 --dtype float32 --causal bottom-right --order q-outer --br 64 --bc 64 --lazy-rescale --causal-skip --panel 0 --no-hoist-packs --no-group-rows
// Problem: Problem(head_dim=64, head_dim_v=64, dtype='float32', causal='bottom-right')
// Schedule: Schedule(order='q-outer', br=64, bc=64, lazy_rescale=True, causal_skip=True, panel=0, hoist_packs=False, group_rows=False, rescale_threshold=0.0, split_keys=0, fetch_ahead=False, products='float32')
// A remark `by X` names the pass that made what follows; `as stated` is FlashAttention-1's own.
//
// Compile with -std=c++17 -fmad=false, for sm_80 or later. What is to be fused is written
// so; without the option compilers fuse more, and not the same in all kernels: results then differ in bits.
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)  // NVRTC has no math.h
#endif

// A strided array of up to four dimensions; strides count elements, not bytes.
typedef struct flashgen_tensor {
  void *data;
  long long size[4];
  long long stride[4];
} flashgen_tensor;

// O = softmax(scale * Q K^T) V over the visible keys of each row, and lse, the natural logarithm of the sum
// of the row's exponentials. A row that sees no key gives 0 and -inf. Hq is a multiple of Hkv.
//   q    (B, Hq, Nq, 64)   float32, any strides, as all arrays
//   k    (B, Hkv, Nk, 64)   float32
//   v    (B, Hkv, Nk, 64)   float32
//   o    (B, Hq, Nq, 64)   float32, written; overlaps no other array
//   lse  (B, Hq, Nq)   float32, written
//   scale      what scores are multiplied by, usually 1 / sqrt(64); scale * q and the scores
//              times log2 e stay within float32: up to 2.3e38
//   workspace  not used: null
// Launch, where group = Hq / Hkv:
//   blocks         B * Hkv * group * ceil(Nq / 64), in one dimension; if that is 0, there is nothing to do
//   threads        128 a block
//   shared memory  85504 bytes a block, dynamic; more than 48 KiB are asked for beforehand, as
//                  cudaFuncAttributeMaxDynamicSharedMemorySize, with cudaFuncSetAttribute
extern "C" __global__ void attention_d64_dv64_f32_causal_bottom_right_q_outer_br64_bc64_lazy_skip_panel0_head_cuda(
    flashgen_tensor q_tensor, flashgen_tensor k_tensor, flashgen_tensor v_tensor, flashgen_tensor o_tensor,
    flashgen_tensor lse_tensor, float scale, float *workspace);

inline namespace attention_d64_dv64_f32_causal_bottom_right_q_outer_br64_bc64_lazy_skip_panel0_head_cuda_layers {
constexpr int threads = 128;

// How arrays hold numbers.
template <class T> struct Stored;
template <> struct Stored<float> {
  static __device__ float load(const float *p) { return *p; }
  static __device__ void store(float *p, float x) { *p = x; }
};

// Who does what: row r of every tile belongs to warp r % warps, column c of it to lane c % lanes. So a warp
// has whole rows. A single value of row r belongs to one lane of that warp, r / warps % lanes.
constexpr int lanes = 32, warps = threads / lanes;
constexpr unsigned all_lanes = 0xffffffffu;

__device__ inline int lane() { return threadIdx.x % lanes; }
__device__ inline int warp() { return threadIdx.x / lanes; }
// The first row whose single values belong to the thread; the next one is `threads` rows on.
__device__ inline int own_row() { return lane() * warps + warp(); }
__device__ inline bool owns(int row) { return row / warps % lanes == lane(); }

typedef long long isize;

__device__ inline isize smaller(isize a, isize b) { return a < b ? a : b; }
__device__ inline isize larger(isize a, isize b) { return a > b ? a : b; }
__device__ inline isize floordiv(isize a, isize b) {
  if (b == -1) return (isize)-(unsigned long long)a;  // of the least number, too
  return b ? a / b - (a % b != 0 && (a < 0) != (b < 0)) : 0;
}
__device__ inline isize ceildiv(isize a, isize b) { return -floordiv(-a, b); }

// The counter of a loop from 0 to stop: the innermost of those that `iteration` numbers, which then numbers
// those around it.
__device__ inline isize unravel(isize &iteration, isize stop, isize step) {
  const isize trips = ceildiv(stop, step), counter = iteration % trips * step;
  iteration /= trips;
  return counter;
}

__device__ inline float maximum(float a, float b) { return a > b || a != a ? a : b; }  // a NaN wins
__device__ inline float replace(float x, float from, float to) { return x == from ? to : x; }
__device__ inline float hold(float held, float x, float by) { return x - held <= by ? held : x; }

struct Add {
  static __device__ float neutral() { return 0.0f; }
  static __device__ float combine(float a, float b) { return a + b; }
};
struct Max {
  static __device__ float neutral() { return -INFINITY; }
  static __device__ float combine(float a, float b) { return maximum(a, b); }
};
struct MaxNum {  // a NaN is passed over
  static __device__ float neutral() { return -INFINITY; }
  static __device__ float combine(float a, float b) { return fmaxf(a, b); }
};
// The reduction of a value from each lane, in every lane and in the same order whatever the others are.
template <class Op> __device__ float reduce(float x) {
  for (int step = lanes / 2; step; step /= 2) x = Op::combine(x, __shfl_xor_sync(all_lanes, x, step));
  return x;
}

// Tiles in shared memory, arrays in global memory, and what moves between them.

// R x C, rows S apart; S is odd, so that the elements of a column lie in different banks.
template <int R, int C, int S> struct Tile {
  float *const p;
  __device__ explicit Tile(void *memory) : p((float *)memory) {}
  __device__ float &at(int row, int column) const { return p[row * S + column]; }
};
// One value a row.
template <int R> struct Rows {
  float *const p;
  __device__ explicit Rows(void *memory) : p((float *)memory) {}
  __device__ float &operator[](int row) const { return p[row]; }
};
// The columns [lo, hi) that each row may see, lo <= hi.
template <int R> struct Spans {
  isize *const p;
  __device__ explicit Spans(void *memory) : p((isize *)memory) {}
  __device__ int lo(int row) const { return int(p[2 * row]); }
  __device__ int hi(int row) const { return int(p[2 * row + 1]); }
  // The columns [lo, hi) of the whole matrix, as those of a tile of `width` columns from `first` on.
  __device__ void set(int r, isize first, isize lo, isize hi, isize width) const {
    p[2 * r] = smaller(larger(lo - first, 0), width);
    p[2 * r + 1] = smaller(larger(hi - first, p[2 * r]), width);
  }
};

// N dimensions, sizes and strides in elements.
template <class T, int N> struct Array {
  T *p;
  isize size[N], stride[N];
  __device__ T *at(const isize (&index)[N]) const {
    T *here = p;
    for (int n = 0; n < N; ++n) here += index[n] * stride[n];
    return here;
  }
};
template <class T, int N> __device__ Array<T, N> array(const flashgen_tensor &t) {
  Array<T, N> a;
  a.p = (T *)t.data;
  for (int n = 0; n < N; ++n) a.size[n] = t.size[n], a.stride[n] = t.stride[n];
  return a;
}
// An array that each block has for itself. All of them together are cut off the workspace.
template <int N> __device__ Array<float, N> cut(float *&workspace, const isize (&extents)[N]) {
  Array<float, N> a;
  isize count = 1;
  for (int n = N; n-- > 0; count *= extents[n]) a.size[n] = extents[n], a.stride[n] = count;
  a.p = workspace + blockIdx.x * count;
  workspace += gridDim.x * count;
  return a;
}

// What lies beyond an array reads as 0 and is not written.
template <int R, int C, int S, class T, int N>
__device__ void read(Tile<R, C, S> t, const Array<T, N> &a, const isize (&index)[N]) {
  const T *const from = a.at(index);
  const isize inside = a.size[N - 2] - index[N - 2];
  for (int r = warp(); r < R; r += warps)
    for (int c = lane(); c < C; c += lanes)
      t.at(r, c) = r < inside ? Stored<T>::load(from + r * a.stride[N - 2] + c * a.stride[N - 1]) : 0.0f;
}
template <int R, class T, int N>
__device__ void read(Rows<R> t, const Array<T, N> &a, const isize (&index)[N]) {
  const isize inside = a.size[N - 1] - index[N - 1];
  for (int r = own_row(); r < R; r += threads)
    t[r] = r < inside ? Stored<T>::load(a.at(index) + r * a.stride[N - 1]) : 0.0f;
}
template <int R, int C, int S, class T, int N>
__device__ void write(Tile<R, C, S> t, const Array<T, N> &a, const isize (&index)[N]) {
  T *const to = a.at(index);
  const isize inside = a.size[N - 2] - index[N - 2];
  for (int r = warp(); r < R && r < inside; r += warps)
    for (int c = lane(); c < C; c += lanes)
      Stored<T>::store(to + r * a.stride[N - 2] + c * a.stride[N - 1], t.at(r, c));
}
template <int R, class T, int N>
__device__ void write(Rows<R> t, const Array<T, N> &a, const isize (&index)[N]) {
  const isize inside = a.size[N - 1] - index[N - 1];
  for (int r = own_row(); r < R && r < inside; r += threads)
    Stored<T>::store(a.at(index) + r * a.stride[N - 1], t[r]);
}
template <int R, int C, class T, int N>
__device__ void fill(float x, const Array<T, N> &a, const isize (&index)[N]) {
  T *const to = a.at(index);
  const isize inside = a.size[N - 2] - index[N - 2];
  for (int r = warp(); r < R && r < inside; r += warps)
    for (int c = lane(); c < C; c += lanes)
      Stored<T>::store(to + r * a.stride[N - 2] + c * a.stride[N - 1], x);
}
template <int R, class T, int N>
__device__ void fill(float x, const Array<T, N> &a, const isize (&index)[N]) {
  const isize inside = a.size[N - 1] - index[N - 1];
  for (int r = own_row(); r < R && r < inside; r += threads)
    Stored<T>::store(a.at(index) + r * a.stride[N - 1], x);
}

// Rows times a factor each.
template <int R, int C, int S> __device__ void scale_rows(Tile<R, C, S> t, Rows<R> factor) {
  for (int r = warp(); r < R; r += warps)
    for (int c = lane(); c < C; c += lanes) t.at(r, c) *= factor[r];
}

// Matrix products: each thread computes elements of the result that it owns, several at a time in registers.

// The steps of the contraction that a row takes, where it is not a span that says so: all of them.
template <int K> struct Everything {
  __device__ int lo(int) const { return 0; }
  __device__ int hi(int) const { return K; }
};

// n split evenly into parts of at most `most`: the size of a part.
__device__ constexpr int even(int n, int most) {
  const int parts = (n + most - 1) / most;
  return (n + parts - 1) / parts;
}

// out = a b, or out + a b; b is given transposed, or not. Every element is one chain of fused multiply-adds,
// step by step.
template <bool transpose, bool accumulate, int R, int C, int SO, int K, int SA, int RB, int CB, int SB,
          class Part>
__device__ void product(Tile<R, C, SO> out, Tile<R, K, SA> a, Tile<RB, CB, SB> b, const Part &part) {
  constexpr int wide = even((C + lanes - 1) / lanes, 4), tall = even((R + warps - 1) / warps, 32 / wide);
  for (int first_row = warp(); first_row < R; first_row += tall * warps)
    for (int first_column = lane(); first_column < C; first_column += wide * lanes) {
      int row[tall], column[wide], lo[tall], hi[tall], start = K, stop = 0;
      float sum[tall][wide];
#pragma unroll
      for (int j = 0; j < wide; ++j) {  // beyond the last column, or row, the first one is repeated
        const int c = first_column + j * lanes;
        column[j] = c < C ? c : first_column;
      }
#pragma unroll
      for (int i = 0; i < tall; ++i) {
        const int r = first_row + i * warps;
        row[i] = r < R ? r : first_row;
        lo[i] = part.lo(row[i]), hi[i] = part.hi(row[i]);
        start = min(start, lo[i]), stop = max(stop, hi[i]);
#pragma unroll
        for (int j = 0; j < wide; ++j) sum[i][j] = accumulate ? out.at(row[i], column[j]) : 0.0f;
      }
      for (int k = start; k < stop; ++k) {
        float right[wide];
#pragma unroll
        for (int j = 0; j < wide; ++j) right[j] = transpose ? b.at(column[j], k) : b.at(k, column[j]);
#pragma unroll
        for (int i = 0; i < tall; ++i) {
          if (k < lo[i] || hi[i] <= k) continue;
          const float left = a.at(row[i], k);
#pragma unroll
          for (int j = 0; j < wide; ++j) sum[i][j] = fmaf(left, right[j], sum[i][j]);
        }
      }
#pragma unroll
      for (int i = 0; i < tall; ++i)
#pragma unroll
        for (int j = 0; j < wide; ++j) out.at(row[i], column[j]) = sum[i][j];
    }
}
}  // namespace attention_d64_dv64_f32_causal_bottom_right_q_outer_br64_bc64_lazy_skip_panel0_head_cuda_layers

extern "C" __global__ void __launch_bounds__(threads) attention_d64_dv64_f32_causal_bottom_right_q_outer_br64_bc64_lazy_skip_panel0_head_cuda(
    flashgen_tensor q_tensor, flashgen_tensor k_tensor, flashgen_tensor v_tensor, flashgen_tensor o_tensor,
    flashgen_tensor lse_tensor, float scale, float *workspace) {
  extern __shared__ __align__(64) unsigned char scratch[];
  const auto q = array<float, 4>(q_tensor);
  const auto k = array<float, 4>(k_tensor);
  const auto v = array<float, 4>(v_tensor);
  const auto o = array<float, 4>(o_tensor);
  const auto lse = array<float, 3>(lse_tensor);
  // as stated
  const isize B = q.size[0];
  const isize Hq = q.size[1];
  const isize Hkv = k.size[1];
  const isize Nq = q.size[2];
  const isize Nk = k.size[2];
  const isize offset = Nk - Nq;
  const isize group = floordiv(Hq, Hkv);
  // by fold-scale
  const float factor = scale * 1.44269504f;
  // by interchange, fuse-loops, parallel-loops
  isize iteration = blockIdx.x;
  const isize i = unravel(iteration, Nq, 64);
  const isize r = unravel(iteration, group, 1);
  const isize g = unravel(iteration, Hkv, 1);
  const isize b = unravel(iteration, B, 1);
  // as stated
  const isize h = (g * group) + r;
  const Tile<64, 64, 65> qi(scratch + 0);
  read(qi, q, {b, h, i, 0});
  // by fold-scale
  const Tile<64, 64, 65> qis(scratch + 0);
  for (int y = warp(); y < 64; y += warps)
    for (int x = lane(); x < 64; x += lanes)
      qis.at(y, x) = qi.at(y, x) * factor;
  // by causal-skip
  const isize whole_to = larger(0, smaller(smaller(floordiv(Nk, 64) * 64, ((i + 64) <= Nq) ? Nk : 0), floordiv((offset + i) + 1, 64) * 64));
  const isize seen_to = smaller(Nk, floordiv((offset + i) + 127, 64) * 64);
  // as stated
  const Tile<64, 64, 65> acc(scratch + 16640);
  for (int y = warp(); y < 64; y += warps)
    for (int x = lane(); x < 64; x += lanes)
      acc.at(y, x) = 0.0f;
  const Rows<64> l(scratch + 33280);
  for (int y = own_row(); y < 64; y += threads)
    l[y] = 0.0f;
  const Rows<64> m(scratch + 33536);
  for (int y = own_row(); y < 64; y += threads)
    m[y] = -INFINITY;
  // by interchange, keep-state, causal-skip
  for (isize j = 0; j < whole_to; j += 64) {
    // by sink-loads
    __syncthreads();
    const Tile<64, 64, 65> kj(scratch + 33792);
    read(kj, k, {b, g, j, 0});
    const Tile<64, 64, 65> vj(scratch + 50432);
    read(vj, v, {b, g, j, 0});
    // as stated
    __syncthreads();
    const Tile<64, 64, 65> s(scratch + 67072);
    product<true, false>(s, qis, kj, Everything<64>());
    // by nan-in-sum, fuse-sweeps
    const Rows<64> m_tile(scratch + 83712);
    for (int y = warp(); y < 64; y += warps) {
      float m_tile_row = MaxNum::neutral();
      for (int x = lane(); x < 64; x += lanes) {
        const float s_1 = s.at(y, x);
        m_tile_row = MaxNum::combine(m_tile_row, s_1);
      }
      m_tile_row = reduce<MaxNum>(m_tile_row);
      if (owns(y)) m_tile[y] = m_tile_row;
    }
    // as stated
    const Rows<64> m_new(scratch + 83712);
    for (int y = own_row(); y < 64; y += threads)
      m_new[y] = maximum(m[y], m_tile[y]);
    const Rows<64> top(scratch + 83968);
    for (int y = own_row(); y < 64; y += threads)
      top[y] = replace(m_new[y], -INFINITY, 0.0f);
    // by lazy-rescale, base-2, fuse-sweeps
    __syncwarp();
    const Tile<64, 64, 65> p(scratch + 67072);
    const Rows<64> l_tile(scratch + 84224);
    for (int y = warp(); y < 64; y += warps) {
      const float top_1 = top[y];
      float l_tile_row = Add::neutral();
      for (int x = lane(); x < 64; x += lanes) {
        const float s_2 = s.at(y, x);
        const float p_1 = exp2(s_2 - top_1);
        p.at(y, x) = p_1;
        l_tile_row = Add::combine(l_tile_row, p_1);
      }
      l_tile_row = reduce<Add>(l_tile_row);
      if (owns(y)) l_tile[y] = l_tile_row;
    }
    // by base-2
    __syncwarp();
    const Rows<64> alpha(scratch + 83968);
    for (int y = own_row(); y < 64; y += threads)
      alpha[y] = exp2(m[y] - top[y]);
    // as stated
    const Rows<64> l_new(scratch + 33280);
    for (int y = own_row(); y < 64; y += threads)
      l_new[y] = (l[y] * alpha[y]) + l_tile[y];
    // by lazy-rescale, accumulate
    __syncwarp();
    scale_rows(acc, alpha);
    // by lazy-rescale, causal-skip, accumulate
    product<false, true>(acc, p, vj, Everything<64>());
    // as stated
    for (int y = own_row(); y < 64; y += threads)
      m[y] = m_new[y];
  }
  // by interchange, keep-state, causal-skip
  for (isize j_1 = whole_to; j_1 < seen_to; j_1 += 64) {
    // by sink-loads
    __syncthreads();
    const Tile<64, 64, 65> kj_1(scratch + 33792);
    read(kj_1, k, {b, g, j_1, 0});
    const Tile<64, 64, 65> vj_1(scratch + 50432);
    read(vj_1, v, {b, g, j_1, 0});
    // by mask-to-spans
    const Spans<64> span(scratch + 84480);
    for (int y = own_row(); y < 64; y += threads) {
      const isize row = i + y;
      span.set(y, j_1, j_1, (row < Nq) ? smaller(Nk, (row + offset) + 1) : j_1, 64);
    }
    __syncthreads();
    const Tile<64, 64, 65> s_3(scratch + 67072);
    product<true, false>(s_3, qis, kj_1, Everything<64>());
    // by nan-in-sum, mask-to-spans, fuse-sweeps
    const Rows<64> m_tile_1(scratch + 83712);
    for (int y = warp(); y < 64; y += warps) {
      const int lo = span.lo(y), hi = span.hi(y);
      float m_tile_1_row = MaxNum::neutral();
      for (int x = lane(); x < 64; x += lanes) {
        if (x < lo || hi <= x) continue;
        const float s_4 = s_3.at(y, x);
        m_tile_1_row = MaxNum::combine(m_tile_1_row, s_4);
      }
      m_tile_1_row = reduce<MaxNum>(m_tile_1_row);
      if (owns(y)) m_tile_1[y] = m_tile_1_row;
    }
    // as stated
    const Rows<64> m_new_1(scratch + 83712);
    for (int y = own_row(); y < 64; y += threads)
      m_new_1[y] = maximum(m[y], m_tile_1[y]);
    const Rows<64> top_2(scratch + 83968);
    for (int y = own_row(); y < 64; y += threads)
      top_2[y] = replace(m_new_1[y], -INFINITY, 0.0f);
    // by lazy-rescale, base-2, mask-to-spans, fuse-sweeps
    __syncwarp();
    const Tile<64, 64, 65> p_2(scratch + 67072);
    const Rows<64> l_tile_1(scratch + 84224);
    for (int y = warp(); y < 64; y += warps) {
      const float top_3 = top_2[y];
      const int lo = span.lo(y), hi = span.hi(y);
      float l_tile_1_row = Add::neutral();
      for (int x = lane(); x < 64; x += lanes) {
        if (x < lo || hi <= x) continue;
        const float s_5 = s_3.at(y, x);
        const float p_3 = exp2(s_5 - top_3);
        p_2.at(y, x) = p_3;
        l_tile_1_row = Add::combine(l_tile_1_row, p_3);
      }
      l_tile_1_row = reduce<Add>(l_tile_1_row);
      if (owns(y)) l_tile_1[y] = l_tile_1_row;
    }
    // by base-2
    __syncwarp();
    const Rows<64> alpha_1(scratch + 83968);
    for (int y = own_row(); y < 64; y += threads)
      alpha_1[y] = exp2(m[y] - top_2[y]);
    // as stated
    const Rows<64> l_new_1(scratch + 33280);
    for (int y = own_row(); y < 64; y += threads)
      l_new_1[y] = (l[y] * alpha_1[y]) + l_tile_1[y];
    // by lazy-rescale, accumulate
    __syncwarp();
    scale_rows(acc, alpha_1);
    // by lazy-rescale, mask-to-spans, accumulate
    product<false, true>(acc, p_2, vj_1, span);
    // as stated
    for (int y = own_row(); y < 64; y += threads)
      m[y] = m_new_1[y];
  }
  // by reciprocal
  const Rows<64> inverse(scratch + 83712);
  for (int y = own_row(); y < 64; y += threads)
    inverse[y] = 1.0f / replace(l[y], 0.0f, 1.0f);
  // by lazy-rescale, reciprocal, accumulate
  __syncwarp();
  scale_rows(acc, inverse);
  // as stated
  write(acc, o, {b, h, i, 0});
  const Rows<64> lse_i(scratch + 33536);
  for (int y = own_row(); y < 64; y += threads)
    lse_i[y] = (replace(m[y], -INFINITY, 0.0f) * 0.693147181f) + log(l[y]);
  write(lse_i, lse, {b, h, i});
}
