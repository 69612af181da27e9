// `tile`, third stage with ADR (docs/adaptive_demosaic.md): adaptive interpolation of the missing angles.
#pragma once
#include "tile_edges.cuh"

#if ADAPTIVE

// the two low-pass filters along x: [4 0 8 0 4]/16 for pixels of the center's phase, [1 0 7 0 7 0 1]/16 for the others;
// times SAME and OTHER, so that the outer taps are 1
constexpr float SAME = 1 / ADR_SAME_2, OTHER = 1 / ADR_OTHER_3;
DEVICE Pair smooth_same(Pair a, Pair b, Pair c) { return fma(b, splat(ADR_SAME_0 * SAME), add(a, c)); }
DEVICE Pair smooth_other(Pair a, Pair b, Pair c, Pair d) {
  return fma(add(b, c), splat(ADR_OTHER_1 * OTHER), add(a, d));
}

// The four low-pass filters: own angle, the row's, the column's, the orthogonal one.
struct Smooth {
  Pair own, row, column, diagonal;
};

// What stage A computes for a pixel:
//   excess  G - C
//   detail  e, the detail that the total intensity lacks
//   energy  four times the energy of the polarization
//   weight_left, weight_upper  weights of the left of two neighbors, and of the upper one
//   beyond  wavg - mean + (z_ul - z_lr)/2, of the weighted average and the mean of the four diagonal neighbors, and of
//           the neighbors to the upper left and to the lower right
struct Restored {
  Pair excess, detail, energy, weight_left, weight_upper, beyond;
};
// Weights of the left of two neighbors and of the upper one, from roughnesses, with one division.
DEVICE void weigh_two(Pair left, Pair right, Pair upper, Pair lower, Pair &weight_left, Pair &weight_upper) {
  const Pair along = add(left, right), upright = add(upper, lower), share = reciprocal_by_fma(mul(along, upright));
  weight_left = mul(mul(right, upright), share);
  weight_upper = mul(mul(lower, along), share);
}

// Differences between opposite neighbors: left and right, above and under, upper left and lower right, upper right and
// lower left.
struct Opposite {
  Pair two, down, falling, rising;
};
// Roughness toward the first and the second of two opposite neighbors, in two directions: along x and y, or along
// both diagonals.
struct Roughness {
  Pair left, right, upper, lower;
};
// z: the pixel's own, and those of its neighbors to the right and below; g, e: roughnesses along the axes, and along
// the diagonals
DEVICE void weigh(Pair z, Pair right, Pair lower_left, Pair lower, Pair lower_right, const Opposite &of,
                  const Roughness &g, const Roughness &e, Restored &restored) {
  weigh_two(g.left, g.right, g.upper, g.lower, restored.weight_left, restored.weight_upper);
  const Pair straight =
      add(fma(restored.weight_left, of.two, sub(right, z)), fma(restored.weight_upper, of.down, sub(lower, z)));
  // four diagonals with one division: every weight times the product of all roughnesses
  const Pair to_right = sub(lower_right, z), to_left = sub(lower_left, z);
  const Pair falling = mul(e.left, e.right), rising = mul(e.upper, e.lower);
  const Pair sum_falling = add(e.left, e.right), sum_rising = add(e.upper, e.lower);
  const Pair of_falling = fma(sum_falling, to_right, mul(e.right, of.falling)),
             of_rising = fma(sum_rising, to_left, mul(e.lower, of.rising));
  const Pair weights = fma(sum_falling, rising, mul(sum_rising, falling));
  const Pair diagonal = mul(fma(of_falling, rising, mul(of_rising, falling)), reciprocal_by_fma(weights));
  // the plain mean is that of the lower ones, and a quarter of what the upper ones are more; half of `falling` belongs
  // to the secant step (`added`)
  restored.beyond = fma(sub(of.falling, of.rising), splat(0.25), fma(add(to_right, to_left), splat(-0.5), diagonal));
  restored.excess = mul(add(straight, diagonal), splat(0.25));
}

