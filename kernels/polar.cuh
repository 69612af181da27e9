// Angle and preview of the polarization, for kernels that fold the angle by the sign of S1: half of it comes free,
// since atan2(S2, S1)/2 = atan(S2 / (length + S1)).
#ifndef POLAR_POLAR_CUH
#define POLAR_POLAR_CUH
#include "products.cuh"

// AoLP folded into [-pi/4, pi/4], from the tangent of the folded angle.
DEVICE float folded_radians(float t) {
  constexpr float PI = 3.14159265f;
  const float u = t * t;
  return t * fmaf(u, fmaf(u, fmaf(u, fmaf(u, PI * ATAN_9, PI * ATAN_7), PI * ATAN_5), PI * ATAN_3), PI * ATAN_1);
}
// folded + 0, or pi/2 - folded where S1 is negative; in [0, pi)
DEVICE float unfolded_radians(float folded, float s1) {
  const float sign = as_float((as_bits(s1) & 0x80000000u) | 0x3f800000u);
  const float angle = fmaf(folded, sign, fmaf(sign, -0.785398163f, 0.785398163f));
  return angle < 0 ? angle + 3.1415925f : angle;
}
// the same of two pixels in 256ths of pi, as halves, for `unfolded_256`
DEVICE u32 folded_256_of(float a, float b) { return half2_mul(half2_pack(a, b), half2_splat(256 / 3.14159265)); }

// Levels of the preview of two pixels in the low bytes of two lanes: HSV to RGB (Smith 1978) with the hue as three
// folded ramps. folded: in 256ths of pi; sign: +-1 with the sign of S1; value times scale: 0 to 255.
DEVICE void preview_levels(u32 folded, u32 sign, u32 saturation, u32 value, u32 scale, u32 &r, u32 &g, u32 &b) {
  constexpr u32 sixth = half2_splat(6.0 / 256), half = half2_splat(0.5), bias = half2_splat(1024);
  const u32 f = half2_mul(folded, sixth), side = half2_fma(sign, half, half);
  const u32 less_red = half2_fma_sat(half2_abs(f), sign, half2_fma(sign, half2_splat(-1.5), half));
  const u32 less_green = half2_fma_sat(f, half2_splat(-1), side), less_blue = half2_fma_sat(f, half2_splat(1), side);
  const u32 depth = half2_neg(half2_mul(value, saturation));
  r = half2_fma(half2_fma(less_red, depth, value), scale, bias);
  g = half2_fma(half2_fma(less_green, depth, value), scale, bias);
  b = half2_fma(half2_fma(less_blue, depth, value), scale, bias);
}
#endif
