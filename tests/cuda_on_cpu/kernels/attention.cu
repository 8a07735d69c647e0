// Attention, written by hand in the form that emission uses: one block per batch, head and query tile.
// Full (not causal), float32, D = 20, Dv = 12. Each barrier is needed: the tests remove one at a time.
typedef struct flashgen_tensor {
  void *data;
  long long size[4];
  long long stride[4];
} flashgen_tensor;

enum { BR = 16, BC = 24, D = 20, DV = 12, THREADS = 128 };

static __device__ __forceinline__ float *row(const flashgen_tensor &t, long long b, long long h,
                                             long long i) {
  return (float *)t.data + b * t.stride[0] + h * t.stride[1] + i * t.stride[2];
}

// A tile of `rows` x `cols` from row `first` on, zero beyond the tensor's length.
static __device__ void load(float *tile, const flashgen_tensor &t, long long b, long long h, long long first,
                            int rows, int cols) {
  for (int x = threadIdx.x; x < rows * cols; x += THREADS) {
    const int r = x / cols, c = x % cols;
    tile[x] = first + r < t.size[2] ? row(t, b, h, first + r)[c * t.stride[3]] : 0.0f;
  }
}

extern "C" __global__ void __launch_bounds__(THREADS)
    attention(flashgen_tensor q, flashgen_tensor k, flashgen_tensor v, flashgen_tensor o, flashgen_tensor lse,
              float scale, float *workspace) {
  extern __shared__ __align__(16) float shared[];
  float *q_tile = shared, *k_tile = q_tile + BR * D, *v_tile = k_tile + BC * D;
  float *s = v_tile + BC * DV, *acc = s + BR * BC;
  __shared__ float m[BR], l[BR], alpha[BR];
  const int tid = threadIdx.x;
  const float neg_inf = __int_as_float(0xff800000);

  const long long heads = q.size[1], group = heads / k.size[1], nq = q.size[2], nk = k.size[2];
  const long long tiles = (nq + BR - 1) / BR;
  const long long i = blockIdx.x % tiles * BR, h = blockIdx.x / tiles % heads, b = blockIdx.x / tiles / heads;

  load(q_tile, q, b, h, i, BR, D);
  for (int x = tid; x < BR * DV; x += THREADS) acc[x] = 0.0f;
  if (tid < BR) m[tid] = neg_inf, l[tid] = 0.0f;

  for (long long j = 0; j < nk; j += BC) {
    load(k_tile, k, b, h / group, j, BC, D);
    load(v_tile, v, b, h / group, j, BC, DV);
    __syncthreads();  // loaded
    for (int x = tid; x < BR * BC; x += THREADS) {
      float sum = 0.0f;
      for (int d = 0; d < D; d++) sum = fmaf(q_tile[x / BC * D + d], k_tile[x % BC * D + d], sum);
      s[x] = j + x % BC < nk ? sum * scale : neg_inf;
    }
    __syncthreads();  // scored
    if (tid < BR) {
      float top = m[tid], sum = 0.0f;
      for (int c = 0; c < BC; c++) top = fmaxf(top, s[tid * BC + c]);
      for (int c = 0; c < BC; c++) {
        const float p = exp2f((s[tid * BC + c] - top) * 1.44269504f);
        s[tid * BC + c] = p;
        sum += p;
      }
      alpha[tid] = exp2f((m[tid] - top) * 1.44269504f);
      l[tid] = l[tid] * alpha[tid] + sum;
      m[tid] = top;
    }
    __syncthreads();  // normalised
    for (int x = tid; x < BR * DV; x += THREADS) {
      float sum = acc[x] * alpha[x / DV];
      for (int c = 0; c < BC; c++) sum = fmaf(s[x / DV * BC + c], v_tile[c * DV + x % DV], sum);
      acc[x] = sum;
    }
    __syncthreads();  // accumulated
  }

  if (nk == 0) {
    __syncthreads();  // initialised, where the loop had no barrier
  }
  for (int x = tid; x < BR * DV; x += THREADS) {
    const int r = x / DV, c = x % DV;
    if (i + r < nq) row(o, b, h, i + r)[c * o.stride[3]] = l[r] > 0.0f ? acc[x] / l[r] : 0.0f;
  }
  if (tid < BR && i + tid < nq) *row(lse, b, h, i + tid) = l[tid] > 0.0f ? m[tid] + logf(l[tid]) : neg_inf;
}
