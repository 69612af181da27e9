// From the four angle images to the products: everything that depends on one output pixel only. A product that is not
// asked for (OUT_...) is neither computed nor stored.
#ifndef POLAR_PRODUCTS_CUH
#define POLAR_PRODUCTS_CUH
#include "noise.cuh"
#include "pair.cuh"

#define WANT_ANGLES (OUT_ANGLE_0 || OUT_ANGLE_45 || OUT_ANGLE_90 || OUT_ANGLE_135)
#define WANT_SIGMA (OUT_DOLP_SIGMA || OUT_AOLP_SIGMA)
#define WANT_MASKED (OUT_STOKES || OUT_DOLP || OUT_AOLP || WANT_SIGMA) // products that invalid pixels are missing from
#define WANT_DARK (WANT_MASKED || OUT_PREVIEW)                         // products for which darkness counts
#define WANT_POLAR (OUT_DOLP || OUT_AOLP || OUT_PREVIEW || WANT_SIGMA)
#define WANT_STOKES (WANT_POLAR || OUT_STOKES || OUT_SUMS || OUT_S0)

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

// Invalid pixels that a thread has found. Added to the frame's counters once, at the end.
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

// Where four pixels go: pixel (y, x) of an output; `n` of them inside the picture. `is_full`: all are, and they can be
// stored as words.
struct OutputPosition {
  size_t index;
  int n;
  bool is_full;
};
DEVICE OutputPosition output_position(const FrameArguments &frame, int y, int x) {
  const int width = out_width(frame), height = out_height(frame);
  const bool is_full = width % 4 == 0; // x is a multiple of four
  return OutputPosition{(size_t)blockIdx.z * (height * width) + (u32)(y * width + x), is_full ? 4 : min(4, width - x),
                        is_full};
}
template <int VALUES> DEVICE void store_bytes(void *base, const OutputPosition &at, const u32 (&w)[VALUES / 4]) {
  u8 *p = (u8 *)base + at.index * (VALUES / 4);
  if (at.is_full) {
#pragma unroll
    for (int k = 0; k < VALUES / 4; k++) store32(p + 4 * k, w[k]);
  } else {
#pragma unroll
    for (int k = 0; k < VALUES; k++)
      if (k < at.n * (VALUES / 4)) store8(p + k, w[k / 4] >> (8 * (k % 4)));
  }
}
template <int VALUES> DEVICE void store_floats(void *base, const OutputPosition &at, const float (&v)[VALUES]) {
  float *p = (float *)base + at.index * (VALUES / 4);
  if (at.is_full) {
#pragma unroll
    for (int k = 0; k < VALUES; k += 4)
      store128(p + k, as_bits(v[k]), as_bits(v[k + 1]), as_bits(v[k + 2]), as_bits(v[k + 3]));
  } else {
#pragma unroll
    for (int k = 0; k < VALUES; k++)
      if (k < at.n * (VALUES / 4)) store32(p + k, as_bits(v[k]));
  }
}
// Two pixels of what SSIM reads, from [0, 1] to 16-bit integers of full scale SSIM_FULL. 2^23: the last bit is the
// unit.
DEVICE u32 compared_pair(float first, float second) {
  return permute(as_bits(fmaf(first, SSIM_FULL, 8388608.0f)), as_bits(fmaf(second, SSIM_FULL, 8388608.0f)), 0x5410);
}
// what SSIM reads: floats, or 16-bit integers
template <int TYPE> DEVICE void store_values(void *base, const OutputPosition &at, const float (&v)[4]) {
  if (TYPE == 2) return store_floats<4>(base, at, v);
  u8 *p = (u8 *)base + at.index * 2;
  const u32 w[2] = {compared_pair(v[0], v[1]), compared_pair(v[2], v[3])};
  if (at.is_full) {
    store64(p, w[0], w[1]);
  } else {
#pragma unroll
    for (int k = 0; k < 4; k++)
      if (k < at.n) store16(p + 2 * k, w[k / 2] >> (16 * (k % 2)));
  }
}

// red, green and blue bytes of four pixels, interleaved
DEVICE void interleave(u32 r, u32 g, u32 b, u32 (&w)[3]) {
  u32 rg01 = permute(r, g, 0x5140), rg23 = permute(r, g, 0x7362); // r0 g0 r1 g1, r2 g2 r3 g3
  w[0] = permute(rg01, b, 0x2410);
  w[1] = permute(permute(rg01, b, 0x0053), rg23, 0x5410);
  w[2] = permute(rg23, b, 0x7326);
}

