// Arithmetic of a GPU that takes more than an operator on a CPU. In a library of its own with the runner, compiled with
// optimization: in every kernel it would have to be compiled again, without.
#include "cuda.cuh"
#include <cmath>

u32 permute(u32 a, u32 b, u32 selector) {
  if (selector & 0xffff8888u) host_fault("permute with selector 0x%x: four nibbles of 0 to 7 expected", selector);
  u64 bytes = (u64)b << 32 | a;
  u32 result = 0;
  for (int k = 0; k < 4; ++k) result |= (u32)(u8)(bytes >> 8 * (selector >> 4 * k & 7)) << 8 * k;
  return result;
}

// ---- one half
static double host_double(u64 bits) {
  double value;
  __builtin_memcpy(&value, &bits, 8);
  return value;
}
static u64 host_double_bits(double value) {
  u64 bits;
  __builtin_memcpy(&bits, &value, 8);
  return bits;
}
static double host_from_half(u32 bits) {
  u64 exponent = bits >> 10 & 31, fraction = bits & 1023;
  double magnitude = exponent == 31 ? (fraction ? NAN : INFINITY)
                     : exponent     ? host_double((exponent + 1023 - 15) << 52 | fraction << 42)
                                    : (double)fraction / 16777216;
  return bits & 0x8000 ? -magnitude : magnitude;
}
// Nearest half, ties to even. Sums and products of halves, and a product plus a half wherever it decides the rounding,
// are exact in a double: one rounding in all.
static u32 host_to_half(double value) {
  if (std::isnan(value)) return 0x7fff;
  u32 sign = std::signbit(value) ? 0x8000 : 0;
  double magnitude = std::fabs(value);
  if (magnitude >= 65520) return sign | 0x7c00;
  if (magnitude < 1 / 16384.0) return sign | (u32)std::rint(magnitude * 16777216); // subnormal
  u64 bits = host_double_bits(magnitude) - ((u64)(1023 - 15) << 52);
  return sign | (u32)((bits + ((u64)1 << 41) - 1 + (bits >> 42 & 1)) >> 42); // a carry runs into the exponent
}
static u32 host_saturate_half(u32 bits) {
  double value = host_from_half(bits);
  return value > 0 ? (value < 1 ? bits : 0x3c00) : 0; // NaN is not greater
}
// As PTX has it: a number wins over NaN, and -0 lies below +0.
static u32 host_less_half(u32 a, u32 b, bool wanted) {
  double x = host_from_half(a), y = host_from_half(b);
  if (std::isnan(x) && std::isnan(y)) return 0x7fff;
  if (std::isnan(x) || std::isnan(y)) return std::isnan(x) ? b : a;
  bool less = x < y || (x == y && std::signbit(x));
  return less == wanted ? a : b;
}

// ---- a word of two halves, low lane first
#define HOST_LANES(expression)                                                                                         \
  [&] {                                                                                                                \
    auto lane = [=](int shift) {                                                                                       \
      (void)shift;                                                                                                     \
      return (u32)(expression) & 0xffffu;                                                                              \
    };                                                                                                                 \
    return lane(0) | lane(16) << 16;                                                                                   \
  }()
#define HOST_HALF(word) host_from_half((word) >> shift & 0xffffu)
u32 half2_add(u32 a, u32 b) { return HOST_LANES(host_to_half(HOST_HALF(a) + HOST_HALF(b))); }
u32 half2_sub(u32 a, u32 b) { return HOST_LANES(host_to_half(HOST_HALF(a) - HOST_HALF(b))); }
u32 half2_mul(u32 a, u32 b) { return HOST_LANES(host_to_half(HOST_HALF(a) * HOST_HALF(b))); }
u32 half2_fma(u32 a, u32 b, u32 c) { return HOST_LANES(host_to_half(HOST_HALF(a) * HOST_HALF(b) + HOST_HALF(c))); }
u32 half2_fma_sat(u32 a, u32 b, u32 c) {
  u32 d = half2_fma(a, b, c);
  return HOST_LANES(host_saturate_half(d >> shift & 0xffffu));
}
float half2_low(u32 a) { return (float)host_from_half(a & 0xffffu); }
float half2_high(u32 a) { return (float)host_from_half(a >> 16); }
u32 half2_pack(float low, float high) { return host_to_half(low) | host_to_half(high) << 16; }
u32 half2_min(u32 a, u32 b) { return HOST_LANES(host_less_half(a >> shift & 0xffffu, b >> shift & 0xffffu, true)); }
u32 half2_max(u32 a, u32 b) { return HOST_LANES(host_less_half(a >> shift & 0xffffu, b >> shift & 0xffffu, false)); }

// ---- float; the approximations flush subnormal numbers to zero
static float host_flush(float x) { return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x; }
float fast_rcp(float x) { return host_flush(1.0f / host_flush(x)); }
float fast_sqrt(float x) { return std::sqrt(host_flush(x)); }
float fast_exp2(float x) { return host_flush(std::exp2(x)); }
