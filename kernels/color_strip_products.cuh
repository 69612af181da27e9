// `color_strip`: from the values of one output row to its products.
#pragma once
#include "color_strip_rows.cuh"

// ---- bytes

// Two values as bytes, in the low bytes of two lanes.
#if HALF_PRECISION
DEVICE u32 level(Pair value, Pair scale) { return fma(value, scale, splat(1024)); }
#else
DEVICE u32 level(Pair value, Pair scale) { // 2^23: the unit is the last bit
  return permute(as_bits(fmaf(value.x, scale.x, 8388608.0f)), as_bits(fmaf(value.y, scale.y, 8388608.0f)), 0x0400);
}
#endif

// The images of both angles of a row parity.
template <int LINE> DEVICE void angle_bytes(const Colors &v, RowBytes &low_image, RowBytes &high_image) {
  constexpr Weight full = weight(255.0 / SAMPLES);
  u32 m[3 * SITES];
#pragma unroll
  for (int n = 0; n < 3 * SITES; n++) m[n] = level(v[n / 3][n % 3], times(full, row_unit<LINE>(n / 3, n % 3), 1));
#pragma unroll
  for (int k = 0; k < (CHUNK_BYTES + 3) / 4; k++) {
    const u32 ab = permute(m[4 * k], m[4 * k + 1], 0x6240);
    const u32 cd = 4 * k + 2 < 3 * SITES ? permute(m[4 * k + 2], m[4 * k + 3], 0x6240) : 0;
    low_image.word[k] = permute(ab, cd, 0x5410);
    high_image.word[k] = permute(ab, cd, 0x7632);
  }
}

// ---- floats

// Elements of a lane's sites, from the value `index` of an image on.
template <int TYPE, int WORDS> DEVICE void store_elements(void *image, size_t index, const u32 (&w)[WORDS]) {
  store_words<SITES * element_bytes(TYPE)>((u8 *)image + index * element_bytes(TYPE), w);
}
// values from 0 to 1 as floats (2), or as levels (3)
template <int TYPE, int COUNT> DEVICE void store_values(void *image, size_t index, const float (&v)[COUNT]) {
  u32 w[COUNT * value_bytes(TYPE) / 4];
  words_of<TYPE>(v, w);
  store_elements<TYPE>(image, index, w);
}
// what SSIM compares
template <int TYPE> DEVICE void store_compared(void *image, size_t index, u32 dither, const float (&v)[SITES]) {
  u32 w[SITES * value_bytes(TYPE) / 4];
  words_compared<TYPE>(v, dither, w);
  store_elements<TYPE>(image, index, w);
}
DEVICE void store_lane_bytes(void *image, size_t index, const u32 (&pairs)[SITES / 2]) {
  const u32 w[1] = {low_bytes(pairs[0], pairs[SITES / 2 - 1])};
  if (SITES == 4)
    store_elements<1>(image, index, w);
  else
    store16((u8 *)image + index, w[0]);
}
// Stages red, green and blue of a row, two sites a word in the lowest bytes of its halves.
DEVICE void stage_rgb(StagedImage &image, int row, const LanePosition &at, const u32 (&rgb)[3][SITES / 2]) {
  RowBytes bytes;
  interleave_pairs<SITES / 2>(rgb[0], rgb[1], rgb[2], bytes.word);
  stage_row(image, row, at, bytes);
}

// ---- polarization

