// R x C truth values, rows S bytes apart, padded as tiles are.
template <isize R, isize C, isize S> struct Mask {
  uint8_t *const p;
  INLINE explicit Mask(void *memory) : p((uint8_t *)memory) {}
  INLINE uint8_t *at(isize r, isize c) const { return p + r * S + c; }
};
