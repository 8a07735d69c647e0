// bfloat16 for kernels on the CPU: storage, and conversions to and from float32 (to nearest, ties to even).
// As in cuda_fp16.h, arithmetic is absent on purpose.
#pragma once
#include "../cuda_cpu.hpp"

namespace cuda_cpu {

inline uint16_t bfloat16_bits(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;  // NaN
  return uint16_t((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

}  // namespace cuda_cpu

struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float x) : bits(cuda_cpu::bfloat16_bits(x)) {}
  operator float() const { return cuda_cpu::bit_cast<float>(uint32_t(bits) << 16); }
};

inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return x; }
