// Values of two neighboring pixels, or of two neighboring superpixels, as one number: a word of two halves, or two
// floats with HALF_PRECISION 0. Intensities are in 32 levels: full scale is 255/32. A power of two, so that 8-bit
// samples and their small sums are exact in half, and so chosen that ADR's squares and products of roughness stay
// within half's range.
#pragma once
#include "frame.cuh"

#ifndef UNIT_LEVELS
#define UNIT_LEVELS 32.0f
#endif
constexpr float LEVEL = 1 / UNIT_LEVELS;  // one 8-bit level
constexpr float FULL = 255 / UNIT_LEVELS; // full scale

// bits of the half nearest to a number, at compile time: coefficients become literals in the instruction
CONSTANT u32 half_bits_of(double magnitude, int exponent) {
  return magnitude >= 2  ? half_bits_of(magnitude / 2, exponent + 1)
         : magnitude < 1 ? (exponent > -14 ? half_bits_of(magnitude * 2, exponent - 1) : (u32)(magnitude * 1024 + 0.5))
                         : (u32)((exponent + 15) * 1024) + (u32)((magnitude - 1) * 1024 + 0.5);
}
CONSTANT u32 half_bits(double value) {
  return value == 0 ? 0u : value < 0 ? 0x8000u | half_bits_of(-value, 0) : half_bits_of(value, 0);
}
CONSTANT u32 half2_splat(double value) { return u32(half_bits(value) * 0x10001u); }

// a byte as a subnormal half is that many times this
constexpr double SUBNORMAL_UNIT = 1.0 / 16777216;
// two pairs of bytes from their halves 1024 + byte, whose last bit is the unit
DEVICE u32 low_bytes(u32 a, u32 b) { return permute(a, b, 0x6420); }

#if HALF_PRECISION
typedef u32 Pair;
typedef u16 Single; // one of a pair

