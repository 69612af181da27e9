// `color_strip`: the values of two output rows from the lines of the ring, interpolated along y; and along x.
#pragma once
#include "color_strip_integers.cuh"

constexpr bool PRODUCTS = OUT_INTENSITY || WANT_STOKES; // anything but images of single angles
constexpr bool LUMA_BY_ANGLE = WANT_POLAR || OUT_STOKES || OUT_SUMS || IN_INTEGERS;
constexpr bool IN_PAIRS = LUMA_BY_ANGLE && !IN_INTEGERS; // luma by angle, as pairs
constexpr int SAMPLES = CO_SITED ? 16 : 1;               // weight of an angle's samples in `Colors` of a row
constexpr float LUMA_UNIT = SAMPLES / LUMA_RED;          // likewise, of luma in a row's sums and differences
typedef Pair Luma[SITES];                                // of a line's sites, over LUMA_RED; lanes are angles

// ---- constants, by the units of what they meet (`unit_of`)

// w, times the ratio of two units
struct Weight {
  Pair once, twice, half;
};
CONSTANT Weight weight(double w) { return Weight{splat(w), splat(2 * w), splat(w / 2)}; }
DEVICE Pair times(const Weight &w, int unit, int other) {
  return unit == other ? w.once : unit > other ? w.twice : w.half;
}
// the unit of a value in a finished row on a line of the lattice: co-sited, those of its neighbors
template <int LINE> CONSTANT int row_unit(int site, int channel) {
  return CO_SITED ? unit_of<1 - LINE>(site + 1, channel) : unit_of<LINE>(site, channel);
}

// ---- neighbors

#if HALF_PRECISION
DEVICE Pair shuffle_pair(Pair a, int lane) { return shuffle(a, lane); }
#else
DEVICE Pair shuffle_pair(Pair a, int lane) {
  return Pair{as_float(shuffle(as_bits(a.x), lane)), as_float(shuffle(as_bits(a.y), lane))};
}
#endif

// Moves sums of a row from the angles' own columns to the superpixels' centers: three times a site's and once its
// neighbor's, which is to the right for the angle of the low lane and to the left for the other. A copy
// where angles stay at their own sites.
template <int LINE> DEVICE void co_site(const LanePosition &at, const Colors &from, Colors &to) {
  constexpr Weight one = weight(1), three = weight(3);
  Pair left[3], right[3];
#pragma unroll
  for (int c = 0; c < (CO_SITED ? 3 : 0); c++) {
    const Pair outer = join(from[0][c], from[SITES - 1][c]); // what the lanes on either side need
    left[c] = shuffle_pair(outer, at.lane - 1);
    right[c] = shuffle_pair(outer, at.lane + 1);
  }
  if (CO_SITED && at.is_edge) {
#pragma unroll
    for (int c = 0; c < 3; c++) {
      const int even = unit_of<1 - LINE>(0, c), odd = unit_of<1 - LINE>(1, c);
      if (at.first) left[c] = mul(from[0][c], times(one, even, odd));
      if (at.last) right[c] = mul(from[SITES - 1][c], times(one, odd, even));
    }
  }
#pragma unroll
  for (int n = 0; n < 3 * SITES; n++) {
    const int c = n % 3, k = n / 3, unit = unit_of<1 - LINE>(k, c), other = unit_of<1 - LINE>(k + 1, c);
    const Pair beside = join(k + 1 < SITES ? from[k + 1][c] : right[c], k > 0 ? from[k - 1][c] : left[c]);
    to[k][c] = CO_SITED ? fma(from[k][c], times(three, unit, other), beside) : from[k][c];
  }
}

