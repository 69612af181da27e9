// `mono_adaptive`, fourth stage: stage B of ADR (docs/adaptive_demosaic.md): the kind of detail, and the missing
// angles.
#ifndef POLAR_MONO_ADAPTIVE_ANGLES_CUH
#define POLAR_MONO_ADAPTIVE_ANGLES_CUH
#include "adaptive.cuh"
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

// One line of a plane around two pixels: their own values, and the sums of those beside them.
struct Beside {
  Pair own[2], sum[2];
};
DEVICE Beside beside(const Four &v) { return Beside{{v[1], v[2]}, {add(v[0], v[2]), add(v[1], v[3])}}; }
// z, G and e; and e^2 with weights 1 2 1 along x.
struct Around {
  Beside z, g, e;
  Pair square[2];
};
DEVICE void read_around(const Pair *z, const Pair *g, const Pair *e, Around &line) {
  Four v;
  read_around(z, v);
  line.z = beside(v);
  read_around(g, v);
  line.g = beside(v);
  read_around(e, v);
  line.e = beside(v);
  const Pair left = mul(v[1], v[1]), right = mul(v[2], v[2]), both = add(left, right);
  line.square[0] = fma(v[0], v[0], add(both, left));
  line.square[1] = fma(v[3], v[3], add(both, right));
}

// Stage B on one pair of columns, in rows first .. last of the tile; the angles take the places of what stage A adds.
DEVICE void find_angles(Shared &s, int first, int last, int x) {
  constexpr int U = ANGLE_UNROLL;
  const Pair *z = mosaic_at(s.mosaic, first, x);
  const Pair *g = &s.stage.excess[first + 2][x + 2], *e = &s.stage.detail[first + 2][x + 2];
  Around line[2 + U];
#pragma unroll
  for (int i = 0; i < 2; i++)
    read_around(z + (i - 1) * MOSAIC_X, g + (i - 1) * PLANE_X, e + (i - 1) * PLANE_X, line[i]);
#pragma unroll 1
  for (int y = first; y < last; y += U, z += U * MOSAIC_X, g += U * PLANE_X, e += U * PLANE_X) {
#pragma unroll
    for (int i = 0; i < U; i++) {
      if (i && !is_multiple(HALF_Y, U) && y + i >= last) break;
      read_around(z + (i + 1) * MOSAIC_X, g + (i + 1) * PLANE_X, e + (i + 1) * PLANE_X, line[i + 2]);
      const Around &u = line[i], &m = line[i + 1], &d = line[i + 2];
      Pair energy[2], interpolated[2], row[2], column[2], diagonal[2];
      read(&s.energy[y + i][x], energy);
      read(&s.interpolated[y + i][x], interpolated);
      read(&s.row[y + i][x], row);
      read(&s.column[y + i][x], column);
      read(&s.diagonal[y + i][x], diagonal);
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const Pair corners = add(u.e.sum[k], d.e.sum[k]), upright = add(u.e.own[k], d.e.own[k]), own_e = m.e.own[k];
        const Pair r0 = add(fma(m.square[k], splat(2), u.square[k]), d.square[k]);
        const Pair r1 = fma(own_e, corners, mul(m.e.sum[k], upright));
        const Pair alpha = share_of_intensity(r0, r1, energy[k]);
        const OwnShare own = {m.z.own[k], alpha, fma(alpha, own_e, m.g.own[k]), interpolated[k]};
        row[k] = own.restore<2>(m.z.sum[k], m.g.sum[k], m.e.sum[k], row[k]);
        column[k] = own.restore<2>(add(u.z.own[k], d.z.own[k]), add(u.g.own[k], d.g.own[k]), upright, column[k]);
        diagonal[k] = own.restore<4>(add(u.z.sum[k], d.z.sum[k]), add(u.g.sum[k], d.g.sum[k]), corners, diagonal[k]);
      }
      write(&s.row[y + i][x], row[0], row[1]);
      write(&s.column[y + i][x], column[0], column[1]);
      write(&s.diagonal[y + i][x], diagonal[0], diagonal[1]);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) line[i] = line[i + U];
  }
}

// The angles of four columns of a row of both halves, by places in the 2x2 tile: in its upper and in its lower row;
// own: at even columns of the upper row and at odd ones of the lower.
struct FourAngles {
  FourWords upper_own, upper_other, lower_own, lower_other;
  // the angles of one half, whose lanes are then neighbours along x
  DEVICE void of_half(int half, Angles &angle) const {
    const u32 selector = half ? 0x7632 : 0x5410;
#pragma unroll
    for (int k = 0; k < 2; k++) {
      angle[0][angle_at(0, 0)][k] = permute(upper_own.v[2 * k], upper_other.v[2 * k + 1], selector);
      angle[0][angle_at(0, 1)][k] = permute(upper_other.v[2 * k], upper_own.v[2 * k + 1], selector);
      angle[0][angle_at(1, 0)][k] = permute(lower_own.v[2 * k], lower_other.v[2 * k + 1], selector);
      angle[0][angle_at(1, 1)][k] = permute(lower_other.v[2 * k], lower_own.v[2 * k + 1], selector);
    }
  }
};
// Where they are. In an odd row of the picture, the own angle is one of the lower row.
struct Places {
  const Pair *own, *row, *column, *diagonal;
  bool odd;
  // (y, x): row of a half, and the first column
  DEVICE Places(const Shared &s, int y, int x)
      : own(mosaic_at(s.mosaic, y, x)), row(&s.row[y][x]), column(&s.column[y][x]), diagonal(&s.diagonal[y][x]),
        odd(y & 1) {}
  DEVICE void advance(int rows) { // an even number of rows down
    own += rows * MOSAIC_X;
    row += rows * TILE_X;
    column += rows * TILE_X;
    diagonal += rows * TILE_X;
  }
  DEVICE FourAngles angles() const {
    return FourAngles{four_words(odd ? column : own), four_words(odd ? diagonal : row), four_words(odd ? own : column),
                      four_words(odd ? row : diagonal)};
  }
};
#endif
