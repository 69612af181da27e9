// `tile`, third stage with ADR (docs/adaptive_demosaic.md), first part: where edges are of polarization.
//
// At an edge of intensity all angles change alike, at one of polarization orthogonal angles change in opposite
// directions. The switch is 1 there, and ADR then interpolates by a secant step instead of the detail of intensity.
#ifndef POLAR_TILE_EDGES_CUH
#define POLAR_TILE_EDGES_CUH
#include "tile_layout.cuh"

#if ADAPTIVE
// Runs of rows that threads go down side by side, as many in every pass, and rows of a run in each.
constexpr int RUNS = (TILE_Y + 2 + ROWS - 1) / ROWS;
constexpr int GRADIENT_ROWS = (PLANE_Y + RUNS - 1) / RUNS, EDGE_ROWS = (TILE_Y + RUNS - 1) / RUNS,
              STAGE_ROWS = (TILE_Y + 2 + RUNS - 1) / RUNS;

struct Line {
  Pair left, centre, right, l1, r1;
}; // pairs at -2, 0, +2, then -1 and +1

DEVICE Line make_line(Pair left, Pair centre, Pair right) {
  return Line{left, centre, right, straddle(left, centre), straddle(centre, right)};
}
DEVICE Line read_line(const Pair *p) { return make_line(p[-1], p[0], p[1]); }

// A line of the mosaic whose edges are looked for: in colour, of luma.
DEVICE Line read_luma(const Shared &s, int y, int k) {
#if COLOR
  const Line r = read_line(&s.mosaic[0][y][k]), g = read_line(&s.mosaic[COLOR][y][k]),
             b = read_line(&s.mosaic[2 * COLOR][y][k]);
  return make_line(luma(r.left, g.left, b.left), luma(r.centre, g.centre, b.centre), luma(r.right, g.right, b.right));
#else
  return read_line(&s.mosaic[0][y][k]);
#endif
}

// What the gradients of a pixel are made of, from one line of the mosaic: its own pixel; differences over two and over
// four pixels; the second difference; and the sum of the pixels beside it.
struct Differences {
  Pair centre, two, four, second, beside;
};
DEVICE Differences differences(const Line &a) {
  return Differences{a.centre, sub(a.r1, a.l1), sub(a.right, a.left), fma(add(a.left, a.right), splat(-0.5), a.centre),
                     add(a.l1, a.r1)};
}

// Gradients on one column of pairs, rows first .. first + GRADIENT_ROWS of the planes: their energy, and by how much it
// exceeds what intensity explains. Along x: own angle and the row's in this line, the column's and the orthogonal one
// in those beside it; along y transposed.
DEVICE void gradients(Shared &s, int first, int column) {
  const int y = first + HALO_Y - 2, k = column + HALO_X / 2 - 2;
  Differences line[5];
#pragma unroll
  for (int i = 0; i < 4; i++)
    line[i] = differences(read_luma(s, y + i - 2, k)); // rows -2 .. 1 of the first row's window
#pragma unroll
  for (int i = 0; i < GRADIENT_ROWS; i++) {
    if (first + i >= PLANE_Y) break;
    line[(i + 4) % 5] = differences(read_luma(s, y + i + 2, k));
    auto at = [&](int k) -> const Differences & { return line[(i + k + 2) % 5]; };
    const Differences &u2 = at(-2), &u1 = at(-1), &m = at(0), &d1 = at(1), &d2 = at(2);
    const Pair row_x = m.two, own_x = mul(m.four, splat(0.5));
    const Pair diagonal_x = mul(add(u1.two, d1.two), splat(0.5)), column_x = mul(add(u1.four, d1.four), splat(0.25));
    const Pair column_y = sub(d1.centre, u1.centre), own_y = mul(sub(d2.centre, u2.centre), splat(0.5));
    const Pair diagonal_y = mul(sub(d1.beside, u1.beside), splat(0.5)),
               row_y = mul(sub(d2.beside, u2.beside), splat(0.25));
    const Pair own_xx = m.second, column_xx = mul(add(u1.second, d1.second), splat(0.5));
    const Pair own_yy = fma(add(u2.centre, d2.centre), splat(-0.5), m.centre);
    const Pair row_yy = fma(add(u2.beside, d2.beside), splat(-0.25), mul(m.beside, splat(0.5)));
    Pair energy = fma(own_x, own_x, mul(column_x, column_x)); // twice
    energy = fma(own_y, own_y, fma(row_y, row_y, energy));
    energy = fma(diagonal_x, diagonal_x, fma(diagonal_y, diagonal_y, energy));
    energy = fma(row_x, row_x, fma(column_y, column_y, energy));
    const Pair along = fma(own_x, diagonal_x, mul(own_y, diagonal_y));
    const Pair correlation = fma(row_x, column_x, fma(row_y, column_y, along));
    Pair curvature = fma(own_xx, own_xx, mul(own_yy, own_yy));
    curvature = fma(column_xx, column_xx, fma(row_yy, row_yy, curvature));
    energy = mul(energy, splat(0.5));
    s.adaptive.gradient.energy[first + i][column] = energy;
    s.adaptive.gradient.difference[first + i][column] =
        fma(curvature, splat(-ADR_CURVED), fma(energy, splat(ADR_UNCORRELATED), negate(correlation)));
  }
}