DEVICE u32 level_bytes(const Pair (&v)[2]) { return bytes(v[0], v[1]); }

// an image of CHANNELS values a pixel, as uint8 (1) or float32 (2)
template <int TYPE> DEVICE void store_image(void *base, const OutputPosition &at, const Pair (&v)[CHANNELS][2]) {
  if (TYPE == 1) {
#if COLOR
    u32 w[3];
    interleave(level_bytes(v[0]), level_bytes(v[1]), level_bytes(v[CHANNELS - 1]), w);
    store_bytes<12>(base, at, w);
#else
    u32 w[1] = {level_bytes(v[0])};
    store_bytes<4>(base, at, w);
#endif
  } else {
    float f[4 * CHANNELS];
#pragma unroll
    for (int c = 0; c < CHANNELS; c++)
#pragma unroll
      for (int k = 0; k < 2; k++) {
        f[(2 * k) * CHANNELS + c] = low(v[c][k]) * (1 / FULL);
        f[(2 * k + 1) * CHANNELS + c] = high(v[c][k]) * (1 / FULL);
      }
    store_floats<4 * CHANNELS>(base, at, f);
  }
}

DEVICE Pair luma(Pair r, Pair g, Pair b) { return fma(g, splat(LUMA_GREEN), mul(add(r, b), splat(LUMA_RED))); }
template <int K> DEVICE Pair luma_of(const Pair (&v)[CHANNELS][2]) {
  return COLOR ? luma(v[0][K], v[COLOR ? 1 : 0][K], v[CHANNELS - 1][K]) : v[0][K];
}
DEVICE float lane(const Pair (&v)[2], int k) { return k & 1 ? high(v[k >> 1]) : low(v[k >> 1]); }
DEVICE float luma(float r, float g, float b) { return fmaf(g, LUMA_GREEN, (r + b) * LUMA_RED); }

// tan of the folded AoLP, and DoLP, of one pixel. s1, s2, s0 in one unit.
struct Polar {
  float tangent, degree;
};
DEVICE Polar polar(float s1, float s2, float s0) {
  const float length = fast_sqrt(fmaf(s1, s1, fmaf(s2, s2, 1e-30f)));
  return Polar{s2 * fast_rcp(length + fabsf(s1)), saturate(length * fast_rcp(s0))};
}

// The folded AoLP over pi, in [-1/4, 1/4], from its tangent. Since atan2(S2, S1)/2 = atan(S2 / (length + S1)), the half
// angle comes free; folded by the sign of S1.
DEVICE float folded_turns(float t) {
  const float u = t * t;
  return t * fmaf(u, fmaf(u, fmaf(u, fmaf(u, ATAN_9, ATAN_7), ATAN_5), ATAN_3), ATAN_1);
}
// AoLP/pi in [0, 1) from the tangent of the folded angle and S1
DEVICE float half_turns(float t, float s1) {
  float p = folded_turns(t);
  p = s1 < 0 ? 0.5f - p : p;
  p = p < 0 ? p + 1 : p;
  return p < 1 ? p : 0;
}

// AoLP of two pixels in 256ths of pi, folded into [-64, 64], as halves. t: tangents of the folded angle, as halves.
DEVICE u32 folded_256(u32 t) {
  const u32 u = half2_mul(t, t);
  return half2_mul(t, half2_fma(u, half2_fma(u, half2_splat(256 * ATAN_BYTE_5), half2_splat(256 * ATAN_BYTE_3)),
                                half2_splat(256 * ATAN_BYTE_1)));
}
// AoLP of two pixels in 256ths of pi, plus 1024 so that the low byte is the answer. folded: as above; sign: +-1 with
// the sign of S1: folded + 0, or pi/2 - folded.
DEVICE u32 unfolded_256(u32 folded, u32 sign) {
  return half2_fma(folded, sign, half2_fma(sign, half2_splat(-64), half2_splat(1344)));
}
DEVICE u32 turns_256(u32 t, u32 sign) { return unfolded_256(folded_256(t), sign); }

