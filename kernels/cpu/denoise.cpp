// Linear planes without the noise that the noise model expects: the option `denoise`, which
// `polar_pipeline/backends/reference/denoising.py` defines and explains.
//
// A thread takes a tile and walks down its rows. A filter that needs rows below waits until they have come: all that it
// reads is a few lines above and still in the caches.
#include "color.hpp"
#include "lines.hpp"
#include <algorithm>

namespace {

// Pixels on each side of a window: of the straight lines, of Lee's filter, and of both windows of the straight lines
// with that of the energy, which an output pixel depends on.
const int REACH = DENOISE_REACH, LEE = DENOISE_LEE, HALO = 2 * REACH + 2;
static_assert(REACH == 3 && LEE == 2, "sums of seven and of five values");

// Adds up the values within the window around `x`.
inline float sum_of_7(const float *__restrict of, int x) {
  return ((of[x - 3] + of[x - 2]) + (of[x - 1] + of[x])) + ((of[x + 1] + of[x + 2]) + of[x + 3]);
}
inline float sum_of_5(const float *__restrict of, int x) {
  return ((of[x - 2] + of[x - 1]) + (of[x] + of[x + 1])) + of[x + 2];
}

// Sums over rows: of S0, S1, S2, and of S0 times each.
enum Moment { S0, S1, S2, S00, S01, S02, MOMENTS };
// A straight line from S0 to S1, and one to S2.
enum Fit { SLOPE1, OFFSET1, SLOPE2, OFFSET2, FITS };

// One channel of a tile: its last rows, and the sums and lines of these. Each sum is computed anew for each row. A
// running sum, to which one row is added and from which one is taken away, keeps the rounding errors of bright rows in
// the dark rows below them.
struct Channel {
  float level;              // S0 is meant as a difference to it, which keeps the digits of its variance
  Ring<16> s0, s1, s2;      // rows of the image; Lee's filter reads what is ten rows above the last one
  Ring<8> pairs[MOMENTS];   // of a row and the one above
  OneLine moments[MOMENTS]; // of seven rows
  Ring<8> fits[FITS];       // of pixels
  OneLine fit_sums[FITS];   // of seven rows
  Ring<4> explained[2], rest[2];

  // Adds up a row and the one above.
  void sum_pairs(int y, int from, int end) {
    const float *__restrict a = s0[y], *__restrict b = s1[y], *__restrict c = s2[y];
    const float *__restrict d = s0[y - 1], *__restrict e = s1[y - 1], *__restrict f = s2[y - 1];
    float *__restrict of_0 = pairs[S0][y], *__restrict of_1 = pairs[S1][y], *__restrict of_2 = pairs[S2][y];
    float *__restrict of_00 = pairs[S00][y], *__restrict of_01 = pairs[S01][y], *__restrict of_02 = pairs[S02][y];
    for (int x = from; x < end; x++) {
      of_0[x] = a[x] + d[x];
      of_1[x] = b[x] + e[x];
      of_2[x] = c[x] + f[x];
      of_00[x] = a[x] * a[x] + d[x] * d[x];
      of_01[x] = a[x] * b[x] + d[x] * e[x];
      of_02[x] = a[x] * c[x] + d[x] * f[x];
    }
  }

  // Adds up the seven rows down to `y`: three pairs, and the first row.
  void sum_moments(int y, int from, int end) {
    const float *rows[3] = {s0[y - 6], s1[y - 6], s2[y - 6]};
    const float *__restrict first = rows[0];
    for (int k = 0; k < MOMENTS; k++) {
      const float *__restrict a = pairs[k][y], *__restrict b = pairs[k][y - 2], *__restrict c = pairs[k][y - 4];
      float *__restrict sum = moments[k][0];
      const float *__restrict other = rows[k % 3];
      if (k < S00)
        for (int x = from; x < end; x++) sum[x] = (a[x] + b[x]) + (c[x] + other[x]);
      else
        for (int x = from; x < end; x++) sum[x] = (a[x] + b[x]) + (c[x] + first[x] * other[x]);
    }
  }

