// Standard deviations of DoLP and AoLP by noise, and DoLP without what noise adds to it.
#pragma once
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
  Line component, dolp, aolp; // of DoLP as a component of (S1, S2)/S0, which can be negative; of DoLP; of AoLP in rad
};

// Gains of neighbouring pixels, from one of the first place on: a multiple of every period, for whole vectors.
const int RUN = 16;
struct Gains {
  float g11[RUN], g12[RUN], g22[RUN], g10[RUN], g20[RUN], g00[RUN];
};

// Adds the share of the raw pixels of one colour and polarizer to pixels `from` to `end`, at most RUN of them.
inline void add_run(float shot, float floor, const Gains &gains, int from, int end, const float *__restrict angle,
                    float *__restrict v11, float *__restrict v12, float *__restrict v22, float *__restrict v10,
                    float *__restrict v20, float *__restrict v00) {
  for (int k = 0; k < end - from; k++) {
    const int x = from + k;
    const float variance = shot * (angle[x] > 0 ? angle[x] : 0.0f) + floor;
    v11[x] += gains.g11[k] * variance;
    v12[x] += gains.g12[k] * variance;
    v22[x] += gains.g22[k] * variance;
    v10[x] += gains.g10[k] * variance;
    v20[x] += gains.g20[k] * variance;
    v00[x] += gains.g00[k] * variance;
  }
}

void add_variance(const Noise &noise, const Gains &gains, int n, const float *__restrict angle, Covariances &to) {
  int from = 0;
  for (; from + RUN <= n; from += RUN) // of constant length
    add_run(noise.shot, noise.floor, gains, from, from + RUN, angle, to.v11, to.v12, to.v22, to.v10, to.v20, to.v00);
  add_run(noise.shot, noise.floor, gains, from, n, angle, to.v11, to.v12, to.v22, to.v10, to.v20, to.v00);
}

// `y`, `first`: row and column of the output; `colors`: the four angles of each colour.
void find_covariances(const Noise &noise, int64_t y, int64_t first, int n, const float *const (*colors)[4],
                      Covariances &to) {
  to = Covariances();
  const int period = noise.period, place = noise.channels * 4 * 6;
  const float *row = noise.gains + y % period * period * place;
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
      add_variance(noise, gains, n, colors[channel][k], to);
    }
}

// `total`: twice S0.
void find_deviations(const Noise &noise, const Covariances &from, int n, const float *__restrict total,
                     const float *__restrict s1, const float *__restrict s2, const float *__restrict degree,
                     Deviations &to) {
  const float *__restrict v11 = from.v11, *__restrict v12 = from.v12, *__restrict v22 = from.v22,
                          *__restrict v10 = from.v10, *__restrict v20 = from.v20, *__restrict v00 = from.v00;
  float *__restrict component = to.component, *__restrict dolp = to.dolp, *__restrict aolp = to.aolp;
  const float most = noise.method[0], less = noise.method[1], share = 1 / noise.method[2], steep = noise.method[3];
  const float tiny = 0.01f * noise.floor; // below every variance; keeps quotients finite
  for (int x = 0; x < n; x++) {
    const float square = s1[x] * s1[x] + s2[x] * s2[x], length = std::sqrt(square), p = degree[x];
    const float s0 = 0.5f * total[x], mean = 0.5f * (v11[x] + v22[x]);
    const float weight = 1 / (square + mean); // where (S1, S2) is less than its noise, its direction is any direction
    const float squares = s1[x] * s1[x], others = s2[x] * s2[x], mixed = 2 * s1[x] * s2[x] * v12[x];
    const float slope = 2 / (s0 > length ? s0 : length > tiny ? length : tiny);
    const float along = (squares * v11[x] + mixed + others * v22[x] + mean * mean) * weight + p * p * v00[x] -
                        slope * (s1[x] * v10[x] + s2[x] * v20[x]);
    const float beside = (others * v11[x] - mixed + squares * v22[x] + mean * mean) * weight;
    const float across = beside > tiny ? beside : tiny;
    const float scale = most - less / (1 + square / across * share);
    const float deviation = std::sqrt(along > tiny ? along : tiny) * scale * (1 - steep * (p * p) * (p * p));
    const float of_component = deviation / (s0 > deviation * 1e-4f ? s0 : deviation * 1e-4f);
    component[x] = of_component;
    const float t = p / of_component, power = t * t * (t * t), limited = 1 + (power < 1e9f ? power : 1e9f);
    const float of_length = of_component * (1 - SIGMA_LENGTH / (limited * limited));
    dolp[x] = of_length < 1 ? of_length : 1.0f;
    const float ratio = length / (std::sqrt(across) * scale), u = ratio > 1e-3f ? ratio : 1e-3f;
    const float of_angle = (1 + SIGMA_ANGLE / (u * u * (u * u))) / (2 * u);
    aolp[x] = of_angle < AOLP_SIGMA_MAX ? of_angle : AOLP_SIGMA_MAX;
  }
}

// The exponential function of -90 to 0: powers of 2 by their bits, and a polynomial in between; to 3e-7 of it.
inline float exponential(float x) {
  const float exponent = 1.44269504f * x, shifted = exponent + 12582912.0f; // 1.5 * 2^23: the unit is the last bit
  const float f = 0.693147181f * (exponent - (shifted - 12582912.0f));
  const float fraction = 1 + f * (1 + f * (0.5f + f * (0.166666667f + f * (0.0416666667f + f * 0.00833333333f))));
  int32_t power, bits;
  std::memcpy(&power, &shifted, sizeof power);
  std::memcpy(&bits, &fraction, sizeof bits);
  bits += (int32_t)((uint32_t)power << 23);
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// DoLP without its bias, by the modified asymptotic estimator of Plaszczynski et al. (arXiv 1312.0437).
void debias(int n, const float *__restrict component, float *__restrict degree) {
  for (int x = 0; x < n; x++) {
    const float t = degree[x] / component[x], square = t < 9.0f ? t * t : 81.0f; // there the share is 1/square
    const float series = 1 - square * (0.5f - square * (0.166666667f - square * 0.0416666667f));
    const float exact = (1 - exponential(-square)) / (t < 9.0f ? (square > 0.01f ? square : 0.01f) : t * t);
    degree[x] *= 1 - 0.5f * (square > 0.05f ? exact : series);
  }
}

} // namespace
