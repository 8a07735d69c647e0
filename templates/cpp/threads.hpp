// Independent iterations over threads; scratch memory for each.

// Scratch memory of one call, kept for the next: a slot a thread, taken by whoever comes first.
void *kept_scratch[max_threads];

INLINE void *take_scratch(int slot, size_t bytes) {
  void *const kept = __atomic_exchange_n(&kept_scratch[slot], (void *)0, __ATOMIC_ACQ_REL);
  return kept ? kept : aligned_alloc(64, round_up(bytes, 64));
}
INLINE void keep_scratch(int slot, void *scratch) {
  free(__atomic_exchange_n(&kept_scratch[slot], scratch, __ATOMIC_ACQ_REL));
}

// N nested loops from 0 to stop[n] in steps of step[n], flattened.
template <int N> struct Nest {
  isize stop[N], step[N];
  INLINE isize trips(int n) const { return ceildiv(stop[n], step[n]); }
  isize count() const {
    isize all_trips = 1;
    for (int n = 0; n < N; ++n) all_trips *= trips(n);
    return all_trips;
  }
  INLINE void locate(isize iteration, isize (&at)[N]) const {
    for (int n = N; n-- > 0; iteration /= trips(n)) at[n] = iteration % trips(n) * step[n];
  }
};

template <int N, class Body> struct Work {
  const Nest<N> &nest;
  const Body &body;
  size_t bytes;
  isize count, next;
  int slots, failed;
};

// Iterations one by one until none is left, whoever takes them.
template <int N, class Body> void *take_part(void *shared) {
  Work<N, Body> &work = *(Work<N, Body> *)shared;
  const int slot = __atomic_fetch_add(&work.slots, 1, __ATOMIC_RELAXED);
  void *const scratch = take_scratch(slot, work.bytes);
  if (!scratch) __atomic_store_n(&work.failed, 1, __ATOMIC_RELAXED);
  while (scratch) {
    const isize iteration = __atomic_fetch_add(&work.next, 1, __ATOMIC_RELAXED);
    if (iteration >= work.count) break;
    isize at[N];
    work.nest.locate(iteration, at);
    if (!work.body(at, (char *)scratch)) __atomic_store_n(&work.failed, 1, __ATOMIC_RELAXED);
  }
  if (scratch) keep_scratch(slot, scratch);
  return 0;
}

// body(at, scratch) for every iteration of the nest; it returns whether it had the memory it needs. Returns
// 0, or 1 where some iteration did not. Threads that cannot be started are done without.
template <int N, class Body> int parallel(const Nest<N> &nest, int threads, size_t bytes, const Body &body) {
  Work<N, Body> work = {nest, body, bytes, nest.count(), 0, 0, 0};
  pthread_t started[max_threads];
  const isize wanted = smaller(smaller(threads, max_threads), work.count);
  int others = 0;
  while (others + 1 < wanted && !pthread_create(&started[others], 0, take_part<N, Body>, &work)) ++others;
  if (work.count) take_part<N, Body>(&work);
  for (int t = 0; t < others; ++t) pthread_join(started[t], 0);
  return work.failed;
}
