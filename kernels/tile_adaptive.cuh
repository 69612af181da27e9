// `tile`, third stage with ADR (docs/adaptive_demosaic.md): adaptive interpolation of the missing angles.
#ifndef POLAR_TILE_ADAPTIVE_CUH
#define POLAR_TILE_ADAPTIVE_CUH
#include "tile_edges.cuh"

#if ADAPTIVE

// Stage A of ADR (docs/adaptive_demosaic.md) on one column of pairs: total intensity, the detail it lacks, polarization
// energy, and what the weighted means and the secant steps add to the missing angles.
// the two low-pass filters along x: [4 0 8 0 4]/16 for pixels of the centre's phase, [1 0 7 0 7 0 1]/16 for the others;
// times SAME and OTHER, so that the outer taps are 1
constexpr float SAME = 1 / ADR_SAME_2, OTHER = 1 / ADR_OTHER_3;
struct Smooth {
  Pair same, other;
};
DEVICE Pair smooth_same(Pair a, Pair b, Pair c) { return fma(b, splat(ADR_SAME_0 * SAME), add(a, c)); }
DEVICE Pair smooth_other(Pair a, Pair b, Pair c, Pair d) {
  return fma(add(b, c), splat(ADR_OTHER_1 * OTHER), add(a, d));
}
DEVICE Smooth smooth_line(const Line &a, const Pair *p, int column) {
  // the outer lanes of the outermost pairs lack a neighbour; stage B does not read them
  const Pair l3 = straddle(p[column > 1 ? -2 : -1], a.left), r3 = straddle(a.right, p[column < PLANE_P - 2 ? 2 : 1]);
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
// the mean of two neighbours, weighted by 1/g, minus the centre: differences are small, and lose the least precision in
// half
DEVICE Pair excess_of_two(Roughness g, Pair c, Pair a, Pair b) {
  return fma(mul(g.b, reciprocal_by_fma(add(g.a, g.b))), sub(a, b), sub(b, c));
}

// What is added to the missing angles at a pixel of the tile: a share of the weighted mean instead of the bilinear one,
// or, as far as the switch is on, a secant step. two_h, two_v: weighted means of the row's and the column's angle minus
// the centre; diagonal: of the orthogonal angle. Lines above, with and under the pixel; tx, ty: steps along x and y.
DEVICE void add_to_angles(Shared &s, int channel, int at, const Line &above, const Line &own, const Line &under,
                          Pair two_h, Pair two_v, Pair diagonal, Pair tx, Pair ty) {
  auto &stage = s.adaptive.stage[channel];
  const Pair interpolated = (&s.adaptive.interpolated[0][0])[at], c = own.centre;
  const Pair share = mul(interpolated, splat(ADR_WEIGHTED)), on = sub(splat(1), interpolated);
  const Pair below = sub(under.l1, above.l1), beside = sub(under.r1, above.r1);
  const Pair lower = sub(under.r1, under.l1), upper = sub(above.r1, above.l1);
  const Pair row = sub(two_h, fma(add(own.l1, own.r1), splat(0.5), negate(c)));
  const Pair column = sub(two_v, fma(add(above.centre, under.centre), splat(0.5), negate(c)));
  const Pair sum = add(add(above.l1, above.r1), add(under.l1, under.r1));
  const Pair across = sub(diagonal, fma(sum, splat(0.25), negate(c)));
  const Pair x = mul(tx, on), y = mul(ty, on);
  (&stage.row[0][0])[at] = fma(share, row, mul(sub(own.r1, own.l1), x));
  (&stage.column[0][0])[at] = fma(share, column, mul(sub(under.centre, above.centre), y));
  (&stage.diagonal[0][0])[at] =
      fma(share, across, mul(fma(add(lower, upper), x, mul(add(below, beside), y)), splat(0.5)));
}

// Rows first .. first + STAGE_ROWS of the planes; the window slides down in registers.
DEVICE void stage_a(Shared &s, int channel, int first, int column) {
  const Pair *z = &s.mosaic[channel][first + HALO_Y - 2][column + HALO_X / 2 - 2];
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
  for (int i = 0; i < STAGE_ROWS; i++) {
    if (first + i >= PLANE_Y - 1) break;
    const Pair *p = z + (i + 3) * MOSAIC_P;
    const Line below = read_line(p);
    smooth[(i + 6) % 7] = smooth_line(below, p, column);
    // k: rows below the centre
    auto line_at = [&](int k) -> const Line & { return line[(i + k + 2) % 5]; };
    auto smooth_at = [&](int k) -> const Smooth & { return smooth[(i + k + 3) % 7]; };
    const Line &u2 = line_at(-2), &u1 = line_at(-1), &m = line_at(0), &d1 = line_at(1), &d2 = line_at(2);
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
    const Pair diagonal = mul(fma(ne, fa, mul(nf, ea)), reciprocal_by_fma(weights));
    const Pair two_h = excess_of_two(h, c, m.l1, m.r1), two_v = excess_of_two(v, c, u1.centre, d1.centre);
    const Pair excess = mul(add(add(two_h, two_v), diagonal), splat(0.25)); // G - C
    const bool inside = (u32)(first + i - 2) < (u32)TILE_Y && (u32)(column - 2) < (u32)TILE_P;
    const int at = (first + i - 2) * TILE_P + column - 2; // in the planes without a border
    if (inside) {
#if HALF_PRECISION
      add_to_angles(s, channel, at, u1, m, d1, two_h, two_v, diagonal, secant_step_x(u1, m, d1),
                    secant_step_y(u2, m, d2));
#else // no registers are left for it
      (&s.adaptive.stage[channel].row[0][0])[at] = two_h;
      (&s.adaptive.stage[channel].column[0][0])[at] = two_v;
      (&s.adaptive.stage[channel].diagonal[0][0])[at] = diagonal;
#endif
    }
    const Pair d0 = smooth_same(smooth_at(-2).same, smooth_at(0).same, smooth_at(2).same);
    const Pair dr = smooth_same(smooth_at(-2).other, smooth_at(0).other, smooth_at(2).other);
    const Pair dc = smooth_other(smooth_at(-3).same, smooth_at(-1).same, smooth_at(1).same, smooth_at(3).same);
    const Pair dd = smooth_other(smooth_at(-3).other, smooth_at(-1).other, smooth_at(1).other, smooth_at(3).other);
    const Pair own = mul(d0, splat(1 / (SAME * SAME))); // D0
    // four times the mean of the four
    const Pair mean4 =
        maximum(fma(dd, splat(1 / (OTHER * OTHER)), fma(add(dr, dc), splat(1 / (SAME * OTHER)), own)), splat(LEVEL));
    // e = mean/max(D0, mean/4) (C - D0 G/mean), as differences
    const Pair floor = maximum(own, mul(mean4, splat(1.0 / 16)));
    const Pair detail =
        mul(sub(mul(c, fma(mean4, splat(0.25), negate(own))), mul(own, excess)), reciprocal_by_fma(floor));
    const Pair p1 = fma(dd, splat(-1 / (OTHER * OTHER)), own), p2 = mul(sub(dr, dc), splat(1 / (SAME * OTHER)));
    s.adaptive.stage[channel].excess[first + i][column] = excess;
    s.adaptive.stage[channel].detail[first + i][column] = detail;
    if (inside) (&s.adaptive.stage[channel].energy[0][0])[at] = fma(p1, p1, mul(p2, p2)); // 4 P2
    line[i % 5] = below;
  }
}

#if !HALF_PRECISION
// The end of stage A on one column of pairs, rows first .. first + EDGE_ROWS of the tile: what is added to the missing
// angles, where it left its weighted means.
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
    add_to_angles(s, channel, y * TILE_P + k, at(-1), at(0), at(1), stage.row[y][k], stage.column[y][k],
                  stage.diagonal[y][k], secant_step_x(at(-1), at(0), at(1)), secant_step_y(at(-2), at(0), at(2)));
  }
}
#endif

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

