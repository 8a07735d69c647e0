// Rows times a factor each, also where it is 1: what leaving such rows alone is worth is measured beside this.
template <isize R, isize C, isize S> INLINE void scale_rows(Tile<R, C, S> t, Rows<R> factor) {
  for (isize r = 0; r < R; ++r)
    for (isize c = 0; c < C; c += lanes) store(t.at(r, c), load(t.at(r, c)) * all(factor[r]));
}