// From the low-pass filters and the pixel's own sample.
DEVICE void restore_detail(const Smooth &smooth, Pair z, Restored &restored) {
  const Pair dr = smooth.row, dc = smooth.column, dd = smooth.diagonal;
  const Pair own = mul(smooth.own, splat(1 / (SAME * SAME))); // D0
  // four times the mean of the four
  const Pair mean4 =
      maximum(fma(dd, splat(1 / (OTHER * OTHER)), fma(add(dr, dc), splat(1 / (SAME * OTHER)), own)), splat(LEVEL));
  // e = mean/max(D0, mean/4) (C - D0 G/mean), as differences
  const Pair floor = maximum(own, mul(mean4, splat(1.0 / 16)));
  const Pair lacking = fma(z, fma(mean4, splat(0.25), negate(own)), negate(mul(own, restored.excess)));
  restored.detail = mul(lacking, reciprocal_by_fma(floor));
  const Pair p1 = fma(dd, splat(-1 / (OTHER * OTHER)), own), p2 = mul(sub(dr, dc), splat(1 / (SAME * OTHER)));
  restored.energy = fma(p1, p1, mul(p2, p2)); // 4 P2
}

// What a pixel's own sample contributes to its missing angles: z, alpha, G - z + alpha e; and 2 (1 - switch).
struct OwnShare {
  Pair z, alpha, detail, interpolated;
  // an angle, from the sums of z, G - z and e over the N neighbors that have it, and what stage A adds to it
  template <int N> DEVICE Pair restore(Pair sum_z, Pair sum_g, Pair sum_e, Pair more) const {
    constexpr double share = 1.0 / N;
    const Pair mean = mul(sum_z, splat(share));
    // twice the total, which is at least a quarter of a level; half the gain, which is 2 at most
    const Pair total = N == 2 ? add(sum_z, sum_g) : mul(add(sum_z, sum_g), splat(2 * share));
    const Pair gain = fma_saturate(mean, reciprocal_by_fma(maximum(total, splat(LEVEL / 2))), splat(0));
    const Pair beside = fma(alpha, sum_e, sum_g);
    const Pair missing = fma(beside, splat(-share), add(sub(z, mean), detail));
    return add_clip(fma(mul(gain, missing), interpolated, more), mean);
  }
};

// alpha: how much of a pixel's detail is intensity. r0: 16 R0; r1: 8 R1; energy: four times that of the polarization
DEVICE Pair share_of_intensity(Pair r0, Pair r1, Pair energy) {
  const Pair r0n = add(r0, splat(16 * ADR_NOISE * LEVEL * LEVEL));
  const Pair w = mul(r0, reciprocal_by_fma(fma(energy, splat(16 * 2.0 / 4), r0n)));
  // the bias, from -ADR_LIMIT to ADR_LIMIT, as a number from 0 to 1
  const Pair bias = fma_saturate(r1, reciprocal_by_fma(mul(r0n, splat(ADR_LIMIT))),
                                 splat((ADR_BIAS + ADR_LIMIT) / (2.0 * ADR_LIMIT)));
  return fma(w, fma(bias, splat(-2 * ADR_LIMIT), splat(1 + ADR_LIMIT)),
             fma(bias, splat(2 * ADR_LIMIT), splat(-ADR_LIMIT)));
}

// Stage A of ADR (docs/adaptive_demosaic.md) on one column of pairs: total intensity, the detail it lacks, polarization
// energy, and what the weighted means and the secant steps add to the missing angles.
// A line through the low-pass filters along x.
struct SmoothLine {
  Pair same, other;
};
DEVICE SmoothLine smooth_line(const Line &a, const Pair *p, int column) {
  // the outer lanes of the outermost pairs lack a neighbor; stage B does not read them
  const Pair l3 = straddle(p[column > 1 ? -2 : -1], a.left), r3 = straddle(a.right, p[column < PLANE_P - 2 ? 2 : 1]);
  return SmoothLine{smooth_same(a.left, a.center, a.right), smooth_other(l3, a.l1, a.r1, r3)};
}

// Roughness toward the neighbors a and b, which are opposite: g(d) = |z(d) - z(-d)| + |C - z(2d)| + 1 level.
DEVICE void rough(Pair c, Pair across, Pair far_a, Pair far_b, Pair &toward_a, Pair &toward_b) {
  const Pair least = add(absolute(across), splat(LEVEL));
  toward_a = add(absolute(sub(c, far_a)), least);
  toward_b = add(absolute(sub(c, far_b)), least);
}
DEVICE Opposite opposite(const Line &above, const Line &own, const Line &under) {
  return Opposite{sub(own.l1, own.r1), sub(above.center, under.center), sub(above.l1, under.r1),
                  sub(above.r1, under.l1)};
}

