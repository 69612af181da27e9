// ADR's formulas (docs/adaptive_demosaic.md) at one pixel, for `tile`.
#pragma once
#include "pair.cuh"

// How far a pixel lies from the middle of its neighbours, limited: 2 (step + 1/4). product: of gradients and second
// differences; square: of gradients; both four times.
DEVICE Pair secant_step(Pair product, Pair square) {
  static_assert(ADR_STEP == 0.25f, "a step from -1/4 to 1/4 becomes one from 0 to 1");
  return fma_saturate(product, reciprocal_by_fma(add(square, splat(4 * ADR_GRADIENT_NOISE * LEVEL * LEVEL))),
                      splat(0.5));
}
// First and second differences of the four angles around a pixel. Along x: own angle and the row's in its line, the
// column's and the orthogonal one in those beside it; along y transposed. The number at the end of a name is what it is
// multiplied by.
struct Slopes {
  Pair own_x2, own_y2, row_x, row_y4, column_x4, column_y, diagonal_x2, diagonal_y2;
  Pair own_xx2, own_yy2, column_xx4, row_yy4;
};
// Energy of a pixel's gradients (twice), four times what it exceeds by what intensity explains, and secant steps.
struct Gradients {
  Pair energy, difference, step_x, step_y;
};
DEVICE Gradients gradients(const Slopes &of) {
  const Pair row_y = mul(of.row_y4, splat(0.25)), column_x = mul(of.column_x4, splat(0.25));
  const Pair square_x = fma(of.own_x2, of.own_x2, mul(column_x, of.column_x4)),
             square_y = fma(of.own_y2, of.own_y2, mul(row_y, of.row_y4));
  Gradients g;
  const Pair sides = add(fma(of.diagonal_x2, of.diagonal_x2, square_x), fma(of.diagonal_y2, of.diagonal_y2, square_y));
  g.energy = fma(sides, splat(0.25), fma(of.row_x, of.row_x, mul(of.column_y, of.column_y)));
  const Pair far = fma(of.own_x2, of.diagonal_x2, mul(of.own_y2, of.diagonal_y2));
  const Pair correlation = fma(of.row_x, of.column_x4, fma(of.row_y4, of.column_y, far));
  const Pair near_curvature = fma(of.own_xx2, of.own_xx2, mul(of.own_yy2, of.own_yy2)),
             far_curvature = fma(of.column_xx4, of.column_xx4, mul(of.row_yy4, of.row_yy4));
  g.difference =
      fma(g.energy, splat(2 * ADR_UNCORRELATED),
          fma(near_curvature, splat(-ADR_CURVED), fma(far_curvature, splat(-ADR_CURVED / 4), negate(correlation))));
  g.step_x = secant_step(fma(of.own_x2, of.own_xx2, mul(column_x, of.column_xx4)), square_x);
  g.step_y = secant_step(fma(of.own_y2, of.own_yy2, mul(row_y, of.row_yy4)), square_y);
  return g;
}
// 2 (1 - switch), from sums of `energy` and of `difference` over 5x5 pixels
DEVICE Pair interpolated_by(Pair energy, Pair difference) {
  const Pair noisy = fma(energy, splat(2 / ADR_GAIN), splat(4 * 25 * ADR_GRADIENT_NOISE * LEVEL * LEVEL / ADR_GAIN));
  const Pair off = fma_saturate(negate(difference), reciprocal_by_fma(noisy), splat(1));
  return add(off, off);
}

// the two low-pass filters along x: [4 0 8 0 4]/16 for pixels of the centre's phase, [1 0 7 0 7 0 1]/16 for the others;
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

// What stage A finds at a pixel. excess: G - C; energy: four times that of the polarization. Weights of the left of two
// neighbours, and of the upper one. beyond: the weighted mean of the diagonals minus their plain one, plus half of what
// the upper left is more than the lower right.
struct Detail {
  Pair excess, detail, energy, weight_left, weight_upper, beyond;
};
// Weights of the left of two neighbours and of the upper one, from roughnesses, with one division.
DEVICE void weigh_two(Pair left, Pair right, Pair upper, Pair lower, Pair &weight_left, Pair &weight_upper) {
  const Pair along = add(left, right), upright = add(upper, lower), share = reciprocal_by_fma(mul(along, upright));
  weight_left = mul(mul(right, upright), share);
  weight_upper = mul(mul(lower, along), share);
}

