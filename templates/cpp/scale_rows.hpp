// Rows times a factor each; a row whose factor is 1 is left alone, for x * 1 is x.
template <isize R, isize C, isize S> INLINE void scale_rows(Tile<R, C, S> t, Rows<R> factor) {
  for (isize r = 0; r < R; ++r)
    if (factor[r] != real(1))
      for (isize c = 0; c < C; c += lanes) store(t.at(r, c), load(t.at(r, c)) * all(factor[r]));
}
