// Memory of the kernel's own: scratch memory for the tiles of a thread, and arrays.

// Scratch memory of calls that are over, for the next ones.
void *kept_scratch[max_threads];

struct Scratch {
  char *const p;  // null where there is none to be had
  explicit Scratch(size_t bytes) : p(take(bytes)) {}
  Scratch(const Scratch &) = delete;
  Scratch &operator=(const Scratch &) = delete;
  ~Scratch() {
    void *rest = p;
    for (int n = 0; rest && n < max_threads; ++n)
      if (!__atomic_load_n(&kept_scratch[n], __ATOMIC_RELAXED))
        rest = __atomic_exchange_n(&kept_scratch[n], rest, __ATOMIC_ACQ_REL);
    free(rest);
  }
  static char *take(size_t bytes) {
    void *kept = 0;
    for (int n = 0; !kept && n < max_threads; ++n)
      if (__atomic_load_n(&kept_scratch[n], __ATOMIC_RELAXED))
        kept = __atomic_exchange_n(&kept_scratch[n], (void *)0, __ATOMIC_ACQ_REL);
    return (char *)(kept ? kept : aligned_alloc(64, round_up(bytes, 64)));
  }
};

// What a thread's arrays have given back, for its next ones: memory that is fresh costs a page fault every 4 KiB.
struct Pool {
  static constexpr int most = 8;
  struct Piece {
    void *p;
    size_t bytes;
  } pieces[most] = {};

  Pool() = default;
  Pool(const Pool &) = delete;
  Pool &operator=(const Pool &) = delete;
  ~Pool() {
    for (Piece &piece : pieces) free(piece.p);
  }
  void *take(size_t bytes) {
    for (Piece &piece : pieces)
      if (piece.p && piece.bytes == bytes) {
        void *const p = piece.p;
        piece.p = 0;
        return p;
      }
    return aligned_alloc(64, bytes);
  }
  void give(void *p, size_t bytes) {
    for (Piece &piece : pieces)
      if (!piece.p) {
        piece = {p, bytes};
        return;
      }
    free(p);
  }
};

// An array; p is null where there is no memory to be had.
template <int N, class T = real> struct Workspace : Array<T, N> {
  Pool &pool;
  size_t bytes;
  Workspace(Pool &from, const isize (&extents)[N]) : pool(from) {
    isize count = 1, wanted;
    bool too_large = false;  // for any memory
    for (int n = N; n-- > 0; too_large |= __builtin_mul_overflow(count, extents[n], &count))
      this->size[n] = extents[n], this->stride[n] = count;
    too_large |= __builtin_mul_overflow(larger(count, 1), (isize)sizeof(T), &wanted);
    bytes = too_large ? 0 : round_up(wanted, 64);
    this->p = too_large ? 0 : (T *)pool.take(bytes);
  }
  Workspace(const Workspace &) = delete;
  Workspace &operator=(const Workspace &) = delete;
  ~Workspace() {
    if (this->p) pool.give(this->p, bytes);
  }
};
