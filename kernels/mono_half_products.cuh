// What `mono_half` makes of the superpixels of a row, and how a thread and its warp store it.
#pragma once
#include "mono_half_lines.cuh"

constexpr int OUT_WIDTH = WIDTH / 2, OUT_HEIGHT = HEIGHT / 2;
constexpr float UNIT = CO_SITED ? 16 : 1;      // of the values of sites, in raw numbers
constexpr float WHITE = UNIT * FULL_SCALE;     // full scale in these
constexpr float BYTE_OFFSET = 8388608 + 25600; // the low 16 bits of a float are then the half 1024 + byte

constexpr float TWO_62 = 1ull << 62;
// Sums of such bits are bits of floats, too: COUNT numbers, of which the sum has to stay below OFFSET, give a float of
// another exponent, in whose mantissa the sum is. The sum times a factor:
template <int COUNT> DEVICE float scaled(u32 bits, float factor) {
  constexpr float BACK = COUNT == 1 ? 1.0f : COUNT == 2 ? -TWO_62 * (1ull << 44) : TWO_62; // to OFFSET
  static_assert(COUNT == 1 || COUNT == 2 || COUNT == 4, "angles of a sum");
  return fmaf(as_float(bits), factor * BACK, -OFFSET * factor);
}
// two floats above BYTE_OFFSET as a pair of halves 1024 + byte
DEVICE Pair byte_pair(float low, float high) { return lows(as_bits(low), as_bits(high)); }

// The angles of a superpixel, as bits of floats above OFFSET.
struct Superpixel {
  u32 angle[4];
};
DEVICE Superpixel superpixel(Site even_row, Site odd_row) {
  Superpixel s;
  s.angle[angle_at(0, 0)] = offset_bits<0>(even_row);
  s.angle[angle_at(0, 1)] = offset_bits<1>(even_row);
  s.angle[angle_at(1, 0)] = offset_bits<0>(odd_row);
  s.angle[angle_at(1, 1)] = offset_bits<1>(odd_row);
  return s;
}
// Bits of the sum of all four, which are ordered as the sums are; and those of sums.
DEVICE u32 sum_bits(const Superpixel &s) { return (s.angle[0] + s.angle[2]) + (s.angle[1] + s.angle[3]); }
CONSTANT u32 sum_bits_of(u32 sum) { return 4 * OFFSET_BITS + sum; }

// The products of a thread's superpixels on one row, as they are stored: floats, and pairs of halves 1024 + byte.
struct RowProducts {
  float intensity[PIXELS], dolp[PIXELS], aolp[PIXELS], stokes[3 * PIXELS], axial[PIXELS], diagonal[PIXELS], s0[PIXELS];
  u32 angle[PIXELS];                   // AoLP in 65536ths of pi, in the low 16 bits
  float component[COMPONENTS][PIXELS]; // of the light, as it is stored: with bytes, above BYTE_OFFSET
  Pair level[PIXELS / 2], degree[PIXELS / 2], turns[PIXELS / 2], rgb[3][PIXELS / 2];
  // what `transform` interpolates, in the units of pairs; S1 and S2 of each pixel one after the other
  float difference[PIXELS][2], mean[PIXELS], excess[PIXELS];
};

// A component of the light of superpixel k, whose S0, S1 and S2 are in raw numbers times UNIT.
template <int COMPONENT, int TYPE>
DEVICE void make_component(const FrameArguments &frame, float s0, float s1, float s2, RowProducts &row, int k) {
  if (!TYPE) return;
  const float v = component<COMPONENT>(0.5f * s0, s1, s2, frame.polarizer);
  row.component[COMPONENT - UNPOLARIZED][k] =
      TYPE == 1 ? fmaf(fminf(v, WHITE), 255 / WHITE, BYTE_OFFSET) : v * (1 / WHITE);
}