CONSTANT Pair splat(double value) { return half2_splat(value); }
DEVICE Pair pair(float low, float high) { return half2_pack(low, high); }
DEVICE Single single(float value) { return (Single)half2_pack(value, value); }
DEVICE float low(Pair a) { return half2_low(a); }
DEVICE float high(Pair a) { return half2_high(a); }
DEVICE Pair add(Pair a, Pair b) { return half2_add(a, b); }
DEVICE Pair sub(Pair a, Pair b) { return half2_sub(a, b); }
DEVICE Pair mul(Pair a, Pair b) { return half2_mul(a, b); }
DEVICE Pair fma(Pair a, Pair b, Pair c) { return half2_fma(a, b, c); }
DEVICE Pair absolute(Pair a) { return half2_abs(a); }
DEVICE Pair negate(Pair a) { return half2_neg(a); }
DEVICE Pair minimum(Pair a, Pair b) { return half2_min(a, b); }
DEVICE Pair maximum(Pair a, Pair b) { return half2_max(a, b); }
// clamped to [0, 1]
DEVICE Pair fma_saturate(Pair a, Pair b, Pair c) { return half2_fma_sat(a, b, c); }
DEVICE Pair lows(Pair a, Pair b) { return permute(a, b, 0x5410); }     // (a.low, b.low)
DEVICE Pair highs(Pair a, Pair b) { return permute(a, b, 0x7632); }    // (a.high, b.high)
DEVICE Pair join(Pair a, Pair b) { return permute(a, b, 0x7610); }     // (a.low, b.high)
DEVICE Pair straddle(Pair a, Pair b) { return permute(a, b, 0x5432); } // (a.high, b.low)
// values in [0, FULL], of whose bits as halves the low byte is the level: from 32 on, the last bit of a half is 1/32
DEVICE Pair levels_1024(Pair a) {
  return UNIT_LEVELS == 32 ? add(a, splat(32)) : fma(a, splat(UNIT_LEVELS), splat(1024));
}
// four values in [0, FULL], rounded to nearest even, as four bytes
DEVICE u32 bytes(Pair a, Pair b) { return low_bytes(levels_1024(a), levels_1024(b)); }
// two bytes of a word, each behind the exponent of 1024: 1024 + byte
template <int FIRST> DEVICE Pair bytes_1024(u32 word) { return permute(word, 0x64646464u, FIRST ? 0x4342 : 0x4140); }
// two bytes of a word as subnormal halves: byte times 2^-24, exactly, and without arithmetic
template <int FIRST> DEVICE Pair subnormal_bytes(u32 word) { return permute(word, 0u, FIRST ? 0x4342 : 0x4140); }
// the bytes of a word times a scale, of which `offset` is -1024 times
template <int FIRST> DEVICE Pair pair_of_bytes(u32 word, Pair scale, Pair offset) {
  return fma(bytes_1024<FIRST>(word), scale, offset);
}
#else
struct Pair {
  float x, y;
};
typedef float Single;
CONSTANT Pair splat(double value) { return Pair{(float)value, (float)value}; }
DEVICE Pair pair(float low, float high) { return Pair{low, high}; }
DEVICE Single single(float value) { return value; }
DEVICE float low(Pair a) { return a.x; }
DEVICE float high(Pair a) { return a.y; }
DEVICE Pair add(Pair a, Pair b) { return Pair{a.x + b.x, a.y + b.y}; }
DEVICE Pair sub(Pair a, Pair b) { return Pair{a.x - b.x, a.y - b.y}; }
DEVICE Pair mul(Pair a, Pair b) { return Pair{a.x * b.x, a.y * b.y}; }
DEVICE Pair fma(Pair a, Pair b, Pair c) { return Pair{fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y)}; }
DEVICE Pair absolute(Pair a) { return Pair{fabsf(a.x), fabsf(a.y)}; }
DEVICE Pair negate(Pair a) { return Pair{-a.x, -a.y}; }
DEVICE Pair minimum(Pair a, Pair b) { return Pair{fminf(a.x, b.x), fminf(a.y, b.y)}; }
DEVICE Pair maximum(Pair a, Pair b) { return Pair{fmaxf(a.x, b.x), fmaxf(a.y, b.y)}; }
DEVICE Pair fma_saturate(Pair a, Pair b, Pair c) {
  return Pair{saturate(fmaf(a.x, b.x, c.x)), saturate(fmaf(a.y, b.y, c.y))};
}
DEVICE Pair lows(Pair a, Pair b) { return Pair{a.x, b.x}; }
DEVICE Pair highs(Pair a, Pair b) { return Pair{a.y, b.y}; }
DEVICE Pair join(Pair a, Pair b) { return Pair{a.x, b.y}; }
DEVICE Pair straddle(Pair a, Pair b) { return Pair{a.y, b.x}; }
DEVICE u32 rounded_bits(float value) {
  return as_bits(fmaf(value, UNIT_LEVELS, 8388608.0f));
} // 2^23: the unit is the last bit of a float
DEVICE u32 bytes(Pair a, Pair b) {
  return permute(permute(rounded_bits(a.x), rounded_bits(a.y), 0x0040),
                 permute(rounded_bits(b.x), rounded_bits(b.y), 0x0040), 0x5410);
}
template <int FIRST> DEVICE Pair pair_of_bytes(u32 word, Pair scale, Pair) {
  return Pair{(float)(word >> (16 * FIRST) & 255) * scale.x, (float)(word >> (16 * FIRST + 8) & 255) * scale.y};
}
#endif

template <class V> struct Number;
template <> struct Number<Pair> { // of a formula (`formulas.h`)
  static CONSTANT Pair of(double number) { return splat(number); }
};

// two pairs that lie side by side, for one access of shared memory
struct alignas(2 * sizeof(Pair)) Quad {
  Pair a, b;
};
// clamped to [0, FULL]
DEVICE Pair clip(Pair a) { return maximum(minimum(a, splat(FULL)), splat(0)); }
#if HALF_PRECISION
DEVICE Pair fma_clip(Pair a, Pair b, Pair c) { return minimum(half2_fma_relu(a, b, c), splat(FULL)); }
DEVICE Pair add_clip(Pair a, Pair b) { return fma_clip(a, splat(1), b); } // an addition has no clamp
#else
DEVICE Pair fma_clip(Pair a, Pair b, Pair c) { return clip(fma(a, b, c)); }
DEVICE Pair add_clip(Pair a, Pair b) { return clip(add(a, b)); } // as a multiply-add, ADR in color spills on sm_72
#endif
DEVICE Pair reciprocal(Pair a) { return pair(fast_rcp(low(a)), fast_rcp(high(a))); }
#if HALF_PRECISION
// The same of numbers from 2^-14 to 2^14, by the pipe of the halves alone, in four instructions: a difference of bits
// is right to 6 %, and one step of third order makes 1.3e-4 of it.
DEVICE Pair reciprocal_by_fma(Pair a) {
  const Pair guess = 0x77997799u - a, error = fma(negate(a), guess, splat(1));
  return fma(guess, fma(error, error, error), guess);
}
#else
DEVICE Pair reciprocal_by_fma(Pair a) { return reciprocal(a); }
#endif
#include "formulas.h"
