// `mono_adaptive`, third stage: stage A of ADR (docs/adaptive_demosaic.md): total intensity, the detail it lacks, the
// energy of the polarization, and what the weighted means and the secant steps add to the missing angles.
#ifndef POLAR_MONO_ADAPTIVE_DETAIL_CUH
#define POLAR_MONO_ADAPTIVE_DETAIL_CUH
#include "mono_adaptive_layout.cuh"

// the two low-pass filters along x: [4 0 8 0 4]/16 for pixels of the centre's phase, [1 0 7 0 7 0 1]/16 for the others;
// times SAME and OTHER, so that the outer taps are 1
constexpr float SAME = 1 / ADR_SAME_2, OTHER = 1 / ADR_OTHER_3;
DEVICE Pair smooth_same(Pair a, Pair b, Pair c) { return fma(b, splat(ADR_SAME_0 * SAME), add(a, c)); }
DEVICE Pair smooth_other(Pair a, Pair b, Pair c, Pair d) {
  return fma(add(b, c), splat(ADR_OTHER_1 * OTHER), add(a, d));
}

// One line of the mosaic around two pixels: what was read (columns -2 .. 3 are used), and its low-pass filters.
struct Near {
  Pair z[6]; // columns -2 .. 3
};
struct Smooth {
  Pair same[2], other[2];
};
DEVICE void read_line(const Pair *p, Near &near, Smooth &smooth) { // p: at the first pixel
  Pair z[10];
  read(p - 4, z);
#pragma unroll
  for (int k = 0; k < 6; k++) near.z[k] = z[k + 2];
#pragma unroll
  for (int k = 0; k < 2; k++) {
    smooth.same[k] = smooth_same(z[k + 2], z[k + 4], z[k + 6]);
    smooth.other[k] = smooth_other(z[k + 1], z[k + 3], z[k + 5], z[k + 7]);
  }
}

// Differences between pixels two apart, each needed by two roughnesses: from line `a` to line `b`, two lines below.
// Down from column k; to the right and to the left from columns -2 .. 1 and 0 .. 3 (e and f).
struct Across {
  Pair down[2], right[4], left[4];
};
DEVICE Across across(const Near &a, const Near &b) {
  Across d;
#pragma unroll
  for (int k = 0; k < 2; k++) d.down[k] = sub(a.z[k + 2], b.z[k + 2]);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    d.right[k] = sub(a.z[k], b.z[k + 2]);
    d.left[k] = sub(a.z[k + 2], b.z[k]);
  }
  return d;
}
// Roughness between a pixel q and its neighbour at d: B(q) = |z(q-d) - z(q+d)| + |z(q) - z(q+2d)| + 1 level. Towards d,
// a pixel's own roughness g(d) is B of the pixel, and g(-d) is B of the neighbour at -d.
DEVICE Pair roughness(Pair a, Pair b) { return add(add(absolute(a), absolute(b)), splat(LEVEL)); }
struct Rough {
  Pair down[2], right[3], left[3]; // right: from columns -1 .. 1; left: from columns 0 .. 2
};
DEVICE Rough roughnesses(const Across &above, const Across &own) { // of the line above, and of this one
  Rough r;
#pragma unroll
  for (int k = 0; k < 2; k++) r.down[k] = roughness(above.down[k], own.down[k]);
#pragma unroll
  for (int k = 0; k < 3; k++) {
    r.right[k] = roughness(above.right[k], own.right[k + 1]);
    r.left[k] = roughness(above.left[k + 1], own.left[k]);
  }
  return r;
}

// What stage A finds at a pixel. excess: G - C; energy: four times that of the polarization. Weights of the left of two
// neighbours, and of the upper one. beyond: the weighted mean of the diagonals minus their plain mean.
struct Detail {
  Pair excess, detail, energy, weight_left, weight_upper, beyond;
};
DEVICE Pair weight_of(Pair own, Pair opposite) { return mul(opposite, reciprocal_by_fma(add(own, opposite))); }