  // Adds up the lines of the pixels of the seven rows down to `y`.
  void sum_fits(int y, int from, int end) {
    for (int k = 0; k < FITS; k++) {
      const float *__restrict a = fits[k][y - 6], *__restrict b = fits[k][y - 5], *__restrict c = fits[k][y - 4];
      const float *__restrict d = fits[k][y - 3], *__restrict e = fits[k][y - 2], *__restrict f = fits[k][y - 1];
      const float *__restrict g = fits[k][y];
      float *__restrict sum = fit_sums[k][0];
      for (int x = from; x < end; x++) sum[x] = ((a[x] + b[x]) + (c[x] + d[x])) + ((e[x] + f[x]) + g[x]);
    }
  }
};

// Makes the products of `n` pixels of a row from their angles; the first pixel's index is `at`.
void make_products(const Denoising &of, const Products &to, int64_t at, int n, const float *const angles[3][4]) {
  int32_t invalid[COLUMNS], any = 0;
  for (int x = 0; x < n && of.flags; x++) any |= invalid[x] = of.flags[at + x];
  Count count = Count(); // the mosaic has counted
  if (of.channels == 1)
    polarimetry(to, at, n, angles[0], any ? invalid : nullptr, count);
  else
    color_polarimetry(to, at, n, angles, 0, any ? invalid : nullptr, count);
}

class Tile {
public:
  explicit Tile(const Denoising &of) : of(of), products(), noise(), has_noise(false) {
    if (of.denoised) return;
    products = *of.products;
    has_noise = products.noise;
    if (!has_noise) return;
    noise = *products.noise;
    products.noise = &noise;
    for (int k = 0; k < 4; k++) noise.left[k] = left_noise[k][0];
  }

  // Denoises `rows` x `columns` pixels.
  void denoise(int top, int first_column, int rows, int columns) {
    this->first_column = first_column;
    n = columns;
    for (int c = 0; c < of.channels; c++) {
      const float *middle = pixel(c, top + rows / 2, first_column + columns / 2);
      channels[c].level = 0.5f * (middle[0] + middle[1]);
    }
    const int first = top - HALO;
    for (int y = first; y < top + rows + HALO; y++) {
      const int known = y - first; // rows above
      for (int c = 0; c < of.channels; c++) load(c, y);
      if (known >= 2 * REACH) fit(y - REACH);
      if (known >= 4 * REACH) explain(y - 2 * REACH);
      if (known >= 2 * HALO) finish(y - HALO);
    }
  }

private:
  const Denoising &of;
  Products products;     // where nothing else follows; with `noise`
  Noise noise;           // of the frame, with the lines of `left_noise`
  bool has_noise;        // whether a product depends on it
  OneLine left_noise[4]; // as in `NoiseLeft`
  int first_column, n;   // of the tile; its number of columns
  Channel channels[3];
  Ring<8> energy;
  Ring<4> slopes[2]; // of S1 and S2 by S0, of luma; with noise only

  const float *pixel(int channel, int y, int x) const {
    return of.linear + 4 * ((channel * of.height + y) * of.width + x);
  }

  // The row or column that is mirrored where one lies beyond the border: in small images more than once.
  static int mirrored_often(int at, int64_t size) {
    while (at < 0 || at >= size) at = mirrored(at, (int)size);
    return at;
  }

  void load(int c, int y) {
    Channel &to = channels[c];
    const float *row = pixel(c, mirrored_often(y, of.height), 0);
    float *__restrict s0 = to.s0[y], *__restrict s1 = to.s1[y], *__restrict s2 = to.s2[y];
    const auto put = [&](int x, const float *from) {
      s0[x] = 0.5f * (from[0] + from[1]) - to.level;
      s1[x] = from[2];
      s2[x] = from[3];
    };
    const int begin = std::max(-HALO, -first_column), end = (int)std::min<int64_t>(n + HALO, of.width - first_column);
    for (int x = -HALO; x < begin; x++) put(x, row + 4 * mirrored_often(first_column + x, of.width));
    const float *__restrict inside = row + 4 * (int64_t)first_column;
    for (int x = begin; x < end; x++) put(x, inside + 4 * x);
    for (int x = end; x < n + HALO; x++) put(x, row + 4 * mirrored_often(first_column + x, of.width));
    to.sum_pairs(y, -HALO, n + HALO); // the first row has none above it, and its sums are not used
  }