// Differences between opposite neighbours: left and right, above and under, upper left and lower right, upper right and
// lower left.
struct Opposite {
  Pair two, down, falling, rising;
};
// Roughness towards the first and the second of two opposite neighbours, in two directions: along x and y, or along
// both diagonals.
struct Roughness {
  Pair left, right, upper, lower;
};
// z: the pixel's own, and those of its neighbours to the right and below; g, e: roughnesses along the axes, and along
// the diagonals
DEVICE void weigh(Pair z, Pair right, Pair lower_left, Pair lower, Pair lower_right, const Opposite &of,
                  const Roughness &g, const Roughness &e, Detail &found) {
  weigh_two(g.left, g.right, g.upper, g.lower, found.weight_left, found.weight_upper);
  const Pair straight =
      add(fma(found.weight_left, of.two, sub(right, z)), fma(found.weight_upper, of.down, sub(lower, z)));
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
  found.beyond = fma(sub(of.falling, of.rising), splat(0.25), fma(add(to_right, to_left), splat(-0.5), diagonal));
  found.excess = mul(add(straight, diagonal), splat(0.25));
}

// From the low-pass filters and the pixel's own sample.
DEVICE void restore_detail(const Smooth &smooth, Pair z, Detail &found) {
  const Pair dr = smooth.row, dc = smooth.column, dd = smooth.diagonal;
  const Pair own = mul(smooth.own, splat(1 / (SAME * SAME))); // D0
  // four times the mean of the four
  const Pair mean4 =
      maximum(fma(dd, splat(1 / (OTHER * OTHER)), fma(add(dr, dc), splat(1 / (SAME * OTHER)), own)), splat(LEVEL));
  // e = mean/max(D0, mean/4) (C - D0 G/mean), as differences
  const Pair floor = maximum(own, mul(mean4, splat(1.0 / 16)));
  const Pair lacking = fma(z, fma(mean4, splat(0.25), negate(own)), negate(mul(own, found.excess)));
  found.detail = mul(lacking, reciprocal_by_fma(floor));
  const Pair p1 = fma(dd, splat(-1 / (OTHER * OTHER)), own), p2 = mul(sub(dr, dc), splat(1 / (SAME * OTHER)));
  found.energy = fma(p1, p1, mul(p2, p2)); // 4 P2
}

// What is added to the missing angles of a pixel: a share of the weighted mean instead of the bilinear one, and, as far
// as the switch is on, a secant step.
struct Added {
  Pair row, column, diagonal;
};
// step_x, step_y: 2 (step + 1/4); interpolated: 2 (1 - switch)
DEVICE Added added(const Detail &found, const Opposite &of, Pair step_x, Pair step_y, Pair interpolated) {
  const Pair share = mul(interpolated, splat(0.5 * ADR_WEIGHTED));
  // minus half the steps, as far as the switch is on, minus half the share: differences here are the other direction's
  const Pair on = fma(interpolated, splat(0.25), splat(-0.5));
  const Pair least = fma(interpolated, splat(-0.125 - 0.25 * ADR_WEIGHTED), splat(0.25));
  const Pair x = fma(step_x, on, least), y = fma(step_y, on, least);
  Added a;
  a.row = mul(of.two, fma(found.weight_left, share, x));
  a.column = mul(of.down, fma(found.weight_upper, share, y));
  const Pair steps = fma(sub(of.falling, of.rising), x, mul(add(of.falling, of.rising), y));
  a.diagonal = fma(share, found.beyond, mul(steps, splat(0.5)));
  return a;
}

// What a pixel's own sample contributes to its missing angles: z, alpha, G - z + alpha e; and 2 (1 - switch).
struct OwnShare {
  Pair z, alpha, detail, interpolated;
  // an angle, from the sums of z, G - z and e over the N neighbours that have it, and what stage A adds to it
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
