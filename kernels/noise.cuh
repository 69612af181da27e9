// Standard deviations of DoLP and AoLP by noise, and DoLP without what noise adds to it; with NOISE 1 only. The
// formulas are explained in polar_pipeline/noise.
#ifndef POLAR_NOISE_CUH
#define POLAR_NOISE_CUH
#include "pair.cuh"

// Of four pixels: of DoLP as a component of (S1, S2)/S0, which can be negative; of DoLP; of AoLP in rad.
struct NoiseDeviations {
  float component[4], dolp[4], aolp[4];
};

#if NOISE
// Elements 11, 12, 22, 10, 20 and 00 of the covariance matrix of S1, S2 and S0.
struct Covariance {
  float term[6];
};

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
#pragma unroll
  for (int t = 0; t < 6; t++) to.term[t] = 0;
#pragma unroll
  for (int c = 0; c < CHANNELS; c++)
#pragma unroll
    for (int angle = 0; angle < 4; angle++) {
      const float variance = fmaf(fmaxf(intensity(c, angle), 0.0f), shot, dark);
#pragma unroll
      for (int t = 0; t < 6; t++) {
        const float gain = noise_gain(row, COLUMN * NOISE_PLACE + (4 * c + angle) * 6 + t);
        if (NOISE_PERIOD > 1 || gain != 0) to.term[t] = fmaf(gain, variance, to.term[t]);
      }
    }
}

// s0: S0; degree: DoLP
DEVICE void find_deviations(const Covariance &of, float s0, float s1, float s2, float degree, float tiny,
                            float &component, float &dolp, float &aolp) {
  const float *v = of.term, squares = s1 * s1, others = s2 * s2, mixed = 2 * s1 * s2 * v[1];
  const float square = squares + others, length = fast_sqrt(square), mean = 0.5f * (v[0] + v[2]);
  // where (S1, S2) is less than its noise, its direction is any direction
  const float weight = fast_rcp(square + mean);
  const float slope = 2 * fast_rcp(fmaxf(fmaxf(s0, length), 1e-6f));
  const float plane = fmaf(squares, v[0], fmaf(others, v[2], fmaf(mean, mean, mixed))) * weight;
  const float along = fmaf(degree * degree, v[5], plane) - slope * fmaf(s1, v[3], s2 * v[4]);
  const float beside = fmaf(others, v[0], fmaf(squares, v[2], fmaf(mean, mean, -mixed))) * weight;
  const float across = fmaxf(beside, tiny);
  float scale = NOISE_MOST;
  if (NOISE_LESS > 0) scale -= NOISE_LESS * fast_rcp(1 + square * fast_rcp(across * NOISE_SHARE));
  const float p4 = degree * degree * (degree * degree);
  component = fast_sqrt(fmaxf(along, tiny)) * scale * (1 - NOISE_STEEP * p4) * fast_rcp(fmaxf(s0, 1e-6f));
  const float t = degree * fast_rcp(component), limited = 1 + fminf(t * t * (t * t), 1e9f);
  dolp = fminf(component * (1 - SIGMA_LENGTH * fast_rcp(limited * limited)), 1.0f);
  // the inverse of the signal-to-noise ratio, so that a ratio of 0 needs no case of its own
  const float u = fminf(fast_sqrt(across) * scale * fast_rcp(fmaxf(length, 1e-15f)), 1e3f);
  aolp = fminf(0.5f * u * fmaf(SIGMA_ANGLE, u * u * (u * u), 1.0f), AOLP_SIGMA_MAX);
}

// DoLP without its bias, by the modified asymptotic estimator of Plaszczynski et al. (arXiv 1312.0437).
DEVICE float debiased(float degree, float component) {
  const float t = fminf(degree * fast_rcp(component), 1e4f), square = t * t;
  const float exact = (1 - fast_exp2(square * -1.44269504f)) * fast_rcp(fmaxf(square, 1e-6f));
  const float share = square > 0.05f ? exact : fmaf(square, fmaf(square, 0.16666667f, -0.5f), 1.0f);
  return degree * fmaf(share, -0.5f, 1.0f);
}
#endif
#endif