// The luma of a line's sites. LINE: of the line on the lattice.
template <int LINE> DEVICE void luma_of_line(const Colors &v, Luma &y) {
  constexpr Weight green = weight(LUMA_GREEN / LUMA_RED);
#pragma unroll
  for (int i = 0; i < SITES; i++) {
    const int restored = is_sample(0, LINE, i, 0) ? 2 : 0, other = 2 - restored; // of red and blue
    const Pair chroma =
        unit_of<LINE>(i, other) == 2 ? fma(v[i][other], splat(2), v[i][restored]) : add(v[i][other], v[i][restored]);
    y[i] = fma(v[i][1], times(green, unit_of<LINE>(i, 1), 1), chroma);
  }
}
// The luma of a line's sites, of either row parity, arranged for differences of orthogonal angles: lanes of the lower
// row are exchanged. beside: the neighbors' that co-siting adds.
struct Neighbors {
  Luma own, beside;
};
DEVICE void arrange(const LanePosition &at, const Luma &upper, const Luma &lower, Neighbors &up, Neighbors &low) {
  Pair left = highs(upper[SITES - 1], lower[SITES - 1]), right = lows(upper[0], lower[0]);
  if (CO_SITED) {
    left = shuffle_pair(left, at.lane - 1);
    right = shuffle_pair(right, at.lane + 1);
    if (at.is_edge) {
      if (at.first) left = highs(upper[0], lower[0]);
      if (at.last) right = lows(upper[SITES - 1], lower[SITES - 1]);
    }
  }
#pragma unroll
  for (int k = 0; k < SITES; k++) {
    up.own[k] = upper[k];
    low.own[k] = straddle(lower[k], lower[k]);
    up.beside[k] = k == 0           ? lows(upper[1], left)
                   : k == SITES - 1 ? join(right, upper[SITES - 2])
                                    : join(upper[k + 1 < SITES ? k + 1 : 0], upper[k - 1]);
    low.beside[k] = k == 0           ? straddle(left, lower[1])
                    : k == SITES - 1 ? highs(lower[SITES - 2], right)
                                     : straddle(lower[k - 1], lower[k + 1 < SITES ? k + 1 : 0]);
  }
}
// a - b for differences of orthogonal angles, a + b for their sums
template <bool SUM> DEVICE Pair combined(Pair a, Pair b) { return SUM ? add(a, b) : sub(a, b); }
// upper, lower: of the row; under: the upper line below; over: the lower line above
template <bool SUM>
DEVICE void combine_luma(const Neighbors &upper, const Neighbors &lower, const Neighbors &under, const Neighbors &over,
                         Luma &out) {
#pragma unroll
  for (int k = 0; k < SITES; k++) {
    out[k] = combined<SUM>(upper.own[k], lower.own[k]);
    if (!CO_SITED) continue;
    const Pair own = fma(out[k], splat(3), combined<SUM>(under.own[k], over.own[k]));
    const Pair beside =
        fma(combined<SUM>(upper.beside[k], lower.beside[k]), splat(3), combined<SUM>(under.beside[k], over.beside[k]));
    out[k] = fma(own, splat(3), beside);
  }
}

// ---- lines

// What a warp does; a row parity is 0 for the upper and 1 for the lower raw row of a superpixel.
struct Strip {
  const FrameArguments &frame;
  WarpShared &shared;
  const LanePosition &at;
  const u8 *raw; // of this frame
  Scaling scaling;
  u32 window[GROUPS]; // where the groups are in the ring, from the uppermost one on
  u32 suspects;       // bit k: a sample of the k-th last group is saturated

