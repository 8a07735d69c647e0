// Fibers: one stack per CUDA thread and a switch between them (x86-64 System V), about 10 ns each.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace cuda_cpu {

// Saves the callee-saved registers on the current stack and its pointer in *save, then continues at `to`.
extern "C" __attribute__((visibility("hidden"))) void cuda_cpu_switch(void **save, void *to);

class Stack {
 public:
  static constexpr size_t bytes = 256 << 10, guard = 4096;

  Stack() {
    void *memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mprotect(memory, guard, PROT_NONE);
    base_ = static_cast<unsigned char *>(memory);
  }
  ~Stack() {
    if (base_) munmap(base_, bytes);
  }
  Stack(Stack &&other) noexcept : base_(other.base_) { other.base_ = nullptr; }
  Stack &operator=(Stack &&) = delete;

  // A saved context that enters `entry`, which must not return; its frame is aligned as after a call.
  void *start(void (*entry)()) const {
    void **top = reinterpret_cast<void **>(base_ + bytes - 64);
    *--top = nullptr;
    *--top = reinterpret_cast<void *>(entry);
    for (int saved = 0; saved < 6; saved++) *--top = nullptr;
    return top;
  }
  bool holds(uintptr_t address) const { return address - reinterpret_cast<uintptr_t>(base_) < bytes; }

 private:
  unsigned char *base_;
};

}  // namespace cuda_cpu
