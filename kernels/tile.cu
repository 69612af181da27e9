// Every sensor, resolution, method, format and product in one launch: a block keeps a tile of the mosaic with its halo
// in shared memory, completes the colours there, restores the missing angles, and stores the products.
//
// Values are pairs of neighbouring pixels along x (pair.cuh). Tile and picture start at multiples of four pixels, so
// that the tile positions of both lanes, and the Bayer column of each pair, are known at compile time.
#include "products.cuh"
#include "raw.cuh"
#include "malvar.cuh"

#ifndef TILE_X
#define TILE_X 64 // raw pixels of a block along x, a multiple of 8
#endif
#ifndef TILE_Y
#define TILE_Y 16 // and along y, a multiple of 4
#endif
#ifndef THREADS
#define THREADS 256
#endif
#ifndef ROWS
#define ROWS 6 // rows that a thread slides down in ADR's stage A
#endif

#define RESTORES (!HALF_RESOLUTION || CO_SITED) // whether missing angles are interpolated at all
#define REACH (!RESTORES ? 0 : DEMOSAIC == METHOD_BILINEAR ? 1 : DEMOSAIC == METHOD_GRADIENT ? 2 : 4)
#define ADAPTIVE (RESTORES && DEMOSAIC == METHOD_ADAPTIVE)
#define LATTICE_REACH (!COLOR ? 0 : DEBAYER == LATTICE_BILINEAR ? 2 : DEBAYER == LATTICE_MHC ? 4 : 6)
// Launch bounds: threads of a block, and blocks that registers must leave room for. The Jetsons need it for 30 %
// occupancy; from sm_90 on ADR takes a fifth longer with it.
#if __CUDA_ARCH__ >= 900
#define BOUNDS THREADS
#else
#define BOUNDS THREADS, (RESIDENT + THREADS - 1) / THREADS
#endif
#define UP4(n) (((n) + 3) / 4 * 4)

// The completed mosaic, with the halo that interpolation reads; per channel.
constexpr int HALO_Y = REACH, HALO_X = UP4(REACH);
constexpr int MOSAIC_Y = TILE_Y + 2 * HALO_Y, MOSAIC_P = (TILE_X + 2 * HALO_X) / 2;
// The raw tile, with the halo that completing the colours reads.
constexpr int EDGE_Y = HALO_Y + LATTICE_REACH, EDGE_X = HALO_X + UP4(LATTICE_REACH);
constexpr int RAW_Y = TILE_Y + 2 * EDGE_Y, RAW_P = (TILE_X + 2 * EDGE_X) / 2;
// ADR's stage A, with the one pixel around that stage B reads.
constexpr int STAGE_Y = TILE_Y + 2,
              STAGE_P = TILE_X / 2 + 4; // two pairs on either side, of which the inner ones are used
// Saturation, a nibble of bits per four pixels, with one pixel around.
constexpr int SATURATED_Y = TILE_Y + 2, SATURATED_QUADS = TILE_X / 4 + 2;
static_assert(TILE_X % 8 == 0 && TILE_Y % 4 == 0, "tiles hold whole colour tiles");

struct Shared {
  Pair mosaic[CHANNELS][MOSAIC_Y][MOSAIC_P];
  union {
#if COLOR
    struct {
      Pair raw[RAW_Y][RAW_P];
#if DEBAYER == LATTICE_WEIGHTED
      Pair green[RAW_Y][RAW_P];
#endif
    } lattice;
#endif
#if ADAPTIVE
    struct {
      Pair excess[STAGE_Y][STAGE_P], detail[STAGE_Y][STAGE_P], energy[STAGE_Y][STAGE_P];
    } stage[CHANNELS];
#endif
    u32 none;
  };
  u8 saturated[SATURATED_Y][SATURATED_QUADS];
  u32 counts[2];
};
#ifdef SHARED_BYTES
static_assert(sizeof(Shared) <= SHARED_BYTES, "the schedule reserves too little shared memory");
#endif

// ------------------------------------------------------------------------------------------------------------- loading

constexpr int QUADS = RAW_P / 2;

