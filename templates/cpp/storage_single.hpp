// What masks and scores read of a narrower type.
INLINE double get(const float *p) { return *p; }
