// From the four angle images to the products: everything that depends on one output pixel only. A product that is not
// asked for (OUT_...) is neither computed nor stored.
#pragma once
#include "store.cuh"

#define WANT_ANGLES (OUT_ANGLE_0 || OUT_ANGLE_45 || OUT_ANGLE_90 || OUT_ANGLE_135)
#define OR_COMPONENT(NAME) || OUT_##NAME
#define WANT_COMPONENTS (0 LIGHT_COMPONENTS(OR_COMPONENT))
#define OR_VALUE(NAME, UNIT, INVALID) || OUT_##NAME
#define WANT_VALUES (0 POLARIZATION_VALUES(OR_VALUE))
#define WANT_COLORS (OUT_AOLP_COLOR || OUT_DOLP_COLOR) // by maps: AOLP_COLOR_MAP, DOLP_COLOR_MAP, 256 words 0xbbggrr
#define WANT_PLANES (OUT_DIFFERENCES || OUT_MEANS || OUT_EXCESSES) // what `transform` interpolates
// products for which darkness counts
#define WANT_DARK (OUT_STOKES || WANT_VALUES || OUT_AOLP || WANT_COLORS || OUT_PREVIEW || WANT_PLANES)
#define WANT_POLAR (WANT_VALUES || OUT_AOLP || OUT_PREVIEW || WANT_COLORS)
#define WANT_STOKES (WANT_POLAR || OUT_STOKES || OUT_SUMS || OUT_S0 || WANT_PLANES)

constexpr int CHANNELS = COLOR ? 3 : 1;

// OUT_... of the angle image with an index, 0 to 3
CONSTANT int angle_type(int angle) {
  return angle == 0 ? OUT_ANGLE_0 : angle == 1 ? OUT_ANGLE_45 : angle == 2 ? OUT_ANGLE_90 : OUT_ANGLE_135;
}

constexpr u32 BYTES_255 = 0x80808080u;
// Bit 7 of some byte is set if and only if a byte of the word is 255: Mycroft's test for a zero byte, on ~w. Results
// are to be combined by or, and masked with BYTES_255 at the end.
DEVICE u32 has_255(u32 w) { return (0xfefefefeu - w) & w; }
// bit 7 of exactly the bytes that are 255
DEVICE u32 all_255(u32 w) { return ((w & 0x7f7f7f7fu) + 0x01010101u) & w & BYTES_255; }

// Invalid pixels that a thread has counted. Added to the frame's counters once, at the end.
struct InvalidCount {
  u32 saturated, dark;
};

// Adds the counts of a warp to the frame's counters, in kernels that do not sum over blocks. Every lane must call it.
DEVICE void count_invalid(const FrameArguments &frame, InvalidCount count) {
  if (!any_in_warp(count.saturated | count.dark)) return;
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) {
    count.saturated += shuffle_down(count.saturated, lanes);
    count.dark += shuffle_down(count.dark, lanes);
  }
  if (threadIdx.x % 32) return;
  if (count.saturated) count_add(&frame.counts[2 * blockIdx.z], count.saturated);
  if (count.dark) count_add(&frame.counts[2 * blockIdx.z + 1], count.dark);
}

// The same in kernels that sum over blocks. counts: shared memory, 0 before. Every thread must call it.
DEVICE void count_invalid_of_block(const FrameArguments &frame, const InvalidCount &count, u32 (&counts)[2]) {
  if (count.saturated) count_add(&counts[0], count.saturated);
  if (count.dark) count_add(&counts[1], count.dark);
  sync_block();
  if (threadIdx.x < 2 && counts[threadIdx.x])
    count_add(&frame.counts[2 * blockIdx.z + threadIdx.x], counts[threadIdx.x]);
}

// Four output pixels along x: [channel][angle][pair], angles 0, 45, 90, 135.
typedef Pair Angles[CHANNELS][4][2];
DEVICE float lane(const Pair (&v)[2], int k) { return k & 1 ? high(v[k >> 1]) : low(v[k >> 1]); }

// Where four pixels go: pixel (y, x) of an output; `n` of them inside the picture. `is_full`: all are, and they can be
// stored as words.
struct OutputPosition {
  size_t index;
  int n;
  bool is_full;
  u32 dither; // of images that SSIM compares