// Products of the superpixels 2j and 2j + 1. lowest: of all sums, as bits.
DEVICE void make_pair(const FrameArguments &frame, const Superpixel (&superpixels)[PIXELS], int j, RowProducts &row,
                      u32 &lowest) {
  float level[2], tangent[2], degree[2], s1[2], folded[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const int k = 2 * j + h;
    const Superpixel &s = superpixels[k];
    const float half_sum = scaled<4>(sum_bits(s), 0.5f), s2 = as_float(s.angle[1]) - as_float(s.angle[3]);
    if (WANT_DARK) lowest = min(lowest, sum_bits(s));
    s1[h] = as_float(s.angle[0]) - as_float(s.angle[2]);
    level[h] = fmaf(half_sum, 255 / (2 * WHITE), BYTE_OFFSET);
    row.intensity[k] = row.s0[k] = half_sum * (1 / (2 * WHITE));
    row.axial[k] = scaled<2>(s.angle[0] + s.angle[2], 1 / (2 * WHITE));
    row.diagonal[k] = scaled<2>(s.angle[1] + s.angle[3], 1 / (2 * WHITE));
    row.stokes[3 * k + 0] = half_sum * (1 / WHITE);
    row.stokes[3 * k + 1] = s1[h] * (1 / WHITE);
    row.stokes[3 * k + 2] = s2 * (1 / WHITE);
    row.difference[k][0] = s1[h] * (FULL / WHITE);
    row.difference[k][1] = s2 * (FULL / WHITE);
    row.mean[k] = half_sum * (FULL / (2 * WHITE));
    row.excess[k] = (row.axial[k] - row.diagonal[k]) * (FULL / 2);
#define MAKE_COMPONENT(NAME) make_component<NAME, OUT_##NAME>(frame, half_sum, s1[h], s2, row, k);
    LIGHT_COMPONENTS(MAKE_COMPONENT)
    const float length = polarized(s1[h], s2, 1e-30f);
    tangent[h] = folded_tangent(s1[h], s2, length);
    degree[h] = row.dolp[k] = degree_of(length, half_sum);
    if (OUT_AOLP >= 2) folded[h] = arctangent(tangent[h]);
    if (OUT_AOLP == 2) {
      const float turned = s1[h] < 0 ? fmaf(folded[h], -PI, 0.5f * PI) : folded[h] * PI;
      row.aolp[k] = turned < 0 ? turned + 3.1415925f : turned;
    }
    if (OUT_AOLP == 3) row.angle[k] = unfolded_65536(folded[h], s1[h]);
  }
  row.level[j] = byte_pair(level[0], level[1]);
  if (!OUT_PREVIEW && OUT_DOLP != 1 && OUT_AOLP != 1) return;
  const Pair degrees = pair(degree[0], degree[1]);
  row.degree[j] = unit_bytes(degrees);
  if (!OUT_PREVIEW && OUT_AOLP != 1) return;
  const Pair signs = permute(as_bits(s1[0]), as_bits(s1[1]), 0x7632); // of S1, in bit 15 of a lane
  if (!OUT_PREVIEW) {
    row.turns[j] = turns_256(pair(tangent[0], tangent[1]), signs);
    return;
  }
  // in 256ths of a half turn, unless there it is in half turns already
  const Pair angle = OUT_AOLP == 2 ? pair(folded[0], folded[1]) : folded_256(pair(tangent[0], tangent[1]));
  const Pair sign = (signs & 0x80008000u) | splat(1);
  row.turns[j] = unfolded_256(angle, sign);
  u32 rgb[3];
  preview_pairs(mul(angle, OUT_AOLP == 2 ? splat(6) : splat(6.0 / 256)), sign,
                mul(sub(splat(1024), row.level[j]), degrees), row.level[j], rgb);
#pragma unroll
  for (int c = 0; c < 3; c++) row.rgb[c][j] = rgb[c];
}

// How pixels of some bytes can be stored: rows and threads begin at multiples of it.
CONSTANT int store_alignment(int pixel_bytes) { return alignment_of(OUT_WIDTH * pixel_bytes, PIXELS * pixel_bytes); }

// The pixels of a thread. at: its first pixel.
template <int PIXEL_BYTES, int WORDS> DEVICE void store_pixels(void *image, size_t at, const u32 (&w)[WORDS]) {
  static_assert(WORDS * 4 == PIXELS * PIXEL_BYTES, "as many words as the pixels have");
  store_words<store_alignment(PIXEL_BYTES)>((u8 *)image + at * PIXEL_BYTES, w);
}
DEVICE void store_byte_pixels(void *image, size_t at, const Pair (&v)[PIXELS / 2]) {
  u32 w[PIXELS / 4];
#pragma unroll
  for (int k = 0; k < PIXELS / 4; k++) w[k] = low_bytes(v[2 * k], v[2 * k + 1]);
  store_pixels<1>(image, at, w);
}
// values from 0 to 1 as floats (2), or as levels (3)
template <int TYPE> DEVICE void store_values(void *image, size_t at, const float (&v)[PIXELS]) {
  if (TYPE < 2) return;
  u32 w[PIXELS * value_bytes(TYPE) / 4];
  words_of<TYPE>(v, w);
  store_pixels<value_bytes(TYPE)>(image, at, w);
}
DEVICE void store_angle_levels(void *image, size_t at, const RowProducts &row) {
  u32 w[PIXELS / 2];
#pragma unroll
  for (int k = 0; k < PIXELS / 2; k++) w[k] = low_halves(row.angle[2 * k], row.angle[2 * k + 1]);
  store_pixels<2>(image, at, w);
}
// what SSIM compares
template <int TYPE> DEVICE void store_compared(void *image, size_t at, u32 dither, const float (&v)[PIXELS]) {
  u32 w[PIXELS * value_bytes(TYPE) / 4];
  words_compared<TYPE>(v, dither, w);
  store_pixels<value_bytes(TYPE)>(image, at, w);
}

