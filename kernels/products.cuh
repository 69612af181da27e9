// From the four angle images to the products: everything that depends on one output pixel only. A product that is not
// asked for (OUT_...) is neither computed nor stored.
#ifndef POLAR_PRODUCTS_CUH
#define POLAR_PRODUCTS_CUH
#include "noise.cuh"
#include "pair.cuh"

#define WANT_ANGLES (OUT_ANGLE_0 || OUT_ANGLE_45 || OUT_ANGLE_90 || OUT_ANGLE_135)
#define WANT_COMPONENTS (OUT_UNPOLARIZED || OUT_POLARIZED || OUT_POLARIZER) // of the light of each colour
#define WANT_SIGMA (OUT_DOLP_SIGMA || OUT_AOLP_SIGMA)
#define WANT_COLORS (OUT_AOLP_COLOR || OUT_DOLP_COLOR) // by maps: AOLP_COLOR_MAP, DOLP_COLOR_MAP, 256 words 0xbbggrr
#define WANT_MASKED                                                                                                    \
  (OUT_STOKES || OUT_DOLP || OUT_AOLP || WANT_SIGMA || WANT_COLORS) // products that invalid pixels are missing from
#define WANT_PLANES (OUT_DIFFERENCES || OUT_MEANS || OUT_EXCESSES)  // what `transform` interpolates
#define WANT_DARK (WANT_MASKED || OUT_PREVIEW || WANT_PLANES)       // products for which darkness counts
#define WANT_POLAR (OUT_DOLP || OUT_AOLP || OUT_PREVIEW || WANT_SIGMA || WANT_COLORS)
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
// Two values times a scale as 16-bit integers. 2^23: the last bit is the unit.
DEVICE u32 integer_pair(float first, float second, float scale) {
  return permute(as_bits(fmaf(first, scale, 8388608.0f)), as_bits(fmaf(second, scale, 8388608.0f)), 0x5410);
}
// 16-bit values, two a word
template <int VALUES> DEVICE void store_pairs(void *base, const OutputPosition &at, const u32 (&w)[VALUES / 2]) {
  u8 *p = (u8 *)base + at.index * (VALUES / 2);
  if (at.is_full) {
#pragma unroll
    for (int k = 0; k < VALUES / 2; k += 2) store64(p + 4 * k, w[k], w[k + 1]);
  } else {
#pragma unroll
    for (int k = 0; k < VALUES; k++)
      if (k < at.n * (VALUES / 4)) store16(p + 2 * k, w[k / 2] >> (16 * (k % 2)));
  }
}
// Two pixels of what SSIM reads, from [0, 1] to full scale SSIM_FULL.
DEVICE u32 compared_pair(float first, float second) { return integer_pair(first, second, SSIM_FULL); }
// what SSIM reads: floats, or 16-bit integers
template <int TYPE> DEVICE void store_values(void *base, const OutputPosition &at, const float (&v)[4]) {
  if (TYPE == 2) return store_floats<4>(base, at, v);
  const u32 w[2] = {compared_pair(v[0], v[1]), compared_pair(v[2], v[3])};
  store_pairs<4>(base, at, w);
}

// ---- products as 16-bit integers: what they are as floats, rounded to nearest even

// Two values as levels: 65535 is 1; limited.
DEVICE u32 level_pair(float first, float second) { return integer_pair(saturate(first), saturate(second), 65535.0f); }
// AoLP of a pixel in 65536ths of pi, which wrap, in the low 16 bits; folded: over pi (`folded_turns`).
DEVICE u32 turns_65536(float folded, float s1) {
  constexpr float ZERO = 8388608.0f + 65536.0f; // angles below 0 have the same low bits as above pi
  return as_bits(s1 < 0 ? fmaf(folded, -65536.0f, ZERO + 32768.0f) : fmaf(folded, 65536.0f, ZERO));
}
DEVICE u32 low_halves(u32 first, u32 second) { return permute(first, second, 0x5410); }

// red, green and blue bytes of four pixels, interleaved
DEVICE void interleave(u32 r, u32 g, u32 b, u32 (&w)[3]) {
  u32 rg01 = permute(r, g, 0x5140), rg23 = permute(r, g, 0x7362); // r0 g0 r1 g1, r2 g2 r3 g3
  w[0] = permute(rg01, b, 0x2410);
  w[1] = permute(permute(rg01, b, 0x0053), rg23, 0x5410);
  w[2] = permute(rg23, b, 0x7326);
}

DEVICE u32 level_bytes(const Pair (&v)[2]) { return bytes(v[0], v[1]); }

// an image of CHANNELS values a pixel, as uint8 (1), float32 (2) or uint16 (3)
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
    if (TYPE == 2) return store_floats<4 * CHANNELS>(base, at, f);
    u32 w[2 * CHANNELS];
