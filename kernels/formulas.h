// The formula of every product, at one pixel and once: for the CUDA kernels, in float and in pairs of half
// (`pair.cuh`), and for the CPU's loops (`cpu/polarimetry.hpp`), which the compiler vectorizes.
//
// Intensities may have any unit; `mean` is S0/2. What processors evaluate in different ways is a primitive, of which
// each has its own. Numbers of a method come from polar_pipeline/polarimetry/coefficients.py, as definitions.
#pragma once

// The components of the light, which `component` computes of each color.
#define LIGHT_COMPONENTS(EACH) EACH(UNPOLARIZED) EACH(POLARIZED) EACH(POLARIZER)
#define COUNT_COMPONENT(NAME) +1
constexpr int COMPONENTS = LIGHT_COMPONENTS(COUNT_COMPONENT);

// The products that are one value of a pixel's polarization, which `polarization_value` computes: their names, units,
// and the level of invalid pixels.
#define POLARIZATION_VALUES(EACH)                                                                                      \
  EACH(DOLP, UNITLESS, LOWEST)                                                                                         \
  EACH(DOLP_SIGMA, UNITLESS, HIGHEST) EACH(AOLP_SIGMA, RADIANS, HIGHEST) EACH(SIGNIFICANCE, UNITLESS, HIGHEST)
#define COUNT_VALUE(NAME, UNIT, INVALID) +1
constexpr int VALUES = POLARIZATION_VALUES(COUNT_VALUE);
enum Unit { UNITLESS, RADIANS };
enum InvalidLevel { LOWEST, HIGHEST };

// ---- primitives
#ifdef DEVICE
#define FORMULA DEVICE
#define FORMULA_CONSTANT CONSTANT // a function that the compiler evaluates
DEVICE float add(float a, float b) { return a + b; }
DEVICE float sub(float a, float b) { return a - b; }
DEVICE float mul(float a, float b) { return a * b; }
DEVICE Pair fused(Pair a, Pair b, Pair c) { return fma(a, b, c); }
DEVICE float fused(float a, float b, float c) { return fmaf(a, b, c); }
DEVICE float quotient(float a, float b) { return a * fast_rcp(b); }
DEVICE float root(float a) { return fast_sqrt(a); }
DEVICE float magnitude(float a) { return fabsf(a); }
DEVICE float larger(float a, float b) { return fmaxf(a, b); }
DEVICE float smaller(float a, float b) { return fminf(a, b); }
DEVICE float unit_range(float a) { return saturate(a); } // within [0, 1]
DEVICE float at_most_1(float a) { return saturate(a); }  // of what is not negative
DEVICE float exponential(float a) { return fast_exp2(a * 1.44269504f); }
DEVICE u32 bits_of_float(float a) { return as_bits(a); }
#else
#include <cmath>
#include <cstdint>
#include <cstring>
#define FORMULA static inline
#define FORMULA_CONSTANT constexpr
typedef uint32_t u32;
#define COMPONENT_ENUMERATOR(NAME) NAME,
enum Component { LIGHT_COMPONENTS(COMPONENT_ENUMERATOR) };
#define VALUE_ENUMERATOR(NAME, UNIT, INVALID) NAME,
enum Value { POLARIZATION_VALUES(VALUE_ENUMERATOR) };
FORMULA float add(float a, float b) { return a + b; }
FORMULA float sub(float a, float b) { return a - b; }
FORMULA float mul(float a, float b) { return a * b; }
FORMULA float fused(float a, float b, float c) { return a * b + c; }
FORMULA float quotient(float a, float b) { return a / b; }
FORMULA float root(float a) { return std::sqrt(a); }
FORMULA float magnitude(float a) { return std::fabs(a); }
FORMULA float larger(float a, float b) { return a > b ? a : b; }
FORMULA float smaller(float a, float b) { return a < b ? a : b; }
FORMULA float unit_range(float a) { return a < 0 ? 0.0f : smaller(a, 1.0f); }
FORMULA float at_most_1(float a) { return smaller(a, 1.0f); }
FORMULA u32 bits_of_float(float a) {
  u32 bits;
  std::memcpy(&bits, &a, sizeof bits);
  return bits;
}
// Up to 0: powers of 2 by their bits, and a polynomial in between; to 3e-7 of it.
FORMULA float exponential(float a) {
  const float exponent = 1.44269504f * larger(a, -80.0f),
              shifted = exponent + 12582912.0f; // 1.5 * 2^23: the unit is the last bit
  const float f = 0.693147181f * (exponent - (shifted - 12582912.0f));
  const float fraction = 1 + f * (1 + f * (0.5f + f * (0.166666667f + f * (0.0416666667f + f * 0.00833333333f))));
  const u32 bits = bits_of_float(fraction) + (bits_of_float(shifted) << 23);
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}
#endif