// Pixels of three values of a warp, through shared memory: lanes then store pieces that follow each other. at: the
// thread's first pixel in its frame's image; beyond the picture nothing is stored. Every lane must call it.
template <int PIXEL_BYTES, int WORDS> DEVICE void store_staged(u8 *stage, u8 *image, u32 at, const u32 (&w)[WORDS]) {
  constexpr int LANE = 4 * WORDS, PIECE = store_alignment(PIXEL_BYTES), COUNT = LANE / PIECE;
  constexpr int WRITTEN = LANE % 16 == 0 ? 4 : LANE % 8 == 0 ? 2 : 1; // words at a time
  const u32 lane = threadIdx.x % 32;
#pragma unroll
  for (int k = 0; k < WORDS; k += WRITTEN) {
    u8 *p = stage + lane * LANE + 4 * k;
    if (WRITTEN == 4)
      *(uint4 *)p = make_uint4(w[k], w[k + 1], w[k + 2], w[k + 3]);
    else if (WRITTEN == 2)
      *(uint2 *)p = make_uint2(w[k], w[k + 1]);
    else
      *(u32 *)p = w[k];
  }
  sync_warp();
#pragma unroll
  for (int k = 0; k < COUNT; k++) {
    const u32 piece = lane + 32 * k, owner = piece / COUNT, first = shuffle(at, owner);
    const u8 *p = stage + piece * PIECE;
    u8 *to = image + first * PIXEL_BYTES + (piece - owner * COUNT) * PIECE;
    if (first >= (u32)(OUT_WIDTH * OUT_HEIGHT)) continue;
    store_staged_piece<PIECE>(to, p);
  }
  sync_warp();
}

// an intensity: floats above BYTE_OFFSET (1), or values from 0 to 1
template <int TYPE> DEVICE void store_light(void *image, size_t at, const float (&v)[PIXELS]) {
  if (TYPE != 1) return store_values<TYPE>(image, at, v);
  Pair bytes[PIXELS / 2];
#pragma unroll
  for (int k = 0; k < PIXELS / 2; k++) bytes[k] = byte_pair(v[2 * k], v[2 * k + 1]);
  store_byte_pixels(image, at, bytes);
}
template <int ANGLE>
DEVICE void store_angle_image(const FrameArguments &frame, const Superpixel (&superpixels)[PIXELS], size_t at) {
  constexpr int TYPE = angle_type(ANGLE);
  if (!TYPE) return;
  float v[PIXELS];
#pragma unroll
  for (int k = 0; k < PIXELS; k++) {
    const u32 bits = superpixels[k].angle[ANGLE];
    v[k] = TYPE == 1 ? fmaf(as_float(bits) - OFFSET, 255 / WHITE, BYTE_OFFSET) : scaled<1>(bits, 1 / WHITE);
  }
  store_light<TYPE>(frame.out[ANGLE_0 + ANGLE], at, v);
}

// What `transform` interpolates: floats (2) or halves
DEVICE void store_plane_rows(const FrameArguments &frame, const RowProducts &row, size_t at) {
  if (OUT_DIFFERENCES == 2) {
    u32 w[2 * PIXELS];
#pragma unroll
    for (int k = 0; k < 2 * PIXELS; k++) w[k] = as_bits(row.difference[k / 2][k % 2]) & ~1u;
    store_pixels<8>(frame.out[DIFFERENCES], at, w);
    store_values<2>(frame.out[MEANS], at, row.mean);
    if (OUT_EXCESSES) store_values<2>(frame.out[EXCESSES], at, row.excess);
    return;
  }
  u32 both[PIXELS], mean[PIXELS / 2], excess[PIXELS / 2];
#pragma unroll
  for (int k = 0; k < PIXELS; k++) both[k] = without_last_bits(half2_pack(row.difference[k][0], row.difference[k][1]));
#pragma unroll
  for (int k = 0; k < PIXELS / 2; k++) {
    mean[k] = half2_pack(row.mean[2 * k], row.mean[2 * k + 1]);
    excess[k] = half2_pack(row.excess[2 * k], row.excess[2 * k + 1]);
  }
  store_pixels<4>(frame.out[DIFFERENCES], at, both);
  store_pixels<2>(frame.out[MEANS], at, mean);
  if (OUT_EXCESSES) store_pixels<2>(frame.out[EXCESSES], at, excess);
}
// Marks a pixel that was stored as saturated or dark.
DEVICE void mark_invalid(const FrameArguments &frame, size_t at, bool is_saturated) {
  constexpr bool IS_HALF = OUT_DIFFERENCES == 3;
  u32 *numbers = (u32 *)frame.out[DIFFERENCES] + at * (IS_HALF ? 1 : 2);
  if (IS_HALF)
    numbers[0] |= is_saturated ? 1u : 0x10000u;
  else
    numbers[is_saturated ? 0 : 1] |= 1u;
}