  // The lane's chunk of the first line of a group.
  DEVICE Chunk *chunk(u32 place) const { return (Chunk *)((u8 *)shared.ring.group[0].line[0][0] + place) + at.lane; }
  // Begins to load group `number` of the strip. TOP: whether it may be above the picture.
  template <bool TOP> DEVICE void fetch(int number, RawGroup &group) const {
    const u8 *first = raw + at.x * TWO_PIXELS;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int parity = k / 2, last = (HEIGHT - parity - 1) / 2;
      int line = at.y + 2 * number + k % 2 + (parity == 0 ? SHIFT : 0);
      if (TOP) line = line < 0 ? -line : line;
      line = max(0, min(line, 2 * last - line)); // reflected
      group[parity][k % 2] = load_chunk(first + (u32)((2 * line + parity) * ROW_BYTES));
    }
  }
  // Puts a group into the place of the uppermost one, as the lowest.
  DEVICE void keep(const RawGroup &group) {
    const u32 place = window[0];
    bool saturated = false;
#pragma unroll
    for (int k = 0; k < 4; k++) saturated |= unpack(group[k / 2][k % 2], scaling, chunk(place)[32 * k]);
    suspects = 2 * suspects + saturated;
#pragma unroll
    for (int k = 0; k + 1 < GROUPS; k++) window[k] = window[k + 1];
    window[GROUPS - 1] = place;
  }
  // Lines FIRST .. 5 of the six in the window.
  template <int FIRST> DEVICE void read(int parity, Sites (&v)[6]) const {
#pragma unroll
    for (int k = FIRST; k < 6; k++) {
      const Chunk *p = chunk(window[k / 2]) + 32 * (2 * parity + k % 2);
      const Quad left = *((const Quad *)p - 1), right = *(const Quad *)(p + 1);
      const Chunk own = *p;
      v[k][0] = left.a;
      v[k][1] = left.b;
#pragma unroll
      for (int i = 0; i < SITES; i++) v[k][2 + i] = own.site[i];
      v[k][SITES + 2] = right.a;
      v[k][SITES + 3] = right.b;
    }
    if (!at.is_edge) return;
#pragma unroll
    for (int k = FIRST; k < 6; k++) { // the lattice is reflected
      v[k][0] = at.first ? v[k][4] : v[k][0];
      v[k][1] = at.first ? v[k][3] : v[k][1];
      v[k][SITES + 2] = at.last ? v[k][SITES] : v[k][SITES + 2];
      v[k][SITES + 3] = at.last ? v[k][SITES - 1] : v[k][SITES + 3];
    }
  }
  // Bit k: whether site k of output row y has a saturated sample. LINE: of the step's two rows. Samples are still in
  // the ring; those of finer formats are rounded there in half, and read again.
  template <int LINE> DEVICE u32 saturated_sites(int y) const {
    u32 saturated = 0;
    if (RAW_FORMAT == RAW_U8 || !HALF_PRECISION) {
      const Chunk upper = chunk(window[SHIFT && LINE == 0 ? 0 : 1])[32 * (SHIFT ? 1 - LINE : LINE)];
      const Chunk lower = chunk(window[1])[32 * (2 + LINE)];
#pragma unroll
      for (int k = 0; k < SITES; k++)
        saturated |= (u32)(is_saturated(upper.site[k], scaling) || is_saturated(lower.site[k], scaling)) << k;
      return saturated;
    }
#pragma unroll 1
    for (int i = 0; i < 2; i++) {
      const RawChunk line = load_chunk(raw + (u32)((2 * min(y, HEIGHT_OUT - 1) + i) * ROW_BYTES + at.x * TWO_PIXELS));
#pragma unroll
      for (int k = 0; k < 2 * SITES; k++) saturated |= (u32)(number_at(line, k) >= (u32)frame.full_scale) << (k / 2);
    }
    return saturated;
  }
  // Colors of the two middle lines of a row parity. FIRST: parity of the upper one's line on the lattice.
  template <int FIRST>
  DEVICE void debayer_two(int parity, Colors &upper, Colors &lower, LineLuma &upper_luma, LineLuma &lower_luma) const {
    Sites v[6];
    read<0>(parity, v);
    debayer_line<FIRST>(v[0], v[1], v[2], v[3], v[4], upper, upper_luma);
    debayer_line<1 - FIRST>(v[1], v[2], v[3], v[4], v[5], lower, lower_luma);
    scale<FIRST>(upper);
    scale<1 - FIRST>(lower);
  }
  template <int LINE> static DEVICE void scale(Colors &v) {
#pragma unroll
    for (int n = 0; n < 3 * SITES; n++)
      if (unit_of<LINE>(n / 3, n % 3) == 2)
        v[n / 3][n % 3] = mul(v[n / 3][n % 3], splat(0.5 * SampleScale::PER_SAMPLE));
  }
};

