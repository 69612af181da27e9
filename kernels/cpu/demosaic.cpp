// From a mosaic to its four angles at full resolution, or their means over superpixels; and on to every product.
//
// A tile is computed from top to bottom: each line is loaded once, and the method keeps what it needs of former ones.
#include "adaptive.hpp"
#include "bilinear.hpp"
#include "correct.hpp"
#include "lines.hpp"
#include "polarimetry.hpp"

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

// ---------------------------------------------------------------------------------------------- products of a frame

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

// Rows of a tile to products.
template <class Raw> struct ToProducts {
  const RawLines<Raw> &raw;
  const Products &to;
  const Tile &tile;
  Count &count;
  Halves halves;

  void row(int y, const Angles &full) {
    const bool half = raw.frame.half != 0;
    const int n = half ? tile.columns / 2 : tile.columns;
    const Angles *angles = half ? halves.add(y, n, full) : &full;
    if (!angles) return;
    int32_t saturated[PIECE];
    const bool any = find_saturated(raw, tile.top + y, tile.left, n, saturated);
    const float *lines[4];
    for (int k = 0; k < 4; k++) lines[k] = angles->lines[k][0];
    const int64_t at = (int64_t)(tile.top + y) / (half ? 2 : 1) * to.width + tile.left / (half ? 2 : 1);
    polarimetry(to, at, n, lines, any ? saturated : nullptr, count);
  }
};

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

template <class Method, class Raw, class Source> void frame_tiles(Mosaic &frame, const Products &to, Count &count) {
  const RawLines<Raw> raw(frame);
  Source from(frame);
  take_tiles(frame, [&](const Tile &tile) {
    Method method;
    ToProducts<Raw> rows = {raw, to, tile, count, {}};
    demosaic(method, from, frame.place, tile, rows);
  });
}

template <class Raw, class Source> void frame_tiles_of(Mosaic &frame, const Products &to, Count &count) {
  if (frame.method == ADAPTIVE)
    frame_tiles<Adaptive<true>, Raw, Source>(frame, to, count);
  else if (frame.method == GRADIENT)
    frame_tiles<Gradient, Raw, Source>(frame, to, count);
  else
    frame_tiles<Bilinear, Raw, Source>(frame, to, count);
}

template <class Raw> void products_of(Mosaic &frame, const Products &to, Count &count) {
  if (frame.codes)
    frame_tiles_of<Raw, CorrectedLines<Raw>>(frame, to, count);
  else
    frame_tiles_of<Raw, const RawLines<Raw>>(frame, to, count);
}

// Rows of superpixels that a thread takes at a time in `correct_frame`.
const int BAND = 16;

template <class Raw> void correct_bands(Mosaic &frame, float *out) {
  CorrectedLines<Raw> from(frame, 1.0f);
  for (;;) {
    const int first = __atomic_fetch_add(&frame.next, 2 * BAND, __ATOMIC_RELAXED);
    if (first >= frame.height) return;
    for (int left = 0; left < frame.width; left += COLUMNS)
      for (int y = first; y < frame.height && y < first + 2 * BAND; y++)
        from.load(y, left, frame.width - left < COLUMNS ? frame.width - left : COLUMNS,
                  out + (int64_t)y * frame.width + left);
  }
}

// ------------------------------------------------------------------------------------------------------ one colour

// One colour's mosaic, and where its angles are stored.
struct Color {
  PlaneLines from;
  int32_t method;     // Method, without OWN_SITE
  int32_t half;       // store means over superpixels
  int32_t place[4];   // 2 row + column in the tile of 0, 45, 90, 135 degrees
  const float *edges; // (height, width): ADR's switch; null: that of this mosaic
  float *angles[4];   // (height, width), or half of both, without gaps, in [0, 1]
};

struct ToAngles {
  const Color &of;
  const Tile &tile;
  Halves halves;

  void row(int y, const Angles &full) {
    const int step = of.half ? 2 : 1, n = tile.columns / step;
    const Angles *angles = of.half ? halves.add(y, n, full) : &full;
    if (!angles) return;
    const int64_t at = (int64_t)(tile.top + y) / step * (of.from.width / step) + tile.left / step;
    for (int k = 0; k < 4; k++) {
      const float *__restrict line = angles->lines[k][0];
      float *__restrict out = of.angles[k] + at;
      for (int x = 0; x < n; x++) out[x] = line[x] * (1.0f / 255);
    }
  }
};

