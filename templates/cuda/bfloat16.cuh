template <> struct Stored<__nv_bfloat16> {
  static __device__ float load(const __nv_bfloat16 *p) { return __bfloat162float(*p); }
  static __device__ void store(__nv_bfloat16 *p, float x) { *p = __float2bfloat16_rn(x); }  // ties to even
};