// Stores what is added to the bilinear means of a pixel's missing angles: a share of the weighted averages, and, as far
// as the switch is on, a secant step. With share = ADR_WEIGHTED (1 - switch):
//   row       (z_left - z_right) (share (weight_left - 1/2) - switch secant_x)
//   column    (z_upper - z_lower) (share (weight_upper - 1/2) - switch secant_y)
//   diagonal  share (wavg - mean) - switch/2 ((falling - rising) secant_x + (falling + rising) secant_y)
// step_x, step_y: 2 (secant + 1/4). `x` and `y` are -(share/2 + switch secant); in the diagonal, their terms in share
// cancel the term (z_ul - z_lr)/2 of `beyond`.
DEVICE void add_to_angles(Shared &s, int channel, int at, const Restored &restored, const Opposite &of, Pair step_x,
                          Pair step_y) {
  auto &stage = s.adaptive.stage[channel];
  const Pair interpolated = (&s.adaptive.interpolated[0][0])[at]; // 2 (1 - switch)
  const Pair share = mul(interpolated, splat(0.5 * ADR_WEIGHTED));
  // minus half the steps, as far as the switch is on, minus half the share: differences here are the other direction's
  const Pair on = fma(interpolated, splat(0.25), splat(-0.5));
  const Pair least = fma(interpolated, splat(-0.125 - 0.25 * ADR_WEIGHTED), splat(0.25));
  const Pair x = fma(step_x, on, least), y = fma(step_y, on, least);
  const Pair steps = fma(sub(of.falling, of.rising), x, mul(add(of.falling, of.rising), y));
  (&stage.row[0][0])[at] = mul(of.two, fma(restored.weight_left, share, x));
  (&stage.column[0][0])[at] = mul(of.down, fma(restored.weight_upper, share, y));
  (&stage.diagonal[0][0])[at] = fma(share, restored.beyond, mul(steps, splat(0.5)));
}

// Rows first .. first + STAGE_ROWS of the planes; the window slides down in registers.
DEVICE void stage_a(Shared &s, int channel, int first, int column) {
  const Pair *z = &s.mosaic[channel][first + HALO_Y - 2][column + HALO_X / 2 - 2];
  Line line[5];
  SmoothLine smooth[7];
#pragma unroll
  for (int k = 0; k < 6; k++) { // rows -3 .. 2 of the first row's window
    const Pair *p = z + (k - 3) * MOSAIC_P;
    const Line a = read_line(p);
    smooth[k] = smooth_line(a, p, column);
    if (k >= 1) line[(k - 1) % 5] = a;
  }
#pragma unroll
  for (int i = 0; i < STAGE_ROWS; i++) {
    if (first + i >= PLANE_Y - 1) break;
    const Pair *p = z + (i + 3) * MOSAIC_P;
    const Line below = read_line(p);
    smooth[(i + 6) % 7] = smooth_line(below, p, column);
    // k: rows below the center
    auto line_at = [&](int k) -> const Line & { return line[(i + k + 2) % 5]; };
    auto smooth_at = [&](int k) -> const SmoothLine & { return smooth[(i + k + 3) % 7]; };
    const Line &u2 = line_at(-2), &u1 = line_at(-1), &m = line_at(0), &d1 = line_at(1), &d2 = line_at(2);
    const Pair c = m.center;
    const Opposite of = opposite(u1, m, d1);
    Roughness g, e;
    rough(c, of.two, m.left, m.right, g.left, g.right);
    rough(c, of.down, u2.center, d2.center, g.upper, g.lower);
    rough(c, of.falling, u2.left, d2.right, e.left, e.right);
    rough(c, of.rising, u2.right, d2.left, e.upper, e.lower);
    Restored restored;
    weigh(c, m.r1, d1.l1, d1.center, d1.r1, of, g, e, restored);
    const bool inside = (u32)(first + i - 2) < (u32)TILE_Y && (u32)(column - 2) < (u32)TILE_P;
    const int at = (first + i - 2) * TILE_P + column - 2; // in the planes without a border
    if (inside) {
#if HALF_PRECISION
      add_to_angles(s, channel, at, restored, of, secant_step_x(u1, m, d1), secant_step_y(u2, m, d2));
#else // no registers are left for it
      (&s.adaptive.stage[channel].row[0][0])[at] = restored.weight_left;
      (&s.adaptive.stage[channel].column[0][0])[at] = restored.weight_upper;
      (&s.adaptive.stage[channel].diagonal[0][0])[at] = restored.beyond;
#endif
    }
    Smooth of_angle;
    of_angle.own = smooth_same(smooth_at(-2).same, smooth_at(0).same, smooth_at(2).same);
    of_angle.row = smooth_same(smooth_at(-2).other, smooth_at(0).other, smooth_at(2).other);
    of_angle.column = smooth_other(smooth_at(-3).same, smooth_at(-1).same, smooth_at(1).same, smooth_at(3).same);
    of_angle.diagonal = smooth_other(smooth_at(-3).other, smooth_at(-1).other, smooth_at(1).other, smooth_at(3).other);
    restore_detail(of_angle, c, restored);
    s.adaptive.stage[channel].excess[first + i][column] = restored.excess;
    s.adaptive.stage[channel].detail[first + i][column] = restored.detail;
    if (inside) (&s.adaptive.stage[channel].energy[0][0])[at] = restored.energy;
    line[i % 5] = below;
  }
}

