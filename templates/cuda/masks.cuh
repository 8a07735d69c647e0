// R x C truth values, rows S bytes apart.
template <int R, int C, int S> struct Mask {
  unsigned char *const p;
  __device__ explicit Mask(void *memory) : p((unsigned char *)memory) {}
  __device__ unsigned char &at(int row, int column) const { return p[row * S + column]; }
};

// out = a b, or out + a b, where a mask says which elements of the left side take part.
template <bool transpose, bool accumulate, int R, int C, int SO, int K, int SA, int RB, int CB, int SB, int SM,
          class Part>
__device__ void product(Tile<R, C, SO> out, Tile<R, K, SA> a, Tile<RB, CB, SB> b, const Part &part,
                        Mask<R, K, SM> seen) {
  for (int row = warp(); row < R; row += warps)
    for (int column = lane(); column < C; column += lanes) {
      float sum = accumulate ? out.at(row, column) : 0.0f;
      for (int k = part.lo(row); k < part.hi(row); ++k)
        if (seen.at(row, k)) sum = fmaf(a.at(row, k), transpose ? b.at(column, k) : b.at(k, column), sum);
      out.at(row, column) = sum;
    }
}