// A line on the place of its neighbor: the other line's units. FROM: parity of the line.
template <int FROM> DEVICE void reflect_line(const Colors &from, Colors &to) {
  constexpr Weight one = weight(1);
#pragma unroll
  for (int n = 0; n < 3 * SITES; n++)
    to[n / 3][n % 3] =
        mul(from[n / 3][n % 3], times(one, unit_of<FROM>(n / 3, n % 3), unit_of<1 - FROM>(n / 3, n % 3)));
}
// 3 a + b for a line and the next one. LINE: parity of a.
template <int LINE> DEVICE Pair toward(const Colors &a, const Colors &b, int n) {
  constexpr Weight three = weight(3);
  const int i = n / 3, c = n % 3;
  return fma(a[i][c], times(three, unit_of<LINE>(i, c), unit_of<1 - LINE>(i, c)), b[i][c]);
}

// The upper line of the next row, and the lower line of the row before, which co-siting reads.
struct Carried {
  Colors upper, lower;
  Neighbors upper_luma, lower_luma;
  LineLuma upper_steps, lower_steps; // in integers
};

// Before the first step: the window is one step further up.
DEVICE void begin(const Strip &strip, Carried &carried) {
  Sites v[6];
  Luma upper, lower;
  strip.read<1>(0, v);
  debayer_line<0>(v[1], v[2], v[3], v[4], v[5], carried.upper, carried.upper_steps);
  Strip::scale<0>(carried.upper);
  strip.read<1>(1, v);
  debayer_line<1>(v[1], v[2], v[3], v[4], v[5], carried.lower, carried.lower_steps);
  Strip::scale<1>(carried.lower);
  if (IN_PAIRS) {
    luma_of_line<0>(carried.upper, upper);
    luma_of_line<1>(carried.lower, lower);
  }
  if (strip.at.y == 0) { // the picture is reflected: above its first row of a parity is that row itself
    Colors first;
    debayer_line<0>(v[2], v[3], v[4], v[5], v[2], first, carried.lower_steps);
    Strip::scale<0>(first);
    if (IN_PAIRS) luma_of_line<0>(first, lower);
    reflect_line<0>(first, carried.lower);
  }
  co_site_luma(strip.at, carried.upper_steps);
  co_site_luma(strip.at, carried.lower_steps);
  if (IN_PAIRS) arrange(strip.at, upper, lower, carried.upper_luma, carried.lower_luma);
}

// What a step finds of one row: sums over all angles, sums by row parity for images of angles, and luma of differences
// and sums of orthogonal angles, or that of all lines in integers. Co-sited along y only, except for the luma of pairs.
struct RowValues {
  Colors all, upper, lower;
  Luma difference, sum;
  RowLuma luma;
};

