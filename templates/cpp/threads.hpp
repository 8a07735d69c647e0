// Independent iterations over threads; scratch memory for each.

// Scratch memory of one call, kept for the next: a slot a thread, taken by whoever comes first.
constexpr int max_threads = 256;
static void *kept_scratch[max_threads];

INLINE void *take_scratch(int slot, size_t bytes) {
  void *const kept = __atomic_exchange_n(&kept_scratch[slot], (void *)0, __ATOMIC_ACQ_REL);
  return kept ? kept : aligned_alloc(64, round_up(bytes, 64));
}
INLINE void keep_scratch(int slot, void *scratch) {
  free(__atomic_exchange_n(&kept_scratch[slot], scratch, __ATOMIC_ACQ_REL));
}

template <class Body> struct Work {
  const Body *body;
  isize count, next;
  size_t bytes;
  int slots, failed;
};

// Iterations one by one until none is left, whoever takes them.
template <class Body> static void *take_part(void *shared) {
  Work<Body> &work = *(Work<Body> *)shared;
  const int slot = __atomic_fetch_add(&work.slots, 1, __ATOMIC_RELAXED);
  void *const scratch = take_scratch(slot, work.bytes);
  if (!scratch) __atomic_store_n(&work.failed, 1, __ATOMIC_RELAXED);
  while (scratch) {
    const isize n = __atomic_fetch_add(&work.next, 1, __ATOMIC_RELAXED);
    if (n >= work.count) break;
    if (!(*work.body)(n, (char *)scratch)) __atomic_store_n(&work.failed, 1, __ATOMIC_RELAXED);
  }
  if (scratch) keep_scratch(slot, scratch);
  return 0;
}

// body(n, scratch) for 0 <= n < count; it returns whether it had the memory it needs. Returns 0, or 1 where
// some iteration did not. Threads that cannot be started are done without.
template <class Body> static int parallel(isize count, int threads, size_t bytes, const Body &body) {
  Work<Body> work = {&body, count, 0, bytes, 0, 0};
  pthread_t started[max_threads];
  const int wanted = (int)smaller(smaller(threads, max_threads), count);
  int others = 0;
  while (others + 1 < wanted && !pthread_create(&started[others], 0, take_part<Body>, &work)) ++others;
  take_part<Body>(&work);
  for (int t = 0; t < others; ++t) pthread_join(started[t], 0);
  return work.failed;
}
