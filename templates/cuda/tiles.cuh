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