  // Stores elements of four pixels.
  template <int TYPE, int WORDS> DEVICE void store(void *image, const u32 (&w)[WORDS]) const {
    constexpr int ELEMENT = element_bytes(TYPE), PER_PIXEL = WORDS / ELEMENT; // elements
    u8 *p = (u8 *)image + index * WORDS;
    if (is_full) return store_words<4 * ELEMENT>(p, w);
#pragma unroll
    for (int k = 0; k < 4 * PER_PIXEL; k++) {
      if (k >= n * PER_PIXEL) continue;
      const u32 element = w[k * ELEMENT / 4] >> 8 * (k * ELEMENT % 4);
      if (TYPE == 1) store8(p + k, element);
      if (TYPE == 2) store32(p + 4 * k, element);
      if (TYPE == 3) store16(p + 2 * k, element);
    }
  }
};
DEVICE OutputPosition output_position(const FrameArguments &frame, int y, int x) {
  const int width = out_width(frame), height = out_height(frame);
  const bool is_full = width % 4 == 0; // x is a multiple of four
  return OutputPosition{(size_t)blockIdx.z * (height * width) + (u32)(y * width + x), is_full ? 4 : min(4, width - x),
                        is_full, dither_at(y, 0)};
}
// values of four pixels: floats (2), or levels (3)
template <int TYPE, int N> DEVICE void store_values(void *image, const OutputPosition &at, const float (&v)[N]) {
  u32 w[N * value_bytes(TYPE) / 4];
  words_of<TYPE>(v, w);
  at.store<TYPE>(image, w);
}
// what SSIM reads
template <int TYPE> DEVICE void store_compared(void *image, const OutputPosition &at, const float (&v)[4]) {
  u32 w[value_bytes(TYPE)];
  words_compared<TYPE>(v, at.dither, w);
  at.store<TYPE>(image, w);
}
DEVICE void store_rgb(void *image, const OutputPosition &at, u32 r, u32 g, u32 b) {
  u32 w[3];
  interleave(r, g, b, w);
  at.store<1>(image, w);
}

// an image of CHANNELS values a pixel
template <int TYPE> DEVICE void store_image(void *image, const OutputPosition &at, const Pair (&v)[CHANNELS][2]) {
  if (TYPE == 1) {
    u32 w[CHANNELS];
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) w[c] = bytes(v[c][0], v[c][1]);
    if (COLOR) return store_rgb(image, at, w[0], w[COLOR ? 1 : 0], w[CHANNELS - 1]);
    at.store<1>(image, w);
  } else {
    float f[4 * CHANNELS];
#pragma unroll
    for (int c = 0; c < CHANNELS; c++)
#pragma unroll
      for (int k = 0; k < 4; k++) f[k * CHANNELS + c] = lane(v[c], k) * (1 / FULL);
    store_values<TYPE>(image, at, f);
  }
}
template <int ANGLE>
DEVICE void store_angle(const FrameArguments &frame, const OutputPosition &at, const Angles &angle) {
  constexpr int TYPE = angle_type(ANGLE);
  if (!TYPE) return;
  Pair v[CHANNELS][2];
  for (int c = 0; c < CHANNELS; c++) {
    v[c][0] = angle[c][ANGLE][0];
    v[c][1] = angle[c][ANGLE][1];
  }
  store_image<TYPE>(frame.out[ANGLE_0 + ANGLE], at, v);
}

DEVICE void store_angles(const FrameArguments &frame, const OutputPosition &at, const Angles &angle) {
  store_angle<0>(frame, at, angle);
  store_angle<1>(frame, at, angle);
  store_angle<2>(frame, at, angle);
  store_angle<3>(frame, at, angle);
}

// Sums and differences of four pixels' angles: S0/2, S1, S2, (I0 + I90 - I45 - I135)/4.
struct Combinations {
  Pair mean[CHANNELS][2], s1[CHANNELS][2], s2[CHANNELS][2], excess[CHANNELS][2];
};
DEVICE void combine(const Angles &angle, Combinations &of) {
#pragma unroll
  for (int c = 0; c < CHANNELS; c++)
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const Pair i0 = angle[c][0][k], i45 = angle[c][1][k], i90 = angle[c][2][k], i135 = angle[c][3][k];
      of.mean[c][k] = mean_of(i0, i45, i90, i135);
      if (WANT_STOKES || WANT_COMPONENTS) {
        of.s1[c][k] = s1_of(i0, i90);
        of.s2[c][k] = s2_of(i45, i135);
      }
      if (OUT_SUMS || OUT_EXCESSES) of.excess[c][k] = mul(add(sub(i0, i45), sub(i90, i135)), splat(0.25));
    }
}
template <int K> DEVICE Pair luma_of(const Pair (&v)[CHANNELS][2]) {
  return COLOR ? luma(v[0][K], v[COLOR ? 1 : 0][K], v[CHANNELS - 1][K]) : v[0][K];
}