// HSV to RGB (Smith 1978) of four pixels: words of red, green and blue bytes. hue: half turns.
DEVICE void preview_words(const float (&hue)[4], const float (&saturation)[4], const float (&value)[4], u32 (&rgb)[3]) {
  u32 p[3][4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const float h = 6 * hue[k], v = UNIT_LEVELS * value[k], depth = v * saturation[k];
    // what the hue subtracts from each colour
    const float less[3] = {saturate(2 - fabsf(h - 3)), saturate(fabsf(h - 2) - 1), saturate(fabsf(h - 4) - 1)};
#pragma unroll
    for (int c = 0; c < 3; c++)
      p[c][k] = as_bits(fmaf(-depth, less[c], v) + 8388608.0f); // 2^23: the unit is the last bit
  }
#pragma unroll
  for (int c = 0; c < 3; c++)
    rgb[c] = permute(permute(p[c][0], p[c][1], 0x0040), permute(p[c][2], p[c][3], 0x0040), 0x5410);
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

// Sums and differences of four pixels' angles: S0/2, S1, S2, (I0 + I90 - I45 - I135)/4.
struct Combinations {
  Pair mean[CHANNELS][2], s1[CHANNELS][2], s2[CHANNELS][2], excess[CHANNELS][2];
};
DEVICE void combine(const Angles &angle, Combinations &of) {
#pragma unroll
  for (int c = 0; c < CHANNELS; c++)
#pragma unroll
    for (int k = 0; k < 2; k++) {
      Pair a = add(angle[c][0][k], angle[c][2][k]), b = add(angle[c][1][k], angle[c][3][k]);
      of.mean[c][k] = mul(add(a, b), splat(0.25));
      if (WANT_STOKES) {
        of.s1[c][k] = sub(angle[c][0][k], angle[c][2][k]);
        of.s2[c][k] = sub(angle[c][1][k], angle[c][3][k]);
      }
      if (OUT_SUMS)
        of.excess[c][k] =
            mul(add(sub(angle[c][0][k], angle[c][1][k]), sub(angle[c][2][k], angle[c][3][k])), splat(0.25));
    }
}

// The polarization of four pixels' luma. Differences were taken before luma: they are small, and lose the least
// precision in half.
struct Polarization {
  Pair s0[2], s1[2], s2[2];                    // s0: S0/2
  float tangent[4], dolp[4], turns[4], s0f[4]; // tangent: of the folded AoLP; turns: AoLP/pi; s0f: S0/2
};

DEVICE void store_stokes(const FrameArguments &frame, const OutputPosition &at, const Polarization &p, u32 invalid) {
  float stokes[12];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const bool is_invalid = invalid >> k & 1;
    stokes[3 * k] = is_invalid ? nan_value() : p.s0f[k] * (2 / FULL);
    stokes[3 * k + 1] = is_invalid ? nan_value() : lane(p.s1, k) * (1 / FULL);
    stokes[3 * k + 2] = is_invalid ? nan_value() : lane(p.s2, k) * (1 / FULL);
  }
  store_floats<12>(frame.out[STOKES], at, stokes);
}

DEVICE void store_preview(const FrameArguments &frame, const OutputPosition &at, const Polarization &p, u32 invalid) {
  float saturation[4];
  u32 rgb[3], w[3];
#pragma unroll
  for (int k = 0; k < 4; k++) saturation[k] = invalid >> k & 1 ? 0 : p.dolp[k];
  preview_words(p.turns, saturation, p.s0f, rgb);
  interleave(rgb[0], rgb[1], rgb[2], w);
  store_bytes<12>(frame.out[PREVIEW], at, w);
}

// valid: a byte of ones for every valid pixel
DEVICE void store_dolp_bytes(const FrameArguments &frame, const OutputPosition &at, const Polarization &p, u32 valid) {
#if HALF_PRECISION
  const u32 d = low_bytes(fma(pair(p.dolp[0], p.dolp[1]), splat(255), splat(1024)),
                          fma(pair(p.dolp[2], p.dolp[3]), splat(255), splat(1024)));
#else
  const u32 d = bytes(pair(p.dolp[0] * FULL, p.dolp[1] * FULL), pair(p.dolp[2] * FULL, p.dolp[3] * FULL));
#endif
  const u32 w[1] = {d & valid};
  store_bytes<4>(frame.out[DOLP], at, w);
}
DEVICE void store_aolp_bytes(const FrameArguments &frame, const OutputPosition &at, const Polarization &p, u32 valid) {
#if HALF_PRECISION
  const Pair one = splat(1);
  const u32 t = low_bytes(turns_256(pair(p.tangent[0], p.tangent[1]), (p.s1[0] & 0x80008000u) | one),
                          turns_256(pair(p.tangent[2], p.tangent[3]), (p.s1[1] & 0x80008000u) | one));
#else
  u32 t = 0;
  for (int k = 0; k < 4; k++) t |= (as_bits(fmaf(p.turns[k], 256.0f, 8388608.0f)) & 255) << (8 * k);
#endif
  const u32 w[1] = {t & valid};
  store_bytes<4>(frame.out[AOLP], at, w);
}