// The hyperbolic tangent, to 3e-7.
FORMULA float hyperbolic_tangent(float a) {
  const float power = exponential(-2 * magnitude(a)), tangent = quotient(1 - power, 1 + power);
  return a < 0 ? -tangent : tangent;
}

// ---- levels: integers of a full scale, rounded to nearest even

constexpr float ROUNDING = 8388608.0f; // 2^23: the last bit of a float from there on is the unit
// A value from 0 to 2^22 as an integer in the lowest bits.
FORMULA u32 rounded(float value) { return bits_of_float(value + ROUNDING); }
FORMULA u32 rounded(float value, float scale) { return bits_of_float(fused(value, scale, ROUNDING)); }

// ---- the Stokes vector

// A number of a formula as a value of its type; `pair.cuh` has that of pairs.
template <class V> struct Number {
  static FORMULA_CONSTANT V of(double number) { return (V)number; }
};
template <class V> FORMULA V sum_of(V i0, V i45, V i90, V i135) { return add(add(i0, i90), add(i45, i135)); } // 2 S0
template <class V> FORMULA V s1_of(V i0, V i90) { return sub(i0, i90); }
template <class V> FORMULA V s2_of(V i45, V i135) { return sub(i45, i135); }
template <class V> FORMULA V mean_of(V i0, V i45, V i90, V i135) { // S0/2
  constexpr V quarter = Number<V>::of(0.25);
  return mul(sum_of(i0, i45, i90, i135), quarter);
}
template <class V> FORMULA V luma(V r, V g, V b) {
  constexpr V red = Number<V>::of(LUMA_RED), green = Number<V>::of(LUMA_GREEN);
  return fused(g, green, mul(add(r, b), red));
}

// The intensity of what is polarized. least: keeps it positive.
FORMULA float polarized(float s1, float s2, float least = 0) { return root(fused(s1, s1, fused(s2, s2, least))); }
// DoLP, from the former and S0.
FORMULA float degree_of(float polarized, float s0) { return at_most_1(quotient(polarized, s0)); }

// A component of the light: what a polarizer leaves at the angle that lets least through; what is polarized; and what a
// polarizer leaves that multiplies S1 and S2 by the cosine and sine of its doubled angle.
template <int COMPONENT> FORMULA float component(float mean, float s1, float s2, const float (&polarizer)[2]) {
  if (COMPONENT == POLARIZER) return larger(fused(0.5f, fused(s1, polarizer[0], s2 * polarizer[1]), mean), 0.0f);
  const float length = polarized(s1, s2);
  return COMPONENT == POLARIZED ? length : larger(fused(-0.5f, length, mean), 0.0f);
}

// ---- AoLP: half the direction of (S1, S2)

constexpr float PI = 3.14159265f;

// arctan(t) of -1 to 1, in units of which `turn` are half a turn
FORMULA float arctangent(float t, float turn = 1) {
  const float u = t * t;
  const float cube = fused(u, fused(u, turn * ATAN_9, turn * ATAN_7), turn * ATAN_5);
  return t * fused(u, fused(u, cube, turn * ATAN_3), turn * ATAN_1);
}

#ifdef DEVICE
// AoLP folded by the sign of S1 has the tangent S2 / (length + |S1|): half of the angle comes free, since
// atan2(S2, S1)/2 = atan(S2 / (length + S1)).
FORMULA float folded_tangent(float s1, float s2, float length) { return quotient(s2, length + fabsf(s1)); }
// The AoLP, from 0 to less than half a turn; below: the largest float below that.
FORMULA float unfolded(float folded, float s1, float turn, float below) {
  const float sign = as_float((as_bits(s1) & 0x80000000u) | 0x3f800000u);
  const float angle = fmaf(folded, sign, fmaf(sign, -0.25f * turn, 0.25f * turn));
  return angle < 0 ? angle + below : angle;
}
FORMULA float unfolded_turns(float folded, float s1) { return unfolded(folded, s1, 1, 0.99999994f); }
FORMULA float unfolded_radians(float folded, float s1) { return unfolded(folded, s1, PI, 3.1415925f); }
// The AoLP in 65536ths of pi, which wrap, in the low 16 bits; folded: over pi.
FORMULA u32 unfolded_65536(float folded, float s1) {
  constexpr float ZERO = ROUNDING + 65536.0f; // angles below 0 have the same low bits as above pi
  return as_bits(s1 < 0 ? fmaf(folded, -65536.0f, ZERO + 32768.0f) : fmaf(folded, 65536.0f, ZERO));
}