// k: column; this line and the one under it; differences along x and across it; roughnesses from the line above and
// from this line; `right`: along x from columns -1 .. 1
DEVICE void weigh(const Near &c, const Near &d, const Pair (&two)[4], const Across &from_above, const Pair (&right)[3],
                  const Rough &above, const Rough &own, int k, Detail &found) {
  const Pair down = from_above.down[k], falling = from_above.right[k + 1], rising = from_above.left[k + 1];
  const Pair z = c.z[k + 2];
  found.weight_left = weight_of(right[k], right[k + 1]);
  found.weight_upper = weight_of(above.down[k], own.down[k]);
  const Pair along = fma(found.weight_left, two[k + 1], sub(c.z[k + 3], z));
  const Pair upright = fma(found.weight_upper, down, sub(d.z[k + 2], z));
  // four diagonals with one division: every weight times the product of all roughnesses
  const Pair ea = above.right[k], eb = own.right[k + 1], fa = above.left[k + 1], fb = own.left[k];
  const Pair lower_right = sub(d.z[k + 3], z), lower_left = sub(d.z[k + 1], z);
  const Pair e = mul(ea, eb), f = mul(fa, fb), sum_e = add(ea, eb), sum_f = add(fa, fb);
  const Pair of_e = fma(sum_e, lower_right, mul(eb, falling)), of_f = fma(sum_f, lower_left, mul(fb, rising));
  const Pair weights = fma(sum_e, f, mul(sum_f, e));
  const Pair diagonal = mul(fma(of_e, f, mul(of_f, e)), reciprocal_by_fma(weights));
  const Pair plain = fma(add(lower_right, lower_left), splat(2), add(falling, rising)); // four times
  found.beyond = fma(plain, splat(-0.25), diagonal);
  found.excess = mul(add(add(along, upright), diagonal), splat(0.25));
}

// lines from three above to three under the pixel
DEVICE void restore_detail(const Smooth *line, Pair z, int k, Detail &found) {
  const Pair d0 = smooth_same(line[1].same[k], line[3].same[k], line[5].same[k]);
  const Pair dr = smooth_same(line[1].other[k], line[3].other[k], line[5].other[k]);
  const Pair dc = smooth_other(line[0].same[k], line[2].same[k], line[4].same[k], line[6].same[k]);
  const Pair dd = smooth_other(line[0].other[k], line[2].other[k], line[4].other[k], line[6].other[k]);
  const Pair own = mul(d0, splat(1 / (SAME * SAME))); // D0
  // four times the mean of the four
  const Pair mean4 =
      maximum(fma(dd, splat(1 / (OTHER * OTHER)), fma(add(dr, dc), splat(1 / (SAME * OTHER)), own)), splat(LEVEL));
  // e = mean/max(D0, mean/4) (C - D0 G/mean), as differences
  const Pair floor = maximum(own, mul(mean4, splat(1.0 / 16)));
  const Pair lacking = sub(mul(z, fma(mean4, splat(0.25), negate(own))), mul(own, found.excess));
  found.detail = mul(lacking, reciprocal_by_fma(floor));
  const Pair p1 = fma(dd, splat(-1 / (OTHER * OTHER)), own), p2 = mul(sub(dr, dc), splat(1 / (SAME * OTHER)));
  found.energy = fma(p1, p1, mul(p2, p2)); // 4 P2
}

// What is added to the missing angles of a pixel: a share of the weighted mean instead of the bilinear one, and, as far
// as the switch is on, a secant step.
struct Added {
  Pair row, column, diagonal;
};
// two: z(-1) - z(1); down: z of the pixel above minus that under; e, f: from the upper left to the lower right, and
// from the upper right to the lower left; step_x, step_y: 2 (step + 1/4); interpolated: 2 (1 - switch)
DEVICE Added added(const Detail &of, Pair two, Pair down, Pair e, Pair f, Pair step_x, Pair step_y, Pair interpolated) {
  const Pair on = fma(interpolated, splat(-0.5), splat(1)), share = mul(interpolated, splat(0.5 * ADR_WEIGHTED));
  // minus half the steps, as far as the switch is on: differences here are the other direction's
  const Pair x = mul(fma(step_x, splat(-0.5), splat(0.25)), on), y = mul(fma(step_y, splat(-0.5), splat(0.25)), on);
  Added a;
  a.row = mul(two, fma(sub(of.weight_left, splat(0.5)), share, x));
  a.column = mul(down, fma(sub(of.weight_upper, splat(0.5)), share, y));
  a.diagonal = fma(share, of.beyond, mul(fma(sub(e, f), x, mul(add(e, f), y)), splat(0.5)));
  return a;
}

