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
