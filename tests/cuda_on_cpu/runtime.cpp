// The scheduler: runs the threads of a block as fibers, in an order that the policy chooses, and reports
// barriers that do not meet. Compiled without the thread sanitizer.
#include <link.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "machine.hpp"

namespace cuda_cpu {

Machine *machine = nullptr;  // of the launch under way

Machine::Machine(const Kernel &kernel, const Launch &launch, void *const *arguments, Result &result)
    : kernel_(kernel), launch_(launch), arguments_(arguments), result_(result) {
  random_state_ = (launch.seed + 1) * 0x9e3779b97f4a7c15ull | 1;
  find_library();
  const uintptr_t dynamic = reinterpret_cast<uintptr_t>(kernel.dynamic_shared);
  dynamic_ = {dynamic, dynamic + kernel.dynamic_capacity};
  shared_shadow_.emplace(shared_.last - shared_.first);
  for (int i = 0; i < launch.buffer_count; i++) {
    const Buffer &b = launch.buffers[i];
    globals_.push_back({{b.first, b.last}, std::nullopt});
    if (b.writable) globals_.back().shadow.emplace(b.last - b.first);
  }
}

// The kernel's library: its thread-local segment is the shared memory, its others hold its constants.
void Machine::find_library() {
  auto visit = [](dl_phdr_info *info, size_t, void *data) {
    Machine &self = *static_cast<Machine *>(data);
    const uintptr_t code = reinterpret_cast<uintptr_t>(self.kernel_.call);
    Range module{~uintptr_t(0), 0}, shared;
    for (int i = 0; i < info->dlpi_phnum; i++) {
      const auto &segment = info->dlpi_phdr[i];
      const uintptr_t first = info->dlpi_addr + segment.p_vaddr;
      if (segment.p_type == PT_LOAD) {
        module = {std::min(module.first, first), std::max(module.last, first + segment.p_memsz)};
      } else if (segment.p_type == PT_TLS) {
        const uintptr_t data = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
        shared = {data, data + segment.p_memsz};
      }
    }
    if (!module.holds(code, 1)) return 0;
    self.module_ = module, self.shared_ = shared;
    return 1;
  };
  dl_iterate_phdr(visit, this);
}

void Machine::run() {
  const uint32_t *grid = launch_.grid;
  std::vector<uint64_t> order(uint64_t(grid[0]) * grid[1] * grid[2]);
  std::iota(order.begin(), order.end(), 0);
  if (launch_.policy != Policy::in_order)
    for (size_t i = order.size(); i > 1; i--) std::swap(order[i - 1], order[random() % i]);
  for (uint64_t block : order) {
    block_index_ = {unsigned(block % grid[0]), unsigned(block / grid[0] % grid[1]),
                    unsigned(block / grid[0] / grid[1])};
    run_block();
    if (stopped_) return;
  }
}

void Machine::run_block() {
  const uint32_t *dim = launch_.block;
  alive_ = int(dim[0] * dim[1] * dim[2]);
  memset(reinterpret_cast<void *>(shared_.first), 0xff, shared_.last - shared_.first);  // NaN
  block_start_ = ++epoch_;
  warps_.assign((alive_ + 31) / 32, Warp{});
  for (Warp &warp : warps_) warp.priority = random();
  while (int(threads_.size()) < alive_) threads_.emplace_back();
  ready_.clear(), waiting_.clear(), first_ready_ = 0;
  for (int id = 0; id < alive_; id++) {
    Thread &t = threads_[id];
    t.index = {id % dim[0], id / dim[0] % dim[1], id / dim[0] / dim[1]};
    t.id = id, t.warp = &warps_[id / 32], t.context = t.stack.start(&Machine::enter_thread);
    t.lane().thread = id, t.warp->alive |= 1u << (id & 31);
    ready_.push_back(id);
  }
  current_ = &threads_[next_ready()];
  accesses_ = 0;
  cuda_cpu_switch(&host_context_, current_->context);
  current_ = nullptr;
}

void Machine::enter_thread() {
  machine->kernel_.call(machine->arguments_);
  machine->leave_thread();
}

void Machine::leave_thread() {
  const unsigned bit = 1u << (current_->id & 31);
  for (const Lane &lane : current_->warp->lanes)
    if (lane.mask & bit) {
      report(result_.errors, nullptr, "thread %d exits while lanes of its warp wait for it at line %d",
             current_->id, lane.line);
      stop();
    }
  alive_--, current_->warp->alive &= ~bit;
  if (alive_ && int(waiting_.size()) == alive_) release_barrier();
  schedule();
  abort();
}

void Machine::sync_block(int line) {
  if (waiting_.empty()) barrier_line_ = line;
  if (line != barrier_line_) {
    report(result_.errors, nullptr,
           "divergent __syncthreads: some threads wait at line %d, thread %d at line %d", barrier_line_,
           current_->id, line);
    stop();
  }
  waiting_.push_back(current_->id);
  if (int(waiting_.size()) == alive_) release_barrier();
  schedule();
}

void Machine::release_barrier() {
  ready_.insert(ready_.end(), waiting_.begin(), waiting_.end());
  waiting_.clear();
  epoch_++;
}

template <class Complete>
void Machine::meet(int operation, unsigned mask, int line, Complete complete) {
  Warp &warp = *current_->warp;
  Lane &self = current_->lane();
  const unsigned bit = 1u << (current_->id & 31);
  // Lanes that the block never had are not missed: a full mask is right for a last, narrower warp too.
  for (int i = 0; i < 32; i++)
    if (warp.lanes[i].thread < 0) mask &= ~(1u << i);
  if (!(mask & bit) || (mask & ~warp.alive)) {
    report(result_.errors, nullptr, "warp operation at line %d by thread %d: its mask %08x %s", line,
           current_->id, mask, mask & bit ? "names lanes that have exited" : "leaves the caller out");
    stop();
  }
  self.mask = mask, self.operation = operation, self.line = line;
  unsigned arrived = 0;
  for (int i = 0; i < 32; i++) {
    const Lane &lane = warp.lanes[i];
    if (!(mask >> i & 1) || !lane.mask) continue;
    if (lane.mask != mask || lane.operation != operation || lane.line != line) {
      report(result_.errors, nullptr,
             "divergent warp operations: thread %d waits at line %d for %08x, thread %d at line %d for %08x",
             lane.thread, lane.line, lane.mask, current_->id, line, mask);
      stop();
    }
    arrived |= 1u << i;
  }
  if (arrived == mask) {
    complete(warp, mask);
    for (int i = 0; i < 32; i++)
      if (mask >> i & 1) warp.lanes[i].mask = 0, ready_.push_back(warp.lanes[i].thread);
  }
  schedule();
}

// Leaves the current thread, which is in some queue or has exited, for the next that can run.
void Machine::schedule() {
  Thread *before = current_;
  accesses_ = 0;
  if (first_ready_ == ready_.size()) {
    if (alive_) report_deadlock();
    cuda_cpu_switch(&before->context, host_context_);
  }
  current_ = &threads_[next_ready()];
  if (current_ != before) cuda_cpu_switch(&before->context, current_->context);
}

void Machine::report_deadlock() {
  int line = 0;
  for (const Warp &warp : warps_)
    for (const Lane &lane : warp.lanes)
      if (lane.mask) line = lane.line;
  const int at_barrier = int(waiting_.size());
  report(result_.errors, nullptr,
         "deadlock: %d threads wait at __syncthreads (line %d), %d at a warp operation (line %d)", at_barrier,
         at_barrier ? barrier_line_ : 0, alive_ - at_barrier, line);
  stop();
}

int Machine::next_ready() {
  if (launch_.policy == Policy::in_order) {
    const int id = ready_[first_ready_++];
    if (first_ready_ == ready_.size()) ready_.clear(), first_ready_ = 0;
    return id;
  }
  size_t chosen = random() % ready_.size();
  if (launch_.policy == Policy::warp_priority)
    for (size_t i = 0; i < ready_.size(); i++)
      if (warps_[ready_[i] / 32].priority > warps_[ready_[chosen] / 32].priority) chosen = i;
  const int id = ready_[chosen];
  ready_[chosen] = ready_.back();
  ready_.pop_back();
  return id;
}

uint32_t Machine::random() {  // xorshift64
  random_state_ ^= random_state_ << 13;
  random_state_ ^= random_state_ >> 7;
  random_state_ ^= random_state_ << 17;
  return uint32_t(random_state_ >> 32);
}

void Machine::report(int64_t &count, const void *code, const char *text, ...) {
  count++;
  if (result_.message[0]) return;
  const int used = snprintf(result_.message, sizeof result_.message, "block (%u, %u, %u): ", block_index_.x,
                            block_index_.y, block_index_.z);
  va_list values;
  va_start(values, text);
  vsnprintf(result_.message + used, sizeof result_.message - used, text, values);
  va_end(values);
  if (code) result_.code_offset = reinterpret_cast<uintptr_t>(code) - 1 - module_.first;
}

void Machine::stop() {
  stopped_ = true;
  void *abandoned;
  cuda_cpu_switch(&abandoned, host_context_);
  abort();
}

void run(const Kernel &kernel, const Launch &launch, void *const *arguments, Result &result) {
  Machine here(kernel, launch, arguments, result);
  machine = &here;
  here.run();
  machine = nullptr;
}

}  // namespace cuda_cpu