  // The variance of a raw pixel of a color, from the mean of S0.
  float raw_variance(int color, float mean) const {
    return variance_of(0.5f * (mean + channels[color].level), of.shot, of.floor);
  }

  // Finds the straight lines around the pixels of a row.
  void fit(int y) {
    const int from = -HALO + REACH, end = n + HALO - REACH;
    const float share = 1.0f / 49;
    OneLine variances[3];
    for (int c = 0; c < of.channels; c++) {
      channels[c].sum_moments(y + REACH, -HALO, n + HALO);
      const float *__restrict sum = channels[c].moments[S0][0];
      float *__restrict to = variances[c][0];
      for (int x = from; x < end; x++) to[x] = raw_variance(c, share * sum_of_7(sum, x));
    }
    for (int c = 0; c < of.channels; c++) {
      Channel &at = channels[c];
      OneLine by_noise;
      weighted(variances, of.s0_gains[c], from, end, by_noise[0]);
      const float *__restrict of_0 = at.moments[S0][0], *__restrict of_1 = at.moments[S1][0];
      const float *__restrict of_2 = at.moments[S2][0], *__restrict of_00 = at.moments[S00][0];
      const float *__restrict of_01 = at.moments[S01][0], *__restrict of_02 = at.moments[S02][0];
      const float *__restrict noise = by_noise[0];
      float *__restrict slope1 = at.fits[SLOPE1][y], *__restrict offset1 = at.fits[OFFSET1][y];
      float *__restrict slope2 = at.fits[SLOPE2][y], *__restrict offset2 = at.fits[OFFSET2][y];
      for (int x = from; x < end; x++) {
        const float m0 = share * sum_of_7(of_0, x), m1 = share * sum_of_7(of_1, x), m2 = share * sum_of_7(of_2, x);
        const float signal = larger(share * sum_of_7(of_00, x) - m0 * m0 - noise[x], 0.0f);
        const float inverse = 1 / (signal + noise[x]);
        const float a1 = (share * sum_of_7(of_01, x) - m0 * m1) * inverse;
        const float a2 = (share * sum_of_7(of_02, x) - m0 * m2) * inverse;
        slope1[x] = a1;
        offset1[x] = m1 - a1 * m0;
        slope2[x] = a2;
        offset2[x] = m2 - a2 * m0;
      }
    }
  }

  // What S0 explains of S1 and S2 in a row, what it leaves over, and the energy of that.
  void explain(int y) {
    const int from = -LEE, end = n + LEE;
    const float share = 1.0f / 49, luma[3] = {of.channels > 1 ? LUMA_RED : 1.0f, LUMA_GREEN, LUMA_RED};
    OneLine of_luma[2] = {OneLine(), OneLine()};
    for (int c = 0; c < of.channels; c++) {
      Channel &at = channels[c];
      at.sum_fits(y + REACH, -HALO + REACH, n + HALO - REACH);
      const float *__restrict s0 = at.s0[y];
      for (int k = 0; k < 2; k++) {
        const float *__restrict slope = at.fit_sums[k ? SLOPE2 : SLOPE1][0];
        const float *__restrict offsets = at.fit_sums[k ? OFFSET2 : OFFSET1][0];
        const float *__restrict part = (k ? at.s2 : at.s1)[y];
        float *__restrict explained = at.explained[k][y], *__restrict rest = at.rest[k][y];
        float *__restrict mixed = of_luma[k][0];
        const float weight = luma[c];
        for (int x = from; x < end; x++) {
          explained[x] = share * (sum_of_7(slope, x) * s0[x] + sum_of_7(offsets, x));
          rest[x] = part[x] - explained[x];
          mixed[x] += weight * rest[x];
        }
        if (!has_noise) continue;
        float *__restrict mixed_slope = slopes[k][y];
        for (int x = 0; x < n; x++) mixed_slope[x] = (c ? mixed_slope[x] : 0) + weight * share * sum_of_7(slope, x);
      }
    }
    const float *__restrict first = of_luma[0][0], *__restrict second = of_luma[1][0];
    float *__restrict to = energy[y];
    for (int x = from; x < end; x++) to[x] = first[x] * first[x] + second[x] * second[x];
  }

