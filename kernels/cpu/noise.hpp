// Standard deviations of DoLP and AoLP by noise, and DoLP without what noise adds to it, of pieces of rows.
#pragma once
#include "../formulas.h"
#include "frame.hpp"
#include <cmath>
#include <cstring>

namespace {

const int PIECE = 512; // most output pixels at a time: some twelve lines of floats in 32 KiB

typedef float Line[PIECE];

// Element by element, the covariance matrices of S1, S2 and S0.
struct Covariances {
  Line v11, v12, v22, v10, v20, v00;
};

struct Deviations {
  Line component, dolp, aolp, ratio; // as in `Deviation`
};

// Number of neighboring pixels whose gains are kept at a time, from the first pixel of a piece on: a multiple of every
// period, so that all runs of a piece have the same gains, and a whole number of vectors.
const int RUN = 16;
struct Gains {
  float g11[RUN], g12[RUN], g22[RUN], g10[RUN], g20[RUN], g00[RUN];
};

// Adds the share of the raw pixels of one color and polarizer to pixels `from` to `end`, at most RUN of them.
inline void add_run(float shot, float floor, const Gains &gains, int from, int end, const float *__restrict angle,
                    float *__restrict v11, float *__restrict v12, float *__restrict v22, float *__restrict v10,
                    float *__restrict v20, float *__restrict v00) {
  for (int k = 0; k < end - from; k++) {
    const int x = from + k;
    const float variance = variance_of(angle[x], shot, floor);
    v11[x] += gains.g11[k] * variance;
    v12[x] += gains.g12[k] * variance;
    v22[x] += gains.g22[k] * variance;
    v10[x] += gains.g10[k] * variance;
    v20[x] += gains.g20[k] * variance;
    v00[x] += gains.g00[k] * variance;
  }
}

void add_variance(float shot, float floor, const Gains &gains, int n, const float *__restrict angle, Covariances &to) {
  int from = 0;
  for (; from + RUN <= n; from += RUN) // of constant length
    add_run(shot, floor, gains, from, from + RUN, angle, to.v11, to.v12, to.v22, to.v10, to.v20, to.v00);
  add_run(shot, floor, gains, from, n, angle, to.v11, to.v12, to.v22, to.v10, to.v20, to.v00);
}

// Variances of the raw pixels of one color and polarizer that the pixels of a merged frame are made of. `place`: four
// times the color, plus the polarizer.
void find_variances(const Noise &noise, int64_t y, int64_t first, int n, int place, const float *angle, float *to) {
  const int halving = noise.is_half ? 0 : 1, period = noise.period, last = noise.columns - 1;
  const uint8_t *rows[3];
  for (int k = 0; k < 3; k++) {
    const int row = (int)(y >> halving) + k - 1;
    rows[k] = noise.exposures + (int64_t)noise.columns * (row < 0 ? 0 : row < noise.rows ? row : noise.rows - 1);
  }
  for (int x = 0; x < n; x++) {
    const int at = (int)((first + x) >> halving), columns[3] = {at ? at - 1 : 0, at, at < last ? at + 1 : at};
    const uint8_t own = rows[1][at];
    uint8_t differ = 0;
    for (int k = 0; k < 9; k++) differ |= rows[k / 3][columns[k % 3]] ^ own;
    to[x] = variance_of(angle[x], noise.shots[own], noise.floors[own]);
    if (!differ) continue;
    const int64_t of = ((y % period) * period + (first + x) % period) * 4 * noise.channels + place;
    to[x] = 0;
    for (int k = 0; k < 9; k++) {
      const uint8_t other = rows[k / 3][columns[k % 3]];
      to[x] += noise.shares[9 * of + k] * variance_of(angle[x], noise.shots[other], noise.floors[other]);
    }
  }
}

// `y`, `first`: row and column of the output; `colors`: the four angles of each color.
void find_covariances(const Noise &noise, int64_t y, int64_t first, int n, const float *const (*colors)[4],
                      Covariances &to) {
  to = Covariances();
  const int period = noise.period, place = noise.channels * 4 * 6;
  const float *row = noise.gains + y % period * period * place;
  Line variances;
  for (int channel = 0; channel < noise.channels; channel++)
    for (int k = 0; k < 4; k++) {
      Gains gains;
      for (int x = 0; x < RUN; x++) {
        const float *of = row + (first + x) % period * place + (4 * channel + k) * 6;
        gains.g11[x] = of[0];
        gains.g12[x] = of[1];
        gains.g22[x] = of[2];
        gains.g10[x] = of[3];
        gains.g20[x] = of[4];
        gains.g00[x] = of[5];
      }
      if (noise.exposures) {
        find_variances(noise, y, first, n, 4 * channel + k, colors[channel][k], variances);
        add_variance(1, 0, gains, n, variances, to);
      } else {
        add_variance(noise.shot, noise.floor, gains, n, colors[channel][k], to);
      }
    }
}

// Stores the matrix of pixel `x`.
void store(const Covariance &v, int x, Covariances &to) {
  to.v11[x] = v.v11;
  to.v12[x] = v.v12;
  to.v22[x] = v.v22;
  to.v10[x] = v.v10;
  to.v20[x] = v.v20;
  to.v00[x] = v.v00;
}

// Changes covariances to what denoising leaves of them.
void leave_noise(const Noise &noise, int n, Covariances &of) {
  const float *__restrict kept = noise.left[0], *__restrict light = noise.left[1];
  const float *__restrict slope1 = noise.left[2], *__restrict slope2 = noise.left[3];
  const NoiseOfMeans means = noise.means;
  for (int x = 0; x < n; x++) {
    const Covariance v = {of.v11[x], of.v12[x], of.v22[x], of.v10[x], of.v20[x], of.v00[x]};
    store(covariance_left(v, NoiseLeft{kept[x], light[x], slope1[x], slope2[x]}, means), x, of);
  }
}

// The covariances as a network states them for pixels from `at` on. `total`: twice S0.
void find_stated(const Noise &noise, int64_t at, int n, const float *__restrict total, Covariances &to) {
  const float *__restrict numbers = noise.stated + 4 * at;
  for (int x = 0; x < n; x++) {
    const float raw = variance_of(0.25f * total[x], noise.shot, noise.floor);
    const StatedNoise of = {numbers[4 * x], numbers[4 * x + 1], numbers[4 * x + 2], numbers[4 * x + 3]};
    store(covariance_of(of, raw, noise.stated_gains[0], noise.stated_gains[1]), x, to);
  }
}

// `total`: twice S0; `least`: below every S0 that counts.
void find_deviations(const Noise &noise, const Covariances &from, int n, const float *__restrict total,
                     const float *__restrict s1, const float *__restrict s2, const float *__restrict degree,
                     float least, Deviations &to) {
  const float *__restrict v11 = from.v11, *__restrict v12 = from.v12, *__restrict v22 = from.v22,
                          *__restrict v10 = from.v10, *__restrict v20 = from.v20, *__restrict v00 = from.v00;
  float *__restrict component = to.component, *__restrict dolp = to.dolp, *__restrict aolp = to.aolp,
                    *__restrict ratio = to.ratio;
  const NoiseMethod method = {noise.method[0], noise.method[1], noise.method[2], noise.method[3]};
  const float tiny = 1e-4f * noise.floor; // below every variance
  for (int x = 0; x < n; x++) {
    const Covariance of = {v11[x], v12[x], v22[x], v10[x], v20[x], v00[x]};
    const Deviation deviation = deviation_of(of, method, 0.5f * total[x], s1[x], s2[x], degree[x], tiny, least);
    component[x] = deviation.component;
    dolp[x] = deviation.dolp;
    aolp[x] = deviation.aolp;
    ratio[x] = deviation.ratio;
  }
}

void debias(int n, const float *__restrict component, float *__restrict degree) {
  for (int x = 0; x < n; x++) degree[x] = debiased(degree[x], component[x]);
}

} // namespace
