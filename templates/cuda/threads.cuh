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