template <int COMPONENT, int TYPE>
DEVICE void store_component(const FrameArguments &frame, const OutputPosition &at, const Combinations &of) {
  if (!TYPE) return;
  Pair v[CHANNELS][2];
#pragma unroll
  for (int c = 0; c < CHANNELS; c++)
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const Pair mean = of.mean[c][k], s1 = of.s1[c][k], s2 = of.s2[c][k];
      const float first = component<COMPONENT>(low(mean), low(s1), low(s2), frame.polarizer),
                  second = component<COMPONENT>(high(mean), high(s1), high(s2), frame.polarizer);
      v[c][k] = TYPE == 1 ? pair(fminf(first, FULL), fminf(second, FULL)) : pair(first, second);
    }
  store_image<TYPE>(frame.out[COMPONENT], at, v);
}
// The products of each color: intensity, and components of the light.
DEVICE void store_light(const FrameArguments &frame, const OutputPosition &at, const Combinations &of) {
  if (OUT_INTENSITY) store_image<OUT_INTENSITY>(frame.out[INTENSITY], at, of.mean);
#define STORE_COMPONENT(NAME) store_component<NAME, OUT_##NAME>(frame, at, of);
  LIGHT_COMPONENTS(STORE_COMPONENT)
}

// The polarization of four pixels' luma. Differences were taken before luma: they are small, and lose the least
// precision in half.
struct Polarization {
  Pair s0[2], s1[2], s2[2];                    // s0: S0/2
  float tangent[4], dolp[4], turns[4], s0f[4]; // tangent: of the folded AoLP; turns: AoLP/pi; s0f: S0/2
};
// of three colors, or of the only one
DEVICE Polarization polarization_of(const Combinations &of) {
  Polarization p = {{luma_of<0>(of.mean), luma_of<1>(of.mean)}, {}, {}, {}, {}, {}, {}};
  p.s1[0] = luma_of<0>(of.s1);
  p.s1[1] = luma_of<1>(of.s1);
  p.s2[0] = luma_of<0>(of.s2);
  p.s2[1] = luma_of<1>(of.s2);
  return p;
}

DEVICE void store_stokes(const FrameArguments &frame, const OutputPosition &at, const Polarization &p, u32 invalid) {
  float stokes[12];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const bool is_invalid = invalid >> k & 1;
    stokes[3 * k] = is_invalid ? nan_value() : p.s0f[k] * (2 / FULL);
    stokes[3 * k + 1] = is_invalid ? nan_value() : lane(p.s1, k) * (1 / FULL);
    stokes[3 * k + 2] = is_invalid ? nan_value() : lane(p.s2, k) * (1 / FULL);
  }
  store_values<2>(frame.out[STOKES], at, stokes);
}

DEVICE void store_preview(const FrameArguments &frame, const OutputPosition &at, const Polarization &p, u32 invalid) {
  u32 r[4], g[4], b[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const float hue = 6 * p.turns[k], value = UNIT_LEVELS * p.s0f[k], saturation = invalid >> k & 1 ? 0 : p.dolp[k];
    r[k] = preview_level<0>(hue, saturation, value);
    g[k] = preview_level<1>(hue, saturation, value);
    b[k] = preview_level<2>(hue, saturation, value);
  }
  store_rgb(frame.out[PREVIEW], at, low_bytes(r[0], r[1], r[2], r[3]), low_bytes(g[0], g[1], g[2], g[3]),
            low_bytes(b[0], b[1], b[2], b[3]));
}

