// `mono_adaptive`, fourth stage: stage B of ADR (docs/adaptive_demosaic.md): the kind of detail, the missing angles,
// and the products of them.
#ifndef POLAR_MONO_ADAPTIVE_ANGLES_CUH
#define POLAR_MONO_ADAPTIVE_ANGLES_CUH
#include "adaptive.cuh"
#include "mono_adaptive_products.cuh"

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

// The four angles of two columns in a row of parity ROW, by place in the tile.
template <int ROW>
DEVICE void by_angle(const Pair (&own)[2], const Pair (&row)[2], const Pair (&column)[2], const Pair (&diagonal)[2],
                     Angles &angle) {
#pragma unroll
  for (int k = 0; k < 2; k++) {
    angle[0][angle_at(ROW, k)][k] = own[k];
    angle[0][angle_at(ROW, 1 - k)][k] = row[k];
    angle[0][angle_at(1 - ROW, k)][k] = column[k];
    angle[0][angle_at(1 - ROW, 1 - k)][k] = diagonal[k];
  }
}

// Stage B and products on one pair of columns, in rows first .. last of the tile. Bodies of the loop begin at even
// rows, so that the place of every row in the mosaic is known at compile time.
DEVICE void find_angles(const FrameArguments &frame, const Shared &s, int first, int last, int x, InvalidCount &count) {
  constexpr int U = ANGLE_UNROLL;
  static_assert(U % 2 == 0, "bodies of even and odd rows");
  const int left = blockIdx.x * TILE_X + x, top = blockIdx.y * TILE_Y, begin = first & ~1;
  last = min(last, out_height(frame) - top);
  if (left >= out_width(frame)) return;
  const bool any_saturated = s.any_saturated;
  const Pair *z = mosaic_at(s.mosaic, begin, x);
  const Pair *g = &s.stage.total[begin + 2][x + 2], *e = &s.stage.detail[begin + 2][x + 2];
  Around line[2 + U];
#pragma unroll
  for (int i = 0; i < 2; i++)
    read_around(z + (i - 1) * MOSAIC_X, g + (i - 1) * PLANE_X, e + (i - 1) * PLANE_X, line[i]);
#pragma unroll 1
  for (int y = begin; y < last; y += U, z += U * MOSAIC_X, g += U * PLANE_X, e += U * PLANE_X) {
#pragma unroll
    for (int i = 0; i < U; i++) {
      if (i && y + i >= last) break;
      read_around(z + (i + 1) * MOSAIC_X, g + (i + 1) * PLANE_X, e + (i + 1) * PLANE_X, line[i + 2]);
      if (i == 0 && y < first) continue;
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
        const OwnShare own = {alpha, m.g.own[k], own_e, interpolated[k]};
        row[k] = own.restore<2>(m.z.sum[k], m.g.sum[k], m.e.sum[k], row[k]);
        column[k] = own.restore<2>(add(u.z.own[k], d.z.own[k]), add(u.g.own[k], d.g.own[k]), upright, column[k]);
        diagonal[k] = own.restore<4>(add(u.z.sum[k], d.z.sum[k]), add(u.g.sum[k], d.g.sum[k]), corners, diagonal[k]);
      }
      Angles angle;
      if (i % 2)
        by_angle<1>(m.z.own, row, column, diagonal, angle);
      else
        by_angle<0>(m.z.own, row, column, diagonal, angle);
      const u32 saturated = any_saturated ? saturated_in_halves(s.saturated, y + i, x) : 0;
      store_products(frame, angle, saturated, halves_position(frame, top + y + i, left), top + y + i, count);
    }
#pragma unroll
    for (int i = 0; i < 2; i++) line[i] = line[i + U];
  }
}
#endif