// Raw pixels of the tile as values; whether any is saturated. (y0, x0): the tile's first pixel. The border of the
// picture takes the slow way, and so do rows that are not aligned to words.
DEVICE bool load_tile(const FrameArguments &frame, int y0, int x0, Pair *tile) {
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  const int top = y0 - EDGE_Y, left = x0 - EDGE_X, step = step_of(frame), width = width_of(frame),
            height = height_of(frame);
  const u32 full_scale = frame.full_scale;
  const float scale = FULL / frame.full_scale;
  const bool inner = top >= 0 && left >= 0 && top + RAW_Y <= height && left + 4 * QUADS <= width;
#if RAW_FORMAT == RAW_U8
  if (inner && full_scale == 255 && (((u64)raw | step) & 3) == 0) {
    const Pair by = pair(scale, scale), offset = pair(-1024 * scale, -1024 * scale);
    const u8 *first = raw + (size_t)top * step + left;
    u32 saturated = 0;
    for (int i = threadIdx.x; i < RAW_Y * QUADS; i += THREADS) {
      const int r = i / QUADS, q = i - r * QUADS;
      const u32 w = load32(first + (u32)(r * step + 4 * q));
      saturated |= has_255(w);
      *(Quad *)(tile + 2 * i) = Quad{pair_of_bytes<0>(w, by, offset), pair_of_bytes<1>(w, by, offset)};
    }
    return saturated & BYTES_255;
  }
#endif
  bool any = false;
  for (int i = threadIdx.x; i < RAW_Y * QUADS; i += THREADS) {
    const int r = i / QUADS, x = left + 4 * (i - r * QUADS);
    const u8 *row = raw + (size_t)(inner ? top + r : reflect_mosaic(top + r, height)) * step;
    u32 v[4];
    if (inner || (x >= 0 && x + 4 <= width))
      raw_quad(row, x, v);
    else
#pragma unroll
      for (int k = 0; k < 4; k++) v[k] = raw_pixel(row, reflect_mosaic(x + k, width));
    any |= v[0] >= full_scale || v[1] >= full_scale || v[2] >= full_scale || v[3] >= full_scale;
    if (EXCEEDS)
#pragma unroll
      for (int k = 0; k < 4; k++) v[k] = min(v[k], full_scale);
    *(Quad *)(tile + 2 * i) =
        Quad{pair((float)v[0] * scale, (float)v[1] * scale), pair((float)v[2] * scale, (float)v[3] * scale)};
  }
  return any;
}

// Which pixels of the tile, and one around, are saturated: read again, by the rare block that met one.
DEVICE void find_saturated(const FrameArguments &frame, int y0, int x0, u8 (&saturated)[SATURATED_Y][SATURATED_QUADS]) {
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  for (int i = threadIdx.x; i < SATURATED_Y * SATURATED_QUADS; i += THREADS) {
    const int r = i / SATURATED_QUADS, q = i - r * SATURATED_QUADS, y = y0 - 1 + r, x = x0 - 4 + 4 * q;
    u32 bits = 0;
    for (int k = 0; k < 4; k++)
      if (y >= 0 && y < height_of(frame) && x + k >= 0 && x + k < width_of(frame))
        bits |= (u32)(raw_pixel(raw + (size_t)y * step_of(frame), x + k) >= (u32)frame.full_scale) << k;
    saturated[r][q] = bits;
  }
}

// ------------------------------------------------------------------------------------------------------ colour lattice
#if COLOR

// What a pixel lacks, from its own lattice (neighbours at a stride of two raw pixels). p: the pair in the raw tile; g:
// the same place in the plane of greens (weighted only).
constexpr int DOWN = 2 * RAW_P; // one line of the lattice
struct AtChroma {
  Pair green, across;
}; // at red: green and blue; at blue: green and red
struct AtGreen {
  Pair row, column;
}; // the colour of its row, and of its column

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
#else // Malvar, He and Cutler, where an odd region of interest gave the lanes of a pair different phases (else
      // `malvar_lines`)
DEVICE AtChroma at_chroma(const Pair *p, const Pair *) {
  const Pair near = add(add(p[-1], p[1]), add(p[-DOWN], p[DOWN])),
             far = add(add(p[-2], p[2]), add(p[-2 * DOWN], p[2 * DOWN]));
  return AtChroma{fma(near, splat(MHC_GREEN_NEAR), fma(far, splat(MHC_GREEN_FAR), mul(p[0], splat(MHC_GREEN_CENTRE)))),
                  fma(diagonals(p), splat(MHC_ACROSS_DIAGONAL),
                      fma(far, splat(MHC_ACROSS_FAR), mul(p[0], splat(MHC_ACROSS_CENTRE))))};
}
DEVICE AtGreen at_green(const Pair *p, const Pair *) {
  const Pair h1 = add(p[-1], p[1]), v1 = add(p[-DOWN], p[DOWN]), h2 = add(p[-2], p[2]),
             v2 = add(p[-2 * DOWN], p[2 * DOWN]);
  const Pair flat = fma(diagonals(p), splat(MHC_ROW_DIAGONAL), mul(p[0], splat(MHC_ROW_CENTRE)));
  return AtGreen{fma(h1, splat(MHC_ROW_NEAR), fma(h2, splat(MHC_ROW_FAR), fma(v2, splat(MHC_ROW_SIDE), flat))),
                 fma(v1, splat(MHC_ROW_NEAR), fma(v2, splat(MHC_ROW_FAR), fma(h2, splat(MHC_ROW_SIDE), flat)))};
}
#endif
#endif