using namespace cuda_cpu;

extern "C" {

uint3 cuda_cpu_thread_index() { return machine->current().index; }
uint3 cuda_cpu_block_index() { return machine->block_index(); }
dim3 cuda_cpu_block_dim() {
  const uint32_t *dim = machine->launch().block;
  return {dim[0], dim[1], dim[2]};
}
dim3 cuda_cpu_grid_dim() {
  const uint32_t *dim = machine->launch().grid;
  return {dim[0], dim[1], dim[2]};
}

void cuda_cpu_sync_block(int line) { machine->sync_block(line); }

enum Operation { sync_warp_operation, shuffle_operation, ballot_operation };

void cuda_cpu_sync_warp(unsigned mask, int line) {
  machine->meet(sync_warp_operation, mask, line, [](Warp &warp, unsigned) { warp.epoch++; });
}

uint64_t cuda_cpu_shuffle(unsigned mask, uint64_t value, int source, int line) {
  Lane &self = machine->current().lane();
  self.given = value, self.source = source;
  machine->meet(shuffle_operation, mask, line, [](Warp &warp, unsigned members) {
    for (int i = 0; i < 32; i++) {
      Lane &lane = warp.lanes[i];
      if (!(members >> i & 1)) continue;
      // A lane outside the mask gives an undefined value: all ones, a NaN.
      lane.taken = members >> lane.source & 1 ? warp.lanes[lane.source].given : ~uint64_t(0);
    }
  });
  return self.taken;
}

unsigned cuda_cpu_ballot(unsigned mask, bool predicate, int line) {
  Lane &self = machine->current().lane();
  self.given = predicate;
  machine->meet(ballot_operation, mask, line, [](Warp &warp, unsigned members) {
    uint64_t votes = 0;
    for (int i = 0; i < 32; i++)
      if (members >> i & 1) votes |= warp.lanes[i].given << i;
    for (Lane &lane : warp.lanes) lane.taken = votes;
  });
  return unsigned(self.taken);
}

}  // extern "C"
