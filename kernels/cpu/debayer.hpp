// From the mosaic of a color sensor to red, green and blue: on each of the four lattices of stride 2 that the
// polarizers form, a Bayer mosaic.
#pragma once
#include "lines.hpp"
#include <cmath>

namespace {

// Where a channel of a pixel comes from; the numbers are those of `color_sources` in
// `polar_pipeline/backends/cpu/arguments.py`.
enum Source { OWN, GREEN, ROW, COLUMN, ACROSS, SOURCES };

// In the order of `DEBAYERS` in `polar_pipeline/backends/cpu/arguments.py`.
enum Debayer { BILINEAR_DEBAYER, MALVAR, WEIGHTED };

// A part of the mosaic, no wider than a line.
struct Lattice {
  PlaneLines from;
  int32_t method;          // Debayer
  int32_t source[3][4][4]; // Source, by channel, row and column of this part, modulo 4
  float *channels[3];      // (height, width), without gaps
};

// What a pixel lacks: green at red or blue; at green, the color of its row and the one of its column; the third one at
// red or blue. The nearest pixels of a lattice are two pixels away.
void bilinear_line(const float *__restrict above, const float *__restrict here, const float *__restrict below, int n,
                   float *__restrict green, float *__restrict row, float *__restrict column, float *__restrict across) {
  for (int x = 0; x < n; x++) {
    const float sides = here[x - 2] + here[x + 2], poles = above[x] + below[x];
    green[x] = 0.25f * (sides + poles);
    row[x] = 0.5f * sides;
    column[x] = 0.5f * poles;
    across[x] = 0.25f * ((above[x - 2] + above[x + 2]) + (below[x - 2] + below[x + 2]));
  }
}

void malvar_line(const float *__restrict top, const float *__restrict above, const float *__restrict here,
                 const float *__restrict below, const float *__restrict bottom, int n, float *__restrict green,
                 float *__restrict row, float *__restrict column, float *__restrict across) {
  for (int x = 0; x < n; x++) {
    const float c = here[x], sides = here[x - 2] + here[x + 2], poles = above[x] + below[x];
    const float far_sides = here[x - 4] + here[x + 4], far_poles = top[x] + bottom[x];
    const float corners = (above[x - 2] + above[x + 2]) + (below[x - 2] + below[x + 2]);
    green[x] = MHC_GREEN_CENTER * c + MHC_GREEN_NEAR * (sides + poles) + MHC_GREEN_FAR * (far_sides + far_poles);
    const float of_green = MHC_ROW_CENTER * c + MHC_ROW_DIAGONAL * corners;
    row[x] = of_green + MHC_ROW_NEAR * sides + MHC_ROW_FAR * far_sides + MHC_ROW_SIDE * far_poles;
    column[x] = of_green + MHC_ROW_NEAR * poles + MHC_ROW_FAR * far_poles + MHC_ROW_SIDE * far_sides;
    across[x] = MHC_ACROSS_CENTER * c + MHC_ACROSS_DIAGONAL * corners + MHC_ACROSS_FAR * (far_sides + far_poles);
  }
}

// A value of the line for the pixel's column modulo 4.
inline float pick(const float *a, const float *b, const float *c, const float *d, int x) {
  return x & 2 ? (x & 1 ? d[x] : c[x]) : (x & 1 ? b[x] : a[x]);
}

// `from`: the lines for column 0, 1, 2, 3 modulo 4.
void choose(const float *const from[4], int n, float *__restrict out) {
  const float *__restrict a = from[0], *__restrict b = from[1], *__restrict c = from[2], *__restrict d = from[3];
  for (int x = 0; x < n; x++) {
    out[x] = clipped(pick(a, b, c, d, x), 0.0f, 1.0f);
  }
}

// ADR's debayer: green at red or blue. Each nearest sample, corrected by half the pixel's detail in its direction,
// weighted by 1/roughness, over the product of all four.
void weigh(const float *__restrict top, const float *__restrict above, const float *__restrict here,
           const float *__restrict below, const float *__restrict bottom, int n, float *__restrict green) {
  for (int x = -2; x < n + 2; x++) {
    const float c = here[x], l = here[x - 2], r = here[x + 2], u = above[x], d = below[x];
    const float sides = std::fabs(l - r) + 1.0f / 255, poles = std::fabs(u - d) + 1.0f / 255;
    const float to_l = c - here[x - 4], to_r = c - here[x + 4], to_u = c - top[x], to_d = c - bottom[x];
    const float r_l = std::fabs(to_l) + sides, r_r = std::fabs(to_r) + sides;
    const float r_u = std::fabs(to_u) + poles, r_d = std::fabs(to_d) + poles;
    const float row = (l + 0.5f * to_l) * r_r + (r + 0.5f * to_r) * r_l;
    const float column = (u + 0.5f * to_u) * r_d + (d + 0.5f * to_d) * r_u;
    const float of_row = r_l * r_r, of_column = r_u * r_d;
    green[x] = (row * of_column + column * of_row) / ((r_l + r_r) * of_column + (r_u + r_d) * of_row);
  }
}

// Green of a line, and by how much the samples exceed it. `source`: where green comes from, by column modulo 4.
void find_green(const float *__restrict here, const float *__restrict weighted, const int32_t source[4], int n,
                float *__restrict green, float *__restrict difference) {
  const float *from[4];
  for (int x = 0; x < 4; x++) from[x] = source[x] == OWN ? here : weighted;
  const float *a = from[0], *b = from[1], *c = from[2], *d = from[3];
  for (int x = -2; x < n + 2; x++) {
    green[x] = pick(a, b, c, d, x);
    difference[x] = here[x] - green[x];
  }
}

// The other colors: green, and the mean difference of the nearest samples from it.
void weighted_line(const float *__restrict green_line, const float *__restrict above, const float *__restrict here,
                   const float *__restrict below, int n, float *__restrict row, float *__restrict column,
                   float *__restrict across) {
  for (int x = 0; x < n; x++) {
    const float green = green_line[x];
    row[x] = green + 0.5f * (here[x - 2] + here[x + 2]);
    column[x] = green + 0.5f * (above[x] + below[x]);
    across[x] = green + 0.25f * ((above[x - 2] + above[x + 2]) + (below[x - 2] + below[x + 2]));
  }
}

// Stores the channels of a row; `sources`: the lines that they come from.
void store_channels(const Lattice &of, int y, const float *const sources[SOURCES]) {
  for (int channel = 0; channel < 3; channel++) {
    const float *from[4];
    for (int x = 0; x < 4; x++) from[x] = sources[of.source[channel][y & 3][x]];
    choose(from, of.from.width, of.channels[channel] + (int64_t)y * of.from.width);
  }
}

void by_filters(const Lattice &of) {
  const int n = of.from.width;
  OneLine green, row, column, across;
  for (int y = 0; y < of.from.height; y++) {
    const float *here = of.from.plane + y * of.from.step, *above = here - 2 * of.from.step,
                *below = here + 2 * of.from.step;
    if (of.method == BILINEAR_DEBAYER)
      bilinear_line(above, here, below, n, green[0], row[0], column[0], across[0]);
    else
      malvar_line(above - 2 * of.from.step, above, here, below, below + 2 * of.from.step, n, green[0], row[0],
                  column[0], across[0]);
    const float *sources[SOURCES] = {here, green[0], row[0], column[0], across[0]};
    store_channels(of, y, sources);
  }
}

void by_weights(const Lattice &of) {
  const int n = of.from.width;
  Ring<8> green, difference;
  OneLine weighted, row, column, across;
  for (int line = -2; line < of.from.height + 2; line++) {
    const float *here = of.from.plane + line * of.from.step;
    weigh(here - 4 * of.from.step, here - 2 * of.from.step, here, here + 2 * of.from.step, here + 4 * of.from.step, n,
          weighted[0]);
    find_green(here, weighted[0], of.source[1][line & 3], n, green[line], difference[line]);
    const int y = line - 2;
    if (y < 0) continue;
    weighted_line(green[y], difference[y - 2], difference[y], difference[y + 2], n, row[0], column[0], across[0]);
    const float *sources[SOURCES] = {of.from.plane + y * of.from.step, green[y], row[0], column[0], across[0]};
    store_channels(of, y, sources);
  }
}

void debayer(const Lattice &of) { (of.method == WEIGHTED ? by_weights : by_filters)(of); }

} // namespace
