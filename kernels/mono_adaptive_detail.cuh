// `mono_adaptive`, third stage: stage A of ADR (docs/adaptive_demosaic.md): total intensity, the detail it lacks, the
// energy of the polarization, and what the weighted means and the secant steps add to the missing angles.
#ifndef POLAR_MONO_ADAPTIVE_DETAIL_CUH
#define POLAR_MONO_ADAPTIVE_DETAIL_CUH
#include "adaptive.cuh"
#include "mono_adaptive_layout.cuh"

// One line of the mosaic around two pixels.
struct Near {
  Pair z[6]; // columns -2 .. 3
};
DEVICE Near read_near(const Pair *p) { // p: at the first pixel
  Near near;
  read(p - 2, near.z);
  return near;
}

// The filters' windows as they slide down, for U rows and those before. Both filters take every other line, and consist
// of partial sums that move on by a line with every multiply-add: no line but the last two stays in registers. An
// element of a line: [filter along x: same, other][pixel].
template <int U> struct Window {
  typedef Pair Line[2][2];
  Line line[2 + U];
  Line same[2 + U];             // of the filter for the centre's phase: all but its last tap
  Line half[2 + U], all[2 + U]; // of the other one: its first two taps; all but its last one
  Line own[1 + U];              // results of the former, which come a line earlier
  // line i + 3 under the first row, p at its first pixel; returns the results of row i
  DEVICE void push(int i, const Pair *p, Smooth (&of)[2]) {
    Pair z[10];
    read(p - 4, z);
    Line x, other;
#pragma unroll
    for (int k = 0; k < 2; k++) {
      x[0][k] = smooth_same(z[k + 2], z[k + 4], z[k + 6]);
      x[1][k] = smooth_other(z[k + 1], z[k + 3], z[k + 5], z[k + 7]);
    }
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
      for (int k = 0; k < 2; k++) {
        own[i + 1][j][k] = add(same[i][j][k], x[j][k]);
        other[j][k] = add(all[i][j][k], x[j][k]);
        same[i + 2][j][k] = fma(x[j][k], splat(ADR_SAME_0 * SAME), line[i][j][k]);
        all[i + 2][j][k] = fma(x[j][k], splat(ADR_OTHER_1 * OTHER), half[i][j][k]);
        half[i + 2][j][k] = fma(x[j][k], splat(ADR_OTHER_1 * OTHER), line[i][j][k]);
        line[i + 2][j][k] = x[j][k];
      }
#pragma unroll
    for (int k = 0; k < 2; k++) of[k] = Smooth{own[i][0][k], own[i][1][k], other[0][k], other[1][k]};
  }
  // N rows further
  template <int N> DEVICE void slide() {
#pragma unroll
    for (int j = 0; j < 2; j++)
#pragma unroll
      for (int k = 0; k < 2; k++) {
        own[0][j][k] = own[N][j][k];
#pragma unroll
        for (int i = 0; i < 2; i++) {
          line[i][j][k] = line[N + i][j][k];
          same[i][j][k] = same[N + i][j][k];
          half[i][j][k] = half[N + i][j][k];
          all[i][j][k] = all[N + i][j][k];
        }
      }
  }
  // the six lines before line 3; p: at the first pixel of the first row
  DEVICE void start(const Pair *p) {
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int k = 0; k < 2; k++) line[i][j][k] = same[i][j][k] = half[i][j][k] = all[i][j][k] = splat(0);
#pragma unroll
    for (int i = -6; i < 0; i++) {
      Smooth unused[2];
      push(0, p + (i + 3) * MOSAIC_X, unused);
      slide<1>();
    }
  }
};

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

constexpr int DETAIL_END = HALF_Y + 2; // one row beyond the tile on either side
// Stage A on one pair of columns, in rows first .. last of those that begin one above the tile.
DEVICE void find_detail(Shared &s, int first, int last, int column) {
  constexpr int U = DETAIL_UNROLL;
  const Pair *z = mosaic_at(s.mosaic, first - 1, 2 * column - 2);
  const bool inside = (u32)(column - 1) < (u32)(TILE_X / 2);
  Window<U> window;
  window.start(z);
  Near d = read_near(z + MOSAIC_X); // the line under the first row
  Across from_above;
  Rough above;
  {
    const Near line = read_near(z - MOSAIC_X);
    const Across upper = across(read_near(z - 2 * MOSAIC_X), read_near(z));
    from_above = across(line, d);
    above = roughnesses(upper, from_above);
  }
#pragma unroll 1
  for (int y = first; y < last; y += U, z += U * MOSAIC_X) {
#pragma unroll
    for (int i = 0; i < U; i++) {
      if (i && !is_multiple(DETAIL_END, U) && y + i >= last) break;
      // read once more rather than kept: a load of two pixels is cheaper than moving both
      const Near c = read_near(z + i * MOSAIC_X), under = read_near(z + (i + 2) * MOSAIC_X);
      Smooth smooth[2];
      window.push(i, z + (i + 3) * MOSAIC_X, smooth);
      const Across from_own = across(c, under);
      const Rough own = roughnesses(from_above, from_own);
      Pair two[4];
#pragma unroll
      for (int k = 0; k < 4; k++) two[k] = sub(c.z[k], c.z[k + 2]);
      // of neighbouring roughnesses, two share a difference with a level
      const Pair shared = add(absolute(two[1]), splat(LEVEL));
      const Pair right[3] = {add(absolute(two[0]), shared), add(shared, absolute(two[2])), roughness(two[2], two[3])};
      Detail found[2];
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const Pair *own_z = c.z + k + 2, *lower = d.z + k + 2;
        weigh(own_z[0], own_z[1], lower[-1], lower[0], lower[1],
              Opposite{two[k + 1], from_above.down[k], from_above.right[k + 1], from_above.left[k + 1]},
              Roughness{right[k], right[k + 1], above.down[k], own.down[k]},
              Roughness{above.right[k], own.right[k + 1], above.left[k + 1], own.left[k]}, found[k]);
        restore_detail(smooth[k], own_z[0], found[k]);
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
          a[k] =
              added(found[k], Opposite{two[k + 1], from_above.down[k], from_above.right[k + 1], from_above.left[k + 1]},
                    sx[k], sy[k], interpolated[k]);
        write(&s.row[row][x], a[0].row, a[1].row);
        write(&s.column[row][x], a[0].column, a[1].column);
        write(&s.diagonal[row][x], a[0].diagonal, a[1].diagonal);
      }
      from_above = from_own;
      above = own;
      d = under;
    }
    window.template slide<U>();
  }
}
#endif