// Stores the colors of four pixels, 0xbbggrr; invalid ones are black.
DEVICE void store_colors(void *image, const OutputPosition &at, u32 (&color)[4], u32 invalid) {
  u32 w[3];
#pragma unroll
  for (int k = 0; k < 4; k++) color[k] = invalid >> k & 1 ? 0 : color[k];
#pragma unroll
  for (int c = 0; c < 3; c++) {
    const u32 selector = c * 0x0011 + 0x0040;
    w[c] = permute(permute(color[0], color[1], selector), permute(color[2], color[3], selector), 0x5410);
  }
  store_rgb(image, at, w[0], w[1], w[2]);
}
#if OUT_AOLP_COLOR
CONSTANT_MEMORY u32 aolp_color_map[256] = AOLP_COLOR_MAP;
// AoLP by its map, mixed with a gray level
DEVICE void store_aolp_color(const FrameArguments &frame, const OutputPosition &at, const Polarization &p,
                             u32 invalid) {
  u32 color[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const u32 full = aolp_color_map[color_index(place_of_aolp(p.turns[k]))];
    color[k] = 0;
#pragma unroll
    for (int c = 0; c < 3; c++)
      color[k] |= faded_level((float)(full >> (8 * c) & 255), p.dolp[k], frame.fading) << (8 * c);
  }
  store_colors(frame.out[AOLP_COLOR], at, color, invalid);
}
#endif
#if OUT_DOLP_COLOR
CONSTANT_MEMORY u32 dolp_color_map[256] = DOLP_COLOR_MAP;
DEVICE void store_dolp_color(const FrameArguments &frame, const OutputPosition &at, const Polarization &p,
                             u32 invalid) {
  u32 color[4];
#pragma unroll
  for (int k = 0; k < 4; k++) color[k] = dolp_color_map[color_index(place_of_dolp(p.dolp[k]))];
  store_colors(frame.out[DOLP_COLOR], at, color, invalid);
}
#endif

// valid: a byte of ones for every valid pixel
DEVICE void store_dolp_bytes(const FrameArguments &frame, const OutputPosition &at, const Polarization &p, u32 valid) {
  const u32 d = low_bytes(unit_bytes(half2_pack(p.dolp[0], p.dolp[1])), unit_bytes(half2_pack(p.dolp[2], p.dolp[3])));
  const u32 w[1] = {d & valid};
  at.store<1>(frame.out[DOLP], w);
}
DEVICE void store_aolp_bytes(const FrameArguments &frame, const OutputPosition &at, const Polarization &p, u32 valid) {
#if HALF_PRECISION
  const u32 t = low_bytes(turns_256(pair(p.tangent[0], p.tangent[1]), p.s1[0]),
                          turns_256(pair(p.tangent[2], p.tangent[3]), p.s1[1]));
#else
  const u32 t = low_bytes(rounded(p.turns[0], 256.0f), rounded(p.turns[1], 256.0f), rounded(p.turns[2], 256.0f),
                          rounded(p.turns[3], 256.0f));
#endif
  const u32 w[1] = {t & valid};
  at.store<1>(frame.out[AOLP], w);
}

// What SSIM compares across frames: the luma of S0/2. In float, since sums of halves would be rounded.
DEVICE void store_s0(const FrameArguments &frame, const OutputPosition &at, const Angles &angle) {
  float s0[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    float sum[CHANNELS];
#pragma unroll
    for (int c = 0; c < CHANNELS; c++)
      sum[c] = sum_of(lane(angle[c][0], k), lane(angle[c][1], k), lane(angle[c][2], k), lane(angle[c][3], k));
    s0[k] = (COLOR ? luma(sum[0], sum[COLOR ? 1 : 0], sum[CHANNELS - 1]) : sum[0]) * (0.25f / FULL);
  }
  store_compared<OUT_S0>(frame.out[S0], at, s0);
}

// What SSIM compares within a frame: means of orthogonal angles, two planes a frame. From their own mean, whose
// rounding both share, and from the small difference to it: rounded differently, equal images would differ.
DEVICE void store_sums(const FrameArguments &frame, const OutputPosition &at, const Pair (&mean)[2],
                       const Combinations &of) {
  const Pair excess[2] = {luma_of<0>(of.excess), luma_of<1>(of.excess)};
  float axial[4], diagonal[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const float own = lane(mean, k) * (1 / FULL);
    axial[k] = saturate(fmaf(lane(excess, k), 1 / FULL, own)); // the mean's rounding may lead below 0
    diagonal[k] = saturate(fmaf(lane(excess, k), -1 / FULL, own));
  }
  const size_t plane = (size_t)out_width(frame) * out_height(frame);
  u8 *p = (u8 *)frame.out[SUMS] + blockIdx.z * plane * element_bytes(OUT_SUMS);
  store_compared<OUT_SUMS>(p, at, axial);
  store_compared<OUT_SUMS>(p + plane * element_bytes(OUT_SUMS), at, diagonal);
}

