// How arrays hold numbers: as they are computed with.
INLINE double get(const double *p) { return *p; }
INLINE void put(double *p, double x) { *p = x; }

// N numbers that lie side by side.
template <isize N> INLINE void copy(double *to, const double *from) { memcpy(to, from, N * sizeof(double)); }