// Stores the images of a row that do not go through shared memory; at: its first pixel, counted from the first frame;
// dither: of images that SSIM compares.
DEVICE void store_row(const FrameArguments &frame, const RowProducts &row, size_t at, u32 dither) {
  constexpr size_t PLANE = (size_t)OUT_WIDTH * OUT_HEIGHT;
  if (OUT_INTENSITY == 1) store_byte_pixels(frame.out[INTENSITY], at, row.level);
  store_values<OUT_INTENSITY>(frame.out[INTENSITY], at, row.intensity);
#define STORE_ROW(NAME) store_light<OUT_##NAME>(frame.out[NAME], at, row.component[NAME - UNPOLARIZED]);
  LIGHT_COMPONENTS(STORE_ROW)
  if (OUT_DOLP == 1) store_byte_pixels(frame.out[DOLP], at, row.degree);
  store_values<OUT_DOLP>(frame.out[DOLP], at, row.dolp);
  if (OUT_AOLP == 1) store_byte_pixels(frame.out[AOLP], at, row.turns);
  if (OUT_AOLP == 2) store_values<2>(frame.out[AOLP], at, row.aolp);
  if (OUT_AOLP == 3) store_angle_levels(frame.out[AOLP], at, row);
  if (WANT_PLANES) store_plane_rows(frame, row, at);
  if (OUT_S0) store_compared<OUT_S0>(frame.out[S0], at, dither, row.s0);
  if (OUT_SUMS) { // two planes a frame
    store_compared<OUT_SUMS>(frame.out[SUMS], at + blockIdx.z * PLANE, dither, row.axial);
    store_compared<OUT_SUMS>(frame.out[SUMS], at + blockIdx.z * PLANE + PLANE, dither, row.diagonal);
  }
}
// The others. index: the row's first pixel in its frame's image, beyond its end where the thread has none; stage: its
// warp's shared memory. Every lane must call it.
DEVICE void store_staged_row(const FrameArguments &frame, const RowProducts &row, u8 *stage, u32 index) {
  const size_t base = (size_t)blockIdx.z * (OUT_WIDTH * OUT_HEIGHT);
  if (OUT_PREVIEW) {
    u32 w[3 * PIXELS / 4];
#pragma unroll
    for (int j = 0; j < PIXELS / 2; j += 2)
      interleave_pairs<2>(row.rgb[0] + j, row.rgb[1] + j, row.rgb[2] + j, w + 3 * j / 2);
    store_staged<3>(stage, (u8 *)frame.out[PREVIEW] + base * 3, index, w);
  }
  if (OUT_STOKES) {
    u32 w[3 * PIXELS];
    words_of_floats(row.stokes, w);
    store_staged<12>(stage, (u8 *)frame.out[STOKES] + base * 12, index, w);
  }
}
// Replaces the products of one pixel that has no polarization. is_black: no light at all, where darkness is allowed: no
// DoLP only. sum: of its angles; is_saturated: else it is dark or black.
DEVICE void store_unpolarized(const FrameArguments &frame, size_t at, bool is_black, u32 sum, bool is_saturated) {
  if (is_black && OUT_DOLP == 2)
    store32((float *)frame.out[DOLP] + at, 0);
  else
    store_missing<OUT_DOLP>(frame.out[DOLP], at);
  if (OUT_PREVIEW) {
    const u32 level = as_bits(fmaf(0.5f * sum, 255 / (2 * WHITE), BYTE_OFFSET));
#pragma unroll
    for (int c = 0; c < 3; c++) store8((u8 *)frame.out[PREVIEW] + 3 * at + c, level);
  }
  if (is_black) return;
  if (WANT_PLANES) mark_invalid(frame, at, is_saturated);
  store_missing<OUT_AOLP>(frame.out[AOLP], at);
  store_missing<OUT_STOKES, 3>(frame.out[STOKES], at);
}
