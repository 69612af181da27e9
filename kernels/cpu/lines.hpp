// Lines of a tile, and where they come from.
#pragma once
#include "mosaic.hpp"
#include <cstdint>

namespace {

// A tile of the mosaic, in raw pixels: narrow, so that all lines that a row depends on stay in the first-level cache.
// Both are even.
const int COLUMNS = 256, ROWS = 64;
const int MARGIN = 16; // floats on both sides of a line, more than any halo

// The last COUNT lines of an image, a power of two, by their row; at column 0 of the tile. Rows may be negative.
template <int COUNT> struct Ring {
  alignas(64) float lines[COUNT][COLUMNS + 2 * MARGIN];
  float *operator[](int row) { return lines[row & (COUNT - 1)] + MARGIN; }
  const float *operator[](int row) const { return lines[row & (COUNT - 1)] + MARGIN; }
};
typedef Ring<1> OneLine;

// As one maximum and one minimum: choices within each other become masks.
inline float clipped(float value, float low, float high) {
  const float raised = value > low ? value : low;
  return raised < high ? raised : high;
}

// The raw frame in levels: 255 is full scale.
template <class Raw> struct RawLines {
  const Mosaic &frame;
  float levels; // of one raw number

  explicit RawLines(const Mosaic &frame) : frame(frame), levels(255.0f / (float)frame.full_scale) {}

  const Raw *row(int y) const {
    return (const Raw *)((const char *)frame.raw + mirrored(y, frame.height) * frame.step);
  }

  // Columns first .. first + n of row `y`, both of which may lie beyond the border.
  void load(int y, int first, int n, float *__restrict out) const {
    const Raw *__restrict from = row(y);
    const int32_t full = frame.full_scale;
    const float scale = levels;
    const auto level = [=](int32_t value) { return (float)(value < full ? value : full) * scale; };
    const int left = first < 0 ? -first : 0, right = first + n > frame.width ? frame.width - first : n;
    for (int x = left; x < right; x++) out[x] = level(from[first + x]);
    for (int x = 0; x < left; x++) out[x] = level(from[mirrored(first + x, frame.width)]);
    for (int x = right; x < n; x++) out[x] = level(from[mirrored(first + x, frame.width)]);
  }
};

// A mosaic in [0, 1] with a halo: rows and columns from -halo on.
struct PlaneLines {
  const float *plane;    // at (0, 0)
  int64_t step;          // floats from one row to the next
  int32_t height, width; // without the halo

  void load(int y, int first, int n, float *__restrict out) const {
    const float *__restrict from = plane + y * step + first;
    for (int x = 0; x < n; x++) out[x] = from[x] * 255.0f;
  }
};

} // namespace
