// `tile`, third stage with ADR (docs/adaptive_demosaic.md): adaptive interpolation of the missing angles.
#pragma once
#include "tile_edges.cuh"

#if ADAPTIVE

// Stage A of ADR (docs/adaptive_demosaic.md) on one column of pairs: total intensity, the detail it lacks, polarization
// energy, and what the weighted means and the secant steps add to the missing angles.
// A line through the low-pass filters along x.
struct SmoothLine {
  Pair same, other;
};
DEVICE SmoothLine smooth_line(const Line &a, const Pair *p, int column) {
  // the outer lanes of the outermost pairs lack a neighbour; stage B does not read them
  const Pair l3 = straddle(p[column > 1 ? -2 : -1], a.left), r3 = straddle(a.right, p[column < PLANE_P - 2 ? 2 : 1]);
  return SmoothLine{smooth_same(a.left, a.centre, a.right), smooth_other(l3, a.l1, a.r1, r3)};
}

// Roughness towards the neighbours a and b, which are opposite: g(d) = |z(d) - z(-d)| + |C - z(2d)| + 1 level.
DEVICE void rough(Pair c, Pair across, Pair far_a, Pair far_b, Pair &towards_a, Pair &towards_b) {
  const Pair least = add(absolute(across), splat(LEVEL));
  towards_a = add(absolute(sub(c, far_a)), least);
  towards_b = add(absolute(sub(c, far_b)), least);
}
DEVICE Opposite opposite(const Line &above, const Line &own, const Line &under) {
  return Opposite{sub(own.l1, own.r1), sub(above.centre, under.centre), sub(above.l1, under.r1),
                  sub(above.r1, under.l1)};
}

// What is added to the missing angles at a pixel of the tile. tx, ty: steps along x and y, as 2 (step + 1/4)
DEVICE void add_to_angles(Shared &s, int channel, int at, const Detail &found, const Opposite &of, Pair tx, Pair ty) {
  auto &stage = s.adaptive.stage[channel];
  const Added a = added(found, of, tx, ty, (&s.adaptive.interpolated[0][0])[at]);
  (&stage.row[0][0])[at] = a.row;
  (&stage.column[0][0])[at] = a.column;
  (&stage.diagonal[0][0])[at] = a.diagonal;
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
    // k: rows below the centre
    auto line_at = [&](int k) -> const Line & { return line[(i + k + 2) % 5]; };
    auto smooth_at = [&](int k) -> const SmoothLine & { return smooth[(i + k + 3) % 7]; };
    const Line &u2 = line_at(-2), &u1 = line_at(-1), &m = line_at(0), &d1 = line_at(1), &d2 = line_at(2);
    const Pair c = m.centre;
    const Opposite of = opposite(u1, m, d1);
    Roughness g, e;
    rough(c, of.two, m.left, m.right, g.left, g.right);
    rough(c, of.down, u2.centre, d2.centre, g.upper, g.lower);
    rough(c, of.falling, u2.left, d2.right, e.left, e.right);
    rough(c, of.rising, u2.right, d2.left, e.upper, e.lower);
    Detail found;
    weigh(c, m.r1, d1.l1, d1.centre, d1.r1, of, g, e, found);
    const bool inside = (u32)(first + i - 2) < (u32)TILE_Y && (u32)(column - 2) < (u32)TILE_P;
    const int at = (first + i - 2) * TILE_P + column - 2; // in the planes without a border
    if (inside) {
#if HALF_PRECISION
      add_to_angles(s, channel, at, found, of, secant_step_x(u1, m, d1), secant_step_y(u2, m, d2));
#else // no registers are left for it
      (&s.adaptive.stage[channel].row[0][0])[at] = found.weight_left;
      (&s.adaptive.stage[channel].column[0][0])[at] = found.weight_upper;
      (&s.adaptive.stage[channel].diagonal[0][0])[at] = found.beyond;
#endif
    }
    Smooth of_angle;
    of_angle.own = smooth_same(smooth_at(-2).same, smooth_at(0).same, smooth_at(2).same);
    of_angle.row = smooth_same(smooth_at(-2).other, smooth_at(0).other, smooth_at(2).other);
    of_angle.column = smooth_other(smooth_at(-3).same, smooth_at(-1).same, smooth_at(1).same, smooth_at(3).same);
    of_angle.diagonal = smooth_other(smooth_at(-3).other, smooth_at(-1).other, smooth_at(1).other, smooth_at(3).other);
    restore_detail(of_angle, c, found);
    s.adaptive.stage[channel].excess[first + i][column] = found.excess;
    s.adaptive.stage[channel].detail[first + i][column] = found.detail;
    if (inside) (&s.adaptive.stage[channel].energy[0][0])[at] = found.energy;
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
    Detail found;
    found.weight_left = stage.row[y][k];
    found.weight_upper = stage.column[y][k];
    found.beyond = stage.diagonal[y][k];
    add_to_angles(s, channel, y * TILE_P + k, found, opposite(at(-1), at(0), at(1)),
                  secant_step_x(at(-1), at(0), at(1)), secant_step_y(at(-2), at(0), at(2)));
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
