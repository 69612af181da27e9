// Malvar, He and Cutler's debayering (ICASSP 2004) of one line of a Bayer lattice, four sites at a time.
#ifndef POLAR_MALVAR_CUH
#define POLAR_MALVAR_CUH
#include "pair.cuh"

typedef Pair Sites[8];      // sites -2 .. 5 of a line around the four
typedef Pair Colours[4][3]; // [site][red, green, blue]

// The column parity of red or blue sites on a line of the lattice, and which of the two they are. I: parity of the raw
// row.
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

// Lines a .. e are two above to two below c, the line itself. The site's own samples come out as they are, the others
// over `scale`, clamped to [0, 1].
#define K(weight) PAIR((weight) * PER_SCALE)
template <int I, int LINE>
DEVICE void debayer(const Sites &a, const Sites &b, const Sites &c, const Sites &d, const Sites &e, Colours &out) {
  constexpr int own = chroma(I, LINE), other = 2 - own;
  Pair near[6];
#pragma unroll
  for (int k = 0; k < 6; k++) near[k] = add(b[k + 1], d[k + 1]);
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const Pair centre = c[i + 2], h1 = add(c[i + 1], c[i + 3]), h2 = add(c[i], c[i + 4]), v1 = near[i + 1],
               v2 = add(a[i + 2], e[i + 2]);
    const Pair diagonal = add(near[i], near[i + 2]);
    if (i % 2 == chroma_column(I, LINE)) {
      const Pair far = add(h2, v2);
      out[i][own] = centre;
      out[i][1] = fma_sat(add(h1, v1), K(MHC_GREEN_NEAR), fma(far, K(MHC_GREEN_FAR), mul(centre, K(MHC_GREEN_CENTRE))));
      out[i][other] =
          fma_sat(diagonal, K(MHC_ACROSS_DIAGONAL), fma(far, K(MHC_ACROSS_FAR), mul(centre, K(MHC_ACROSS_CENTRE))));
    } else {
      const Pair flat = fma(diagonal, K(MHC_ROW_DIAGONAL), mul(centre, K(MHC_ROW_CENTRE)));
      out[i][1] = centre;
      out[i][own] = fma_sat(h1, K(MHC_ROW_NEAR), fma(h2, K(MHC_ROW_FAR), fma(v2, K(MHC_ROW_SIDE), flat)));
      out[i][other] = fma_sat(v1, K(MHC_ROW_NEAR), fma(v2, K(MHC_ROW_FAR), fma(h2, K(MHC_ROW_SIDE), flat)));
    }
  }
}
#undef K
#endif