#if DEBAYER == LATTICE_WEIGHTED
// Green at a red or blue pair: the mean of four neighbours, each corrected by half the pixel's own gradient, weighted
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

// Whether both lanes of a pair, in both rows of a tile, share their Bayer phase: true unless an odd region of interest
// moved it.
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
  Pair own, other; // the colour of the line, and the third one
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
struct LevelScale {
  static constexpr float PER_SAMPLE = 1 / FULL;
};

// Two lines of one row parity's lattice and four sites (eight raw pixels) at a time, from six lines.
template <int I, int FIRST>
DEVICE void malvar_unit(Shared &s, int row, int k) { // row, k: of the mosaic's first line and pair
  Sites v[6];
#pragma unroll
  for (int j = 0; j < 6; j++) {
    const Pair *p = &s.lattice.raw[min(row + LATTICE_REACH - 4 + 2 * j, RAW_Y - 1)][k + UP4(LATTICE_REACH) / 2 - 2];
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      const Quad q = *(const Quad *)(p + i);
      v[j][i] = q.a;
      v[j][i + 1] = q.b;
    }
  }
  Colours out[2];
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

DEVICE void complete_colours(Shared &s, int y0) {
#if DEBAYER == LATTICE_WEIGHTED
  // Green where the differences are read: two pixels around the mosaic. Of two neighbouring pairs, one is of red or
  // blue sites.
  constexpr int BAND_Y = MOSAIC_Y + 4, BAND_Q = MOSAIC_P / 2 + 2;
  for (int i = threadIdx.x; i < BAND_Y * BAND_Q; i += THREADS) {
    const int r = i / BAND_Q, q = i - r * BAND_Q, y = y0 - HALO_Y - 2 + r + 64, line = y >> 1 & 1;
    const int row = r + LATTICE_REACH - 2, at = 2 * q + UP4(LATTICE_REACH) / 2 - 2;
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
    const int r = i / MOSAIC_Q, q = i - r * MOSAIC_Q, y = y0 - HALO_Y + r + 64, line = y >> 1 & 1;
    const int at = (r + LATTICE_REACH) * RAW_P + 2 * q + UP4(LATTICE_REACH) / 2;
    const Pair *p = &s.lattice.raw[0][0] + at;
    Pair first[3], second[3];
    complete<0>(p, green + at, y & 1, line, first);
    complete<1>(p + 1, green + at + 1, y & 1, line, second);
#pragma unroll
    for (int c = 0; c < 3; c++) *(Quad *)&s.mosaic[c][r][2 * q] = Quad{first[c], second[c]};
  }
}

// Beyond the picture the completed mosaic is its own reflection. Only blocks at the border come here.
DEVICE void reflect_border(const FrameArguments &frame, Shared &s, int y0, int x0) {
#if HALF_PRECISION
  typedef u16 Value;
#else
  typedef float Value;
#endif
  for (int i = threadIdx.x; i < MOSAIC_Y * MOSAIC_P * 2; i += THREADS) {
    const int r = i / (2 * MOSAIC_P), k = i - r * 2 * MOSAIC_P, y = y0 - HALO_Y + r, x = x0 - HALO_X + k;
    const int my = reflect(y, height_of(frame)) - (y0 - HALO_Y), mx = reflect(x, width_of(frame)) - (x0 - HALO_X);
    if ((my == r && mx == k) || my < 0 || my >= MOSAIC_Y || mx < 0 || mx >= 2 * MOSAIC_P) continue;
#pragma unroll
    for (int c = 0; c < 3; c++) ((Value *)s.mosaic[c][r])[k] = ((const Value *)s.mosaic[c][my])[mx];
  }
}
#endif // COLOR

// ------------------------------------------------------------------------------------------------- adaptive
// restoration
#if ADAPTIVE

