// `tile`, second stage on a color sensor: all three colors at every pixel of the mosaic, from the Bayer lattice of
// each place in the 2x2 tile of polarizers.
#pragma once
#include "malvar.cuh"
#include "raw.cuh"
#include "tile_layout.cuh"

#if COLOR

// The colors that a pixel lacks, from its own lattice (neighbors at a stride of two raw pixels). p: the pair in the
// raw tile; g: the same place in the plane of greens (weighted only).
constexpr int DOWN = 2 * RAW_P; // one line of the lattice
struct AtChroma {
  Pair green, across;
}; // at red: green and blue; at blue: green and red
struct AtGreen {
  Pair row, column;
}; // the color of its row, and of its column

#if DEBAYER == LATTICE_WEIGHTED // differences to green, linear on the lattice
DEVICE Pair difference(const Pair *p, const Pair *g, int at) { return sub(p[at], g[at]); }
DEVICE AtChroma at_chroma(const Pair *p, const Pair *g) {
  const Pair upper = add(difference(p, g, -DOWN - 1), difference(p, g, -DOWN + 1));
  const Pair lower = add(difference(p, g, DOWN - 1), difference(p, g, DOWN + 1));
  return AtChroma{g[0], fma(add(upper, lower), splat(0.25), g[0])};
}
DEVICE AtGreen at_green(const Pair *p, const Pair *g) {
  return AtGreen{fma(add(difference(p, g, -1), difference(p, g, 1)), splat(0.5), g[0]),
                 fma(add(difference(p, g, -DOWN), difference(p, g, DOWN)), splat(0.5), g[0])};
}
#else
DEVICE Pair diagonals(const Pair *p) { return add(add(p[-DOWN - 1], p[-DOWN + 1]), add(p[DOWN - 1], p[DOWN + 1])); }
#if DEBAYER == LATTICE_BILINEAR
DEVICE AtChroma at_chroma(const Pair *p, const Pair *) {
  return AtChroma{mul(add(add(p[-1], p[1]), add(p[-DOWN], p[DOWN])), splat(0.25)), mul(diagonals(p), splat(0.25))};
}
DEVICE AtGreen at_green(const Pair *p, const Pair *) {
  return AtGreen{mul(add(p[-1], p[1]), splat(0.5)), mul(add(p[-DOWN], p[DOWN]), splat(0.5))};
}
#else // Malvar, He and Cutler where an odd region of interest shifts the lanes of a pair to different Bayer phases;
      // otherwise `malvar_lines` is used
DEVICE AtChroma at_chroma(const Pair *p, const Pair *) {
  const Pair near = add(add(p[-1], p[1]), add(p[-DOWN], p[DOWN])),
             far = add(add(p[-2], p[2]), add(p[-2 * DOWN], p[2 * DOWN]));
  return AtChroma{fma(near, splat(MHC_GREEN_NEAR), fma(far, splat(MHC_GREEN_FAR), mul(p[0], splat(MHC_GREEN_CENTER)))),
                  fma(diagonals(p), splat(MHC_ACROSS_DIAGONAL),
                      fma(far, splat(MHC_ACROSS_FAR), mul(p[0], splat(MHC_ACROSS_CENTER))))};
}
DEVICE AtGreen at_green(const Pair *p, const Pair *) {
  const Pair h1 = add(p[-1], p[1]), v1 = add(p[-DOWN], p[DOWN]), h2 = add(p[-2], p[2]),
             v2 = add(p[-2 * DOWN], p[2 * DOWN]);
  const Pair flat = fma(diagonals(p), splat(MHC_ROW_DIAGONAL), mul(p[0], splat(MHC_ROW_CENTER)));
  return AtGreen{fma(h1, splat(MHC_ROW_NEAR), fma(h2, splat(MHC_ROW_FAR), fma(v2, splat(MHC_ROW_SIDE), flat))),
                 fma(v1, splat(MHC_ROW_NEAR), fma(v2, splat(MHC_ROW_FAR), fma(h2, splat(MHC_ROW_SIDE), flat)))};
}
#endif
#endif

#if DEBAYER == LATTICE_WEIGHTED
// Green at a red or blue pair: the mean of four neighbors, each corrected by half the pixel's own gradient, weighted
// by 1/roughness. One division for all: every weight times the product of all roughnesses; over 4, for the range of
// half.
struct Estimate {
  Pair weighted, weights, product;
}; // sum of value times the other's roughness, sum and product of roughnesses
DEVICE Estimate estimate(const Pair *p, int step) {
  const Pair c = p[0], a = p[-step], b = p[step], to_a = sub(c, p[-2 * step]), to_b = sub(c, p[2 * step]);
  const Pair across = add(absolute(sub(a, b)), splat(LEVEL)), ga = add(absolute(to_a), across),
             gb = add(absolute(to_b), across);
  const Pair va = fma(to_a, splat(0.5), a), vb = fma(to_b, splat(0.5), b);
  return Estimate{mul(fma(va, gb, mul(vb, ga)), splat(0.25)), add(ga, gb), mul(ga, gb)};
}
DEVICE Pair weighted_green(const Pair *p) {
  const Estimate h = estimate(p, 1), v = estimate(p, DOWN);
  const Pair weights = mul(fma(h.weights, v.product, mul(v.weights, h.product)), splat(0.25));
  return mul(fma(h.weighted, v.product, mul(v.weighted, h.product)), reciprocal(weights));
}
#endif