constexpr int DETAIL_END = HALF_Y + 2; // one row beyond the tile on either side
// Stage A on one pair of columns, from row `first` of those that begin one above the tile on.
DEVICE void find_detail(Shared &s, int first, int column) {
  constexpr int U = UNROLL;
  const Pair *z = mosaic_at(s.mosaic, first - 1, 2 * column - 2);
  const bool inside = (u32)(column - 1) < (u32)(TILE_X / 2);
  Smooth smooth[6 + U];
  Near near[4 + U]; // lines -1 .. 2 of the first row's window, and those that follow
  Near two_above;
#pragma unroll
  for (int i = 0; i < 6; i++) { // lines -3 .. 2
    Near line;
    read_line(z + (i - 3) * MOSAIC_X, line, smooth[i]);
    if (i == 1) two_above = line;
    if (i >= 2) near[i - 2] = line;
  }
  Across from_above = across(two_above, near[1]);
  Rough above;
  {
    const Across own = across(near[0], near[2]);
    above = roughnesses(from_above, own);
    from_above = own;
  }
  const int last = min(first + run_rows(DETAIL_END), DETAIL_END);
#pragma unroll 1
  for (int y = first; y < last; y += U, z += U * MOSAIC_X) {
#pragma unroll
    for (int i = 0; i < U; i++) {
      if (i && !is_even(DETAIL_END) && y + i >= last) break;
      Near unused;
      read_line(z + (i + 3) * MOSAIC_X, near[i + 4], smooth[i + 6]);
      const Near &c = near[i + 1], &d = near[i + 2];
      const Across from_own = across(c, near[i + 3]);
      const Rough own = roughnesses(from_above, from_own);
      Pair two[4], right[3];
#pragma unroll
      for (int k = 0; k < 4; k++) two[k] = sub(c.z[k], c.z[k + 2]);
#pragma unroll
      for (int k = 0; k < 3; k++) right[k] = roughness(two[k], two[k + 1]);
      Detail found[2];
#pragma unroll
      for (int k = 0; k < 2; k++) {
        weigh(c, d, two, from_above, right, above, own, k, found[k]);
        restore_detail(smooth + i, c.z[k + 2], k, found[k]);
      }
      write(&s.stage.excess[y + i + 1][2 * column], found[0].excess, found[1].excess);
      write(&s.stage.detail[y + i + 1][2 * column], found[0].detail, found[1].detail);
      if (inside && (u32)(y + i - 1) < (u32)HALF_Y) {
        const int row = y + i - 1, x = 2 * column - 2;
        write(&s.energy[row][x], found[0].energy, found[1].energy);
        Pair sx[2], sy[2], interpolated[2];
        read(&s.row[row][x], sx);
        read(&s.column[row][x], sy);
        read(&s.interpolated[row][x], interpolated);
        Added a[2];
#pragma unroll
        for (int k = 0; k < 2; k++)
          a[k] = added(found[k], two[k + 1], from_above.down[k], from_above.right[k + 1], from_above.left[k + 1], sx[k],
                       sy[k], interpolated[k]);
        write(&s.row[row][x], a[0].row, a[1].row);
        write(&s.column[row][x], a[0].column, a[1].column);
        write(&s.diagonal[row][x], a[0].diagonal, a[1].diagonal);
      }
      from_above = from_own;
      above = own;
    }
#pragma unroll
    for (int i = 0; i < 6; i++) smooth[i] = smooth[i + U];
#pragma unroll
    for (int i = 0; i < 4; i++) near[i] = near[i + U];
  }
}
#endif