// Stage A of ADR (docs/adr.md) on one column of pairs: total intensity, the detail it lacks, polarization energy, for
// rows first .. first + ROWS. z: the mosaic's pair at the first row; the window slides down in registers.
struct Line {
  Pair left, centre, right, l1, r1;
}; // pairs at -2, 0, +2, then -1 and +1

DEVICE Line read_line(const Pair *p) {
  Line a;
  a.left = p[-1];
  a.centre = p[0];
  a.right = p[1];
  a.l1 = straddle(a.left, a.centre);
  a.r1 = straddle(a.centre, a.right);
  return a;
}
// the two low-pass filters along x: [4 0 8 0 4]/16 for pixels of the centre's phase, [1 0 7 0 7 0 1]/16 for the others;
// times SAME and OTHER, so that the outer taps are 1
#define SAME (1 / ADR_SAME_2)
#define OTHER (1 / ADR_OTHER_3)
struct Smooth {
  Pair same, other;
};
DEVICE Pair smooth_same(Pair a, Pair b, Pair c) { return fma(b, splat(ADR_SAME_0 * SAME), add(a, c)); }
DEVICE Pair smooth_other(Pair a, Pair b, Pair c, Pair d) {
  return fma(add(b, c), splat(ADR_OTHER_1 * OTHER), add(a, d));
}
DEVICE Smooth smooth_line(const Line &a, const Pair *p, int column) {
  // the outer lanes of the outermost pairs lack a neighbour; stage B does not read them
  const Pair l3 = straddle(p[column > 1 ? -2 : -1], a.left), r3 = straddle(a.right, p[column < STAGE_P - 2 ? 2 : 1]);
  return Smooth{smooth_same(a.left, a.centre, a.right), smooth_other(l3, a.l1, a.r1, r3)};
}

// Roughness towards an opposite pair of neighbours: g(d) = |z(d) - z(-d)| + |C - z(2d)| + 1 level.
struct Roughness {
  Pair a, b;
};
DEVICE Roughness roughness(Pair c, Pair a, Pair b, Pair far_a, Pair far_b) {
  const Pair across = add(absolute(sub(a, b)), splat(LEVEL));
  return Roughness{add(absolute(sub(c, far_a)), across), add(absolute(sub(c, far_b)), across)};
}
// the mean of two neighbours, weighted by 1/g, less the centre: differences are small, and lose least in half
DEVICE Pair excess_of_two(Roughness g, Pair c, Pair a, Pair b) {
  return fma(mul(g.b, reciprocal(add(g.a, g.b))), sub(a, b), sub(b, c));
}

DEVICE void stage_a(Shared &s, int channel, int first, int column) {
  const Pair *z = &s.mosaic[channel][first + HALO_Y - 1][column + HALO_X / 2 - 2];
  Line line[5];
  Smooth smooth[7];
#pragma unroll
  for (int k = 0; k < 6; k++) { // rows -3 .. 2 of the first row's window
    const Pair *p = z + (k - 3) * MOSAIC_P;
    const Line a = read_line(p);
    smooth[k] = smooth_line(a, p, column);
    if (k >= 1) line[(k - 1) % 5] = a;
  }
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    if (first + i >= STAGE_Y) break;
    const Pair *p = z + (i + 3) * MOSAIC_P;
    const Line below = read_line(p);
    smooth[(i + 6) % 7] = smooth_line(below, p, column);
#define LINE(k) line[(i + (k) + 2) % 5] // the line k rows below the centre
#define SMOOTH(k) smooth[(i + (k) + 3) % 7]
    const Line &u2 = LINE(-2), &u1 = LINE(-1), &m = LINE(0), &d1 = LINE(1), &d2 = LINE(2);
    const Pair c = m.centre;
    const Roughness h = roughness(c, m.l1, m.r1, m.left, m.right),
                    v = roughness(c, u1.centre, d1.centre, u2.centre, d2.centre);
    const Roughness e = roughness(c, u1.l1, d1.r1, u2.left, d2.right),
                    f = roughness(c, u1.r1, d1.l1, u2.right, d2.left);
    // four diagonals with one division: every weight times the product of all roughnesses
    const Pair ea = mul(e.a, e.b), fa = mul(f.a, f.b);
    const Pair ne = fma(e.b, sub(u1.l1, c), mul(e.a, sub(d1.r1, c))),
               nf = fma(f.b, sub(u1.r1, c), mul(f.a, sub(d1.l1, c)));
    const Pair weights = fma(add(e.a, e.b), fa, mul(add(f.a, f.b), ea));
    const Pair diagonal = mul(fma(ne, fa, mul(nf, ea)), reciprocal(weights));
    const Pair axial = add(excess_of_two(h, c, m.l1, m.r1), excess_of_two(v, c, u1.centre, d1.centre));
    const Pair excess = mul(add(axial, diagonal), splat(0.25)); // G - C
    const Pair d0 = smooth_same(SMOOTH(-2).same, SMOOTH(0).same, SMOOTH(2).same);
    const Pair dr = smooth_same(SMOOTH(-2).other, SMOOTH(0).other, SMOOTH(2).other);
    const Pair dc = smooth_other(SMOOTH(-3).same, SMOOTH(-1).same, SMOOTH(1).same, SMOOTH(3).same);
    const Pair dd = smooth_other(SMOOTH(-3).other, SMOOTH(-1).other, SMOOTH(1).other, SMOOTH(3).other);
    const Pair own = mul(d0, splat(1 / (SAME * SAME))); // D0
    // four times the mean of the four
    const Pair mean4 =
        maximum(fma(dd, splat(1 / (OTHER * OTHER)), fma(add(dr, dc), splat(1 / (SAME * OTHER)), own)), splat(LEVEL));
    // e = mean/max(D0, mean/4) (C - D0 G/mean), as differences
    const Pair floor = maximum(own, mul(mean4, splat(1.0 / 16)));
    const Pair detail = mul(sub(mul(c, fma(mean4, splat(0.25), negate(own))), mul(own, excess)), reciprocal(floor));
    const Pair p1 = fma(dd, splat(-1 / (OTHER * OTHER)), own), p2 = mul(sub(dr, dc), splat(1 / (SAME * OTHER)));
    s.stage[channel].excess[first + i][column] = excess;
    s.stage[channel].detail[first + i][column] = detail;
    s.stage[channel].energy[first + i][column] = fma(p1, p1, mul(p2, p2)); // 4 P2
    line[i % 5] = below;
#undef LINE
#undef SMOOTH
  }
}

