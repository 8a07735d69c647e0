// What an emitted CUDA file sees in place of the CUDA headers: with this file included before it, it is
// plain C++17 for g++ >= 12 or clang >= 14 on x86-64, its text unchanged. runtime.cpp runs it.
//
// Shared memory is thread-local storage of the host thread that runs the block. `thread_local` is the one
// storage class that fits all three of CUDA's forms:
//     __shared__ float a[8];               in a function: one array per block, as static implies it
//     static __shared__ float b[8];
//     extern __shared__ float c[];         defined by the stub, as long as the launch asks for
// so a block's shared memory is the thread-local segment of the kernel's library, and nothing else is.
#pragma once
#include <math.h>
#include <stdint.h>
#include <string.h>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ thread_local

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
};
struct alignas(8) int2 {
  int x, y;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

// Implemented in runtime.cpp. A thread's indices never change, hence `const`.
extern "C" {
__attribute__((const)) uint3 cuda_cpu_thread_index();
__attribute__((const)) uint3 cuda_cpu_block_index();
__attribute__((const)) dim3 cuda_cpu_block_dim();
__attribute__((const)) dim3 cuda_cpu_grid_dim();
void cuda_cpu_sync_block(int line);
void cuda_cpu_sync_warp(unsigned mask, int line);
uint64_t cuda_cpu_shuffle(unsigned mask, uint64_t value, int source, int line);
unsigned cuda_cpu_ballot(unsigned mask, bool predicate, int line);
void cuda_cpu_atomic(void *address, size_t bytes);
}

#define threadIdx (cuda_cpu_thread_index())
#define blockIdx (cuda_cpu_block_index())
#define blockDim (cuda_cpu_block_dim())
#define gridDim (cuda_cpu_grid_dim())

// Barriers carry their line, so that threads that meet at different ones are told apart.
#define __syncthreads() cuda_cpu_sync_block(__LINE__)
#define __syncwarp(...) cuda_cpu::WarpBarrier{__LINE__}(__VA_ARGS__)
#define __ballot_sync(mask, predicate) cuda_cpu_ballot(mask, predicate, __LINE__)
#define __any_sync(mask, predicate) (cuda_cpu_ballot(mask, predicate, __LINE__) != 0)
#define __all_sync(mask, predicate) (cuda_cpu_ballot(mask, !(predicate), __LINE__) == 0)
#define __shfl_sync(mask, ...) cuda_cpu::shuffle(cuda_cpu::from, __LINE__, mask, __VA_ARGS__)
#define __shfl_up_sync(mask, ...) cuda_cpu::shuffle(cuda_cpu::up, __LINE__, mask, __VA_ARGS__)
#define __shfl_down_sync(mask, ...) cuda_cpu::shuffle(cuda_cpu::down, __LINE__, mask, __VA_ARGS__)
#define __shfl_xor_sync(mask, ...) cuda_cpu::shuffle(cuda_cpu::exclusive_or, __LINE__, mask, __VA_ARGS__)

namespace cuda_cpu {

struct WarpBarrier {
  int line;
  void operator()(unsigned mask = 0xffffffffu) const { cuda_cpu_sync_warp(mask, line); }
};

inline int lane() {
  const uint3 t = cuda_cpu_thread_index();
  const dim3 n = cuda_cpu_block_dim();
  return int((t.x + n.x * (t.y + n.y * t.z)) & 31u);
}

// The lane that each kind of shuffle reads, inside the caller's segment of `width` lanes.
inline int from(int segment, int width, int, int source) { return segment + (source & (width - 1)); }
inline int up(int segment, int, int lane, int delta) { return lane - delta < segment ? lane : lane - delta; }
inline int down(int segment, int width, int lane, int delta) {
  return lane + delta >= segment + width ? lane : lane + delta;
}
inline int exclusive_or(int segment, int width, int lane, int bits) {
  return (lane ^ bits) >= segment + width ? lane : lane ^ bits;
}

template <class T>
__attribute__((no_sanitize("thread"))) T shuffle(int (*choose)(int, int, int, int), int line, unsigned mask,
                                                 T value, int operand, int width = 32) {
  static_assert(sizeof(T) <= 8, "shuffles move at most 8 bytes");
  const int self = lane(), segment = self & ~(width - 1);
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof(T));
  bits = cuda_cpu_shuffle(mask, bits, choose(segment, width, self, operand), line);
  memcpy(&value, &bits, sizeof(T));
  return value;
}

// Fibers do not interrupt one another, so a plain read-modify-write is atomic.
template <class T, class Change>
__attribute__((no_sanitize("thread"))) T atomic(T *address, Change change) {
  cuda_cpu_atomic(address, sizeof(T));
  const T old = *address;
  *address = change(old);
  return old;
}

template <class To, class From>
inline To bit_cast(From from) {
  static_assert(sizeof(To) == sizeof(From), "same size");
  To to;
  memcpy(&to, &from, sizeof(To));
  return to;
}

}  // namespace cuda_cpu

template <class T>
T atomicAdd(T *address, T value) {
  return cuda_cpu::atomic(address, [value](T old) { return old + value; });
}
template <class T>
T atomicMax(T *address, T value) {
  return cuda_cpu::atomic(address, [value](T old) { return old < value ? value : old; });
}
template <class T>
T atomicExch(T *address, T value) {
  return cuda_cpu::atomic(address, [value](T) { return value; });
}
template <class T>
T atomicCAS(T *address, T expected, T value) {
  return cuda_cpu::atomic(address, [=](T old) { return old == expected ? value : old; });
}
template <class T>
T __ldg(const T *address) {
  return *address;
}

inline float __int_as_float(int bits) { return cuda_cpu::bit_cast<float>(bits); }
inline float __uint_as_float(unsigned bits) { return cuda_cpu::bit_cast<float>(bits); }
inline int __float_as_int(float x) { return cuda_cpu::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return cuda_cpu::bit_cast<unsigned>(x); }

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }

inline int min(int x, int y) { return y < x ? y : x; }
inline int max(int x, int y) { return x < y ? y : x; }
inline unsigned min(unsigned x, unsigned y) { return y < x ? y : x; }
inline unsigned max(unsigned x, unsigned y) { return x < y ? y : x; }
inline long min(long x, long y) { return y < x ? y : x; }
inline long max(long x, long y) { return x < y ? y : x; }
inline long long min(long long x, long long y) { return y < x ? y : x; }
inline long long max(long long x, long long y) { return x < y ? y : x; }
inline float min(float x, float y) { return fminf(x, y); }
inline float max(float x, float y) { return fmaxf(x, y); }