// ---- what `transform` interpolates (`transform.cuh`): S1 and S2, S0/2, and `excess`, in the units of pairs, as halves
// or floats. Why a pixel is invalid is in the last bits of S1 and S2 of its first color: saturated, and dark.
constexpr u32 LAST_BITS = 0x00010001u;
// two halves with both bits 0: the nearest such halves, of two the even one
DEVICE u32 without_last_bits(u32 halves) { return (halves + (halves >> 1 & LAST_BITS)) & ~LAST_BITS; }
#if HALF_PRECISION
DEVICE u32 half_word(Pair a) { return a; }
#else
DEVICE u32 half_word(Pair a) { return half2_pack(low(a), high(a)); }
#endif

template <int TYPE>
DEVICE void store_differences(void *image, const OutputPosition &at, const Pair (&s1)[2], const Pair (&s2)[2],
                              u32 saturated, u32 dark) {
  u32 w[TYPE == 2 ? 8 : 4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const u32 is_saturated = saturated >> k & 1, is_dark = dark >> k & 1;
    if (TYPE == 2) {
      w[TYPE == 2 ? 2 * k : 0] = (as_bits(lane(s1, k)) & ~1u) | is_saturated;
      w[TYPE == 2 ? 2 * k + 1 : 0] = (as_bits(lane(s2, k)) & ~1u) | is_dark;
    } else {
      const u32 both = permute(half_word(s1[k / 2]), half_word(s2[k / 2]), k % 2 ? 0x7632 : 0x5410);
      w[k] = without_last_bits(both) | is_saturated | is_dark << 16;
    }
  }
  at.store<2>(image, w);
}
template <int TYPE> DEVICE void store_plane(void *image, const OutputPosition &at, const Pair (&v)[2]) {
  if (TYPE == 2) {
    const u32 w[4] = {as_bits(low(v[0])), as_bits(high(v[0])), as_bits(low(v[1])), as_bits(high(v[1]))};
    at.store<2>(image, w);
  } else {
    const u32 w[2] = {half_word(v[0]), half_word(v[1])};
    at.store<3>(image, w);
  }
}
// In units of 32 levels, as `transform` reads them.
DEVICE void plane_values(const Pair (&of)[2], Pair (&to)[2]) {
#pragma unroll
  for (int k = 0; k < 2; k++) to[k] = UNIT_LEVELS == 32 ? of[k] : mul(of[k], splat(UNIT_LEVELS / 32));
}
// The planes of each color, one after the other.
DEVICE void store_planes(const FrameArguments &frame, const OutputPosition &at, const Combinations &of, u32 saturated,
                         u32 dark) {
  const size_t plane = (size_t)out_width(frame) * out_height(frame);
#pragma unroll
  for (int c = 0; c < CHANNELS; c++) {
    const size_t before = (blockIdx.z * (CHANNELS - 1) + c) * plane;
    Pair s1[2], s2[2], mean[2], excess[2];
    plane_values(of.s1[c], s1);
    plane_values(of.s2[c], s2);
    plane_values(of.mean[c], mean);
    plane_values(of.excess[c], excess);
    store_differences<OUT_DIFFERENCES>((u8 *)frame.out[DIFFERENCES] + before * (OUT_DIFFERENCES == 2 ? 8 : 4), at, s1,
                                       s2, c ? 0 : saturated, c ? 0 : dark);
    store_plane<OUT_MEANS>((u8 *)frame.out[MEANS] + before * (OUT_MEANS == 2 ? 4 : 2), at, mean);
    if (OUT_EXCESSES)
      store_plane<OUT_EXCESSES>((u8 *)frame.out[EXCESSES] + before * (OUT_EXCESSES == 2 ? 4 : 2), at, excess);
  }
}

// two 16-bit lanes of ones for valid pixels; invalid: bit 0 of the first, bit 1 of the second
DEVICE u32 valid_halves(u32 invalid) { return low_halves((invalid & 1) - 1, (invalid >> 1 & 1) - 1); }

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

