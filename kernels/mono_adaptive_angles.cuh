// `mono_adaptive`, fourth stage: stage B of ADR (docs/adaptive_demosaic.md): the kind of detail, and the missing
// angles.
#ifndef POLAR_MONO_ADAPTIVE_ANGLES_CUH
#define POLAR_MONO_ADAPTIVE_ANGLES_CUH
#include "mono_adaptive_layout.cuh"

typedef Pair Four[4]; // columns -1 .. 2 around two pixels
// p: at the first pixel, an even column
DEVICE void read_around(const Pair *p, Four &v) {
  const Quad q = *(const Quad *)p;
  v[0] = p[-1];
  v[1] = q.a;
  v[2] = q.b;
  v[3] = p[2];
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
    return clip(add(fma(mul(gain, missing), interpolated, more), mean));
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

// Three planes around two pixels in one line, and the squares of the detail.
struct Around {
  Four z, g, e, square;
};
DEVICE void read_around(const Pair *z, const Pair *g, const Pair *e, Around &line) {
  read_around(z, line.z);
  read_around(g, line.g);
  read_around(e, line.e);
#pragma unroll
  for (int k = 0; k < 4; k++) line.square[k] = mul(line.e[k], line.e[k]);
}

// Stage B on one pair of columns, from row `first` of the tile on; the angles take the places of what stage A adds.
DEVICE void find_angles(Shared &s, int first, int x) {
  constexpr int U = UNROLL;
  const Pair *z = mosaic_at(s.mosaic, first, x);
  const Pair *g = &s.stage.excess[first + 2][x + 2], *e = &s.stage.detail[first + 2][x + 2];
  Around line[2 + U];
#pragma unroll
  for (int i = 0; i < 2; i++)
    read_around(z + (i - 1) * MOSAIC_X, g + (i - 1) * PLANE_X, e + (i - 1) * PLANE_X, line[i]);
  const int last = min(first + run_rows(HALF_Y), HALF_Y);
#pragma unroll 1
  for (int y = first; y < last; y += U, z += U * MOSAIC_X, g += U * PLANE_X, e += U * PLANE_X) {
#pragma unroll
    for (int i = 0; i < U; i++) {
      if (i && !is_even(HALF_Y) && y + i >= last) break;
      read_around(z + (i + 1) * MOSAIC_X, g + (i + 1) * PLANE_X, e + (i + 1) * PLANE_X, line[i + 2]);
      const Around &u = line[i], &m = line[i + 1], &d = line[i + 2];
      Four square, sum_z, sum_g, sum_e; // down columns
#pragma unroll
      for (int k = 0; k < 4; k++) {
        square[k] = add(fma(m.square[k], splat(2), u.square[k]), d.square[k]);
        sum_z[k] = add(u.z[k], d.z[k]);
        sum_g[k] = add(u.g[k], d.g[k]);
        sum_e[k] = add(u.e[k], d.e[k]);
      }
      Pair energy[2], interpolated[2], row[2], column[2], diagonal[2];
      read(&s.energy[y + i][x], energy);
      read(&s.interpolated[y + i][x], interpolated);
      read(&s.row[y + i][x], row);
      read(&s.column[y + i][x], column);
      read(&s.diagonal[y + i][x], diagonal);
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const Pair beside = add(m.e[k], m.e[k + 2]), corners = add(sum_e[k], sum_e[k + 2]), own_e = m.e[k + 1];
        const Pair r0 = add(fma(square[k + 1], splat(2), square[k]), square[k + 2]);
        const Pair r1 = fma(own_e, corners, mul(beside, sum_e[k + 1]));
        const Pair alpha = share_of_intensity(r0, r1, energy[k]);
        const OwnShare own = {m.z[k + 1], alpha, fma(alpha, own_e, m.g[k + 1]), interpolated[k]};
        row[k] = own.restore<2>(add(m.z[k], m.z[k + 2]), add(m.g[k], m.g[k + 2]), beside, row[k]);
        column[k] = own.restore<2>(sum_z[k + 1], sum_g[k + 1], sum_e[k + 1], column[k]);
        diagonal[k] = own.restore<4>(add(sum_z[k], sum_z[k + 2]), add(sum_g[k], sum_g[k + 2]), corners, diagonal[k]);
      }
      write(&s.row[y + i][x], row[0], row[1]);
      write(&s.column[y + i][x], column[0], column[1]);
      write(&s.diagonal[y + i][x], diagonal[0], diagonal[1]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) line[i] = line[i + U];
  }
}

// Where four columns of a row have their angles, by places in the 2x2 tile: in its upper and its lower row, at even and
// at odd columns. In an odd row of the picture, the own angle is one of the lower row.
struct Places {
  const Pair *upper_own, *upper_other, *lower_own, *lower_other;
  int upper_step, lower_step; // words from row to row
  // (y, x): row of a half, and the first column
  DEVICE Places(const Shared &s, int y, int x) {
    const Pair *own = mosaic_at(s.mosaic, y, x);
    const bool odd = y & 1;
    upper_own = odd ? &s.column[y][x] : own;
    upper_other = odd ? &s.diagonal[y][x] : &s.row[y][x];
    lower_own = odd ? own : &s.column[y][x];
    lower_other = odd ? &s.row[y][x] : &s.diagonal[y][x];
    upper_step = odd ? TILE_X : MOSAIC_X;
    lower_step = odd ? MOSAIC_X : TILE_X;
  }
  DEVICE void advance(int rows) { // an even number of rows down
    upper_own += rows * upper_step;
    lower_own += rows * lower_step;
    upper_other += rows * TILE_X;
    lower_other += rows * TILE_X;
  }
  // the angles of one half, whose lanes are then neighbours along x
  DEVICE void angles(int half, Angles &angle) const {
    const u32 selector = half ? 0x7632 : 0x5410;
    Pair a[4], b[4], d[4], e[4];
    read(upper_own, a);
    read(upper_other, b);
    read(lower_own, d);
    read(lower_other, e);
#pragma unroll
    for (int k = 0; k < 2; k++) {
      angle[0][angle_at(0, 0)][k] = permute(a[2 * k], b[2 * k + 1], selector);
      angle[0][angle_at(0, 1)][k] = permute(b[2 * k], a[2 * k + 1], selector);
      angle[0][angle_at(1, 0)][k] = permute(d[2 * k], e[2 * k + 1], selector);
      angle[0][angle_at(1, 1)][k] = permute(e[2 * k], d[2 * k + 1], selector);
    }
  }
};
#endif