// In pairs of half, for bytes, which are the low ones of 1024 + byte. Two values from 0 to 1:
FORMULA u32 unit_bytes(u32 values) { return half2_fma(values, half2_splat(255), half2_splat(1024)); }
// arctan(t)/t in 256ths of pi; squares: of t.
FORMULA u32 slopes_256(u32 squares) {
  const u32 slopes = half2_fma(squares, half2_splat(256 * ATAN_BYTE_5), half2_splat(256 * ATAN_BYTE_3));
  return half2_fma(squares, slopes, half2_splat(256 * ATAN_BYTE_1));
}
// Two AoLP in 256ths of pi, folded into [-64, 64], from their tangents.
FORMULA u32 folded_256(u32 t) { return half2_mul(t, slopes_256(half2_mul(t, t))); }
// The same from the folded AoLP as floats; scale: 256 over half a turn, twice.
FORMULA u32 folded_256(float first, float second, u32 scale) { return half2_mul(half2_pack(first, second), scale); }
// The same plus 1024, so that the low byte is the answer: folded + 0, or pi/2 - folded where S1 is negative. sign: +-1
// with the sign of S1.
FORMULA u32 unfolded_256(u32 folded, u32 sign) {
  return half2_fma(folded, sign, half2_fma(sign, half2_splat(-64), half2_splat(1344)));
}
// Both at once, from tangents and S1, of which only the sign is read: 1344 + (folded - 64), or 1344 - (folded - 64).
FORMULA u32 turns_256(u32 t, u32 s1) {
  const u32 below = half2_fma(t, slopes_256(half2_mul(t, t)), half2_splat(-64));
  return half2_add(below ^ (s1 & 0x80008000u), half2_splat(1344));
}
#else
// AoLP/pi in [0, 1)
FORMULA float half_direction(float s1, float s2) {
  const float a = magnitude(s1), b = magnitude(s2), large = larger(a, b), small = smaller(b, a);
  float part = arctangent(small / larger(large, 1e-30f));
  part = b > a ? 0.5f - part : part;
  part = 0.5f * (s1 < 0 ? 1 - part : part);
  part = s2 < 0 ? 1 - part : part;
  return part < 1 ? part : 0.0f; // a full turn is the same as 0
}
#endif

// ---- images in color

// By HSV (Smith 1978) with the AoLP as hue, from 0 to 6, DoLP as saturation, and S0/2 as value: what the hue takes from
// red, green or blue, as a share of the value's colored part.
template <int CHANNEL> FORMULA float taken_by_hue(float hue) {
  return CHANNEL == 0 ? unit_range(2 - magnitude(hue - 3)) : unit_range(magnitude(hue - 2 * CHANNEL) - 1);
}
template <int CHANNEL> FORMULA u32 preview_level(float hue, float saturation, float value) {
  return rounded(fused(-(value * saturation), taken_by_hue<CHANNEL>(hue), value));
}
#ifdef DEVICE
// The same of two pixels in pairs of half, by the folded AoLP in sixths of half a turn, -1.5 to 1.5, so that no hue
// wraps. depth: minus the product of saturation and value; sign: +-1 with the sign of S1.
FORMULA void preview_pairs(u32 folded, u32 sign, u32 depth, u32 value, u32 (&rgb)[3]) {
  constexpr u32 half = half2_splat(0.5);
  const u32 side = half2_fma(sign, half, half);
  const u32 taken[3] = {half2_fma_sat(half2_abs(folded), sign, half2_fma(sign, half2_splat(-1.5), half)),
                        half2_fma_sat(folded, half2_splat(-1), side), half2_fma_sat(folded, half2_splat(1), side)};
#pragma unroll
  for (int c = 0; c < 3; c++) rgb[c] = half2_fma(taken[c], depth, value);
}
#endif
// By maps of 256 colors: where AoLP and DoLP are among them, not rounded, and colors of AoLP mixed with a gray level.
FORMULA float place_of_aolp(float turns) { return 256 * turns; } // wraps
FORMULA float place_of_dolp(float degree) { return 255 * degree; }
FORMULA u32 color_index(float place) { return rounded(place) & 255; }
FORMULA u32 faded_level(float color, float degree, const float (&fading)[2]) { // gray level, least share of color
  return rounded(fused(larger(degree, fading[1]), color - fading[0], fading[0])) & 255;
}