// Stage B on two neighbouring pairs of a row. Four pairs of a plane around them:
struct Four {
  Pair v[4];
};
DEVICE Four read_four(const Pair *p) {
  const Quad a = *(const Quad *)(p - 2), b = *(const Quad *)p, c = *(const Quad *)(p + 2);
  return Four{{a.b, b.a, b.b, c.a}};
}
DEVICE Four add(const Four &a, const Four &b) {
  return Four{{add(a.v[0], b.v[0]), add(a.v[1], b.v[1]), add(a.v[2], b.v[2]), add(a.v[3], b.v[3])}};
}
// left neighbour plus right neighbour, of both pairs
DEVICE void across(const Four &f, Pair (&out)[2]) {
  const Pair l = straddle(f.v[0], f.v[1]), m = straddle(f.v[1], f.v[2]), r = straddle(f.v[2], f.v[3]);
  out[0] = add(l, m);
  out[1] = add(m, r);
}
// the sums that interpolation reads: along the row, along the column, of the diagonals
struct Sums {
  Pair row[2], column[2], diagonal[2], own[2];
};
DEVICE Sums sums(const Four &above, const Four &own, const Four &under) {
  const Four n = add(above, under);
  Sums s;
  across(own, s.row);
  across(n, s.diagonal);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    s.column[i] = n.v[1 + i];
    s.own[i] = own.v[1 + i];
  }
  return s;
}
DEVICE Sums read_sums(const Pair *p, int pitch) {
  return sums(read_four(p - pitch), read_four(p), read_four(p + pitch));
}

DEVICE void stage_b(const Shared &s, int channel, int y, int k, Pair (&own)[2], Pair (&h)[2], Pair (&v)[2],
                    Pair (&d)[2]) {
  const Sums z = read_sums(&s.mosaic[channel][y + HALO_Y][k + HALO_X / 2], MOSAIC_P);
  const Sums g = read_sums(&s.stage[channel].excess[y + 1][k + 2], STAGE_P);
  const Pair *p = &s.stage[channel].detail[y + 1][k + 2];
  const Four above = read_four(p - STAGE_P), middle = read_four(p), under = read_four(p + STAGE_P);
  const Sums e = sums(above, middle, under);
  Four squares; // e^2 with weights 1 2 1 down
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const Pair once = mul(middle.v[i], middle.v[i]);
    squares.v[i] = add(fma(above.v[i], above.v[i], once), fma(under.v[i], under.v[i], once));
  }
  const Quad energy = *(const Quad *)&s.stage[channel].energy[y + 1][k + 2];
  Pair beside[2];
  across(squares, beside);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const Pair centre = e.own[i], c = z.own[i], more = g.own[i];
    const Pair r0 = fma(squares.v[1 + i], splat(2), beside[i]);                                   // 16 R0
    const Pair r1 = mul(fma(centre, e.diagonal[i], mul(e.row[i], e.column[i])), splat(16.0 / 8)); // 16 R1
    const Pair r0n = add(r0, splat(16 * ADR_NOISE * LEVEL * LEVEL));
    const Pair w = mul(r0, reciprocal(fma(i ? energy.b : energy.a, splat(16 * 2.0 / 4), r0n)));
    Pair bias = fma(r1, reciprocal(r0n), splat(ADR_BIAS));
    bias = maximum(minimum(bias, splat(ADR_LIMIT)), splat(-ADR_LIMIT));
    const Pair alpha = fma(sub(splat(1), w), bias, w);
    // An angle from the sums of its neighbours, 1/SHARE of them: raw, G - z and e.
