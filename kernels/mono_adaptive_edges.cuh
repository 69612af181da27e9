// `mono_adaptive`, second stage: where edges are of polarization, and secant steps (docs/adaptive_demosaic.md).
//
// At an edge of intensity all angles change alike, at one of polarization orthogonal angles change in opposite
// directions. The switch is 1 there, and ADR then interpolates by a secant step instead of the detail of intensity.
#ifndef POLAR_MONO_ADAPTIVE_EDGES_CUH
#define POLAR_MONO_ADAPTIVE_EDGES_CUH
#include "adaptive.cuh"
#include "mono_adaptive_layout.cuh"

// What the gradients of two pixels are made of, from one line of the mosaic: the pixels; differences over two and over
// four; twice the second difference; and the sum of the pixels beside.
struct Differences {
  Pair centre[2], two[2], four[2], second[2], beside[2];
};
DEVICE Differences differences(const Pair *p) { // p: at the first pixel
  Pair z[6], two[4];
  read(p - 2, z);
#pragma unroll
  for (int k = 0; k < 4; k++) two[k] = sub(z[k + 2], z[k]);
  Differences d;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    d.centre[k] = z[k + 2];
    d.two[k] = two[k + 1];
    d.four[k] = add(two[k], two[k + 2]);
    d.second[k] = sub(two[k], two[k + 2]);
    d.beside[k] = add(z[k + 1], z[k + 3]);
  }
  return d;
}
// Differences down a column, between the lines above and under a pixel: of the pixels, and of the sums beside.
struct Falls {
  Pair centre[2], beside[2];
};
DEVICE Falls falls(const Differences &above, const Differences &under) {
  Falls f;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    f.centre[k] = sub(under.centre[k], above.centre[k]);
    f.beside[k] = sub(under.beside[k], above.beside[k]);
  }
  return f;
}

// Lines above, with and under the pixel; differences down the column around the line above, around the pixel's own, and
// around the one under it.
DEVICE Gradients gradients(const Differences &above, const Differences &own, const Differences &under,
                           const Falls &upper, const Falls &middle, const Falls &lower, int k) {
  Slopes of;
  of.own_x2 = own.four[k];
  of.own_y2 = add(upper.centre[k], lower.centre[k]);
  of.row_x = own.two[k];
  of.row_y4 = add(upper.beside[k], lower.beside[k]);
  of.column_x4 = add(above.four[k], under.four[k]);
  of.column_y = middle.centre[k];
  of.diagonal_x2 = add(above.two[k], under.two[k]);
  of.diagonal_y2 = middle.beside[k];
  of.own_xx2 = own.second[k];
  of.own_yy2 = sub(upper.centre[k], lower.centre[k]);
  of.column_xx4 = add(above.second[k], under.second[k]);
  of.row_yy4 = sub(upper.beside[k], lower.beside[k]);
  return gradients(of);
}

// Gradients on one pair of columns, in rows first .. last of the planes. Secant steps go where the angles of the row
// and of the column come later.
DEVICE void find_gradients(Shared &s, int first, int last, int column) {
  constexpr int U = GRADIENT_UNROLL;
  const bool inside = (u32)(column - 1) < (u32)(TILE_X / 2);
  const int x = 2 * column - 2;
  const Pair *z = mosaic_at(s.mosaic, first - 2, x);
  Differences line[3 + U]; // from the one above the pixel on
  Falls fall[2 + U];
  const Differences first_line = differences(z - 2 * MOSAIC_X);
#pragma unroll
  for (int i = 0; i < 3; i++) line[i] = differences(z + (i - 1) * MOSAIC_X);
  fall[0] = falls(first_line, line[1]);
  fall[1] = falls(line[0], line[2]);
#pragma unroll 1
  for (int y = first; y < last; y += U, z += U * MOSAIC_X) {
#pragma unroll
    for (int i = 0; i < U; i++) {
      if (i && !is_multiple(PLANE_Y, U) && y + i >= last) break;
      line[i + 3] = differences(z + (i + 2) * MOSAIC_X);
      fall[i + 2] = falls(line[i + 1], line[i + 3]);
      Gradients g[2];
#pragma unroll
      for (int k = 0; k < 2; k++)
        g[k] = gradients(line[i], line[i + 1], line[i + 2], fall[i], fall[i + 1], fall[i + 2], k);
      write(&s.gradient.energy[y + i][x + 2], g[0].energy, g[1].energy);
      write(&s.gradient.difference[y + i][x + 2], g[0].difference, g[1].difference);
      if (inside && (u32)(y + i - 2) < (u32)HALF_Y) {
        write(&s.row[y + i - 2][x], g[0].step_x, g[1].step_x);
        write(&s.column[y + i - 2][x], g[0].step_y, g[1].step_y);
      }
    }
#pragma unroll
    for (int i = 0; i < 3; i++) line[i] = line[i + U];
#pragma unroll
    for (int i = 0; i < 2; i++) fall[i] = fall[i + U];
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
// A window of five lines that slides down two columns: sums of the last line, of the last two, and of the last three,
// these also as of a line before.
template <int U> struct Sums {
  Pair one[1 + U][2], two[1 + U][2], three[2 + U][2];
  // adds a line; returns the sums of the last five
  DEVICE void push(int i, const Pair *p, Pair (&five)[2]) {
    sums_of_5(p, one[i + 1]);
#pragma unroll
    for (int k = 0; k < 2; k++) {
      two[i + 1][k] = add(one[i][k], one[i + 1][k]);
      three[i + 2][k] = add(two[i][k], one[i + 1][k]);
      five[k] = add(three[i][k], two[i + 1][k]);
    }
  }
  // the first four lines
  DEVICE void start(const Pair *p) {
    Pair line[4][2];
#pragma unroll
    for (int i = 0; i < 4; i++) sums_of_5(p + i * PLANE_X, line[i]);
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const Pair upper = add(line[0][k], line[1][k]), inner = add(line[1][k], line[2][k]);
      one[0][k] = line[3][k];
      two[0][k] = add(line[2][k], line[3][k]);
      three[0][k] = add(upper, line[2][k]);
      three[1][k] = add(inner, line[3][k]);
    }
  }
  DEVICE void slide() {
#pragma unroll
    for (int k = 0; k < 2; k++) {
      one[0][k] = one[U][k];
      two[0][k] = two[U][k];
      three[0][k] = three[U][k];
      three[1][k] = three[U + 1][k];
    }
  }
};

// The switch on one pair of columns, in rows first .. last of the tile, from means over 5x5 pixels.
DEVICE void find_edges(Shared &s, int first, int last, int x) {
  constexpr int U = EDGE_UNROLL;
  const Pair *energy = &s.gradient.energy[first][x + 2], *difference = &s.gradient.difference[first][x + 2];
  Sums<U> e, d;
  e.start(energy);
  d.start(difference);
#pragma unroll 1
  for (int y = first; y < last; y += U, energy += U * PLANE_X, difference += U * PLANE_X) {
#pragma unroll
    for (int i = 0; i < U; i++) {
      if (i && !is_multiple(HALF_Y, U) && y + i >= last) break;
      Pair sum_e[2], sum_d[2], of[2];
      e.push(i, energy + (i + 4) * PLANE_X, sum_e);
      d.push(i, difference + (i + 4) * PLANE_X, sum_d);
#pragma unroll
      for (int k = 0; k < 2; k++) of[k] = interpolated_by(sum_e[k], sum_d[k]);
      write(&s.interpolated[y + i][x], of[0], of[1]);
    }
    e.slide();
    d.slide();
  }
}
#endif