// Whether both lanes of a pair, in both rows of a tile, share their Bayer phase: false where an odd region of
// interest shifts them.
constexpr bool REGULAR = RED_ROW_00 == RED_ROW_01 && RED_COLUMN_00 == RED_COLUMN_01 && RED_ROW_10 == RED_ROW_11 &&
                         RED_COLUMN_10 == RED_COLUMN_11;

// Lane-wise choice by two flags
DEVICE Pair choose(bool low_first, bool high_first, Pair a, Pair b) {
  return low_first ? (high_first ? a : join(a, b)) : (high_first ? join(b, a) : b);
}

// Completes one pair. i: parity of its row; line, COLUMN: parities on the lattice.
template <int COLUMN> DEVICE void complete(const Pair *p, const Pair *g, int i, int line, Pair (&rgb)[3]) {
  bool red_line[2], chroma[2]; // per lane: on a red line? at a red or blue site?
#pragma unroll
  for (int j = 0; j < 2; j++) {
    red_line[j] = line == (i ? red_row(1, j) : red_row(0, j));
    chroma[j] = red_line[j] == (COLUMN == (i ? red_column(1, j) : red_column(0, j)));
  }
  const Pair c = p[0];
  Pair own, other; // the color of the line, and the third one
  if (REGULAR) {
    if (chroma[0]) {
      const AtChroma m = at_chroma(p, g);
      rgb[1] = clip(m.green);
      own = c;
      other = clip(m.across);
    } else {
      const AtGreen m = at_green(p, g);
      rgb[1] = c;
      own = clip(m.row);
      other = clip(m.column);
    }
    rgb[0] = red_line[0] ? own : other;
    rgb[2] = red_line[0] ? other : own;
  } else {
    const AtChroma m = at_chroma(p, g);
    const AtGreen n = at_green(p, g);
    own = choose(chroma[0], chroma[1], c, n.row);
    other = choose(chroma[0], chroma[1], m.across, n.column);
    rgb[0] = choose(red_line[0], red_line[1], own, other);
    rgb[1] = choose(chroma[0], chroma[1], m.green, c);
    rgb[2] = choose(red_line[0], red_line[1], other, own);
#pragma unroll
    for (int k = 0; k < 3; k++) rgb[k] = clip(rgb[k]);
  }
}

#if DEBAYER == LATTICE_MHC
typedef Pair Sites[8];     // sites -2 .. 5 of a line around four
typedef Pair Colors[4][3]; // [site][red, green, blue]

struct LevelScale {
  static constexpr float PER_SAMPLE = 1 / FULL;
};

// Completes four sites (eight raw pixels) of two lines of one row parity's lattice, from six lines.
template <int I, int FIRST>
DEVICE void malvar_unit(Shared &s, int row, int k) { // row, k: of the mosaic's first line and pair
  Sites v[6];
#pragma unroll
  for (int j = 0; j < 6; j++) {
    const Pair *p =
        &s.lattice.raw[min(row + LATTICE_REACH - 4 + 2 * j, RAW_Y - 1)][k + multiple_of_4(LATTICE_REACH) / 2 - 2];
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const Quad q = *(const Quad *)(p + i);
      v[j][i] = q.a;
      v[j][i + 1] = q.b;
    }
  }
  Colors out[2];
  debayer<LevelScale, I, FIRST>(v[0], v[1], v[2], v[3], v[4], out[0]);
  debayer<LevelScale, I, 1 - FIRST>(v[1], v[2], v[3], v[4], v[5], out[1]);
