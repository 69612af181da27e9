// Planes of the Stokes image, which the first launch stores for others (`store_planes` in `products.cuh`): how they are
// read, and how S0/2, S1, S2 and `excess` of a pixel become its products.
#pragma once
#include "products.cuh"

// SOURCE_WIDTH and SOURCE_HEIGHT: of the planes; PLANES: 2 float32, 3 half.
static_assert(!HALF_RESOLUTION, "WIDTH and HEIGHT are those of the outputs");
static_assert(!HALF_PRECISION || PLANES == 3, "pairs of half interpolate halves");
constexpr u32 PLANE = (u32)SOURCE_WIDTH * SOURCE_HEIGHT; // pixels of a plane

// S1 and S2 of a pixel as the kernel computes them, and their last bits as one word, of which LAST_BITS count.
typedef Pair Difference;
constexpr int VALUE_BYTES = PLANES == 2 ? 4 : 2, DIFFERENCE_BYTES = 2 * VALUE_BYTES;
#if PLANES == 3
DEVICE u32 last_bits(uint2 raw) { return raw.x; }
DEVICE uint2 load_difference(const u8 *p, int k) { return make_uint2(load32(p + 4 * k), 0); }
#if HALF_PRECISION
DEVICE Difference difference_of(uint2 raw) { return raw.x; }
DEVICE Pair row_of(const u8 *p, int k) { return permute(load16(p + 2 * k), load16(p + 2 * k + 2), 0x5410); }
#else
DEVICE Difference difference_of(uint2 raw) { return pair(half2_low(raw.x), half2_high(raw.x)); }
DEVICE Pair row_of(const u8 *p, int k) { return pair(half2_low(load16(p + 2 * k)), half2_low(load16(p + 2 * k + 2))); }
#endif
#else
DEVICE u32 last_bits(uint2 raw) { return (raw.x & 1) | raw.y << 16; }
DEVICE uint2 load_difference(const u8 *p, int k) { return load64(p + 8 * k); }
DEVICE Difference difference_of(uint2 raw) { return pair(as_float(raw.x), as_float(raw.y)); }
DEVICE Pair row_of(const u8 *p, int k) { return pair(as_float(load32(p + 4 * k)), as_float(load32(p + 4 * k + 4))); }
#endif

// The row that lies there if the image is mirrored about its first and last row; and the same of columns.
DEVICE int mirrored(int at, int size) {
  while ((u32)at >= (u32)size) at = at < 0 ? -at : 2 * (size - 1) - at;
  return at;
}

// The variance of a raw pixel, in the units of pairs, from S0/2.
DEVICE float raw_variance(const FrameArguments &frame, float light) {
  return variance_of(light, frame.shot * FULL, frame.dark * (FULL * FULL));
}

// A pixel of S0/2 or of `excess`.
DEVICE float pixel_of(const u8 *plane, u32 at) {
  const u8 *p = plane + (size_t)at * VALUE_BYTES;
  return PLANES == 2 ? as_float(load32(p)) : half2_low(load16(p));
}

// An intensity within what integers hold: turned by a lens, or denoised, that behind a polarizer can lie beyond.
template <int TYPE> DEVICE Pair within(Pair intensity) { return TYPE == 2 ? intensity : clip(intensity); }

// The angle images of four pixels.
DEVICE void angles_of(const Combinations &of, Angles &angle) {
  const Pair half = splat(0.5);
#pragma unroll
  for (int c = 0; c < CHANNELS; c++)
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const Pair straight = add(of.mean[c][k], of.excess[c][k]), diagonal = sub(of.mean[c][k], of.excess[c][k]);
      angle[c][0][k] = within<angle_type(0)>(fma(of.s1[c][k], half, straight));
      angle[c][1][k] = within<angle_type(1)>(fma(of.s2[c][k], half, diagonal));
      angle[c][2][k] = within<angle_type(2)>(sub(straight, mul(of.s1[c][k], half)));
      angle[c][3][k] = within<angle_type(3)>(sub(diagonal, mul(of.s2[c][k], half)));
    }
}

// The products of four pixels in row y, and what SSIM compares; invalid: bit k says that pixel k has no
// polarization; change_noise: as for `store_polarization`.
template <class ChangeNoise = KeepNoise>
DEVICE void store_combinations(const FrameArguments &frame, const OutputPosition &at, int y, const Combinations &of,
                               u32 invalid, const ChangeNoise &change_noise = ChangeNoise()) {
  Angles angle = {};
  if (WANT_ANGLES || NOISE) angles_of(of, angle);
  store_angles(frame, at, angle);
  store_light(frame, at, of);
  if (!WANT_STOKES) return;
  Polarization p = polarization_of(of);
  polarize(p, 0);
  if (OUT_S0) {
    float s0[4];
#pragma unroll
    for (int k = 0; k < 4; k++) s0[k] = p.s0f[k] * (1 / FULL);
    store_compared<OUT_S0>(frame.out[S0], at, s0);
  }
  if (OUT_SUMS) store_sums(frame, at, p.s0, of);
  store_polarization(frame, at, angle, y, p, invalid, valid_bytes(invalid), change_noise);
}

// Planes for the next launch, or the products of four pixels in row y, with the numbers of invalid ones. saturated,
// dark: a bit for each pixel; change_noise: as for `store_polarization`.
template <class ChangeNoise>
DEVICE void store_planes_or_products(const FrameArguments &frame, const OutputPosition &at, int y,
                                     const Combinations &of, u32 saturated, u32 dark, const ChangeNoise &change_noise,
                                     InvalidCount &count) {
  if (WANT_PLANES) return store_planes(frame, at, of, saturated, dark);
  const u32 inside = (1u << at.n) - 1;
  saturated &= inside;
  dark &= WANT_DARK ? inside & ~saturated : 0;
  count.saturated += __popc(saturated);
  count.dark += __popc(dark);
  store_combinations(frame, at, y, of, saturated | dark, change_noise);
}