// What SSIM compares across frames: the luma of S0/2. In float, since sums of halves would be rounded.
DEVICE void store_s0(const FrameArguments &frame, const OutputPosition &at, const Angles &angle) {
  float s0[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    float sum[CHANNELS];
#pragma unroll
    for (int c = 0; c < CHANNELS; c++)
      sum[c] = (lane(angle[c][0], k) + lane(angle[c][2], k)) + (lane(angle[c][1], k) + lane(angle[c][3], k));
    s0[k] = (COLOR ? luma(sum[0], sum[COLOR ? 1 : 0], sum[CHANNELS - 1]) : sum[0]) * (0.25f / FULL);
  }
  store_values<OUT_S0>(frame.out[S0], at, s0);
}

// What SSIM compares within a frame: means of orthogonal angles, two planes a frame. From their own mean, whose
// rounding both share, and from the small difference to it: rounded differently, equal images would differ.
DEVICE void store_sums(const FrameArguments &frame, const OutputPosition &at, const Pair (&mean)[2],
                       const Pair (&excess)[2]) {
  float axial[4], diagonal[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const float own = lane(mean, k) * (1 / FULL);
    axial[k] = saturate(fmaf(lane(excess, k), 1 / FULL, own)); // the mean's rounding may lead below 0
    diagonal[k] = saturate(fmaf(lane(excess, k), -1 / FULL, own));
  }
  constexpr int VALUE_BYTES = OUT_SUMS == 2 ? 4 : 2;
  const size_t plane = (size_t)out_width(frame) * out_height(frame);
  u8 *p = (u8 *)frame.out[SUMS] + blockIdx.z * plane * VALUE_BYTES;
  store_values<OUT_SUMS>(p, at, axial);
  store_values<OUT_SUMS>(p + plane * VALUE_BYTES, at, diagonal);
}

#if NOISE
// Standard deviations of four pixels in row y.
DEVICE void find_noise(const FrameArguments &frame, const Angles &angle, const Polarization &p, int y,
                       NoiseDeviations &to) {
  const float shot = frame.shot * FULL, dark = frame.dark * (FULL * FULL), tiny = 0.01f * dark;
  Covariance covariance[4];
  const int row = y % NOISE_PERIOD;
  find_covariance<CHANNELS, 0>(row, shot, dark, [&](int c, int k) { return low(angle[c][k][0]); }, covariance[0]);
  find_covariance<CHANNELS, 1 % NOISE_PERIOD>(
      row, shot, dark, [&](int c, int k) { return high(angle[c][k][0]); }, covariance[1]);
  find_covariance<CHANNELS, 2 % NOISE_PERIOD>(
      row, shot, dark, [&](int c, int k) { return low(angle[c][k][1]); }, covariance[2]);
  find_covariance<CHANNELS, 3 % NOISE_PERIOD>(
      row, shot, dark, [&](int c, int k) { return high(angle[c][k][1]); }, covariance[3]);
#pragma unroll
  for (int k = 0; k < 4; k++)
    find_deviations(covariance[k], 2 * p.s0f[k], lane(p.s1, k), lane(p.s2, k), p.dolp[k], tiny, to.component[k],
                    to.dolp[k], to.aolp[k]);
}

// Standard deviations: 255 where there are none
template <int TYPE>
DEVICE void store_deviations(void *base, const OutputPosition &at, float (&v)[4], float scale, u32 invalid, u32 valid) {
  if (TYPE == 1) {
    u32 w[1] = {0};
    for (int k = 0; k < 4; k++) w[0] |= (as_bits(fmaf(v[k], scale, 8388608.0f)) & 255) << (8 * k);
    w[0] |= ~valid;
    store_bytes<4>(base, at, w);
  } else {
    for (int k = 0; k < 4; k++) v[k] = invalid >> k & 1 ? nan_value() : v[k];
    store_floats<4>(base, at, v);
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
      const float length = fast_sqrt(fmaf(a, a, fmaf(b, b, 1e-30f)));
      p.dolp[k] = saturate(length * fast_rcp(fmaxf(2 * p.s0f[k], 1e-6f)));
      p.tangent[k] = b * fast_rcp(length + fabsf(a));
      if (OUT_AOLP == 2 || OUT_PREVIEW || !HALF_PRECISION) p.turns[k] = half_turns(p.tangent[k], a);
    }
  }
  return any_dark;
}

