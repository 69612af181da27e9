// Adaptive detail restoration (ADR); the names are those of `docs/adaptive_demosaic.md`. Intensities are in levels.
#pragma once
#include "lines.hpp"
#include <cmath>

namespace {

// The gradients of all four angles: the switch between detail of intensity and edges of polarization, and the secant
// steps, which replace the detail at the latter. SWITCH and STEPS say which of them is wanted.
template <bool SWITCH, bool STEPS> struct Edges {
  static const int HALO = 4; // of the switch
  Ring<8> energy, difference;
  Ring<4> row_step, column_step, diagonal_step;

  // From lines y - 2 .. y + 2, two pixels beyond the tile on both sides.
  void find(const Ring<8> &z, int y, int n) {
    OneLine sums, differences, far_differences, second_differences; // along y
    float *__restrict s = sums[0], *__restrict d = differences[0], *__restrict a = far_differences[0],
                      *__restrict q = second_differences[0];
    const float *__restrict top = z[y - 2], *__restrict above = z[y - 1], *__restrict here = z[y],
                            *__restrict below = z[y + 1], *__restrict bottom = z[y + 2];
    for (int x = -4; x < n + 4; x++) {
      s[x] = above[x] + below[x];
      d[x] = below[x] - above[x];
      a[x] = bottom[x] - top[x];
      q[x] = here[x] - 0.5f * (top[x] + bottom[x]);
    }
    float *__restrict e = energy[y], *__restrict f = difference[y];
    float *__restrict to_row = row_step[y], *__restrict to_column = column_step[y],
                      *__restrict to_diagonal = diagonal_step[y];
    for (int x = -2; x < n + 2; x++) {
      // Along x: of the own angle and the column's over four pixels, of the row's and the diagonal's over two; and
      // second differences. Along y row and column change places.
      const float own_x = 0.5f * (here[x + 2] - here[x - 2]), column_x = 0.25f * (s[x + 2] - s[x - 2]);
      const float row_x = here[x + 1] - here[x - 1], diagonal_x = 0.5f * (s[x + 1] - s[x - 1]);
      const float own_xx = here[x] - 0.5f * (here[x - 2] + here[x + 2]);
      const float column_xx = 0.5f * s[x] - 0.25f * (s[x - 2] + s[x + 2]);
      const float own_y = 0.5f * a[x], row_y = 0.25f * (a[x - 1] + a[x + 1]);
      const float column_y = d[x], diagonal_y = 0.5f * (d[x - 1] + d[x + 1]);
      const float own_yy = q[x], row_yy = 0.5f * (q[x - 1] + q[x + 1]);
      const float square_x = own_x * own_x + column_x * column_x, square_y = own_y * own_y + row_y * row_y;
      if (SWITCH) {
        const float squares = (square_x + square_y) + (row_x * row_x + diagonal_x * diagonal_x) +
                              (column_y * column_y + diagonal_y * diagonal_y);
        const float correlation = (own_x * diagonal_x + row_x * column_x) + (own_y * diagonal_y + column_y * row_y);
        const float bends = (own_xx * own_xx + column_xx * column_xx) + (own_yy * own_yy + row_yy * row_yy);
        e[x] = 0.5f * squares;
        f[x] = 0.5f * ADR_UNCORRELATED * squares - correlation - ADR_CURVED * bends;
      }
      if (STEPS) {
        const float bend_x = own_x * own_xx + column_x * column_xx, bend_y = own_y * own_yy + row_y * row_yy;
        const float step_x = clipped(0.5f * bend_x / (square_x + ADR_GRADIENT_NOISE), -ADR_STEP, ADR_STEP);
        const float step_y = clipped(0.5f * bend_y / (square_y + ADR_GRADIENT_NOISE), -ADR_STEP, ADR_STEP);
        to_row[x] = step_x * row_x;
        to_column[x] = step_y * column_y;
        to_diagonal[x] = step_x * diagonal_x + step_y * diagonal_y;
      }
    }
  }

  // Of a row, after `find` of the two rows after it.
  void get_switch(int y, int n, float *__restrict out) const {
    OneLine energies, excesses;
    float *__restrict e = energies[0], *__restrict f = excesses[0];
    sum_rows(energy, y, n, e);
    sum_rows(difference, y, n, f);
    for (int x = 0; x < n; x++) {
      const float noisy = sum_of_five(e + x) + 25 * ADR_GRADIENT_NOISE;
      out[x] = clipped(ADR_GAIN * sum_of_five(f + x) / noisy, 0.0f, 1.0f);
    }
  }

  // No running sums: results must not depend on where a tile begins.
  static void sum_rows(const Ring<8> &image, int y, int n, float *__restrict out) {
    const float *__restrict a = image[y - 2], *__restrict b = image[y - 1], *__restrict c = image[y],
                            *__restrict d = image[y + 1], *__restrict e = image[y + 2];
    for (int x = -2; x < n + 2; x++) out[x] = (a[x] + e[x]) + (b[x] + d[x]) + c[x];
  }
  static float sum_of_five(const float *line) { return (line[-2] + line[2]) + (line[-1] + line[1]) + line[0]; }
};

// The switch alone, of luma.
struct PolarizationSwitch {
  static const int HALO = 4;
  Ring<8> z;
  Edges<true, false> edges;