#define RESTORE(SHARE, sx, sg, se)                                                                                     \
  [&]() {                                                                                                              \
    const Pair x = mul(sx, splat(SHARE)),                                                                              \
               gain = minimum(mul(x, reciprocal(maximum(fma(sg, splat(SHARE), x), splat(LEVEL / 4)))), splat(2));      \
    const Pair missing = fma(alpha, fma(se, splat(-SHARE), centre), add(sub(c, x), fma(sg, splat(-SHARE), more)));     \
    return clip(fma(gain, missing, x));                                                                                \
  }()
    own[i] = c;
    h[i] = RESTORE(0.5, z.row[i], g.row[i], e.row[i]);
    v[i] = RESTORE(0.5, z.column[i], g.column[i], e.column[i]);
    d[i] = RESTORE(0.25, z.diagonal[i], g.diagonal[i], e.diagonal[i]);
  }
}
#endif // ADAPTIVE

// ---------------------------------------------------------------------------------------------------- polarizer mosaic

// Four pixels of row y (of the tile) at pair k: own sample and the three missing angles by place: of the row (h), of
// the column (v), of the diagonals (d).
DEVICE void restore(const Shared &s, int channel, int y, int k, Pair (&own)[2], Pair (&h)[2], Pair (&v)[2],
                    Pair (&d)[2]) {
#if ADAPTIVE
  stage_b(s, channel, y, k, own, h, v, d);
#elif RESTORES
  const Pair *p = &s.mosaic[channel][y + HALO_Y][k + HALO_X / 2];
  Pair c[4], n[4]; // columns of pairs -2, 0, 2, 4: this row; the sum of the rows above and below
#pragma unroll
  for (int i = 0; i < 4; i++) {
    c[i] = p[i - 1];
    n[i] = add(p[i - 1 - MOSAIC_P], p[i - 1 + MOSAIC_P]);
  }
#pragma unroll
  for (int i = 0; i < 2; i++) {
    own[i] = c[i + 1];
    h[i] = mul(add(straddle(c[i], c[i + 1]), straddle(c[i + 1], c[i + 2])), splat(0.5));
    v[i] = mul(n[i + 1], splat(0.5));
    d[i] = mul(add(straddle(n[i], n[i + 1]), straddle(n[i + 1], n[i + 2])), splat(0.25));
#if DEMOSAIC == METHOD_GRADIENT
    const Pair axial = add(add(c[i], c[i + 2]), add(p[i - 2 * MOSAIC_P], p[i + 2 * MOSAIC_P]));
    const Pair detail = fma(axial, splat(-BETA / 4), mul(own[i], splat(BETA)));
    h[i] = clip(add(h[i], detail));
    v[i] = clip(add(v[i], detail));
    d[i] = clip(add(d[i], detail));
#endif
  }
#endif
}

// The angle images of a row's pixels, from what `restore` found; ROW: parity of the row.
template <int ROW>
DEVICE void by_angle(const Pair (&own)[2], const Pair (&h)[2], const Pair (&v)[2], const Pair (&d)[2],
                     Pair (&angle)[4][2]) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    angle[angle_at(ROW, 0)][i] = join(own[i], h[i]);
    angle[angle_at(ROW, 1)][i] = join(h[i], own[i]);
    angle[angle_at(ROW ^ 1, 0)][i] = join(v[i], d[i]);
    angle[angle_at(ROW ^ 1, 1)][i] = join(d[i], v[i]);
  }
}

