// Functions of single numbers, as masks and scores have them.
__device__ inline bool both(bool a, bool b) { return a & b; }
__device__ inline bool either(bool a, bool b) { return a | b; }
__device__ inline bool equal(float a, float b) { return a == b; }
__device__ inline bool unequal(float a, float b) { return a != b; }
__device__ inline bool below(float a, float b) { return a < b; }
__device__ inline bool at_most(float a, float b) { return a <= b; }
__device__ inline bool not_below(float a, float b) { return !(a < b); }
__device__ inline bool not_at_most(float a, float b) { return !(a <= b); }
__device__ inline float choose(bool c, float a, float b) { return c ? a : b; }
__device__ inline float number(isize n) { return float(n); }
__device__ inline float minimum(float a, float b) { return a < b || a != a ? a : b; }  // a NaN wins
__device__ inline float absolute(float x) { return fabsf(x); }
