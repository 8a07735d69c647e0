// Functions of single floats; those of doubles are the C library's.
INLINE float exp(float x) { return expf(x); }
INLINE float exp2(float x) { return exp2f(x); }
INLINE float log(float x) { return logf(x); }
INLINE float tanh(float x) { return tanhf(x); }
