// How arrays hold numbers.
template <class T> struct Stored;
template <> struct Stored<float> {
  static __device__ float load(const float *p) { return *p; }
  static __device__ void store(float *p, float x) { *p = x; }
};
