// `tile`, third stage with ADR (docs/adaptive_demosaic.md), first part: where edges are of polarization.
//
// At an edge of intensity all angles change alike, at one of polarization orthogonal angles change in opposite
// directions. The switch is 1 there, and ADR then interpolates by a secant step instead of the detail of intensity.
#pragma once
#include "tile_layout.cuh"

#if ADAPTIVE
// Runs of rows that threads go down side by side, as many in every pass, and rows of a run in each.
constexpr int RUNS = (TILE_Y + 2 + ROWS - 1) / ROWS;
constexpr int GRADIENT_ROWS = (PLANE_Y + RUNS - 1) / RUNS, EDGE_ROWS = (TILE_Y + RUNS - 1) / RUNS,
              STAGE_ROWS = (TILE_Y + 2 + RUNS - 1) / RUNS;

struct Line {
  Pair left, center, right, l1, r1;
}; // pairs at -2, 0, +2, then -1 and +1

DEVICE Line make_line(Pair left, Pair center, Pair right) {
  return Line{left, center, right, straddle(left, center), straddle(center, right)};
}
DEVICE Line read_line(const Pair *p) { return make_line(p[-1], p[0], p[1]); }

// A line of the mosaic whose edges are looked for: in color, of luma.
DEVICE Line read_luma(const Shared &s, int y, int k) {
#if COLOR
  const Line r = read_line(&s.mosaic[0][y][k]), g = read_line(&s.mosaic[COLOR][y][k]),
             b = read_line(&s.mosaic[2 * COLOR][y][k]);
  return make_line(luma(r.left, g.left, b.left), luma(r.center, g.center, b.center), luma(r.right, g.right, b.right));
#else
  return read_line(&s.mosaic[0][y][k]);
#endif
}

// What the gradients of a pixel are made of, from one line of the mosaic: its own pixel; differences over two and over
// four pixels; twice the second difference; and the sum of the pixels beside it.
struct Differences {
  Pair center, two, four, second, beside;
};
DEVICE Differences differences(const Line &a) {
  const Pair left = sub(a.center, a.left), right = sub(a.right, a.center);
  return Differences{a.center, sub(a.r1, a.l1), add(left, right), sub(left, right), add(a.l1, a.r1)};
}
// Differences down a column, between the lines above and under a pixel: of the pixels, and of the sums beside.
struct Falls {
  Pair center, beside;
};
DEVICE Falls falls(const Differences &above, const Differences &under) {
  return Falls{sub(under.center, above.center), sub(under.beside, above.beside)};
}

// Gradients on one column of pairs, rows first .. first + GRADIENT_ROWS of the planes: twice their energy, and four
// times what it exceeds by what intensity explains. From first and second differences of the four angles around a
// pixel: along x of the own angle and the row's in its line, of the column's and the orthogonal one in those beside it;
// along y transposed. The number at the end of a name is what it is multiplied by.
DEVICE void gradients(Shared &s, int first, int column) {
  const int y = first + HALO_Y - 2, k = column + HALO_X / 2 - 2;
  const Differences first_line = differences(read_luma(s, y - 2, k));
  Differences line[4]; // from the one above the pixel on
#pragma unroll
  for (int i = 0; i < 3; i++) line[i] = differences(read_luma(s, y + i - 1, k));
  Falls fall[3] = {falls(first_line, line[1]), falls(line[0], line[2]), {}};
#pragma unroll
  for (int i = 0; i < GRADIENT_ROWS; i++) {
    if (first + i >= PLANE_Y) break;
    const Differences &above = line[i % 4], &own = line[(i + 1) % 4], &under = line[(i + 2) % 4];
    line[(i + 3) % 4] = differences(read_luma(s, y + i + 2, k));
    const Falls &upper = fall[i % 3], &middle = fall[(i + 1) % 3];
    const Falls lower = falls(own, line[(i + 3) % 4]);
    const Pair own_x2 = own.four, own_y2 = add(upper.center, lower.center), row_x = own.two,
               row_y4 = add(upper.beside, lower.beside), column_x4 = add(above.four, under.four),
               column_y = middle.center, diagonal_x2 = add(above.two, under.two), diagonal_y2 = middle.beside;
    const Pair own_xx2 = own.second, own_yy2 = sub(upper.center, lower.center),
               column_xx4 = add(above.second, under.second), row_yy4 = sub(upper.beside, lower.beside);
    const Pair row_y = mul(row_y4, splat(0.25)), column_x = mul(column_x4, splat(0.25));
    const Pair square_x = fma(own_x2, own_x2, mul(column_x, column_x4)),
               square_y = fma(own_y2, own_y2, mul(row_y, row_y4));
    const Pair sides = add(fma(diagonal_x2, diagonal_x2, square_x), fma(diagonal_y2, diagonal_y2, square_y));
    const Pair energy = fma(sides, splat(0.25), fma(row_x, row_x, mul(column_y, column_y)));
    const Pair far = fma(own_x2, diagonal_x2, mul(own_y2, diagonal_y2));
    const Pair correlation = fma(row_x, column_x4, fma(row_y4, column_y, far));
    const Pair near_curvature = fma(own_xx2, own_xx2, mul(own_yy2, own_yy2)),
               far_curvature = fma(column_xx4, column_xx4, mul(row_yy4, row_yy4));
    s.adaptive.gradient.energy[first + i][column] = energy;
    s.adaptive.gradient.difference[first + i][column] =
        fma(energy, splat(2 * ADR_UNCORRELATED),
            fma(near_curvature, splat(-ADR_CURVED), fma(far_curvature, splat(-ADR_CURVED / 4), negate(correlation))));
    fall[(i + 2) % 3] = lower;
  }
}