// Both rows of a step, co-sited.
DEVICE void find_co_sited(const Strip &strip, int row, Carried &carried, RowValues (&out)[2]) {
  constexpr int UPPER_LINES = (HEIGHT + 1) / 2;
  Colors upper[2], lower[2]; // of the upper one, those below the rows
  Luma upper_luma[2], lower_luma[2];
  Colors row_itself;
  if (UPPER_LINES % 2) reflect_line<0>(carried.upper, row_itself); // or else the picture does not end behind it
  LineLuma upper_steps[2], lower_steps[2];
  strip.debayer_two<0>(1, lower[0], lower[1], lower_steps[0], lower_steps[1]);
  if (IN_PAIRS) {
    luma_of_line<0>(lower[0], lower_luma[0]);
    luma_of_line<1>(lower[1], lower_luma[1]);
  }
#pragma unroll
  for (int n = 0; n < 3 * SITES; n++) {
    const int i = n / 3, c = n % 3;
    if (WANT_ANGLES) {
      out[0].lower[i][c] = toward<0>(lower[0], carried.lower, n);
    } else {
      carried.upper[i][c] = add(carried.upper[i][c], lower[0][i][c]);
      out[0].all[i][c] = toward<0>(carried.upper, carried.lower, n);
    }
    out[1].lower[i][c] = toward<1>(lower[1], lower[0], n);
    carried.lower[i][c] = lower[1][i][c];
  }
  strip.debayer_two<1>(0, upper[0], upper[1], upper_steps[0], upper_steps[1]);
#pragma unroll
  for (int k = 0; k < 2; k++) { // no earlier: registers
    co_site_luma(strip.at, lower_steps[k]);
    co_site_luma(strip.at, upper_steps[k]);
  }
  if (UPPER_LINES % 2 && row + 1 >= UPPER_LINES) {
#pragma unroll
    for (int n = 0; n < 3 * SITES; n++) upper[0][n / 3][n % 3] = row_itself[n / 3][n % 3];
    if (IN_INTEGERS) upper_steps[0] = carried.upper_steps;
  }
  if (row + 2 >= UPPER_LINES) {
    reflect_line<1>(upper[0], upper[1]);
    if (IN_INTEGERS) upper_steps[1] = upper_steps[0];
  }
#pragma unroll
  for (int n = 0; n < 3 * SITES; n++) {
    const int i = n / 3, c = n % 3;
    const Pair below = toward<1>(upper[0], upper[1], n);
    if (WANT_ANGLES) {
      out[0].upper[i][c] = toward<0>(carried.upper, upper[0], n);
      out[1].upper[i][c] = below;
      out[0].all[i][c] = add(out[0].upper[i][c], out[0].lower[i][c]);
    } else {
      out[0].all[i][c] = add(out[0].all[i][c], upper[0][i][c]);
    }
    out[1].all[i][c] = add(below, out[1].lower[i][c]);
    carried.upper[i][c] = upper[1][i][c];
  }
  if (IN_INTEGERS) {
    out[0].luma = RowLuma{carried.upper_steps, upper_steps[0], lower_steps[0], carried.lower_steps};
    out[1].luma = RowLuma{upper_steps[0], upper_steps[1], lower_steps[1], lower_steps[0]};
    carried.upper_steps = upper_steps[1];
    carried.lower_steps = lower_steps[1];
  }
  if (!IN_PAIRS) return;
  luma_of_line<1>(upper[0], upper_luma[0]);
  luma_of_line<0>(upper[1], upper_luma[1]);
  Neighbors up[2], low[2];
  arrange(strip.at, upper_luma[0], lower_luma[0], up[0], low[0]);
  combine_luma<false>(carried.upper_luma, low[0], up[0], carried.lower_luma, out[0].difference);
  if (OUT_SUMS) combine_luma<true>(carried.upper_luma, low[0], up[0], carried.lower_luma, out[0].sum);
  arrange(strip.at, upper_luma[1], lower_luma[1], up[1], low[1]);
  combine_luma<false>(up[0], low[1], up[1], low[0], out[1].difference);
  if (OUT_SUMS) combine_luma<true>(up[0], low[1], up[1], low[0], out[1].sum);
  carried.upper_luma = up[1];
  carried.lower_luma = low[1];
}

// The same with every angle at its own site.
DEVICE void find_at_own_sites(const Strip &strip, RowValues (&out)[2]) {
  Luma upper[2], lower[2];
  strip.debayer_two<0>(1, out[0].lower, out[1].lower, out[0].luma.lower, out[1].luma.lower);
  strip.debayer_two<0>(0, out[0].upper, out[1].upper, out[0].luma.upper, out[1].luma.upper);
#pragma unroll
  for (int r = 0; r < 2; r++)
#pragma unroll
    for (int n = 0; n < 3 * SITES; n++)
      out[r].all[n / 3][n % 3] = add(out[r].upper[n / 3][n % 3], out[r].lower[n / 3][n % 3]);
  if (!IN_PAIRS) return;
  luma_of_line<0>(out[0].upper, upper[0]);
  luma_of_line<0>(out[0].lower, lower[0]);
  luma_of_line<1>(out[1].upper, upper[1]);
  luma_of_line<1>(out[1].lower, lower[1]);
#pragma unroll
  for (int r = 0; r < 2; r++) {
    Neighbors up, low;
    arrange(strip.at, upper[r], lower[r], up, low);
    combine_luma<false>(up, low, up, low, out[r].difference);
    if (OUT_SUMS) combine_luma<true>(up, low, up, low, out[r].sum);
  }
}
