// From a mosaic to its four angles at full resolution, or their means over superpixels.
//
// A tile is computed from top to bottom: each line is loaded once, and the method keeps what it needs of former ones.
#pragma once
#include "lines.hpp"
#include "noise.hpp"

namespace {

// Four lines: 0, 45, 90, 135 degrees.
struct Angles {
  OneLine lines[4];
};

// The angles of a row of pixels from its own one and the three others. `place`: 2 row + column in the tile of each.
void sort_by_angle(int y, int n, const int32_t place[4], const float *const sites[4], Angles &to) {
  for (int k = 0; k < 4; k++) {
    const int row = (place[k] >> 1 ^ y) & 1, column = place[k] & 1; // 1: not that of an even pixel of this row
    const float *__restrict even = sites[2 * row + column];
    const float *__restrict odd = sites[2 * row + !column];
    float *__restrict out = to.lines[k][0];
    for (int x = 0; x < n; x++) out[x] = x & 1 ? odd[x] : even[x];
  }
}

// Part of the output: raw rows and columns.
struct Tile {
  int top, left, rows, columns;
};

// The tile at a place, which ends where the image does.
Tile tile_at(int top, int left, int height, int width) {
  return {top, left, height - top < ROWS ? height - top : ROWS, width - left < COLUMNS ? width - left : COLUMNS};
}

// Loads the lines of a tile into a method, and calls `done(y)` for every row that has all the lines it needs.
template <class Method, class Source, class Done>
void load_tile(Method &method, Source &from, const Tile &tile, Done done) {
  const int halo = Method::HALO, n = tile.columns;
  for (int y = -halo; y < tile.rows + halo; y++) {
    from.load(tile.top + y, tile.left - halo, n + 2 * halo, method.z[y] - halo);
    method.advance(y, n);
    if (y >= halo) done(y - halo);
  }
}

// Gives the angles of every row of a tile to `to.row(y, angles)`. `top` and `left` are even.
template <class Method, class Source, class Output>
void demosaic(Method &method, Source &from, const int32_t place[4], const Tile &tile, Output &to) {
  const int n = tile.columns;
  OneLine row, column, diagonal;
  Angles angles;
  load_tile(method, from, tile, [&](int y) {
    method.restore(y, n, row[0], column[0], diagonal[0]);
    const float *sites[4] = {method.z[y], row[0], column[0], diagonal[0]};
    sort_by_angle(y, n, place, sites, angles);
    to.row(y, angles);
  });
}

// Means over superpixels: keeps even rows, and replaces odd ones.
struct Halves {
  Angles upper, mean;

  const Angles *add(int y, int n, const Angles &angles) {
    for (int k = 0; k < 4; k++) {
      const float *__restrict lower = angles.lines[k][0];
      float *__restrict sum = upper.lines[k][0], *__restrict out = mean.lines[k][0];
      if (y & 1)
        for (int x = 0; x < n; x++)
          out[x] = 0.25f * ((sum[2 * x] + sum[2 * x + 1]) + (lower[2 * x] + lower[2 * x + 1]));
      else
        for (int x = 0; x < 2 * n; x++) sum[x] = lower[x];
    }
    return y & 1 ? &mean : nullptr;
  }
};

// Whether a raw sample of rows first .. first + height and columns left .. left + n is saturated.
template <class Raw> bool any_saturated(const RawLines<Raw> &from, int first, int height, int left, int n) {
  Raw peak = 0;
  for (int k = 0; k < height; k++) {
    const Raw *__restrict line = from.row(first + k) + left;
    for (int x = 0; x < n; x++) peak = line[x] > peak ? line[x] : peak;
  }
  return peak >= from.frame.full_scale;
}

// Output pixels with a saturated sample: in their superpixel at half resolution, else among the 3x3 around them.
template <class Raw>
bool find_saturated(const RawLines<Raw> &from, int y, int left, int n, int32_t *__restrict saturated) {
  const bool half = from.frame.half != 0;
  const int first = half ? y & ~1 : y - 1, height = half ? 2 : 3, width = half ? 2 : 3, step = half ? 2 : 1;
  const int start = half ? left : left - 1, last = start + step * (n - 1) + width, frame_width = from.frame.width;
  const int begin = start < 0 ? 0 : start, end = last < frame_width ? last : frame_width;
  if (!any_saturated(from, first, height, begin, end - begin)) return false;
  for (int x = 0; x < n; x++) {
    int32_t any = 0;
    for (int k = 0; k < height; k++)
      for (int j = 0; j < width; j++)
        any |= from.row(first + k)[mirrored(start + step * x + j, frame_width)] >= from.frame.full_scale;
    saturated[x] = any;
  }
  return true;
}

// Calls `work(tile)` for tiles that no other thread has taken, until all are taken.
template <class Work> void take_tiles(Mosaic &frame, Work work) {
  const int height = frame.half ? frame.height & ~1 : frame.height;
  const int width = frame.half ? frame.width & ~1 : frame.width;
  const int across = (width + COLUMNS - 1) / COLUMNS, down = (height + ROWS - 1) / ROWS;
  for (;;) {
    const int taken = __atomic_fetch_add(&frame.next, 1, __ATOMIC_RELAXED);
    if (taken >= across * down) return;
    work(tile_at(taken / across * ROWS, taken % across * COLUMNS, height, width));
  }
}

} // namespace
