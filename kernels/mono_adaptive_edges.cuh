// `mono_adaptive`, second stage: where edges are of polarization, and secant steps (docs/adaptive_demosaic.md).
//
// At an edge of intensity all angles change alike, at one of polarization orthogonal angles change in opposite
// directions. The switch is 1 there, and ADR then interpolates by a secant step instead of the detail of intensity.
#ifndef POLAR_MONO_ADAPTIVE_EDGES_CUH
#define POLAR_MONO_ADAPTIVE_EDGES_CUH
#include "mono_adaptive_layout.cuh"

// What the gradients of two pixels are made of, from one line of the mosaic: the pixels; differences over two and over
// four; the second difference; and the sum of the pixels beside.
struct Differences {
  Pair centre[2], two[2], four[2], second[2], beside[2];
};
DEVICE Differences differences(const Pair *p) { // p: at the first pixel
  Pair z[6];
  read(p - 2, z);
  Differences d;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    d.centre[k] = z[k + 2];
    d.two[k] = sub(z[k + 3], z[k + 1]);
    d.four[k] = sub(z[k + 4], z[k]);
    d.second[k] = fma(add(z[k], z[k + 4]), splat(-0.5), z[k + 2]);
    d.beside[k] = add(z[k + 1], z[k + 3]);
  }
  return d;
}

// Energy of a pixel's gradients (twice), four times what it exceeds by what intensity explains, and secant steps.
struct Gradients {
  Pair energy, difference, step_x, step_y;
};
// How far a pixel lies from the middle of its neighbours, limited: 2 (step + 1/4). product: of gradients and second
// differences; square: of gradients; both four times.
DEVICE Pair secant_step(Pair product, Pair square) {
  static_assert(ADR_STEP == 0.25f, "a step from -1/4 to 1/4 becomes one from 0 to 1");
  return fma_saturate(
      product, reciprocal_by_fma(fma(square, splat(0.5), splat(2 * ADR_GRADIENT_NOISE * LEVEL * LEVEL))), splat(0.5));
}
// Along x: own angle and the row's in this line, the column's and the orthogonal one in those beside it; along y
// transposed. Lines from two above to two under the pixel.
DEVICE Gradients gradients(const Differences &u2, const Differences &u1, const Differences &m, const Differences &d1,
                           const Differences &d2, int k) {
  const Pair own_x = m.four[k], row_x = m.two[k]; // times 2, 1
  const Pair column_x = mul(add(u1.four[k], d1.four[k]), splat(0.5)), diagonal_x = add(u1.two[k], d1.two[k]); // 2, 2
  const Pair own_y = sub(d2.centre[k], u2.centre[k]), column_y = sub(d1.centre[k], u1.centre[k]);
  const Pair row_y = mul(sub(d2.beside[k], u2.beside[k]), splat(0.5)), diagonal_y = sub(d1.beside[k], u1.beside[k]);
  const Pair own_xx = m.second[k], column_xx = mul(add(u1.second[k], d1.second[k]), splat(0.5));
  const Pair own_yy = fma(add(u2.centre[k], d2.centre[k]), splat(-0.5), m.centre[k]);
  const Pair row_yy = fma(add(u2.beside[k], d2.beside[k]), splat(-0.25), mul(m.beside[k], splat(0.5)));
  const Pair square_x = fma(own_x, own_x, mul(column_x, column_x)), square_y = fma(own_y, own_y, mul(row_y, row_y));
  Gradients g;
  const Pair sides = fma(diagonal_x, diagonal_x, fma(diagonal_y, diagonal_y, add(square_x, square_y)));
  g.energy = fma(sides, splat(0.25), fma(row_x, row_x, mul(column_y, column_y)));
  const Pair near = fma(row_x, column_x, mul(row_y, column_y)), far = fma(own_x, diagonal_x, mul(own_y, diagonal_y));
  const Pair correlation = fma(near, splat(2), far);
  Pair curvature = fma(own_xx, own_xx, mul(own_yy, own_yy));
  curvature = fma(column_xx, column_xx, fma(row_yy, row_yy, curvature));
  g.difference =
      fma(g.energy, splat(2 * ADR_UNCORRELATED), fma(curvature, splat(-4 * ADR_CURVED), negate(correlation)));
  g.step_x = secant_step(fma(own_x, own_xx, mul(column_x, column_xx)), square_x);
  g.step_y = secant_step(fma(own_y, own_yy, mul(row_y, row_yy)), square_y);
  return g;
}