// Row and column of the output, each modulo NOISE_PERIOD; `intensity(color, polarizer)` of the pixel.
template <int COLUMN, class Intensity>
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

// Standard deviations of four pixels in row y; change_noise: as for `store_polarization`.
template <class ChangeNoise>
DEVICE void find_noise(const FrameArguments &frame, const Angles &angle, const Polarization &p, int y,
                       const ChangeNoise &change_noise, Deviation (&to)[4]) {
  const float shot = frame.shot * FULL, dark = frame.dark * (FULL * FULL);
  const NoiseMethod method = {NOISE_MOST, NOISE_LESS, NOISE_SHARE, NOISE_STEEP};
  Covariance covariance[4];
  const int row = y % NOISE_PERIOD;
  find_covariance<0>(row, shot, dark, [&](int c, int k) { return low(angle[c][k][0]); }, covariance[0]);
  find_covariance<1 % NOISE_PERIOD>(row, shot, dark, [&](int c, int k) { return high(angle[c][k][0]); }, covariance[1]);
  find_covariance<2 % NOISE_PERIOD>(row, shot, dark, [&](int c, int k) { return low(angle[c][k][1]); }, covariance[2]);
  find_covariance<3 % NOISE_PERIOD>(row, shot, dark, [&](int c, int k) { return high(angle[c][k][1]); }, covariance[3]);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    change_noise(k, p.s0f[k], covariance[k]);
    to[k] =
        deviation_of(covariance[k], method, 2 * p.s0f[k], lane(p.s1, k), lane(p.s2, k), p.dolp[k], 1e-4f * dark, 1e-6f);
  }
}
#endif

// Computes S0, DoLP and AoLP from the luma of S1 and S2; returns whether some pixel is dark.
DEVICE bool polarize(Polarization &p, float darkest) {
  bool any_dark = false;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const float a = lane(p.s1, k), b = lane(p.s2, k);
    p.s0f[k] = lane(p.s0, k);
    any_dark |= p.s0f[k] < darkest;
    if (WANT_POLAR) {
      const float length = polarized(a, b, 1e-30f);
      p.dolp[k] = degree_of(length, fmaf(2, p.s0f[k], 1e-6f));
      p.tangent[k] = folded_tangent(a, b, length);
      if (OUT_AOLP >= 2 || OUT_PREVIEW || OUT_AOLP_COLOR || !HALF_PRECISION)
        p.turns[k] = unfolded_turns(arctangent(p.tangent[k]), a);
    }
  }
  return any_dark;
}

// a byte of ones for every valid pixel
DEVICE u32 valid_bytes(u32 invalid) { return ~((invalid * 0x00204081u & 0x01010101u) * 255u); }

// One value of four pixels' polarization; the rest as in `store_polarization`.
template <int VALUE, int TYPE, Unit UNIT, InvalidLevel INVALID>
DEVICE void store_value(const FrameArguments &frame, const OutputPosition &at, const Polarization &p,
                        const Deviation (&deviation)[4], u32 invalid, u32 valid) {
  if (!TYPE) return;
  if (VALUE == DOLP && TYPE == 1 && HALF_PRECISION) return store_dolp_bytes(frame, at, p, valid);
  float v[4];
#pragma unroll
  for (int k = 0; k < 4; k++)
    v[k] = polarization_value<VALUE>(PixelPolarization{p.s0f[k] * (2 / FULL), lane(p.s1, k) * (1 / FULL),
                                                       lane(p.s2, k) * (1 / FULL), p.dolp[k], deviation[k]});
  if (TYPE == 1) {
    constexpr float levels = levels_of(UNIT, 255);
    const u32 all =
        low_bytes(rounded(v[0], levels), rounded(v[1], levels), rounded(v[2], levels), rounded(v[3], levels));
    const u32 w[1] = {INVALID == HIGHEST ? all | ~valid : all & valid};
    at.store<1>(frame.out[VALUE], w);
  } else if (TYPE == 3) {
    constexpr float levels = levels_of(UNIT, 65535);
    u32 w[2] = {integer_pair(v[0], v[1], levels), integer_pair(v[2], v[3], levels)};
    for (int k = 0; k < 2; k++) {
      const u32 shown = valid_halves(invalid >> 2 * k);
      w[k] = INVALID == HIGHEST ? w[k] | ~shown : w[k] & shown;
    }
    at.store<3>(frame.out[VALUE], w);
  } else {
    for (int k = 0; k < 4; k++) v[k] = invalid >> k & 1 ? nan_value() : v[k];
    store_values<2>(frame.out[VALUE], at, v);
  }
}