// What a pixel's own sample contributes to its missing angles: alpha, z, G - z and e; and 1 - switch.
struct Own {
  Pair alpha, z, g, e, interpolated;
  // an angle, from the sums of z, G - z and e over the N neighbours that have it, and what stage A adds to it
  template <int N> DEVICE Pair restore(Pair sum_z, Pair sum_g, Pair sum_e, Pair more) const {
    constexpr double share = 1.0 / N;
    const Pair mean = mul(sum_z, splat(share));
    const Pair total = maximum(fma(sum_g, splat(share), mean), splat(LEVEL / 4));
    const Pair gain = minimum(mul(mean, reciprocal_by_fma(total)), splat(2));
    const Pair missing = fma(alpha, fma(sum_e, splat(-share), e), add(sub(z, mean), fma(sum_g, splat(-share), g)));
    return clip(add(fma(mul(gain, missing), interpolated, more), mean));
  }
};

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
    const Pair centre = e.own[i], c = z.own[i], more = g.own[i];
    const Pair r0 = fma(squares.v[1 + i], splat(2), beside[i]);                                   // 16 R0
    const Pair r1 = mul(fma(centre, e.diagonal[i], mul(e.row[i], e.column[i])), splat(16.0 / 8)); // 16 R1
    const Pair r0n = add(r0, splat(16 * ADR_NOISE * LEVEL * LEVEL));
    const Pair w = mul(r0, reciprocal_by_fma(fma(i ? energy.b : energy.a, splat(16 * 2.0 / 4), r0n)));
    Pair bias = fma(r1, reciprocal_by_fma(r0n), splat(ADR_BIAS));
    bias = maximum(minimum(bias, splat(ADR_LIMIT)), splat(-ADR_LIMIT));
    const Pair alpha = fma(sub(splat(1), w), bias, w);
    const Own pixel = {alpha, c, more, centre, i ? interpolated.b : interpolated.a};
    own[i] = c;
    h[i] = pixel.restore<2>(z.row[i], g.row[i], e.row[i], i ? row.b : row.a);
    v[i] = pixel.restore<2>(z.column[i], g.column[i], e.column[i], i ? column.b : column.a);
    d[i] = pixel.restore<4>(z.diagonal[i], g.diagonal[i], e.diagonal[i], i ? diagonal.b : diagonal.a);
  }
}
#endif // ADAPTIVE
#endif