  // Adds up values of all colors, times their gains.
  void weighted(const OneLine *of_colors, const float *gains, int from, int end, float *__restrict to) const {
    const float *__restrict red = of_colors[0][0];
    const float first = gains[0];
    for (int x = from; x < end; x++) to[x] = first * red[x];
    for (int c = 1; c < of.channels; c++) {
      const float *__restrict color = of_colors[c][0];
      const float gain = gains[c];
      for (int x = from; x < end; x++) to[x] += gain * color[x];
    }
  }

  // Writes a row, or makes its products.
  void finish(int y) {
    OneLine means[3], spreads[3], variances[3], removed[3], noise, by_noise, kept, smoothed;
    const float share = 1.0f / 25, tiny = 1e-30f;
    for (int c = 0; c < of.channels; c++) {
      OneLine sums, squares;
      const float *__restrict a = channels[c].s0[y - 2], *__restrict b = channels[c].s0[y - 1];
      const float *__restrict d = channels[c].s0[y], *__restrict e = channels[c].s0[y + 1];
      const float *__restrict f = channels[c].s0[y + 2];
      float *__restrict sum = sums[0], *__restrict square = squares[0];
      for (int x = -LEE; x < n + LEE; x++) {
        sum[x] = ((a[x] + b[x]) + (d[x] + e[x])) + f[x];
        square[x] = ((a[x] * a[x] + b[x] * b[x]) + (d[x] * d[x] + e[x] * e[x])) + f[x] * f[x];
      }
      float *__restrict mean = means[c][0], *__restrict spread = spreads[c][0], *__restrict raw = variances[c][0];
      for (int x = 0; x < n; x++) {
        mean[x] = share * sum_of_5(sum, x);
        spread[x] = larger(share * sum_of_5(square, x) - mean[x] * mean[x], tiny);
        raw[x] = raw_variance(c, mean[x]);
      }
    }
    weighted(variances, of.polarization_gains, 0, n, noise[0]);
    find_kept(y, means, noise[0], smoothed[0], kept[0]);
    const int64_t at = y * of.width + first_column, plane = of.height * of.width;
    for (int c = 0; c < of.channels; c++) {
      weighted(variances, of.s0_gains[c], 0, n, by_noise[0]);
      find_removed(by_noise[0], spreads[c][0], removed[c][0]);
    }
    if (has_noise) find_left(y, kept[0], removed);
    Line lines[3][4];
    const float *angles[3][4];
    for (int c = 0; c < of.channels; c++) {
      Sums sums;
      filter(c, y, means[c][0], removed[c][0], kept[0], sums);
      if (of.denoised) {
        store_linear(of.denoised + 4 * (at + c * plane), n, sums);
        continue;
      }
      float *const to[4] = {lines[c][0], lines[c][1], lines[c][2], lines[c][3]};
      angles_of_sums(n, sums.straight, sums.diagonal, sums.s1, sums.s2, to);
      for (int k = 0; k < 4; k++) angles[c][k] = to[k];
    }
    if (!of.denoised) make_products(of, products, at, n, angles);
  }

  // The value of luma, from those of the colors.
  template <class Value> float luma_of(Value value) const {
    return of.channels == 1 ? value(0) : luma(value(0), value(1), value(2));
  }

  // Notes what denoising does to the noise of a row.
  void find_left(int y, const float *__restrict kept, const OneLine *removed) {
    const float *__restrict slope1 = slopes[0][y], *__restrict slope2 = slopes[1][y];
    float *__restrict rest = left_noise[0][0], *__restrict light = left_noise[1][0];
    float *__restrict left1 = left_noise[2][0], *__restrict left2 = left_noise[3][0];
    for (int x = 0; x < n; x++) {
      rest[x] = kept[x];
      light[x] = 1 - luma_of([&](int c) { return removed[c][0][x]; });
      left1[x] = (1 - kept[x]) * slope1[x];
      left2[x] = (1 - kept[x]) * slope2[x];
    }
  }

