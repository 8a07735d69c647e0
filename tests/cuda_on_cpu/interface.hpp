// What a launch is told and what it reports; runner.py mirrors these structures with ctypes.
#pragma once
#include <cstddef>
#include <cstdint>

namespace cuda_cpu {

enum class Policy : int32_t { in_order, random, warp_priority };

// Global memory that the kernel may touch: [first, last), and whether it may be written.
struct Buffer {
  uintptr_t first, last;
  int64_t writable;
};

struct Launch {
  uint32_t grid[3], block[3];
  uint64_t shared_bytes;
  uint64_t seed;
  Policy policy;
  int32_t buffer_count;
  const Buffer *buffers;
};

// Counts of accesses (races, out_of_bounds, uninitialised) and of other errors. The first one seen gives
// the message, and where it is an access, the offset of its instruction in the library.
struct Result {
  int64_t races, errors, out_of_bounds, uninitialised;
  uint64_t code_offset;
  char message[256];
};

// What the generated stub hands over: how to call the kernel, and where its dynamic shared memory lies.
struct Kernel {
  void (*call)(void *const *arguments);
  unsigned char *dynamic_shared;
  size_t dynamic_capacity;
};

void run(const Kernel &kernel, const Launch &launch, void *const *arguments, Result &result);

}  // namespace cuda_cpu