#pragma unroll
    for (int k = 0; k < 2 * CHANNELS; k++) w[k] = level_pair(f[2 * k], f[2 * k + 1]);
    store_pairs<4 * CHANNELS>(base, at, w);
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

// arctan(t)/t of two tangents of the folded AoLP, in 256ths of pi. u: their squares, as halves.
DEVICE u32 slopes_256(u32 u) {
  return half2_fma(u, half2_fma(u, half2_splat(256 * ATAN_BYTE_5), half2_splat(256 * ATAN_BYTE_3)),
                   half2_splat(256 * ATAN_BYTE_1));
}
// AoLP of two pixels in 256ths of pi, folded into [-64, 64], as halves. t: tangents of the folded angle, as halves.
DEVICE u32 folded_256(u32 t) { return half2_mul(t, slopes_256(half2_mul(t, t))); }
// AoLP of two pixels in 256ths of pi, plus 1024 so that the low byte is the answer: folded + 0, or pi/2 - folded where
// S1 is negative. sign: +-1 with the sign of S1.
DEVICE u32 unfolded_256(u32 folded, u32 sign) {
  return half2_fma(folded, sign, half2_fma(sign, half2_splat(-64), half2_splat(1344)));
}
// The same from tangents and S1, of which only the sign is read: 1344 + (folded - 64), or 1344 - (folded - 64).
DEVICE u32 turns_256(u32 t, u32 s1) {
  const u32 below = half2_fma(t, slopes_256(half2_mul(t, t)), half2_splat(-64));
  return half2_add(below ^ (s1 & 0x80008000u), half2_splat(1344));
}

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
      if (WANT_STOKES || WANT_COMPONENTS) {
        of.s1[c][k] = sub(angle[c][0][k], angle[c][2][k]);
        of.s2[c][k] = sub(angle[c][1][k], angle[c][3][k]);
      }
      if (OUT_SUMS || OUT_EXCESSES)
        of.excess[c][k] =
            mul(add(sub(angle[c][0][k], angle[c][1][k]), sub(angle[c][2][k], angle[c][3][k])), splat(0.25));
    }
}

// The components of light, from S0/2, S1 and S2 in one unit; UNPOLARIZED and POLARIZER at least 0.
template <int COMPONENT> DEVICE float component(const FrameArguments &frame, float mean, float s1, float s2) {
  if (COMPONENT == POLARIZER) return fmaxf(fmaf(0.5f, fmaf(s1, frame.polarizer[0], s2 * frame.polarizer[1]), mean), 0);
  const float length = fast_sqrt(fmaf(s1, s1, s2 * s2));
  return COMPONENT == POLARIZED ? length : fmaxf(fmaf(-0.5f, length, mean), 0);
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
      const float first = component<COMPONENT>(frame, low(mean), low(s1), low(s2)),
                  second = component<COMPONENT>(frame, high(mean), high(s1), high(s2));
      v[c][k] = TYPE == 1 ? pair(fminf(first, FULL), fminf(second, FULL)) : pair(first, second);
    }
  store_image<TYPE>(frame.out[COMPONENT], at, v);
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