// a byte of ones for every valid pixel
DEVICE u32 valid_bytes(u32 invalid) { return ~((invalid * 0x00204081u & 0x01010101u) * 255u); }

// Every product of four output pixels. saturated: bit k says that a sample behind pixel k is saturated.
DEVICE void store_products(const FrameArguments &frame, const Angles &angle, u32 saturated, int y, int x,
                           InvalidCount &count) {
  const OutputPosition at = output_position(frame, y, x);
  const int n = at.n;
  if (saturated) {
    saturated &= (1u << n) - 1;
    count.saturated += __popc(saturated);
  }
  store_angle<0>(frame, at, angle);
  store_angle<1>(frame, at, angle);
  store_angle<2>(frame, at, angle);
  store_angle<3>(frame, at, angle);
  if (!(OUT_INTENSITY || WANT_STOKES)) return;
  Combinations of;
  combine(angle, of);
  if (OUT_INTENSITY) store_image<OUT_INTENSITY>(frame.out[INTENSITY], at, of.mean);
  if (!WANT_STOKES) return;

  Polarization p = {{luma_of<0>(of.mean), luma_of<1>(of.mean)}, {}, {}, {}, {}, {}, {}};
  if (OUT_S0) store_s0(frame, at, angle);
  if (OUT_SUMS) {
    const Pair excess[2] = {luma_of<0>(of.excess), luma_of<1>(of.excess)};
    store_sums(frame, at, p.s0, excess);
  }
  p.s1[0] = luma_of<0>(of.s1);
  p.s1[1] = luma_of<1>(of.s1);
  p.s2[0] = luma_of<0>(of.s2);
  p.s2[1] = luma_of<1>(of.s2);
  const float darkest = frame.min_intensity * (FULL / 2);
  u32 invalid = saturated, valid = 0xffffffffu; // valid: a byte of ones for every valid pixel
  if ((polarize(p, darkest) && WANT_DARK) || saturated) {
    u32 dark = 0;
#pragma unroll
    for (int k = 0; k < 4; k++) dark |= (u32)(p.s0f[k] < darkest) << k;
    dark &= WANT_DARK ? ~saturated & ((1u << n) - 1) : 0;
    count.dark += __popc(dark);
    invalid |= dark;
    valid = valid_bytes(invalid);
  }
  u32 without_angle = invalid;
#if NOISE
  NoiseDeviations sigma;
  find_noise(frame, angle, p, y, sigma);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    if (DEBIAS) p.dolp[k] = debiased(p.dolp[k], sigma.component[k]);
    if (LIMITS_AOLP) without_angle |= (u32)(sigma.aolp[k] > frame.max_aolp_sigma) << k;
  }
  if (OUT_DOLP_SIGMA) store_deviations<OUT_DOLP_SIGMA>(frame.out[DOLP_SIGMA], at, sigma.dolp, 255, invalid, valid);
  if (OUT_AOLP_SIGMA)
    store_deviations<OUT_AOLP_SIGMA>(frame.out[AOLP_SIGMA], at, sigma.aolp, 81.4873309f, invalid, valid); // 256 / pi
#endif
  if (OUT_STOKES) store_stokes(frame, at, p, invalid);
  if (OUT_PREVIEW) store_preview(frame, at, p, without_angle);
  if (OUT_DOLP == 1) store_dolp_bytes(frame, at, p, valid);
  if (OUT_AOLP == 1) store_aolp_bytes(frame, at, p, LIMITS_AOLP ? valid_bytes(without_angle) : valid);
  if (OUT_DOLP == 2) {
    for (int k = 0; k < 4; k++) p.dolp[k] = invalid >> k & 1 ? nan_value() : p.dolp[k];
    store_floats<4>(frame.out[DOLP], at, p.dolp);
  }
  if (OUT_AOLP == 2) {
    for (int k = 0; k < 4; k++)
      p.turns[k] = without_angle >> k & 1 ? nan_value() : fminf(p.turns[k] * 3.14159265f, 3.1415925f);
    store_floats<4>(frame.out[AOLP], at, p.turns);
  }
}
#endif
