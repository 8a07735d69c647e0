template <> struct Stored<__half> {
  static __device__ float load(const __half *p) { return __half2float(*p); }
  static __device__ void store(__half *p, float x) { *p = __float2half_rn(x); }  // to nearest, ties to even
};
