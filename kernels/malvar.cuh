// Malvar, He and Cutler's debayering (ICASSP 2004) of one line of a Bayer lattice, several sites at a time.
#pragma once
#include "pair.cuh"

// The column parity of the red or blue sites on a line of the lattice, and which of the two colors they have (0 or 2).
// i: parity of the raw row.
CONSTANT int chroma_column(int i, int line) { return line == red_row(i, 0) ? red_column(i, 0) : 1 - red_column(i, 0); }
CONSTANT int chroma(int i, int line) { return line == red_row(i, 0) ? 0 : 2; }
// whether a value is the site's own sample
CONSTANT bool is_sample(int i, int line, int site, int channel) {
  return channel == (site % 2 == chroma_column(i, line) ? chroma(i, line) : 1);
}

#if HALF_PRECISION
// a b + c clamped to [0, 1]: the clamp is free in the instruction
DEVICE Pair fma_sat(Pair a, Pair b, Pair c) { return half2_fma_sat(a, b, c); }
#else
DEVICE Pair fma_sat(Pair a, Pair b, Pair c) {
  return Pair{saturate(fmaf(a.x, b.x, c.x)), saturate(fmaf(a.y, b.y, c.y))};
}
#endif

// A site's own sample, and sums of its neighbors on the lattice: at one site and at two along x and along y, and of
// the four diagonals.
struct SiteSums {
  Pair center, h1, h2, v1, v2, diagonal;
};

// Debayers N sites, of which the first is even, of line `c`; a, b are the two lines above it, d, e the two below, each
// from two sites to the left on. `Scale::PER_SAMPLE` is what a sample is multiplied with to be 1 at full scale. A
// site's own sample is stored as it is, the other two colors scaled and clamped to [0, 1]: [site][red, green, blue].
// I: parity of the raw row; LINE: parity of the lattice's line. also(i, at_chroma, sums) is called for
// every site; at_chroma: whether it is a red or blue one.
template <class Scale, int I, int LINE, int N, typename Also>
DEVICE void debayer(const Pair (&a)[N + 4], const Pair (&b)[N + 4], const Pair (&c)[N + 4], const Pair (&d)[N + 4],
                    const Pair (&e)[N + 4], Pair (&out)[N][3], Also also) {
  constexpr auto scale = Scale::PER_SAMPLE;
  constexpr Pair green_near = splat(MHC_GREEN_NEAR * scale), green_far = splat(MHC_GREEN_FAR * scale);
  constexpr Pair green_center = splat(MHC_GREEN_CENTER * scale), across_diagonal = splat(MHC_ACROSS_DIAGONAL * scale);
  constexpr Pair across_far = splat(MHC_ACROSS_FAR * scale), across_center = splat(MHC_ACROSS_CENTER * scale);
  constexpr Pair row_near = splat(MHC_ROW_NEAR * scale), row_far = splat(MHC_ROW_FAR * scale);
  constexpr Pair row_side = splat(MHC_ROW_SIDE * scale), row_diagonal = splat(MHC_ROW_DIAGONAL * scale);
  constexpr Pair row_center = splat(MHC_ROW_CENTER * scale);
  constexpr int own = chroma(I, LINE), other = 2 - own;
  Pair near[N + 2];
#pragma unroll
  for (int k = 0; k < N + 2; k++) near[k] = add(b[k + 1], d[k + 1]);
#pragma unroll
  for (int i = 0; i < N; i++) {
    const Pair center = c[i + 2], h1 = add(c[i + 1], c[i + 3]), h2 = add(c[i], c[i + 4]);
    const Pair v1 = near[i + 1], v2 = add(a[i + 2], e[i + 2]), diagonal = add(near[i], near[i + 2]);
    const bool at_chroma = i % 2 == chroma_column(I, LINE);
    also(i, at_chroma, SiteSums{center, h1, h2, v1, v2, diagonal});
    if (at_chroma) {
      const Pair far = add(h2, v2);
      out[i][own] = center;
      out[i][1] = fma_sat(add(h1, v1), green_near, fma(far, green_far, mul(center, green_center)));
      out[i][other] = fma_sat(diagonal, across_diagonal, fma(far, across_far, mul(center, across_center)));
    } else {
      const Pair flat = fma(diagonal, row_diagonal, mul(center, row_center));
      out[i][1] = center;
      out[i][own] = fma_sat(h1, row_near, fma(h2, row_far, fma(v2, row_side, flat)));
      out[i][other] = fma_sat(v1, row_near, fma(v2, row_far, fma(h2, row_side, flat)));
    }
  }
}
template <class Scale, int I, int LINE, int N>
DEVICE void debayer(const Pair (&a)[N + 4], const Pair (&b)[N + 4], const Pair (&c)[N + 4], const Pair (&d)[N + 4],
                    const Pair (&e)[N + 4], Pair (&out)[N][3]) {
  debayer<Scale, I, LINE>(a, b, c, d, e, out, [](int, bool, const SiteSums &) {});
}
