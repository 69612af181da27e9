// Covariances of the Stokes vector by noise, with NOISE 1 only; what follows from them is in `formulas.h`.
#pragma once
#include "pair.cuh"

#if NOISE
constexpr int NOISE_PLACE = (COLOR ? 3 : 1) * 4 * 6; // gains of a place of the tile
#if NOISE_PERIOD > 1
CONSTANT_MEMORY float noise_gains[NOISE_PERIOD * NOISE_PERIOD * NOISE_PLACE] = NOISE_GAINS;
DEVICE float noise_gain(int row, int index) { return noise_gains[row * (NOISE_PERIOD * NOISE_PLACE) + index]; }
#else
// with one place only, gains are literals, and those of 0 cost nothing
DEVICE constexpr float noise_gain(int, int index) {
  constexpr float gains[NOISE_PLACE] = NOISE_GAINS;
  return gains[index];
}
#endif

// Row and column of the output, each modulo NOISE_PERIOD; `intensity(colour, polarizer)` of the pixel.
template <int CHANNELS, int COLUMN, class Intensity>
DEVICE void find_covariance(int row, float shot, float dark, Intensity intensity, Covariance &to) {
  float term[6] = {}; // elements 11, 12, 22, 10, 20 and 00
#pragma unroll
  for (int c = 0; c < CHANNELS; c++)
#pragma unroll
    for (int angle = 0; angle < 4; angle++) {
      const float variance = variance_of(intensity(c, angle), shot, dark);
#pragma unroll
      for (int t = 0; t < 6; t++) {
        const float gain = noise_gain(row, COLUMN * NOISE_PLACE + (4 * c + angle) * 6 + t);
        if (NOISE_PERIOD > 1 || gain != 0) term[t] = fmaf(gain, variance, term[t]);
      }
    }
  to = Covariance{term[0], term[1], term[2], term[3], term[4], term[5]};
}
#endif