#if !HALF_RESOLUTION
// four pixels of row y at pair k
template <int ROW> DEVICE void full_angles(const Shared &s, int y, int k, Angles &angle) {
#pragma unroll
  for (int c = 0; c < CHANNELS; c++) {
    Pair own[2], h[2], v[2], d[2];
    restore(s, c, y, k, own, h, v, d);
    by_angle<ROW>(own, h, v, d, angle[c]);
    compiler_fence();
  }
}
#else
#if RESTORES && DEMOSAIC == METHOD_BILINEAR
// Four superpixels, raw row y, pair k. The mean of an angle's four bilinear values is 9 3 / 3 1 on its own lattice,
// towards the superpixel's centre.
DEVICE void half_angles(const Shared &s, int channel, int y, int k, Pair (&angle)[4][2]) {
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const Pair *p = &s.mosaic[channel][y + i + HALO_Y][k + HALO_X / 2];
    Pair n[8], m[4]; // pairs -2 .. 5; the outermost are not needed
#pragma unroll
    for (int j = 0; j < 8; j += 2) {
      const Quad own = *(const Quad *)(p + j - 2), other = *(const Quad *)(p + j - 2 + (i ? -2 : 2) * MOSAIC_P);
      n[j] = fma(own.a, splat(0.75), mul(other.a, splat(0.25)));
      n[j + 1] = fma(own.b, splat(0.75), mul(other.b, splat(0.25)));
    }
#pragma unroll
    for (int j = 0; j < 4; j++) m[j] = fma(n[j + 2], splat(0.75), mul(join(n[j + 3], n[j + 1]), splat(0.25)));
#pragma unroll
    for (int j = 0; j < 2; j++) {
      angle[angle_at(i, 0)][j] = lows(m[2 * j], m[2 * j + 1]);
      angle[angle_at(i, 1)][j] = highs(m[2 * j], m[2 * j + 1]);
    }
  }
}
#else
// two superpixels in the lanes of one pair: raw row y, pair k
DEVICE void half_angles(const Shared &s, int channel, int y, int k, Pair (&angle)[4]) {
#if !RESTORES
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const Quad q = *(const Quad *)&s.mosaic[channel][y + i][k];
    angle[angle_at(i, 0)] = lows(q.a, q.b);
    angle[angle_at(i, 1)] = highs(q.a, q.b);
  }
#else
  Pair own[2], h[2], v[2], d[2], row[4][2];
  restore(s, channel, y, k, own, h, v, d);
  by_angle<0>(own, h, v, d, row);
#pragma unroll
  for (int a = 0; a < 4; a++) angle[a] = add(lows(row[a][0], row[a][1]), highs(row[a][0], row[a][1])); // sums along x
  compiler_fence();
  restore(s, channel, y + 1, k, own, h, v, d);
  by_angle<1>(own, h, v, d, row);
#pragma unroll
  for (int a = 0; a < 4; a++)
    angle[a] = mul(add(angle[a], add(lows(row[a][0], row[a][1]), highs(row[a][0], row[a][1]))), splat(0.25));
#endif
}
#endif
#if ADAPTIVE
// The same through shared memory, for a thread that holds all channels would spill: the angles take the place of the
// energies of the same pixels, which no other thread reads.
DEVICE void store_angles(Shared &s, int channel, int y, int k) {
  Pair angle[4];
  half_angles(s, channel, y, k, angle);
  Pair *p = &s.stage[channel].energy[y + 1][k + 2];
  *(Quad *)p = Quad{angle[0], angle[1]};
  *(Quad *)(p + STAGE_P) = Quad{angle[2], angle[3]};
}
DEVICE void read_angles(const Shared &s, int channel, int y, int k, Pair (&angle)[4]) {
  const Pair *p = &s.stage[channel].energy[y + 1][k + 2];
  const Quad upper = *(const Quad *)p, lower = *(const Quad *)(p + STAGE_P);
  angle[0] = upper.a;
  angle[1] = upper.b;
  angle[2] = lower.a;
  angle[3] = lower.b;
}
#endif
#endif

// saturation behind four outputs: full resolution looks at 3x3 pixels, half at the superpixel. (y, q): row and quad
DEVICE u32 saturated_outputs(const Shared &s, int y, int q) {
#if HALF_RESOLUTION
  u32 saturated = 0;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const u32 bits = s.saturated[y + 1][q + 1 + k] | s.saturated[y + 2][q + 1 + k];
    saturated |= (u32)((bits & 3) != 0) << (2 * k) | (u32)((bits & 12) != 0) << (2 * k + 1);
  }
  return saturated;
#else
  u32 bits = 0;