  void advance(int y, int n) {
    if (y >= 0) edges.find(z, y - 2, n);
  }
};

// The switch as an image, where it is not that of the mosaic itself.
struct GivenSwitch {
  const float *image; // at the tile's (0, 0)
  int64_t step;
};

// How rough the mosaic is around a pixel toward one of two opposite neighbors: their difference, that of the pixel
// and the one beyond the neighbor, and one level.
inline float roughness(float center, float beyond, float one, float two) {
  return std::fabs(center - beyond) + (std::fabs(one - two) + 1.0f);
}

// OWN: the switch is that of this mosaic, rather than given.
template <bool OWN> struct Adaptive {
  static const int HALO = 4;
  Ring<8> z;
  Edges<OWN, true> edges;
  GivenSwitch given;
  Ring<4> mean;        // g: the weighted mean of the four angles
  Ring<4> lost;        // e: detail of the total intensity that its low-pass has lost
  Ring<2> phase;       // 2 P2
  Ring<2> weighted[3]; // means of row, column and diagonal that prefer smooth directions

  void advance(int y, int n) {
    if (y >= 0) edges.find(z, y - 2, n);
    if (y >= 2) find_detail(y - 3, n);
  }

  // The first stage, from lines y - 3 .. y + 3: one pixel beyond the tile on both sides.
  void find_detail(int y, int n) {
    OneLine same_phase, other_phase; // low-passes along y
    low_pass(z, y, n, same_phase[0], other_phase[0]);
    weigh(z[y - 2], z[y - 1], z[y], z[y + 1], z[y + 2], n, weighted[0][y], weighted[1][y], weighted[2][y]);
    find_lost(z[y], same_phase[0], other_phase[0], weighted[0][y], weighted[1][y], weighted[2][y], n, mean[y], lost[y],
              phase[y]);
  }

  static void low_pass(const Ring<8> &z, int y, int n, float *__restrict same, float *__restrict other) {
    const float *__restrict a = z[y - 3], *__restrict b = z[y - 2], *__restrict c = z[y - 1], *__restrict d = z[y],
                            *__restrict e = z[y + 1], *__restrict f = z[y + 2], *__restrict g = z[y + 3];
    for (int x = -4; x < n + 4; x++) {
      same[x] = ADR_SAME_0 * d[x] + ADR_SAME_2 * (b[x] + f[x]);
      other[x] = ADR_OTHER_1 * (c[x] + e[x]) + ADR_OTHER_3 * (a[x] + g[x]);
    }
  }

  // Opposite neighbors weighted by 1/roughness; with two terms that needs one division, with four one as well, over
  // the product of all.
  static void weigh(const float *__restrict top, const float *__restrict above, const float *__restrict here,
                    const float *__restrict below, const float *__restrict bottom, int n, float *__restrict row,
                    float *__restrict column, float *__restrict diagonal) {
    for (int x = -1; x < n + 1; x++) {
      const float c = here[x], left = here[x - 1], right = here[x + 1], up = above[x], down = below[x];
      const float r_left = roughness(c, here[x - 2], left, right), r_right = roughness(c, here[x + 2], left, right);
      const float r_up = roughness(c, top[x], up, down), r_down = roughness(c, bottom[x], up, down);
      row[x] = (left * r_right + right * r_left) / (r_left + r_right);
      column[x] = (up * r_down + down * r_up) / (r_up + r_down);
      // p on the diagonal that falls to the right, q on the one that rises
      const float p1 = above[x - 1], p2 = below[x + 1], q1 = above[x + 1], q2 = below[x - 1];
      const float rp1 = roughness(c, top[x - 2], p1, p2), rp2 = roughness(c, bottom[x + 2], p1, p2);
      const float rq1 = roughness(c, top[x + 2], q1, q2), rq2 = roughness(c, bottom[x - 2], q1, q2);
      const float rp = rp1 * rp2, rq = rq1 * rq2;
      diagonal[x] = ((p1 * rp2 + p2 * rp1) * rq + (q1 * rq2 + q2 * rq1) * rp) / ((rp1 + rp2) * rq + (rq1 + rq2) * rp);
    }
  }

  static void find_lost(const float *__restrict here, const float *__restrict same, const float *__restrict other,
                        const float *__restrict row, const float *__restrict column, const float *__restrict diagonal,
                        int n, float *__restrict mean, float *__restrict lost, float *__restrict phase) {
    for (int x = -1; x < n + 1; x++) {
      const float c = here[x], g = 0.25f * ((row[x] + column[x]) + (diagonal[x] + c));
      const float d0 = ADR_SAME_0 * same[x] + ADR_SAME_2 * (same[x - 2] + same[x + 2]);
      const float dr = ADR_OTHER_1 * (same[x - 1] + same[x + 1]) + ADR_OTHER_3 * (same[x - 3] + same[x + 3]);
      const float dc = ADR_SAME_0 * other[x] + ADR_SAME_2 * (other[x - 2] + other[x + 2]);
      const float dd = ADR_OTHER_1 * (other[x - 1] + other[x + 1]) + ADR_OTHER_3 * (other[x - 3] + other[x + 3]);
      const float low = clipped(0.25f * ((d0 + dr) + (dc + dd)), 0.25f, 255.0f), quarter = 0.25f * low;
      // low / max(d0, low/4) * (c - d0 g / low)
      lost[x] = (low * c - d0 * g) / (d0 > quarter ? d0 : quarter);
      mean[x] = g;
      phase[x] = 0.5f * ((d0 - dd) * (d0 - dd) + (dr - dc) * (dr - dc));
    }
  }

  // The second stage.
  void restore(int y, int n, float *__restrict row, float *__restrict column, float *__restrict diagonal) const {
    OneLine own_switch, squares, outer_lost, outer_mean, outer;
    float *__restrict square = squares[0], *__restrict lost_sum = outer_lost[0], *__restrict mean_sum = outer_mean[0],
                      *__restrict sum = outer[0]; // of the lines above and below
    {
      const float *__restrict e_above = lost[y - 1], *__restrict e = lost[y], *__restrict e_below = lost[y + 1];
      const float *__restrict g_above = mean[y - 1], *__restrict g_below = mean[y + 1];
      const float *__restrict above = z[y - 1], *__restrict below = z[y + 1];
      for (int x = -1; x < n + 1; x++) {
        square[x] = 0.25f * (e_above[x] * e_above[x] + e_below[x] * e_below[x]) + 0.5f * (e[x] * e[x]);
        lost_sum[x] = e_above[x] + e_below[x];
        mean_sum[x] = g_above[x] + g_below[x];
        sum[x] = above[x] + below[x];
      }
    }
    const float *__restrict polarized;
    if (OWN) {
      edges.get_switch(y, n, own_switch[0]);
      polarized = own_switch[0];
    } else {
      polarized = given.image + y * given.step;
    }
    const float *__restrict here = z[y], *__restrict e = lost[y], *__restrict g = mean[y], *__restrict p = phase[y];
    const float *__restrict w_row = weighted[0][y], *__restrict w_column = weighted[1][y],
                            *__restrict w_diagonal = weighted[2][y];
    const float *__restrict row_step = edges.row_step[y], *__restrict column_step = edges.column_step[y],
                            *__restrict diagonal_step = edges.diagonal_step[y];
    for (int x = 0; x < n; x++) {
      const float e_row = 0.5f * (e[x - 1] + e[x + 1]), e_column = 0.5f * lost_sum[x];
      const float e_diagonal = 0.25f * (lost_sum[x - 1] + lost_sum[x + 1]);
      const float r0 = 0.25f * (square[x - 1] + square[x + 1]) + 0.5f * square[x], noisy = r0 + ADR_NOISE;
      const float r1 = 0.5f * (e[x] * e_diagonal + e_row * e_column);
      const float correlated = clipped(r1 / noisy + ADR_BIAS, -ADR_LIMIT, ADR_LIMIT);
      const float w = r0 / (noisy + p[x]);
      const float alpha = correlated - w * correlated + w;
      const float restored = alpha * e[x] + g[x];
      // The detail, or at edges of polarization the secant step, is added to the bilinear value.
      const auto angle = [=](float bilinear, float low, float e_mean, float weighted_mean, float step) {
        const float bounded = clipped(low, 0.25f, 255.0f);
        const float gain = bilinear < 2 * bounded ? bilinear / bounded : 2.0f;
        const float detail = (restored - (alpha * e_mean + low)) * gain + ADR_WEIGHTED * (weighted_mean - bilinear);
        return clipped(bilinear + (detail + polarized[x] * (step - detail)), 0.0f, 255.0f);
      };
      row[x] = angle(0.5f * (here[x - 1] + here[x + 1]), 0.5f * (g[x - 1] + g[x + 1]), e_row, w_row[x], row_step[x]);
      column[x] = angle(0.5f * sum[x], 0.5f * mean_sum[x], e_column, w_column[x], column_step[x]);
      diagonal[x] = angle(0.25f * (sum[x - 1] + sum[x + 1]), 0.25f * (mean_sum[x - 1] + mean_sum[x + 1]), e_diagonal,
                          w_diagonal[x], diagonal_step[x]);
    }
  }
};

} // namespace
