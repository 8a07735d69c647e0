// Memory checks. The kernel is compiled with -fsanitize=thread, which calls a __tsan_ function before every
// access to memory that is not a thread's own; those functions are here in place of the sanitizer's library.
#include <algorithm>
#include <cstring>

#include "machine.hpp"

namespace cuda_cpu {

extern Machine *machine;

// A thread that makes this many accesses without meeting another one waits for something that never comes.
constexpr int64_t livelock = int64_t(1) << 26;

static const char *name(Access access) {
  return access == Access::read ? "read" : access == Access::write ? "write" : "atomic";
}

void Machine::access(uintptr_t address, size_t bytes, Access access, const void *code) {
  if (!current_) return;
  if (++accesses_ > livelock) {
    report(result_.errors, code, "livelock: thread %d made %zd accesses without a barrier", current_->id,
           ssize_t(livelock));
    stop();
  }
  if (shared_.holds(address, bytes)) return check_shared(address, bytes, access, code);
  if (current_->stack.holds(address)) return;
  check_global(address, bytes, access, code);
}

void Machine::check_shared(uintptr_t address, size_t bytes, Access access, const void *code) {
  const bool dynamic = dynamic_.holds(address, 1), behind = address >= dynamic_.last;
  const size_t offset = address - (dynamic ? dynamic_.first : behind ? dynamic_.last : shared_.first);
  const char *kind = dynamic ? "dynamic" : "static";
  if (dynamic && offset + bytes > launch_.shared_bytes) {
    report(result_.out_of_bounds, code,
           "thread %d: %s of %zu bytes at offset %zu of %zu bytes of dynamic shared memory", current_->id,
           name(access), bytes, offset, size_t(launch_.shared_bytes));
    stop();
  }
  const Moment now{Stamp(epoch_, current_->warp->epoch, current_->id), block_start_};
  const Shadow::Seen seen = shared_shadow_->note(address - shared_.first, bytes, now, access, true);
  if (seen.racing)
    report(result_.races, code,
           "thread %d: %s of %zu bytes races with another thread, offset %zu of %s shared memory",
           current_->id, name(access), bytes, offset, kind);
  if (seen.unwritten && access != Access::write)
    report(result_.uninitialised, code,
           "thread %d: %s of %zu bytes that nothing wrote, offset %zu of %s shared memory", current_->id,
           name(access), bytes, offset, kind);
}

void Machine::check_global(uintptr_t address, size_t bytes, Access access, const void *code) {
  const auto holds = [&](const Global &global) { return global.range.holds(address, bytes); };
  const auto global = std::find_if(globals_.begin(), globals_.end(), holds);
  if (global == globals_.end()) {
    if (module_.holds(address, bytes)) return;
    report(result_.out_of_bounds, code, "thread %d: %s of %zu bytes outside every buffer", current_->id,
           name(access), bytes);
    stop();
  }
  if (!global->shadow) {
    if (access == Access::read) return;
    report(result_.out_of_bounds, code, "thread %d: %s of %zu bytes to an input", current_->id,
           name(access), bytes);
    stop();
  }
  const Moment now{Stamp(epoch_, current_->warp->epoch, current_->id), block_start_};
  const size_t offset = address - global->range.first;
  if (global->shadow->note(offset, bytes, now, access, false).racing)
    report(result_.races, code,
           "thread %d: %s of %zu bytes races with another thread, offset %zu of a global buffer",
           current_->id, name(access), bytes, offset);
}

void Machine::misaligned(size_t bytes, const void *code) {
  if (!current_) return;
  report(result_.errors, code, "thread %d: misaligned access of %zu bytes", current_->id, bytes);
  stop();
}

static inline void check(void *address, size_t bytes, Access access, bool aligned, const void *code) {
  if (!machine) return;
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  if (aligned && at % bytes) machine->misaligned(bytes, code);
  machine->access(at, bytes, access, code);
}

}  // namespace cuda_cpu

using cuda_cpu::Access;

#define CODE __builtin_return_address(0)
#define HOOKS(n)                                                                                          \
  void __tsan_read##n(void *p) { cuda_cpu::check(p, n, Access::read, true, CODE); }                       \
  void __tsan_write##n(void *p) { cuda_cpu::check(p, n, Access::write, true, CODE); }                     \
  void __tsan_unaligned_read##n(void *p) { cuda_cpu::check(p, n, Access::read, false, CODE); }            \
  void __tsan_unaligned_write##n(void *p) { cuda_cpu::check(p, n, Access::write, false, CODE); }          \
  void __tsan_read_write##n(void *p) {                                                                    \
    cuda_cpu::check(p, n, Access::read, true, CODE);                                                      \
    cuda_cpu::check(p, n, Access::write, true, CODE);                                                     \
  }                                                                                                       \
  void __tsan_unaligned_read_write##n(void *p) {                                                          \
    cuda_cpu::check(p, n, Access::read, false, CODE);                                                     \
    cuda_cpu::check(p, n, Access::write, false, CODE);                                                    \
  }

extern "C" {

HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
void __tsan_read_range(void *p, size_t n) { cuda_cpu::check(p, n, Access::read, false, CODE); }
void __tsan_write_range(void *p, size_t n) { cuda_cpu::check(p, n, Access::write, false, CODE); }
void *__tsan_memset(void *p, int value, size_t n) {
  cuda_cpu::check(p, n, Access::write, false, CODE);
  return memset(p, value, n);
}
void *__tsan_memcpy(void *to, const void *from, size_t n) {
  cuda_cpu::check(const_cast<void *>(from), n, Access::read, false, CODE);
  cuda_cpu::check(to, n, Access::write, false, CODE);
  return memcpy(to, from, n);
}
void *__tsan_memmove(void *to, const void *from, size_t n) {
  cuda_cpu::check(const_cast<void *>(from), n, Access::read, false, CODE);
  cuda_cpu::check(to, n, Access::write, false, CODE);
  return memmove(to, from, n);
}
void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}

void cuda_cpu_atomic(void *p, size_t n) { cuda_cpu::check(p, n, Access::atomic, true, CODE); }

}  // extern "C"