#if OUT_AOLP_COLOR
CONSTANT_MEMORY u32 aolp_color_map[256] = AOLP_COLOR_MAP;
#endif
#if OUT_DOLP_COLOR
CONSTANT_MEMORY u32 dolp_color_map[256] = DOLP_COLOR_MAP;
#endif
// Stores the colours of four pixels, 0xbbggrr; invalid ones are black.
DEVICE void store_colors(void *base, const OutputPosition &at, u32 (&color)[4], u32 invalid) {
#pragma unroll
  for (int k = 0; k < 4; k++) color[k] = invalid >> k & 1 ? 0 : color[k];
  const u32 r = permute(permute(color[0], color[1], 0x0040), permute(color[2], color[3], 0x0040), 0x5410),
            g = permute(permute(color[0], color[1], 0x0051), permute(color[2], color[3], 0x0051), 0x5410),
            b = permute(permute(color[0], color[1], 0x0062), permute(color[2], color[3], 0x0062), 0x5410);
  u32 w[3];
  interleave(r, g, b, w);
  store_bytes<12>(base, at, w);
}
// the nearest byte of a float from 0 to 256, which wraps there
DEVICE u32 low_byte(float value) { return as_bits(value + 8388608.0f) & 255; }
// AoLP by its map, mixed with a grey level
DEVICE void store_aolp_color(const FrameArguments &frame, const OutputPosition &at, const Polarization &p,
                             u32 invalid) {
#if OUT_AOLP_COLOR
  u32 color[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const u32 full = aolp_color_map[low_byte(256 * p.turns[k])];
    const float grey = frame.fading[0], share = fmaxf(p.dolp[k], frame.fading[1]);
    color[k] = 0;
#pragma unroll
    for (int c = 0; c < 3; c++)
      color[k] |= low_byte(fmaf(share, (float)(full >> (8 * c) & 255) - grey, grey)) << (8 * c);
  }
  store_colors(frame.out[AOLP_COLOR], at, color, invalid);
#endif
}
DEVICE void store_dolp_color(const FrameArguments &frame, const OutputPosition &at, const Polarization &p,
                             u32 invalid) {
#if OUT_DOLP_COLOR
  u32 color[4];
#pragma unroll
  for (int k = 0; k < 4; k++) color[k] = dolp_color_map[low_byte(255 * p.dolp[k])];
  store_colors(frame.out[DOLP_COLOR], at, color, invalid);
#endif
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
  const u32 t = low_bytes(turns_256(pair(p.tangent[0], p.tangent[1]), p.s1[0]),
                          turns_256(pair(p.tangent[2], p.tangent[3]), p.s1[1]));
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

// ---- what `transform` interpolates (`transform.cuh`): S1 and S2, S0/2, and `excess`, in the units of pairs, as halves
// or floats. Why a pixel is invalid is in the last bits of S1 and S2 of its first colour: saturated, and dark.
constexpr u32 LAST_BITS = 0x00010001u;
// two halves with both bits 0: the nearest such halves, of two the even one
DEVICE u32 without_last_bits(u32 halves) { return (halves + (halves >> 1 & LAST_BITS)) & ~LAST_BITS; }
#if HALF_PRECISION
DEVICE u32 half_word(Pair a) { return a; }
#else
DEVICE u32 half_word(Pair a) { return half2_pack(low(a), high(a)); }
#endif

template <int TYPE>
DEVICE void store_differences(void *base, const OutputPosition &at, const Pair (&s1)[2], const Pair (&s2)[2],
                              u32 saturated, u32 dark) {
  float v[TYPE == 2 ? 8 : 4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const u32 is_saturated = saturated >> k & 1, is_dark = dark >> k & 1;
    if (TYPE == 2) {
      v[TYPE == 2 ? 2 * k : 0] = as_float((as_bits(lane(s1, k)) & ~1u) | is_saturated);
      v[TYPE == 2 ? 2 * k + 1 : 0] = as_float((as_bits(lane(s2, k)) & ~1u) | is_dark);
    } else {
      const u32 both = permute(half_word(s1[k / 2]), half_word(s2[k / 2]), k % 2 ? 0x7632 : 0x5410);
      v[k] = as_float(without_last_bits(both) | is_saturated | is_dark << 16);
    }
  }
  store_floats<TYPE == 2 ? 8 : 4>(base, at, v);
}
template <int TYPE> DEVICE void store_plane(void *base, const OutputPosition &at, const Pair (&v)[2]) {
  if (TYPE == 2) {
    const float f[4] = {low(v[0]), high(v[0]), low(v[1]), high(v[1])};
    store_floats<4>(base, at, f);
  } else {
    const u32 w[2] = {half_word(v[0]), half_word(v[1])};
    store_pairs<4>(base, at, w);
  }
}
// The planes of each colour, one after the other.
DEVICE void store_planes(const FrameArguments &frame, const OutputPosition &at, const Combinations &of, u32 saturated,
                         u32 dark) {
  const size_t plane = (size_t)out_width(frame) * out_height(frame);
#pragma unroll
  for (int c = 0; c < CHANNELS; c++) {
    const size_t before = (blockIdx.z * (CHANNELS - 1) + c) * plane;
    store_differences<OUT_DIFFERENCES>((u8 *)frame.out[DIFFERENCES] + before * (OUT_DIFFERENCES == 2 ? 8 : 4), at,
                                       of.s1[c], of.s2[c], c ? 0 : saturated, c ? 0 : dark);
    store_plane<OUT_MEANS>((u8 *)frame.out[MEANS] + before * (OUT_MEANS == 2 ? 4 : 2), at, of.mean[c]);
    if (OUT_EXCESSES)
      store_plane<OUT_EXCESSES>((u8 *)frame.out[EXCESSES] + before * (OUT_EXCESSES == 2 ? 4 : 2), at, of.excess[c]);
  }
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

// Standard deviations: the highest level where there are none. bytes, words: what 1 is in levels of uint8 and uint16.
template <int TYPE>
DEVICE void store_deviations(void *base, const OutputPosition &at, float (&v)[4], float bytes, float words, u32 invalid,
                             u32 valid) {
  if (TYPE == 1) {
    u32 w[1] = {0};
    for (int k = 0; k < 4; k++) w[0] |= (as_bits(fmaf(v[k], bytes, 8388608.0f)) & 255) << (8 * k);
    w[0] |= ~valid;
    store_bytes<4>(base, at, w);
  } else if (TYPE == 3) {
    u32 w[2] = {integer_pair(v[0], v[1], words), integer_pair(v[2], v[3], words)};
    for (int k = 0; k < 4; k++) w[k / 2] |= (invalid >> k & 1) * 0xffffu << (16 * (k % 2));
    store_pairs<4>(base, at, w);
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
      p.dolp[k] = saturate(length * fast_rcp(fmaf(2, p.s0f[k], 1e-6f)));
      p.tangent[k] = b * fast_rcp(length + fabsf(a));
      if (OUT_AOLP >= 2 || OUT_PREVIEW || OUT_AOLP_COLOR || !HALF_PRECISION) p.turns[k] = half_turns(p.tangent[k], a);
    }
  }
  return any_dark;
}

// two 16-bit lanes of ones for valid pixels; invalid: bit 0 of the first, bit 1 of the second
DEVICE u32 valid_halves(u32 invalid) { return low_halves((invalid & 1) - 1, (invalid >> 1 & 1) - 1); }
// DoLP and AoLP as 16-bit integers, 0 where they are invalid.
DEVICE void store_polarization_levels(const FrameArguments &frame, const OutputPosition &at, const Polarization &p,
                                      u32 invalid, u32 without_angle) {
  u32 degrees[2], turns[2];
#pragma unroll
  for (int k = 0; k < 2; k++) {
    degrees[k] = level_pair(p.dolp[2 * k], p.dolp[2 * k + 1]) & valid_halves(invalid >> 2 * k);
    turns[k] = integer_pair(p.turns[2 * k], p.turns[2 * k + 1], 65536.0f) & valid_halves(without_angle >> 2 * k);
  }
  if (OUT_DOLP == 3) store_pairs<4>(frame.out[DOLP], at, degrees);
  if (OUT_AOLP == 3) store_pairs<4>(frame.out[AOLP], at, turns);
}

// a byte of ones for every valid pixel
DEVICE u32 valid_bytes(u32 invalid) { return ~((invalid * 0x00204081u & 0x01010101u) * 255u); }

// The products of the Stokes vector of four pixels. y: their row; invalid: bit k says that pixel k has no polarization;
// valid: a byte of ones for every other pixel.
DEVICE void store_polarization(const FrameArguments &frame, const OutputPosition &at, const Angles &angle, int y,
                               Polarization &p, u32 invalid, u32 valid) {
  u32 without_angle = invalid;
#if NOISE
  NoiseDeviations sigma;
  find_noise(frame, angle, p, y, sigma);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    if (DEBIAS) p.dolp[k] = debiased(p.dolp[k], sigma.component[k]);
    if (LIMITS_AOLP) without_angle |= (u32)(sigma.aolp[k] > frame.max_aolp_sigma) << k;
  }
  if (OUT_DOLP_SIGMA)
    store_deviations<OUT_DOLP_SIGMA>(frame.out[DOLP_SIGMA], at, sigma.dolp, 255, 65535, invalid, valid);
  if (OUT_AOLP_SIGMA) // 256 / pi and 65536 / pi
    store_deviations<OUT_AOLP_SIGMA>(frame.out[AOLP_SIGMA], at, sigma.aolp, 81.4873309f, 20860.7567f, invalid, valid);
#endif
  if (OUT_STOKES) store_stokes(frame, at, p, invalid);
  if (OUT_PREVIEW) store_preview(frame, at, p, without_angle);
  store_aolp_color(frame, at, p, without_angle);
  store_dolp_color(frame, at, p, invalid);
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
  if (OUT_DOLP == 3 || OUT_AOLP == 3) store_polarization_levels(frame, at, p, invalid, without_angle);
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
  store_angle<0>(frame, at, angle);
  store_angle<1>(frame, at, angle);
  store_angle<2>(frame, at, angle);
  store_angle<3>(frame, at, angle);
  if (!(OUT_INTENSITY || WANT_COMPONENTS || WANT_STOKES)) return;
  Combinations of;
  combine(angle, of);
  if (OUT_INTENSITY) store_image<OUT_INTENSITY>(frame.out[INTENSITY], at, of.mean);
  store_component<UNPOLARIZED, OUT_UNPOLARIZED>(frame, at, of);
  store_component<POLARIZED, OUT_POLARIZED>(frame, at, of);
  store_component<POLARIZER, OUT_POLARIZER>(frame, at, of);
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
#endif