// Gradients on one pair of columns, from row `first` of the planes on. Secant steps go where the angles of the row and
// of the column come later.
DEVICE void find_gradients(Shared &s, int first, int column) {
  const bool inside = (u32)(column - 1) < (u32)(TILE_X / 2);
  const int last = min(first + run_rows(PLANE_Y), PLANE_Y), x = 2 * column - 2;
  const Pair *z = mosaic_at(s.mosaic, first - 2, x);
  Differences line[4 + UNROLL];
#pragma unroll
  for (int i = 0; i < 4; i++) line[i] = differences(z + (i - 2) * MOSAIC_X);
#pragma unroll 1
  for (int y = first; y < last; y += UNROLL, z += UNROLL * MOSAIC_X) {
#pragma unroll
    for (int i = 0; i < UNROLL; i++) {
      if (i && !is_even(PLANE_Y) && y + i >= last) break;
      line[i + 4] = differences(z + (i + 2) * MOSAIC_X);
      Gradients g[2];
#pragma unroll
      for (int k = 0; k < 2; k++) g[k] = gradients(line[i], line[i + 1], line[i + 2], line[i + 3], line[i + 4], k);
      write(&s.gradient.energy[y + i][x + 2], g[0].energy, g[1].energy);
      write(&s.gradient.difference[y + i][x + 2], g[0].difference, g[1].difference);
      if (inside && (u32)(y + i - 2) < (u32)HALF_Y) {
        write(&s.row[y + i - 2][x], g[0].step_x, g[1].step_x);
        write(&s.column[y + i - 2][x], g[0].step_y, g[1].step_y);
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++) line[i] = line[i + UNROLL];
  }
}

// Sums of five pixels along x, around two pixels; p: at the first one
DEVICE void sums_of_5(const Pair *p, Pair (&sum)[2]) {
  Pair v[6];
  read(p - 2, v);
  const Pair inner = add(add(v[1], v[2]), add(v[3], v[4]));
  sum[0] = add(inner, v[0]);
  sum[1] = add(inner, v[5]);
}

// The switch on one pair of columns, from row `first` of the tile on, from means over 5x5 pixels.
DEVICE void find_edges(Shared &s, int first, int x) {
  const Pair *energy = &s.gradient.energy[first][x + 2], *difference = &s.gradient.difference[first][x + 2];
  Pair e[4 + UNROLL][2], d[4 + UNROLL][2];
#pragma unroll
  for (int i = 0; i < 4; i++) {
    sums_of_5(energy + i * PLANE_X, e[i]);
    sums_of_5(difference + i * PLANE_X, d[i]);
  }
  const int last = min(first + run_rows(HALF_Y), HALF_Y);
#pragma unroll 1
  for (int y = first; y < last; y += UNROLL) {
#pragma unroll
    for (int i = 0; i < UNROLL; i++) {
      if (i && !is_even(HALF_Y) && y + i >= last) break;
      sums_of_5(energy + (i + 4) * PLANE_X, e[i + 4]);
      sums_of_5(difference + (i + 4) * PLANE_X, d[i + 4]);
      Pair of[2];
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const Pair sum_e = add(add(add(e[i][k], e[i + 1][k]), add(e[i + 2][k], e[i + 3][k])), e[i + 4][k]);
        const Pair sum_d = add(add(add(d[i][k], d[i + 1][k]), add(d[i + 2][k], d[i + 3][k])), d[i + 4][k]);
        // energies are twice, differences four times
        const Pair noisy =
            fma(sum_e, splat(2 / ADR_GAIN), splat(4 * 25 * ADR_GRADIENT_NOISE * LEVEL * LEVEL / ADR_GAIN));
        const Pair ratio = reciprocal_by_fma(noisy);
        of[k] = fma_saturate(negate(sum_d), ratio, splat(1));
        of[k] = add(of[k], of[k]);
      }
      write(&s.interpolated[y + i][x], of[0], of[1]);
    }
    energy += UNROLL * PLANE_X;
    difference += UNROLL * PLANE_X;
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int k = 0; k < 2; k++) {
        e[i][k] = e[i + UNROLL][k];
        d[i][k] = d[i + UNROLL][k];
      }
  }
}
#endif