// Where nothing was denoised.
struct KeepNoise {
  DEVICE void operator()(int, float, Covariance &) const {}
};

// The products of the Stokes vector of four pixels. y: their row; invalid: bit k says that pixel k has no polarization;
// valid: a byte of ones for every other pixel; change_noise(k, light, covariance): makes the covariance of pixel k,
// whose S0/2 is `light`, what it is after denoising.
template <class ChangeNoise = KeepNoise>
DEVICE void store_polarization(const FrameArguments &frame, const OutputPosition &at, const Angles &angle, int y,
                               Polarization &p, u32 invalid, u32 valid,
                               const ChangeNoise &change_noise = ChangeNoise()) {
  u32 without_angle = invalid;
  Deviation deviation[4] = {};
#if NOISE
  find_noise(frame, angle, p, y, change_noise, deviation);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    if (DEBIAS) p.dolp[k] = debiased(p.dolp[k], deviation[k].component);
    if (LIMITS_AOLP) without_angle |= (u32)(deviation[k].aolp > frame.max_aolp_sigma) << k;
  }
#endif
  if (OUT_STOKES) store_stokes(frame, at, p, invalid);
  if (OUT_PREVIEW) store_preview(frame, at, p, without_angle);
#if OUT_AOLP_COLOR
  store_aolp_color(frame, at, p, without_angle);
#endif
#if OUT_DOLP_COLOR
  store_dolp_color(frame, at, p, invalid);
#endif
#define STORE_VALUE(NAME, UNIT, INVALID)                                                                               \
  store_value<NAME, OUT_##NAME, UNIT, INVALID>(frame, at, p, deviation, invalid, valid);
  POLARIZATION_VALUES(STORE_VALUE)
  if (OUT_AOLP == 1) store_aolp_bytes(frame, at, p, LIMITS_AOLP ? valid_bytes(without_angle) : valid);
  if (OUT_AOLP == 2) {
    for (int k = 0; k < 4; k++) p.turns[k] = without_angle >> k & 1 ? nan_value() : p.turns[k] * PI;
    store_values<2>(frame.out[AOLP], at, p.turns);
  }
  if (OUT_AOLP == 3) {
    const u32 w[2] = {integer_pair(p.turns[0], p.turns[1], 65536.0f) & valid_halves(without_angle),
                      integer_pair(p.turns[2], p.turns[3], 65536.0f) & valid_halves(without_angle >> 2)};
    at.store<3>(frame.out[AOLP], w);
  }
}

// Every product of four output pixels. saturated: bit k says that a sample behind pixel k is saturated.
DEVICE void store_products(const FrameArguments &frame, const Angles &angle, u32 saturated, int y, int x,
                           InvalidCount &count) {
  const OutputPosition at = output_position(frame, y, x);
  const int n = at.n;
  if (saturated) {
    saturated &= (1u << n) - 1;
    count.saturated += __popc(saturated);
  }
  store_angles(frame, at, angle);
  if (!(OUT_INTENSITY || WANT_COMPONENTS || WANT_STOKES)) return;
  Combinations of;
  combine(angle, of);
  store_light(frame, at, of);
  if (!WANT_STOKES) return;

  Polarization p = polarization_of(of);
  if (OUT_S0) store_s0(frame, at, angle);
  if (OUT_SUMS) store_sums(frame, at, p.s0, of);
  const float darkest = frame.min_intensity * (FULL / 2);
  u32 invalid = saturated, valid = 0xffffffffu, dark = 0; // valid: a byte of ones for every valid pixel
  if ((polarize(p, darkest) && WANT_DARK) || saturated) {
#pragma unroll
    for (int k = 0; k < 4; k++) dark |= (u32)(p.s0f[k] < darkest) << k;
    dark &= WANT_DARK ? ~saturated & ((1u << n) - 1) : 0;
    count.dark += __popc(dark);
    invalid |= dark;
    valid = valid_bytes(invalid);
  }
  if (WANT_PLANES) store_planes(frame, at, of, saturated, dark);
  store_polarization(frame, at, angle, y, p, invalid, valid);
}