// What the four angles of a row's sites give. s0, s1, s2: times LUMA_UNIT.
struct LanePolarization {
  float s0[SITES], s1[SITES], s2[SITES], dolp[SITES], tangent[SITES];
};
// The luma of a row's sites. WHITE: full scale of an angle.
struct RowSums {
  static constexpr float WHITE = IN_INTEGERS ? SiteLuma::WHITE : LUMA_UNIT;
  SiteLuma site[SITES];
};
DEVICE void sums_of(const RowValues &values, RowSums &sums) {
#pragma unroll
  for (int k = 0; k < SITES; k++) {
    const Pair sum = OUT_SUMS ? values.sum[k] : splat(0); // only SSIM needs it
    sums.site[k] = IN_INTEGERS ? site_luma(values.luma, k)
                               : SiteLuma{low(sum), high(sum), low(values.difference[k]), high(values.difference[k])};
  }
}
DEVICE void polarization(const RowSums &sums, LanePolarization &p) {
  constexpr bool swapped = angle_at(0, 0) % 2 == 1;
  constexpr bool s1_positive = angle_at(0, 0) == 0 || angle_at(0, 1) == 0;
  constexpr bool s2_positive = angle_at(0, 0) == 1 || angle_at(0, 1) == 1;
  constexpr float SCALE = LUMA_UNIT / RowSums::WHITE;
#pragma unroll
  for (int k = 0; k < SITES; k++) {
    const float even = sums.site[k].even_difference * SCALE, odd = sums.site[k].odd_difference * SCALE;
    const float x = swapped ? odd : even, y = swapped ? even : odd;
    p.s1[k] = s1_positive ? x : -x;
    p.s2[k] = s2_positive ? y : -y;
    const float length = polarized(x, y, 1e-30f);
    p.dolp[k] = degree_of(length, p.s0[k]);
    p.tangent[k] = folded_tangent(p.s1[k], p.s2[k], length);
  }
}

// What SSIM compares, as sums of orthogonal angles: two planes a frame.
DEVICE void store_row_sums(const FrameArguments &frame, size_t index, u32 dither, const RowSums &sums) {
  constexpr bool swapped = angle_at(0, 0) % 2 == 1;
  constexpr size_t PLANE = WIDTH_OUT * HEIGHT_OUT;
  float axial[SITES], diagonal[SITES];
#pragma unroll
  for (int k = 0; k < SITES; k++) {
    const float even = sums.site[k].even_sum * (0.5f / RowSums::WHITE),
                odd = sums.site[k].odd_sum * (0.5f / RowSums::WHITE);
    axial[k] = swapped ? odd : even;
    diagonal[k] = swapped ? even : odd;
  }
  store_compared<OUT_SUMS>(frame.out[SUMS], index + blockIdx.z * PLANE, dither, axial);
  store_compared<OUT_SUMS>(frame.out[SUMS], index + blockIdx.z * PLANE + PLANE, dither, diagonal);
}

// Counts the invalid sites of a row, and overwrites what they do not have: this is rare, and comes last, so that valid
// sites need no more than a test. s0: times LUMA_UNIT; saturated: bit k of site k.
template <int LINE>
DEVICE void drop_invalid(const Strip &strip, size_t index, const float (&s0)[SITES], float threshold, u32 saturated,
                         InvalidCount &count) {
  const FrameArguments &frame = strip.frame;
  count.saturated += __popc(saturated);
#pragma unroll
  for (int k = 0; k < SITES; k++) {
    const bool is_saturated = saturated >> k & 1, is_dark = WANT_DARK && !is_saturated && s0[k] < threshold;
    count.dark += is_dark;
    if (!is_saturated && !is_dark) continue;
    const size_t at = index + k;
    store_missing<OUT_STOKES, 3>(frame.out[STOKES], at);
    store_missing<OUT_DOLP>(frame.out[DOLP], at);
    store_missing<OUT_AOLP>(frame.out[AOLP], at);
    if (OUT_PREVIEW) { // gray
      u8 *staged = (u8 *)strip.shared.stage[PREVIEW_STAGE] + staged_byte(LINE, strip.at) + 3 * k;
      const u32 gray = rounded(s0[k], 255 / (2 * LUMA_UNIT));
      for (int c = 0; c < 3; c++) staged[c] = (u8)gray;
    }
  }
}