// Sum of five pixels along x, around both pixels of a pair.
DEVICE Pair sum_of_5(const Pair *p) {
  const Pair l = p[-1], c = p[0], r = p[1];
  return add(add(add(l, r), c), add(straddle(l, c), straddle(c, r)));
}

// 2 (1 - switch), from sums of `energy` and of `difference` over 5x5 pixels
DEVICE Pair interpolated_by(Pair energy, Pair difference) {
  const Pair noisy = fma(energy, splat(2 / ADR_GAIN), splat(4 * 25 * ADR_GRADIENT_NOISE * LEVEL * LEVEL / ADR_GAIN));
  const Pair off = fma_saturate(negate(difference), reciprocal_by_fma(noisy), splat(1));
  return add(off, off);
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
    s.adaptive.interpolated[first + i][k] = interpolated_by(of_energy, of_difference);
  }
}

// How far a pixel lies from the middle of its neighbors, limited: 2 (step + 1/4). product: of gradients and second
// differences; square: of gradients; both four times.
DEVICE Pair secant_step(Pair product, Pair square) {
  static_assert(ADR_STEP == 0.25f, "a step from -1/4 to 1/4 becomes one from 0 to 1");
  return fma_saturate(product, reciprocal_by_fma(add(square, splat(4 * ADR_GRADIENT_NOISE * LEVEL * LEVEL))),
                      splat(0.5));
}
// Secant steps, as 2 (step + 1/4), from gradients and second differences of the two angles that are known on both
// sides. The number at the end of a name is what it is multiplied by.
DEVICE Pair secant_step_x(const Line &above, const Line &own, const Line &under) {
  const Pair own_x2 = sub(own.right, own.left), own_xx2 = fma(own.center, splat(2), negate(add(own.left, own.right)));
  const Pair left = add(above.left, under.left), right = add(above.right, under.right);
  const Pair column_x4 = sub(right, left), column_x = mul(column_x4, splat(0.25));
  const Pair column_xx4 = fma(add(above.center, under.center), splat(2), negate(add(left, right)));
  return secant_step(fma(own_x2, own_xx2, mul(column_x, column_xx4)), fma(own_x2, own_x2, mul(column_x, column_x4)));
}
// above and under: two lines from the pixel's own
DEVICE Pair secant_step_y(const Line &above, const Line &own, const Line &under) {
  const Pair own_y2 = sub(under.center, above.center),
             own_yy2 = fma(own.center, splat(2), negate(add(above.center, under.center)));
  const Pair upper = add(above.l1, above.r1), lower = add(under.l1, under.r1);
  const Pair row_y4 = sub(lower, upper), row_y = mul(row_y4, splat(0.25));
  const Pair row_yy4 = fma(add(own.l1, own.r1), splat(2), negate(add(upper, lower)));
  return secant_step(fma(own_y2, own_yy2, mul(row_y, row_yy4)), fma(own_y2, own_y2, mul(row_y, row_y4)));
}
#endif // ADAPTIVE
