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

// Who acts when, in one word: the epoch, the warp epoch, flags of the cell that keeps it, and the thread.
class Stamp {
 public:
  static constexpr uint64_t thread_mask = 0x03ff, warp_mask = 0x03e0, warp_epoch_mask = 0xffff0000;

  Stamp() = default;
  Stamp(uint32_t epoch, uint16_t warp_epoch, int thread)
      : word_(uint64_t(epoch) << 32 | uint64_t(warp_epoch) << 16 | uint64_t(thread)) {}

  uint32_t epoch() const { return uint32_t(word_ >> 32); }  // 0: never
  bool has(uint64_t flag) const { return word_ & flag; }
  uint64_t flags(uint64_t which) const { return word_ & which; }
  Stamp with(uint64_t flags) const {
    Stamp marked = *this;
    marked.word_ |= flags;
    return marked;
  }
  bool same_thread(Stamp other) const { return ((word_ ^ other.word_) & thread_mask) == 0; }
  bool same_warp(Stamp other) const { return ((word_ ^ other.word_) & warp_mask) == 0; }
  bool same_warp_epoch(Stamp other) const { return ((word_ ^ other.word_) & warp_epoch_mask) == 0; }

 private:
  uint64_t word_;
};

struct Moment {
  Stamp stamp;
  uint32_t block_start;  // the running block's first epoch; epochs grow through all blocks of a launch
};

class Cell {
 public:
  // Notes an access, and says whether it races with an earlier one. Blocks share global memory and not
  // shared memory, where what an earlier block left does not count.
  bool note(const Moment &now, Access access, bool shared) {
    const bool racing = races(now, access, shared);
    if (access == Access::read) {
      note_read(now, shared);
    } else {
      write_ = now.stamp.with(access == Access::atomic ? atomic : 0);
    }
    return racing;
  }
  bool written_by(const Moment &now) const { return write_.epoch() >= now.block_start; }

 private:
  static constexpr uint64_t atomic = 0x0400;          // of a write
  static constexpr uint64_t several_lanes = 0x0400;   // of a read: lanes of one warp in this warp epoch
  static constexpr uint64_t several_warps = 0x0800;   // of a read: in this epoch
  static constexpr uint64_t several_blocks = 0x1000;  // of a read: in this launch

  static bool ordered(Stamp then, const Moment &now, bool shared) {
    if (then.epoch() != now.stamp.epoch())
      return shared || then.epoch() == 0 || then.epoch() >= now.block_start;
    return then.same_thread(now.stamp) || (then.same_warp(now.stamp) && !then.same_warp_epoch(now.stamp));
  }

  bool races(const Moment &now, Access access, bool shared) const {
    const bool both_atomic = access == Access::atomic && write_.has(atomic);
    if (!both_atomic && !ordered(write_, now, shared)) return true;
    if (access == Access::read) return false;
    if (read_.has(several_blocks) || !ordered(read_, now, shared)) return true;
    if (read_.epoch() != now.stamp.epoch()) return false;
    return read_.has(several_warps) || (read_.has(several_lanes) && read_.same_warp_epoch(now.stamp));
  }

  // One stamp stands for all reads that a later write must be ordered after.
  void note_read(const Moment &now, bool shared) {
    uint64_t flags = 0;
    if (read_.epoch() == now.stamp.epoch()) {
      flags = read_.flags(several_warps | several_blocks);
      if (!read_.same_warp(now.stamp)) {
        flags |= several_warps;
      } else if (read_.same_warp_epoch(now.stamp)) {
        flags |= read_.same_thread(now.stamp) ? read_.flags(several_lanes) : several_lanes;
      }
    } else if (!shared && read_.epoch() != 0) {
      flags = read_.epoch() < now.block_start ? several_blocks : read_.flags(several_blocks);
    }
    read_ = now.stamp.with(flags);
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
    if (bytes == word && offset % word == 0 && !split_[offset / word])
      return touch(cells_[offset], now, access, shared);
    return note_parts(offset, bytes, now, access, shared);
  }

 private:
  static Seen touch(Cell &cell, const Moment &now, Access access, bool shared) {
    const bool unwritten = !cell.written_by(now);
    return {cell.note(now, access, shared), unwritten};
  }

  __attribute__((noinline)) Seen note_parts(size_t offset, size_t bytes, const Moment &now, Access access,
                                            bool shared) {
    Seen all{};
    for (const size_t end = offset + bytes; offset < end;) {
      const size_t index = offset / word, first = index * word, last = std::min(end, first + word);
      if (!split_[index] && last - offset < word) {
        std::fill_n(&cells_[first + 1], word - 1, cells_[first]);
        split_[index] = true;
      }
      const size_t step = split_[index] ? 1 : word;
      for (; offset < last; offset += step) {
        const Seen seen = touch(cells_[offset], now, access, shared);
        all.racing |= seen.racing, all.unwritten |= seen.unwritten;
      }
    }
    return all;
  }

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