#if !HALF_PRECISION
// The end of stage A on one column of pairs, rows first .. first + EDGE_ROWS of the tile: what is added to the missing
// angles, where it left its weights.
DEVICE void finish_stage_a(Shared &s, int channel, int first, int k) {
  const Pair *z = &s.mosaic[channel][first + HALO_Y][k + HALO_X / 2];
  Line line[5];
#pragma unroll
  for (int i = 0; i < 4; i++) line[i] = read_line(z + (i - 2) * MOSAIC_P);
#pragma unroll
  for (int i = 0; i < EDGE_ROWS; i++) {
    const int y = first + i;
    if (y >= TILE_Y) break;
    line[(i + 4) % 5] = read_line(z + (i + 2) * MOSAIC_P);
    auto at = [&](int k) -> const Line & { return line[(i + k + 2) % 5]; };
    const auto &stage = s.adaptive.stage[channel];
    Restored restored;
    restored.weight_left = stage.row[y][k];
    restored.weight_upper = stage.column[y][k];
    restored.beyond = stage.diagonal[y][k];
    add_to_angles(s, channel, y * TILE_P + k, restored, opposite(at(-1), at(0), at(1)),
                  secant_step_x(at(-1), at(0), at(1)), secant_step_y(at(-2), at(0), at(2)));
  }
}
#endif

// Stage B on two neighboring pairs of a row. Four pairs of a plane around them:
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
// left neighbor plus right neighbor, of both pairs
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
  const auto &stage = s.adaptive.stage[channel];
  const Sums g = read_sums(&stage.excess[y + 2][k + 2], PLANE_P);
  const Pair *p = &stage.detail[y + 2][k + 2];
  const Four above = read_four(p - PLANE_P), middle = read_four(p), under = read_four(p + PLANE_P);
  const Sums e = sums(above, middle, under);
  Four squares; // e^2 with weights 1 2 1 down
#pragma unroll
  for (int i = 0; i < 4; i++) {
    const Pair once = mul(middle.v[i], middle.v[i]);
    squares.v[i] = add(fma(above.v[i], above.v[i], once), fma(under.v[i], under.v[i], once));
  }
  const Quad energy = *(const Quad *)&stage.energy[y][k], interpolated = *(const Quad *)&s.adaptive.interpolated[y][k];
  const Quad row = *(const Quad *)&stage.row[y][k], column = *(const Quad *)&stage.column[y][k],
             diagonal = *(const Quad *)&stage.diagonal[y][k];
  Pair beside[2];
  across(squares, beside);
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const Pair r0 = fma(squares.v[1 + i], splat(2), beside[i]);
    const Pair r1 = fma(e.own[i], e.diagonal[i], mul(e.row[i], e.column[i]));
    const Pair alpha = share_of_intensity(r0, r1, i ? energy.b : energy.a);
    const OwnShare pixel = {z.own[i], alpha, fma(alpha, e.own[i], g.own[i]), i ? interpolated.b : interpolated.a};
    own[i] = z.own[i];
    h[i] = pixel.restore<2>(z.row[i], g.row[i], e.row[i], i ? row.b : row.a);
    v[i] = pixel.restore<2>(z.column[i], g.column[i], e.column[i], i ? column.b : column.a);
    d[i] = pixel.restore<4>(z.diagonal[i], g.diagonal[i], e.diagonal[i], i ? diagonal.b : diagonal.a);
  }
}
#endif // ADAPTIVE
