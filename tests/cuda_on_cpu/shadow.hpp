// The race detector's memory: for every byte, who wrote it last and who read it last, and when.
//
// Time is counted in epochs: the block's barrier starts a new one for all of its threads, a warp barrier
// starts a new warp epoch inside it. Two accesses to one byte, one of them a write, race unless a barrier
// lies between them: they are in different epochs of one block, or by one warp in different warp epochs, or
// by one thread. Blocks are never ordered. The verdict depends on where the barriers are and not on which
// thread happened to run first, so it holds for every schedule with the same control flow.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace cuda_cpu {

enum class Access : uint8_t { read, write, atomic };

struct Moment {
  uint32_t epoch;        // grows with every barrier of every block of every launch
  uint32_t block_start;  // the running block's first epoch
  uint16_t warp_epoch;
  uint16_t thread;
};

class Cell {
 public:
  // Notes an access, and says whether it races with an earlier one. Blocks share global memory and not
  // shared memory, where what an earlier block left does not count.
  bool note(const Moment &now, Access access, bool shared) {
    const bool racing = races(now, access, shared);
    access == Access::read ? note_read(now, shared) : note_write(now, access);
    return racing;
  }
  bool written_by(const Moment &now) const { return write_.epoch >= now.block_start; }

 private:
  static constexpr uint16_t thread_mask = 0x03ff;
  static constexpr uint16_t atomic = 0x0400;          // of a write
  static constexpr uint16_t several_lanes = 0x0400;   // of a read: lanes of one warp in this warp epoch
  static constexpr uint16_t several_warps = 0x0800;   // of a read: in this epoch
  static constexpr uint16_t several_blocks = 0x1000;  // of a read: in this launch

  struct Stamp {
    uint32_t epoch;  // 0: never
    uint16_t warp_epoch;
    uint16_t who;
    int thread() const { return who & thread_mask; }
  };

  static bool same_warp(const Stamp &then, const Moment &now) {
    return then.thread() >> 5 == now.thread >> 5;
  }
  static bool ordered(const Stamp &then, const Moment &now, bool shared) {
    if (then.epoch == 0) return true;
    if (then.epoch < now.block_start) return shared;
    if (then.epoch != now.epoch || then.thread() == now.thread) return true;
    return same_warp(then, now) && then.warp_epoch != now.warp_epoch;
  }

  bool races(const Moment &now, Access access, bool shared) const {
    const bool both_atomic = access == Access::atomic && (write_.who & atomic);
    if (!both_atomic && !ordered(write_, now, shared)) return true;
    if (access == Access::read) return false;
    if (read_.who & several_blocks) return true;
    if (!ordered(read_, now, shared)) return true;
    if (read_.epoch != now.epoch) return false;
    if (read_.who & several_warps) return true;
    return (read_.who & several_lanes) && read_.warp_epoch == now.warp_epoch;
  }

  void note_write(const Moment &now, Access access) {
    const uint16_t flags = access == Access::atomic ? atomic : 0;
    write_ = {now.epoch, now.warp_epoch, uint16_t(now.thread | flags)};
  }

  // One stamp stands for all reads that a later write must be ordered after.
  void note_read(const Moment &now, bool shared) {
    uint16_t flags = 0;
    if (read_.epoch == now.epoch) {
      flags = read_.who & (several_warps | several_blocks);
      if (!same_warp(read_, now)) {
        flags |= several_warps;
      } else if (read_.warp_epoch == now.warp_epoch) {
        flags |= read_.who & several_lanes;
        if (read_.thread() != now.thread) flags |= several_lanes;
      }
    } else if (!shared && read_.epoch != 0) {
      flags = read_.who & several_blocks;
      if (read_.epoch < now.block_start) flags |= several_blocks;
    }
    read_ = {now.epoch, now.warp_epoch, uint16_t(now.thread | flags)};
  }

  Stamp write_, read_;
};

static_assert(sizeof(Cell) == 16, "a cell is two stamps");

// Cells for a range of memory. A word of four bytes has one cell until something touches a part of it;
// from then on it has a cell for each byte.
class Shadow {
 public:
  struct Seen {
    bool racing, unwritten;
  };

  // Memory never touched costs nothing but its address space.
  explicit Shadow(size_t bytes)
      : cells_(allocate<Cell>(bytes + word)), split_(allocate<bool>(bytes / word + 1)) {}

  Seen note(size_t offset, size_t bytes, const Moment &now, Access access, bool shared) {
    Seen seen{};
    auto touch = [&](Cell &cell) {
      seen.unwritten |= !cell.written_by(now);
      seen.racing |= cell.note(now, access, shared);
    };
    const size_t end = offset + bytes;
    while (offset < end) {
      const size_t index = offset / word, first = index * word, last = std::min(end, first + word);
      if (!split_[index] && last - offset < word) {
        std::fill_n(&cells_[first + 1], word - 1, cells_[first]);
        split_[index] = true;
      }
      if (split_[index]) {
        while (offset < last) touch(cells_[offset++]);
      } else {
        touch(cells_[first]);
        offset = last;
      }
    }
    return seen;
  }

 private:
  static constexpr size_t word = 4;

  template <class T>
  using Array = std::unique_ptr<T[], decltype(&std::free)>;
  template <class T>
  static Array<T> allocate(size_t count) {
    void *memory = std::calloc(count, sizeof(T));
    if (!memory) throw std::bad_alloc();
    return Array<T>(static_cast<T *>(memory), &std::free);
  }

  Array<Cell> cells_;
  Array<bool> split_;
};

}  // namespace cuda_cpu