#pragma unroll
  for (int j = 0; j < 2; j++) {
    if (row + 2 * j >= MOSAIC_Y) break;
#pragma unroll
    for (int c = 0; c < 3; c++)
#pragma unroll
      for (int i = 0; i < 4; i++)
        out[j][i][c] = is_sample(I, j ? 1 - FIRST : FIRST, i, c) ? out[j][i][c] : mul(out[j][i][c], splat(FULL));
#pragma unroll
    for (int c = 0; c < 3; c++) {
      *(Quad *)&s.mosaic[c][row + 2 * j][k] = Quad{out[j][0][c], out[j][1][c]};
      *(Quad *)&s.mosaic[c][row + 2 * j][k + 2] = Quad{out[j][2][c], out[j][3][c]};
    }
  }
}
template <int I> DEVICE void malvar_lines(Shared &s) {
  constexpr int START = (HALO_Y + I) % 2;              // the first row of this parity in the mosaic
  constexpr int FIRST = (START - HALO_Y + 64) / 2 % 2; // the parity of its line; tiles start at multiples of four
  constexpr int UNITS_X = MOSAIC_P / 4, UNITS_Y = (MOSAIC_Y - START + 3) / 4;
  for (int i = threadIdx.x; i < UNITS_X * UNITS_Y; i += THREADS) {
    const int r = i / UNITS_X;
    malvar_unit<I, FIRST>(s, START + 4 * r, 4 * (i - r * UNITS_X));
  }
}
#endif

DEVICE void complete_colors(Shared &s, int y0) {
#if DEBAYER == LATTICE_WEIGHTED
  // Green where the differences are read: two pixels around the mosaic. Of two neighboring pairs, one is of red or
  // blue sites.
  constexpr int BAND_Y = MOSAIC_Y + 4, BAND_Q = MOSAIC_P / 2 + 2;
  for (int i = threadIdx.x; i < BAND_Y * BAND_Q; i += THREADS) {
    const Item unit = item<BAND_Y, BAND_Q, GROUP_OF_QUADS>(i);
    const int r = unit.line, q = unit.column, y = y0 - HALO_Y - 2 + r + 64, line = y >> 1 & 1;
    const int row = r + LATTICE_REACH - 2, at = 2 * q + multiple_of_4(LATTICE_REACH) / 2 - 2;
    const Pair *p = &s.lattice.raw[row][at];
    Pair g[2] = {p[0], p[1]};
    if (REGULAR) {
      const int k = line == red_row(y & 1, 0) ? red_column(y & 1, 0) : 1 - red_column(y & 1, 0);
      const Pair chroma = weighted_green(p + k);
      g[0] = k ? g[0] : chroma;
      g[1] = k ? chroma : g[1];
    } else {
#pragma unroll
      for (int k = 0; k < 2; k++) {
        bool chroma[2];
        for (int j = 0; j < 2; j++) chroma[j] = (line == red_row(y & 1, j)) == (k == red_column(y & 1, j));
        g[k] = choose(chroma[0], chroma[1], weighted_green(p + k), g[k]);
      }
    }
    *(Quad *)&s.lattice.green[row][at] = Quad{g[0], g[1]};
  }
  sync_block();
  Pair *green = &s.lattice.green[0][0];
#else
  Pair *green = &s.lattice.raw[0][0];
#endif
#if DEBAYER == LATTICE_MHC
  if (REGULAR) {
    malvar_lines<0>(s);
    malvar_lines<1>(s);
    return;
  }
#endif
  constexpr int MOSAIC_Q = MOSAIC_P / 2;
  for (int i = threadIdx.x; i < MOSAIC_Y * MOSAIC_Q; i += THREADS) {
    const Item unit = item<MOSAIC_Y, MOSAIC_Q, GROUP_OF_QUADS>(i);
    const int r = unit.line, q = unit.column, y = y0 - HALO_Y + r + 64, line = y >> 1 & 1;
    const int at = (r + LATTICE_REACH) * RAW_P + 2 * q + multiple_of_4(LATTICE_REACH) / 2;
    const Pair *p = &s.lattice.raw[0][0] + at;
    Pair first[3], second[3];
    complete<0>(p, green + at, y & 1, line, first);
    complete<1>(p + 1, green + at + 1, y & 1, line, second);
#pragma unroll
    for (int c = 0; c < 3; c++) *(Quad *)&s.mosaic[c][r][2 * q] = Quad{first[c], second[c]};
  }
}

// Fills the completed mosaic beyond the picture with its reflection. Only for blocks at the border.
DEVICE void reflect_border(const FrameArguments &frame, Shared &s, int y0, int x0) {
  for (int i = threadIdx.x; i < MOSAIC_Y * MOSAIC_P * 2; i += THREADS) {
    const int r = i / (2 * MOSAIC_P), k = i - r * 2 * MOSAIC_P, y = y0 - HALO_Y + r, x = x0 - HALO_X + k;
    const int my = reflect(y, height_of(frame)) - (y0 - HALO_Y), mx = reflect(x, width_of(frame)) - (x0 - HALO_X);
    if ((my == r && mx == k) || my < 0 || my >= MOSAIC_Y || mx < 0 || mx >= 2 * MOSAIC_P) continue;
#pragma unroll
    for (int c = 0; c < 3; c++) ((Single *)s.mosaic[c][r])[k] = ((const Single *)s.mosaic[c][my])[mx];
  }
}
#endif // COLOR
