// Functions of single numbers, as masks and scores have them.
INLINE bool both(bool a, bool b) { return a & b; }
INLINE bool either(bool a, bool b) { return a | b; }
INLINE bool equal(real a, real b) { return a == b; }
INLINE bool unequal(real a, real b) { return a != b; }
INLINE bool below(real a, real b) { return a < b; }
INLINE bool at_most(real a, real b) { return a <= b; }
INLINE bool not_below(real a, real b) { return !(a < b); }
INLINE bool not_at_most(real a, real b) { return !(a <= b); }
INLINE real choose(bool c, real a, real b) { return c ? a : b; }
INLINE real number(isize n) { return (real)n; }
INLINE real maximum(real a, real b) { return a > b || a != a ? a : b; }  // a NaN wins
INLINE real minimum(real a, real b) { return a < b || a != a ? a : b; }
INLINE real absolute(real x) { return x < 0 ? -x : x + real(0); }
