// float16 for kernels on the CPU: storage, and conversions to and from float32 (to nearest, ties to even).
// Arithmetic on __half is absent on purpose: flashgen's kernels compute in float32.
#pragma once
#include "../cuda_cpu.hpp"

namespace cuda_cpu {

inline uint16_t half_bits(float x) {
  const uint32_t bits = bit_cast<uint32_t>(x), magnitude = bits & 0x7fffffffu;
  const uint32_t sign = (bits >> 16) & 0x8000u;
  if (magnitude > 0x7f800000u) return uint16_t(sign | 0x7fffu);   // NaN
  if (magnitude >= 0x477ff000u) return uint16_t(sign | 0x7c00u);  // rounds to 65536 or more: infinity
  // Below 2^-14 the result is a multiple of 2^-24; adding 1/2 makes float32's own rounding land on one.
  if (magnitude < 0x38800000u) {
    const float rounded = bit_cast<float>(magnitude) + 0.5f;
    return uint16_t(sign | (bit_cast<uint32_t>(rounded) - 0x3f000000u));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  return uint16_t(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13));
}

inline float half_value(uint16_t bits) {
  const uint32_t sign = uint32_t(bits & 0x8000u) << 16, magnitude = bits & 0x7fffu;
  if (magnitude >= 0x7c00u) return bit_cast<float>(sign | 0x7f800000u | (magnitude << 13));
  if (magnitude < 0x0400u) return bit_cast<float>(sign | bit_cast<uint32_t>(float(magnitude) * 0x1p-24f));
  return bit_cast<float>(sign | ((magnitude << 13) + 0x38000000u));
}

}  // namespace cuda_cpu

struct __half {
  uint16_t bits;
  __half() = default;
  __half(float x) : bits(cuda_cpu::half_bits(x)) {}
  operator float() const { return cuda_cpu::half_value(bits); }
};
using half = __half;

struct alignas(4) __half2 {
  __half x, y;
};
using half2 = __half2;

inline float __half2float(__half h) { return h; }
inline __half __float2half(float x) { return x; }
inline __half __float2half_rn(float x) { return x; }
inline unsigned short __half_as_ushort(__half h) { return h.bits; }
inline __half __ushort_as_half(unsigned short bits) {
  __half h;
  h.bits = bits;
  return h;
}
inline __half2 __floats2half2_rn(float x, float y) { return {x, y}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline float2 __half22float2(__half2 h) { return {h.x, h.y}; }
inline float __low2float(__half2 h) { return h.x; }
inline float __high2float(__half2 h) { return h.y; }