#pragma unroll
  for (int k = 0; k < 3; k++)
    bits |= (s.saturated[y + k][q] >> 3) | s.saturated[y + k][q + 1] << 1 | (s.saturated[y + k][q + 2] & 1) << 5;
  return (bits | bits >> 1 | bits >> 2) & 15;
#endif
}

extern "C" __global__ void __launch_bounds__(BOUNDS) tile(const FrameArguments frame) {
  SHARED_MEMORY(memory);
  Shared &s = *(Shared *)memory;
  launch_dependents();
  const int y0 = blockIdx.y * TILE_Y, x0 = blockIdx.x * TILE_X;
  if (threadIdx.x < 2) s.counts[threadIdx.x] = 0;
#if COLOR
  Pair *tile = &s.lattice.raw[0][0];
#else
  Pair *tile = &s.mosaic[0][0][0];
#endif
  const bool any_saturated = any_in_block(load_tile(frame, y0, x0, tile));
  if (any_saturated) {
    find_saturated(frame, y0, x0, s.saturated);
    sync_block();
  }
#if COLOR
  complete_colours(s, y0);
  sync_block();
  if (REACH > 0 &&
      (y0 == 0 || x0 == 0 || y0 + TILE_Y + REACH > height_of(frame) || x0 + TILE_X + REACH > width_of(frame))) {
    reflect_border(frame, s, y0, x0);
    sync_block();
  }
#endif
#if ADAPTIVE
  constexpr int RUNS = (STAGE_Y + ROWS - 1) / ROWS;
  constexpr int COLUMNS = STAGE_P - 2;
  for (int i = threadIdx.x; i < CHANNELS * RUNS * COLUMNS; i += THREADS) {
    const int rest = i / COLUMNS, column = i - rest * COLUMNS + 1;
    stage_a(s, rest / RUNS, rest % RUNS * ROWS, column);
  }
  sync_block();
#if HALF_RESOLUTION
  constexpr int CENTRES_X = TILE_X / 4, CENTRES_Y = TILE_Y / 2; // pairs of superpixels
  for (int i = threadIdx.x; i < CHANNELS * CENTRES_Y * CENTRES_X; i += THREADS) {
    const int rest = i / CENTRES_X, k = i - rest * CENTRES_X;
    store_angles(s, rest / CENTRES_Y, rest % CENTRES_Y * 2, 2 * k);
  }
  sync_block();
#endif
#endif
  InvalidCount count = {0, 0};
#if HALF_RESOLUTION
  constexpr int UNITS_X = TILE_X / 8, UNITS_Y = TILE_Y / 2;
#else
  constexpr int UNITS_X = TILE_X / 4, UNITS_Y = TILE_Y;
#endif
  const int width = out_width(frame), height = out_height(frame);
  for (int i = threadIdx.x; i < UNITS_X * UNITS_Y; i += THREADS) {
    const int r = i / UNITS_X, u = i - r * UNITS_X;
    const int y = blockIdx.y * UNITS_Y + r, x = (blockIdx.x * UNITS_X + u) * 4;
    if (y >= height || x >= width) continue;
    Angles angle;
#if HALF_RESOLUTION
#pragma unroll
    for (int c = 0; c < CHANNELS; c++)
#if RESTORES && DEMOSAIC == METHOD_BILINEAR
      half_angles(s, c, 2 * r, 4 * u, angle[c]);
#else
#pragma unroll
      for (int k = 0; k < 2; k++) {
        Pair a[4];
#if ADAPTIVE
        read_angles(s, c, 2 * r, 4 * u + 2 * k, a);
#else
        half_angles(s, c, 2 * r, 4 * u + 2 * k, a);
#endif
        for (int j = 0; j < 4; j++) angle[c][j][k] = a[j];
        compiler_fence();
      }
#endif
    const u32 saturated = any_saturated ? saturated_outputs(s, 2 * r, 2 * u) : 0;
#else
    if (r & 1)
      full_angles<1>(s, r, 2 * u, angle);
    else
      full_angles<0>(s, r, 2 * u, angle);
    const u32 saturated = any_saturated ? saturated_outputs(s, r, u) : 0;
#endif
    store_products(frame, angle, saturated, y, x, count);
  }
  if (count.saturated) count_add(&s.counts[0], count.saturated);
  if (count.dark) count_add(&s.counts[1], count.dark);
  sync_block();
  if (threadIdx.x < 2 && s.counts[threadIdx.x])
    count_add(&frame.counts[2 * blockIdx.z + threadIdx.x], s.counts[threadIdx.x]);
  grid_dependency_wait_in_one_block();
}
