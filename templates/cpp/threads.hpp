// Independent iterations over threads.

// The threads that share an iteration; the calling one has this memory.
struct Team {
  int threads;
  size_t bytes;  // of each thread's scratch memory
  char *scratch;
  Pool *pool;
};

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

// Iterations from `next` to `end`; the team of each has `each` threads, those before `larger_to` one more.
template <int N, class Body> struct Work {
  const Nest<N> &nest;
  const Body &body;
  size_t bytes;
  isize next;
  const isize end, larger_to;
  const int each;
  int failed;
};

// Iterations one by one until none is left, whoever takes them.
template <int N, class Body> INLINE void take_part(Work<N, Body> &work, char *scratch, Pool *pool) {
  for (;;) {
    const isize iteration = __atomic_fetch_add(&work.next, 1, __ATOMIC_RELAXED);
    if (iteration >= work.end) return;
    isize at[N];
    work.nest.locate(iteration, at);
    const Team team = {work.each + (iteration < work.larger_to), work.bytes, scratch, pool};
    if (work.body(at, team)) __atomic_store_n(&work.failed, 1, __ATOMIC_RELAXED);
  }
}
template <int N, class Body> void *join_in(void *shared) {
  Work<N, Body> &work = *(Work<N, Body> *)shared;
  const Scratch scratch(work.bytes);
  Pool pool;
  if (scratch.p) take_part(work, scratch.p, &pool);
  return 0;
}

// The calling thread and others, `threads` in all, take part. Those that cannot be started, or have no
// memory, are done without.
template <int N, class Body> int share(Work<N, Body> &work, isize threads, const Team &team) {
  pthread_t started[max_threads];
  const isize wanted = smaller(smaller(threads, max_threads), work.end - work.next);
  int others = 0;
  while (others + 1 < wanted && !pthread_create(&started[others], 0, join_in<N, Body>, &work)) ++others;
  take_part(work, team.scratch, team.pool);
  for (int t = 0; t < others; ++t) pthread_join(started[t], 0);
  return work.failed;
}

// body(at, team) for every iteration of the nest, each on one thread; it returns 0, or 1 where it had not
// the memory that it needs. Returns 1 if some iteration did.
template <int N, class Body> int parallel(const Nest<N> &nest, const Team &team, const Body &body) {
  Work<N, Body> work = {nest, body, team.bytes, 0, nest.count(), 0, 1, 0};
  return share(work, team.threads, team);
}

// The same, for iterations that threads can share: when fewer are left than there are threads, each gets its
// part of them.
template <int N, class Body> int parallel_teams(const Nest<N> &nest, const Team &team, const Body &body) {
  const isize count = nest.count(), left = count % team.threads, even = count - left;
  Work<N, Body> single = {nest, body, team.bytes, 0, even, 0, 1, 0};
  if (share(single, team.threads, team) || !left) return single.failed;
  const isize larger_to = even + team.threads % left;
  Work<N, Body> shared = {nest, body, team.bytes, even, count, larger_to, (int)(team.threads / left), 0};
  return share(shared, left, team);
}
