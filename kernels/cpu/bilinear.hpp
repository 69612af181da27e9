// The demosaic methods that need nothing but the lines around a pixel.
#pragma once
#include "lines.hpp"

namespace {

// What every method has: the lines of the mosaic, and the angles that the pixels of a row lack.
//
// `row` is the angle of the pixels beside them in their row, `column` that of those above and below, `diagonal` the
// angle orthogonal to their own. A line is complete when `HALO` lines after it have been loaded.
struct Bilinear {
  static const int HALO = 1;
  Ring<8> z;

  // Called when line `y` has been loaded.
  void advance(int, int) {}

  void restore(int y, int n, float *__restrict row, float *__restrict column, float *__restrict diagonal) const {
    const float *__restrict above = z[y - 1], *__restrict here = z[y], *__restrict below = z[y + 1];
    for (int x = 0; x < n; x++) {
      row[x] = 0.5f * (here[x - 1] + here[x + 1]);
      column[x] = 0.5f * (above[x] + below[x]);
      diagonal[x] = 0.25f * ((above[x - 1] + above[x + 1]) + (below[x - 1] + below[x + 1]));
    }
  }
};

// Bilinear, and a share of the pixel's detail: by how much it exceeds the nearest ones of its angle.
struct Gradient {
  static const int HALO = 2;
  Ring<8> z;

  void advance(int, int) {}

  void restore(int y, int n, float *__restrict row, float *__restrict column, float *__restrict diagonal) const {
    const float *__restrict top = z[y - 2], *__restrict above = z[y - 1], *__restrict here = z[y],
                            *__restrict below = z[y + 1], *__restrict bottom = z[y + 2];
    for (int x = 0; x < n; x++) {
      const float near = (here[x - 2] + here[x + 2]) + (top[x] + bottom[x]);
      const float detail = BETA * (here[x] - 0.25f * near);
      row[x] = in_range(0.5f * (here[x - 1] + here[x + 1]) + detail);
      column[x] = in_range(0.5f * (above[x] + below[x]) + detail);
      diagonal[x] = in_range(0.25f * ((above[x - 1] + above[x + 1]) + (below[x - 1] + below[x + 1])) + detail);
    }
  }

  static float in_range(float value) { return clipped(value, 0.0f, 255.0f); }
};

} // namespace