// Products of the polarization of a row, as if all its sites were valid.
template <int LINE>
DEVICE void put_polarization(const Strip &strip, size_t index, LanePolarization &p, bool is_inside) {
  const FrameArguments &frame = strip.frame;
  constexpr int PAIRS = SITES / 2;
  float radians[SITES];
  u32 saturation[PAIRS], folded[PAIRS], sign[PAIRS];
#pragma unroll
  for (int k = 0; k < SITES; k++) radians[k] = arctangent(p.tangent[k], PI);
#pragma unroll
  for (int k = 0; k < PAIRS; k++) {
    const int a = 2 * k, b = 2 * k + 1;
    saturation[k] = half2_pack(p.dolp[a], p.dolp[b]);
    sign[k] = (half2_pack(p.s1[a], p.s1[b]) & 0x80008000u) | half2_splat(1);
    folded[k] = OUT_AOLP == 2 ? folded_256(radians[a], radians[b], half2_splat(256 / PI))
                              : folded_256(half2_pack(p.tangent[a], p.tangent[b]));
  }
  if (OUT_PREVIEW) {
    u32 rgb[3][PAIRS];
#pragma unroll
    for (int k = 0; k < PAIRS; k++) {
      const u32 value = half2_pack(p.s0[2 * k], p.s0[2 * k + 1]);
      u32 color[3];
      preview_pairs(half2_mul(folded[k], half2_splat(6.0 / 256)), sign[k], half2_neg(half2_mul(value, saturation[k])),
                    value, color);
#pragma unroll
      for (int c = 0; c < 3; c++)
        rgb[c][k] = half2_fma(color[c], half2_splat(255 / (2 * LUMA_UNIT)), half2_splat(1024));
    }
    stage_rgb(strip.shared.stage[PREVIEW_STAGE], LINE, strip.at, rgb);
  }
  if (OUT_DOLP == 1) {
    u32 level[PAIRS];
#pragma unroll
    for (int k = 0; k < PAIRS; k++) level[k] = unit_bytes(saturation[k]);
    if (is_inside) store_lane_bytes(frame.out[DOLP], index, level);
  }
  if (OUT_AOLP == 1) {
    u32 turns[PAIRS];
#pragma unroll
    for (int k = 0; k < PAIRS; k++) {
      const int a = 2 * k, b = 2 * k + 1;
      turns[k] = OUT_PREVIEW ? unfolded_256(folded[k], sign[k])
                             : turns_256(half2_pack(p.tangent[a], p.tangent[b]), half2_pack(p.s1[a], p.s1[b]));
    }
    if (is_inside) store_lane_bytes(frame.out[AOLP], index, turns);
  }
  float stokes[3 * SITES];
#pragma unroll
  for (int k = 0; k < SITES; k++) {
    stokes[3 * k] = p.s0[k] * (1 / LUMA_UNIT);
    stokes[3 * k + 1] = p.s1[k] * (1 / LUMA_UNIT);
    stokes[3 * k + 2] = p.s2[k] * (1 / LUMA_UNIT);
    radians[k] = unfolded_radians(radians[k], p.s1[k]);
  }
  if (OUT_STOKES && is_inside) store_values<2>(frame.out[STOKES], 3 * index, stokes);
  if (OUT_DOLP >= 2 && is_inside) store_values<OUT_DOLP>(frame.out[DOLP], index, p.dolp);
  if (OUT_AOLP == 3 && is_inside) {
    u32 turns[PAIRS];
#pragma unroll
    for (int k = 0; k < PAIRS; k++)
      turns[k] = low_halves(unfolded_65536(arctangent(p.tangent[2 * k]), p.s1[2 * k]),
                            unfolded_65536(arctangent(p.tangent[2 * k + 1]), p.s1[2 * k + 1]));
    store_elements<3>(frame.out[AOLP], index, turns);
  }
  if (OUT_AOLP == 2 && is_inside) store_values<2>(frame.out[AOLP], index, radians);
}

// ---- a row

// One image of an angle: bytes are staged, others stored.
template <int ANGLE, int LINE>
DEVICE void put_angle(const Strip &strip, size_t index, const Colors &v, bool is_high, const RowBytes &bytes,
                      bool inside) {
  if (angle_type(ANGLE) == 1) stage_row(strip.shared.stage[ANGLE], LINE, strip.at, bytes);
  if (angle_type(ANGLE) < 2 || !inside) return;
  float f[3 * SITES];
#pragma unroll
  for (int n = 0; n < 3 * SITES; n++)
    f[n] = (is_high ? high(v[n / 3][n % 3]) : low(v[n / 3][n % 3])) * (row_unit<LINE>(n / 3, n % 3) / (float)SAMPLES);
  store_values<angle_type(ANGLE)>(strip.frame.out[ANGLE_0 + ANGLE], 3 * index, f);
}
// The images of both angles of a row parity.
template <int PARITY, int LINE>
DEVICE void put_angles(const Strip &strip, size_t index, const Colors &from, bool inside) {
  constexpr int low_angle = angle_at(PARITY, 0), high_angle = angle_at(PARITY, 1);
  if (!angle_type(low_angle) && !angle_type(high_angle)) return;
  Colors v;
  co_site<LINE>(strip.at, from, v);
  RowBytes bytes[2];
  angle_bytes<LINE>(v, bytes[0], bytes[1]);
  put_angle<low_angle, LINE>(strip, index, v, false, bytes[0], inside);
  put_angle<high_angle, LINE>(strip, index, v, true, bytes[1], inside);
}