  // The share of the rest that is kept in a row; the same for all colors, so that none appears.
  void find_kept(int y, const OneLine *means, const float *__restrict noise, float *__restrict smoothed,
                 float *__restrict kept) {
    const float *__restrict a = energy[y - 2], *__restrict b = energy[y - 1], *__restrict d = energy[y];
    const float *__restrict e = energy[y + 1], *__restrict f = energy[y + 2];
    for (int x = -LEE; x < n + LEE; x++) smoothed[x] = smooth(d[x], b[x] + e[x], a[x] + f[x]);
    const float factor = 2 * of.strength;
    for (int x = 0; x < n; x++) {
      const float around = smooth(smoothed[x], smoothed[x - 1] + smoothed[x + 1], smoothed[x - 2] + smoothed[x + 2]);
      kept[x] = larger(1 - factor * noise[x] / larger(around, 1e-30f), 0.0f);
    }
    if (!of.is_auto) return;
    for (int x = 0; x < n; x++) {
      const float light = luma_of([&](int c) { return means[c][0][x] + channels[c].level; });
      const float least = least_kept(noise[x], light);
      least_of_row[x] = least;
      kept[x] = least + (1 - least) * kept[x];
    }
  }

  float least_of_row[COLUMNS] = {}; // the share that is kept at least, of the pixels of a row; 0 without `auto`

  // The share of a channel's differences from their mean that is removed in a row.
  void find_removed(const float *__restrict by_noise, const float *__restrict spread, float *__restrict to) const {
    const float *__restrict least = least_of_row;
    for (int x = 0; x < n; x++) to[x] = (1 - least[x]) * smaller(by_noise[x] / spread[x], 1.0f);
  }

  // Denoises one channel of a row.
  void filter(int c, int y, const float *__restrict mean, const float *__restrict removed, const float *__restrict kept,
              Sums &to) const {
    const Channel &at = channels[c];
    const float *__restrict from = pixel(c, y, first_column);
    float *__restrict straight = to.straight, *__restrict diagonal = to.diagonal;
    float *__restrict s1 = to.s1, *__restrict s2 = to.s2;
    const float *__restrict s0 = at.s0[y];
    const float *__restrict explained1 = at.explained[0][y], *__restrict explained2 = at.explained[1][y];
    const float *__restrict rest1 = at.rest[0][y], *__restrict rest2 = at.rest[1][y];
    for (int x = 0; x < n; x++) {
      const float change = removed[x] * (mean[x] - s0[x]);
      straight[x] = from[4 * x] + change;
      diagonal[x] = from[4 * x + 1] + change;
      s1[x] = explained1[x] + kept[x] * rest1[x];
      s2[x] = explained2[x] + kept[x] * rest2[x];
    }
  }
};

} // namespace

void denoised(Denoising &of) {
  const int across = (int)((of.width + COLUMNS - 1) / COLUMNS), down = (int)((of.height + ROWS - 1) / ROWS);
  Tile tile(of);
  for (;;) {
    const int k = __atomic_fetch_add(&of.next, 1, __ATOMIC_RELAXED);
    if (k >= across * down) return;
    const int top = k / across * ROWS, first_column = k % across * COLUMNS;
    tile.denoise(top, first_column, std::min(ROWS, (int)of.height - top),
                 std::min(COLUMNS, (int)of.width - first_column));
  }
}

void products_of_denoised(Denoising &of) {
  Line lines[3][4];
  for (;;) {
    const int64_t y = __atomic_fetch_add(&of.next, 1, __ATOMIC_RELAXED);
    if (y >= of.height) return;
    for (int64_t first_column = 0; first_column < of.width; first_column += COLUMNS) {
      const int n = (int)std::min<int64_t>(COLUMNS, of.width - first_column);
      const int64_t at = y * of.width + first_column;
      const float *angles[3][4];
      for (int c = 0; c < of.channels; c++) {
        Sums sums;
        load_linear(of.denoised + 4 * (at + c * of.height * of.width), n, sums);
        float *const to[4] = {lines[c][0], lines[c][1], lines[c][2], lines[c][3]};
        angles_of_sums(n, sums.straight, sums.diagonal, sums.s1, sums.s2, to);
        for (int k = 0; k < 4; k++) angles[c][k] = to[k];
      }
      make_products(of, *of.products, at, n, angles);
    }
  }
}