// Only ADR can take a switch.
template <class Method> void give_switch(Method &, const Color &, const Tile &) {}
void give_switch(Adaptive<false> &method, const Color &of, const Tile &tile) {
  method.given = {of.edges + (int64_t)tile.top * of.from.width + tile.left, of.from.width};
}

template <class Method> void color_tiles(const Color &of) {
  const int height = of.half ? of.from.height & ~1 : of.from.height;
  const int width = of.half ? of.from.width & ~1 : of.from.width;
  for (int top = 0; top < height; top += ROWS)
    for (int left = 0; left < width; left += COLUMNS) {
      const Tile tile = tile_at(top, left, height, width);
      Method method;
      give_switch(method, of, tile);
      ToAngles rows = {of, tile, {}};
      demosaic(method, of.from, of.place, tile, rows);
    }
}

// Bilinear means over superpixels: 3/4 and 1/4 of the two nearest samples of an angle, along y and along x.
void color_superpixels(const Color &of) {
  const int height = of.from.height / 2, width = of.from.width / 2;
  for (int y = 0; y < height; y++) {
    const float *upper = of.from.plane + 2 * y * of.from.step, *lower = upper + of.from.step;
    const float *near[2] = {upper, lower}, *far[2] = {lower + of.from.step, upper - of.from.step};
    for (int left = 0; left < width; left += COLUMNS / 2) {
      const int n = width - left < COLUMNS / 2 ? width - left : COLUMNS / 2;
      OneLine rows[2];
      for (int row = 0; row < 2; row++) {
        const float *__restrict a = near[row] + 2 * left, *__restrict b = far[row] + 2 * left;
        float *__restrict sum = rows[row][0];
        for (int x = -2; x < 2 * n + 2; x++) sum[x] = 0.75f * a[x] + 0.25f * b[x];
      }
      for (int k = 0; k < 4; k++) {
        const int column = of.place[k] & 1, beyond = column ? -1 : 2;
        const float *__restrict sum = rows[of.place[k] >> 1][0];
        float *__restrict out = of.angles[k] + (int64_t)y * width + left;
        for (int x = 0; x < n; x++) out[x] = 0.75f * sum[2 * x + column] + 0.25f * sum[2 * x + beyond];
      }
    }
  }
}

} // namespace

// Every product of a mono mosaic. Any number of threads may work on one mosaic at the same time; each has its own
// count.
extern "C" void polarization_demosaiced(Mosaic *frame, const Products *to, Count *count) {
  (frame->is_wide ? products_of<uint16_t> : products_of<uint8_t>)(*frame, *to, *count);
}

// What ideal pixels would have measured, (height, width) from 0 to 1; by any number of threads.
extern "C" void correct_frame(Mosaic *frame, float *out) {
  (frame->is_wide ? correct_bands<uint16_t> : correct_bands<uint8_t>)(*frame, out);
}

// The angles of one colour, in one thread.
extern "C" void demosaic_color(const Color *of) {
  if (of->method == BILINEAR && of->half)
    color_superpixels(*of);
  else if (of->method == BILINEAR)
    color_tiles<Bilinear>(*of);
  else if (of->method == GRADIENT)
    color_tiles<Gradient>(*of);
  else if (of->edges)
    color_tiles<Adaptive<false>>(*of);
  else
    color_tiles<Adaptive<true>>(*of);
}

// ADR's switch of a mosaic, or luma, with a halo of 4 pixels; into `out`, (height, width), in one thread.
extern "C" void polarization_switch(const PlaneLines *from, float *out) {
  for (int top = 0; top < from->height; top += ROWS)
    for (int left = 0; left < from->width; left += COLUMNS) {
      const Tile tile = tile_at(top, left, from->height, from->width);
      PolarizationSwitch method;
      load_tile(method, *from, tile, [&](int y) {
        method.edges.get_switch(y, tile.columns, out + (int64_t)(top + y) * from->width + left);
      });
    }
}
