// One block at a time: its threads as fibers, its warps and barriers, its memory.
#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "cuda_cpu.hpp"
#include "fiber.hpp"
#include "interface.hpp"
#include "shadow.hpp"

namespace cuda_cpu {

// What a lane waits for at a warp operation, what it brings, and what it takes away. An operation with more
// to exchange than a word (a matrix fragment, say) adds its fields here.
struct Lane {
  int thread = -1;
  unsigned mask = 0;  // 0: it does not wait
  int operation = 0, line = 0;
  uint64_t given = 0, taken = 0;
  int source = 0;
};

struct Warp {
  Lane lanes[32];
  unsigned alive = 0;
  uint16_t epoch = 0;
  uint32_t priority = 0;
};

struct Thread {
  uint3 index;
  int id;
  Warp *warp;
  Stack stack;
  void *context;
  Lane &lane() { return warp->lanes[id & 31]; }
};

struct Range {
  uintptr_t first = 0, last = 0;
  bool holds(uintptr_t address, size_t bytes) const { return address >= first && address + bytes <= last; }
};

class Machine {
 public:
  Machine(const Kernel &kernel, const Launch &launch, void *const *arguments, Result &result);
  void run();

  Thread &current() { return *current_; }
  bool running() const { return current_ != nullptr; }
  const Launch &launch() const { return launch_; }
  uint3 block_index() const { return block_index_; }

  void sync_block(int line);

  // All lanes of `mask` meet; the last to arrive computes for every lane with `complete(warp, mask)`.
  template <class Complete>
  void meet(int operation, unsigned mask, int line, Complete complete);

  // Called before the access. `code` is the instruction after the caller's call.
  void access(uintptr_t address, size_t bytes, Access access, const void *code);
  void misaligned(size_t bytes, const void *code);

 private:
  struct Global {
    Range range;
    std::optional<Shadow> shadow;  // of what may be written
  };

  void find_library();
  void run_block();
  static void enter_thread();
  void leave_thread();
  void release_barrier();
  void schedule();
  [[noreturn]] void report_deadlock();
  int next_ready();
  uint32_t random();

  void check_shared(uintptr_t address, size_t bytes, Access access, const void *code);
  void check_global(uintptr_t address, size_t bytes, Access access, const void *code);

  // Counts and, where it is the first, describes. `stop` besides leaves the launch as it stands.
  __attribute__((format(printf, 4, 5))) void report(int64_t &count, const void *code, const char *text, ...);
  [[noreturn]] void stop();

  const Kernel &kernel_;
  const Launch &launch_;
  void *const *arguments_;
  Result &result_;

  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::vector<int> ready_, waiting_;  // thread ids; `waiting_` at the block's barrier
  size_t first_ready_ = 0;            // of `ready_`, where the order is kept
  int alive_ = 0, barrier_line_ = 0;
  uint3 block_index_{};
  Thread *current_ = nullptr;
  void *host_context_ = nullptr;
  bool stopped_ = false;
  uint64_t random_state_;

  uint32_t epoch_ = 0, block_start_ = 0;
  int64_t accesses_ = 0;  // since a thread was last switched to
  Range shared_, dynamic_, module_;
  std::optional<Shadow> shared_shadow_;
  std::vector<Global> globals_;
};

}  // namespace cuda_cpu