// Sum of five pixels along x, around both pixels of a pair.
DEVICE Pair sum_of_5(const Pair *p) {
  const Pair l = p[-1], c = p[0], r = p[1];
  return add(add(add(l, r), c), add(straddle(l, c), straddle(c, r)));
}

// The switch on one column of pairs, rows first .. first + EDGE_ROWS of the tile, from means over 5x5 pixels.
DEVICE void find_edges(Shared &s, int first, int k) {
  const Pair *energy = &s.adaptive.gradient.energy[first][k + 2],
             *difference = &s.adaptive.gradient.difference[first][k + 2];
  Pair e[5], d[5];
#pragma unroll
  for (int j = 0; j < 4; j++) {
    e[j] = sum_of_5(energy + j * PLANE_P);
    d[j] = sum_of_5(difference + j * PLANE_P);
  }
#pragma unroll
  for (int i = 0; i < EDGE_ROWS; i++) {
    if (first + i >= TILE_Y) break;
    e[(i + 4) % 5] = sum_of_5(energy + (i + 4) * PLANE_P);
    d[(i + 4) % 5] = sum_of_5(difference + (i + 4) * PLANE_P);
    // from the first line to the last, wherever the run began, or rows of a run would show in the rounding
    auto sum = [&](const Pair(&v)[5]) {
      return add(add(add(v[i % 5], v[(i + 1) % 5]), add(v[(i + 2) % 5], v[(i + 3) % 5])), v[(i + 4) % 5]);
    };
    const Pair of_energy = sum(e), of_difference = sum(d);
    const Pair noisy = add(of_energy, splat(25 * ADR_GRADIENT_NOISE * LEVEL * LEVEL));
    const Pair ratio = mul(mul(of_difference, splat(ADR_GAIN)), reciprocal_by_fma(noisy));
    s.adaptive.interpolated[first + i][k] = sub(splat(1), maximum(minimum(ratio, splat(1)), splat(0)));
  }
}

// How far a pixel lies from the middle of its neighbours, from gradients and second differences of the two angles that
// are known on both sides.
DEVICE Pair secant_step(Pair own, Pair own_second, Pair other, Pair other_second) {
  const Pair square = fma(own, own, fma(other, other, splat(ADR_GRADIENT_NOISE * LEVEL * LEVEL)));
  const Pair step = mul(mul(fma(own, own_second, mul(other, other_second)), splat(0.5)), reciprocal_by_fma(square));
  return maximum(minimum(step, splat(ADR_STEP)), splat(-ADR_STEP));
}
DEVICE Pair secant_step_x(const Line &above, const Line &own, const Line &under) {
  const Pair own_x = mul(sub(own.right, own.left), splat(0.5));
  const Pair own_xx = fma(add(own.left, own.right), splat(-0.5), own.centre);
  const Pair column_x = mul(add(sub(above.right, above.left), sub(under.right, under.left)), splat(0.25));
  const Pair sides = add(add(above.left, above.right), add(under.left, under.right));
  const Pair column_xx = fma(add(above.centre, under.centre), splat(0.5), mul(sides, splat(-0.25)));
  return secant_step(own_x, own_xx, column_x, column_xx);
}
// above and under: two lines from the pixel's own
DEVICE Pair secant_step_y(const Line &above, const Line &own, const Line &under) {
  const Pair own_y = mul(sub(under.centre, above.centre), splat(0.5));
  const Pair own_yy = fma(add(above.centre, under.centre), splat(-0.5), own.centre);
  const Pair upper = add(above.l1, above.r1), lower = add(under.l1, under.r1);
  const Pair row_y = mul(sub(lower, upper), splat(0.25));
  const Pair row_yy = fma(add(own.l1, own.r1), splat(0.5), mul(add(upper, lower), splat(-0.25)));
  return secant_step(own_y, own_yy, row_y, row_yy);
}
#endif // ADAPTIVE
#endif