// ---- standard deviations by noise, and DoLP without what noise adds to it (explained in polar_pipeline/noise)

// The variance of a raw pixel.
FORMULA float variance_of(float intensity, float shot, float dark) {
  return fused(larger(intensity, 0.0f), shot, dark);
}
// How well the noise of a pixel can be seen: from 0, where the standard deviation of its DoLP is at most `low`, to 1.
// noise: variance of S1 and of S2; s0: of luma.
FORMULA float visible(float noise, float s0, float low, float high) {
  const float ratio = quotient(root(noise), larger(s0, 1e-30f));
  return unit_range((ratio - low) * (1 / (high - low)));
}
// The share of a pixel that `denoise` "auto" keeps at least, as its noise may be too little to see.
FORMULA float least_kept(float noise, float s0) { return 1 - visible(noise, s0, DENOISE_AUTO_LOW, DENOISE_AUTO_HIGH); }
// Filters by DENOISE_TAPS: a value, the sum of those beside it, and that of the next ones.
FORMULA float smooth(float center, float beside, float far) {
  return fused(DENOISE_TAP_0, center, fused(DENOISE_TAP_1, beside, DENOISE_TAP_2 * far));
}
// Elements of the covariance matrix of S1, S2 and S0.
struct Covariance {
  float v11, v12, v22, v10, v20, v00;
};
// What denoising does to a pixel: share that is kept of what S0 does not explain of S1 and S2; share that is kept of
// the differences of S0 from its mean; and two slopes, how much of the noise of S0 is in S1 and S2.
struct NoiseLeft {
  float kept, kept_light, slope1, slope2;
};
// Covariances by noise of means of two images; `MeansNoise` of polar_pipeline/backends/reference/noise.py.
struct MeansNoise {
  float wide, wide_both, narrow, narrow_both, mixed;
};
// The same of S0 with itself and with S1, and the share that is left of the variances of S1 and S2 at least.
struct NoiseOfMeans {
  MeansNoise light, polarized;
  float left;
};
// The covariance matrix after denoising, from the one before. Explained in polar_pipeline/backends/reference/noise.py.
FORMULA Covariance covariance_left(const Covariance &v, const NoiseLeft &of, const NoiseOfMeans &means) {
  const MeansNoise &light = means.light, &both = means.polarized;
  const float kept = of.kept, removed = 1 - kept, kept_light = of.kept_light, removed_light = 1 - kept_light;
  const float least = means.left * fused(DENOISE_SLOPES, kept_light, 1.0f);
  const float along = kept > 0 ? fused(DENOISE_OWN, removed, kept) : 0.0f;
  const float rest = fused(0.5f * (1 - least), fused(along, along, kept * kept), least);
  const float detail = v.v00 * (1 - 2 * light.wide + light.wide_both);
  const float with_detail = fused(removed, both.wide - both.wide_both, kept * (1 - both.wide));
  const float with_light = fused(kept_light, fused(removed, both.wide, kept),
                                 removed_light * fused(removed, both.mixed, kept * both.narrow));
  const float of_slopes = v.v00 * fused(kept_light, 1 - light.wide, removed_light * (light.narrow - light.mixed));
  const float own = fused(kept_light, kept_light,
                          removed_light * fused(2 * kept_light, light.narrow, removed_light * light.narrow_both));
  const float v10 = with_detail * v.v10, v20 = with_detail * v.v20;
  return Covariance{fused(rest, v.v11, of.slope1 * fused(of.slope1, detail, 2 * v10)),
                    fused(rest, v.v12, fused(of.slope1 * of.slope2, detail, fused(of.slope1, v20, of.slope2 * v10))),
                    fused(rest, v.v22, of.slope2 * fused(of.slope2, detail, 2 * v20)),
                    fused(with_light, v.v10, of_slopes * of.slope1),
                    fused(with_light, v.v20, of_slopes * of.slope2),
                    own * v.v00};
}
// Noise as the network of `learned` states it. That of S1 and S2 is that of S0 times two slopes, and a rest that is the
// same in all directions; light, rest: variances of S0 and of this rest, over those by ADR.
struct StatedNoise {
  float light, rest, slope1, slope2;
};
// raw: variance of a raw pixel; light_gain, rest_gain: from it to the variances by ADR.
FORMULA Covariance covariance_of(const StatedNoise &of, float raw, float light_gain, float rest_gain) {
  const float light = light_gain * raw * of.light, rest = rest_gain * raw * of.rest;
  const float v10 = of.slope1 * light, v20 = of.slope2 * light;
  return Covariance{fused(of.slope1, v10, rest), of.slope1 * v20, fused(of.slope2, v20, rest), v10, v20, light};
}
// What the gains of a method leave out (`NOISE_LINEAR` in polar_pipeline/polarimetry/coefficients.py); share: its
// inverse.
struct NoiseMethod {
  float most, less, share, steep;
};
// Standard deviation of DoLP as a component of (S1, S2)/S0, which can be negative; error of debiased DoLP; standard
// deviation of AoLP in rad; ratio of DoLP as measured to `component`.
struct Deviation {
  float component, dolp, aolp, ratio;
};
// tiny: below every variance; least: below every S0 that counts
FORMULA Deviation deviation_of(const Covariance &v, const NoiseMethod &method, float s0, float s1, float s2,
                               float degree, float tiny, float least) {
  const float squares = s1 * s1, others = s2 * s2, mixed = 2 * s1 * s2 * v.v12;
  const float square = squares + others, length = root(square), mean = 0.5f * (v.v11 + v.v22);
  // where (S1, S2) is less than its noise, its direction is any direction
  const float weight = quotient(1.0f, square + mean);
  const float slope = 2 * quotient(1.0f, larger(larger(s0, length), least));
  const float plane = fused(squares, v.v11, fused(others, v.v22, fused(mean, mean, mixed))) * weight;
  const float along = fused(degree * degree, v.v00, plane) - slope * fused(s1, v.v10, s2 * v.v20);
  const float beside = fused(others, v.v11, fused(squares, v.v22, fused(mean, mean, -mixed))) * weight;
  const float across = larger(beside, tiny);
  float scale = method.most;
  if (method.less > 0) scale -= method.less * quotient(1.0f, 1 + square * quotient(1.0f, across * method.share));
  const float p4 = degree * degree * (degree * degree);
  Deviation deviation;
  deviation.component = root(larger(along, tiny)) * scale * (1 - method.steep * p4) * quotient(1.0f, larger(s0, least));
  const float t = quotient(degree, deviation.component), limited = 1 + smaller(t * t * (t * t), 1e9f);
  deviation.ratio = t;
  deviation.dolp = smaller(deviation.component * (1 - SIGMA_LENGTH * quotient(1.0f, limited * limited)), 1.0f);
  // the inverse of the signal-to-noise ratio, so that a ratio of 0 needs no case of its own
  const float u = smaller(quotient(root(across) * scale, larger(length, 1e-15f)), 1e3f);
  deviation.aolp = smaller(0.5f * u * fused(SIGMA_ANGLE, u * u * (u * u), 1.0f), AOLP_SIGMA_MAX);
  return deviation;
}
// DoLP without its bias, by the modified asymptotic estimator of Plaszczynski et al. (arXiv 1312.0437). component: of
// its standard deviation.
FORMULA float debiased(float degree, float component) {
  const float t = smaller(quotient(degree, component), 1e4f), square = t * t;
  const float exact = quotient(1 - exponential(-square), larger(square, 1e-6f));
  const float share = square > 0.05f ? exact : fused(square, fused(square, 0.16666667f, -0.5f), 1.0f);
  return degree * fused(share, -0.5f, 1.0f);
}
// The chance that noise alone makes such a DoLP or a larger one, by Rayleigh's distribution.
FORMULA float significance_of(float ratio) { return exponential(-0.5f * ratio * ratio); }

// ---- values of the polarization

// The polarization of a pixel's luma; intensities as shares of full scale; deviation: where noise is computed.
struct PixelPolarization {
  float s0, s1, s2, degree;
  Deviation deviation;
};
// From 0 to the highest value of the product.
template <int VALUE> FORMULA float polarization_value(const PixelPolarization &of) {
  if (VALUE == SIGNIFICANCE) return significance_of(of.deviation.ratio);
  return VALUE == DOLP ? of.degree : VALUE == DOLP_SIGMA ? of.deviation.dolp : of.deviation.aolp;
}
// Levels of uint8 or uint16 that a value of 1 has.
FORMULA_CONSTANT float levels_of(Unit unit, float highest) { return unit == RADIANS ? (highest + 1) / PI : highest; }