// The products of one row: images of bytes staged, others stored. LINE: parity of its line on the lattice; step: rows
// that the strip has moved down; index: the lane's first pixel in the batch; saturated: bit k of site k.
template <int LINE>
DEVICE void put_products(const Strip &strip, int step, size_t index, const RowValues &values, bool is_inside,
                         u32 saturated, InvalidCount &count) {
  const FrameArguments &frame = strip.frame;
  constexpr int PAIRS = SITES / 2;
  constexpr Weight full = weight(255.0 / (4 * SAMPLES));
  if (!WANT_STOKES && is_inside) count.saturated += __popc(saturated);
  if (!PRODUCTS) return;
  Colors all;
  co_site<LINE>(strip.at, values.all, all);
  Pair sum[3][PAIRS]; // of all angles, sites as lanes
#pragma unroll
  for (int n = 0; n < 3 * PAIRS; n++) {
    const Pair a = all[n / 3 * 2][n % 3], b = all[n / 3 * 2 + 1][n % 3];
    sum[n % 3][n / 3] = add(lows(a, b), highs(a, b));
  }
  if (OUT_INTENSITY == 1) {
    u32 rgb[3][PAIRS];
#pragma unroll
    for (int c = 0; c < 3; c++)
#pragma unroll
      for (int k = 0; k < PAIRS; k++)
        rgb[c][k] = level(sum[c][k], join(times(full, row_unit<LINE>(0, c), 1), times(full, row_unit<LINE>(1, c), 1)));
    stage_rgb(strip.shared.stage[INTENSITY_STAGE], LINE, strip.at, rgb);
  }
  auto color = [&](int c, int k) { return k % 2 ? high(sum[c][k / 2]) : low(sum[c][k / 2]); };
  if (OUT_INTENSITY >= 2 && is_inside) {
    float f[3 * SITES];
#pragma unroll
    for (int n = 0; n < 3 * SITES; n++) f[n] = color(n % 3, n / 3) * (row_unit<LINE>(n / 3, n % 3) / (4.0f * SAMPLES));
    store_values<OUT_INTENSITY>(frame.out[INTENSITY], 3 * index, f);
  }
  if (!WANT_STOKES) return;
  RowSums sums;
  if (LUMA_BY_ANGLE) sums_of(values, sums);
  const u32 dither = dither_at(strip.at.y + step + LINE, 0);
  if (OUT_SUMS && is_inside) store_row_sums(frame, index, dither, sums);
  LanePolarization p;
  float darkest = 4 * LUMA_UNIT;
#pragma unroll
  for (int k = 0; k < SITES; k++) {
    constexpr float RED = LUMA_RED * LUMA_UNIT / (2 * SAMPLES), GREEN = LUMA_GREEN * LUMA_UNIT / (2 * SAMPLES);
    // not quite 0 where all is black
    p.s0[k] =
        IN_INTEGERS
            ? fmaf(sums.site[k].even_sum + sums.site[k].odd_sum, LUMA_UNIT / RowSums::WHITE / 2, 1e-6f)
            : fmaf(color(1, k), row_unit<LINE>(k, 1) * GREEN,
                   fmaf(color(0, k), row_unit<LINE>(k, 0) * RED, fmaf(color(2, k), row_unit<LINE>(k, 2) * RED, 1e-6f)));
    darkest = fminf(darkest, p.s0[k]);
  }
  if (OUT_S0 && is_inside) {
    float mean[SITES];
#pragma unroll
    for (int k = 0; k < SITES; k++) mean[k] = p.s0[k] * (0.5f / LUMA_UNIT);
    store_compared<OUT_S0>(frame.out[S0], index, dither, mean);
  }
  if (LUMA_BY_ANGLE) {
    polarization(sums, p);
    put_polarization<LINE>(strip, index, p, is_inside);
  }
  const float threshold = frame.min_intensity * LUMA_UNIT;
  if ((saturated || (WANT_DARK && darkest < threshold)) && is_inside)
    drop_invalid<LINE>(strip, index, p.s0, threshold, saturated, count);
}
