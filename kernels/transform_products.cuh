// From the samples of a tile of the output, in shared memory, to its products: S1 and S2 turn, then everything that
// depends on one pixel only (`products.cuh`).
#pragma once
#include "transform.cuh"

// Blocks of a multiprocessor: enough to hide latencies, or before sm_80 as many as fit into the 96 KB of shared memory.
constexpr int ENOUGH_BLOCKS = (RESIDENT + THREADS - 1) / THREADS;
#if __CUDA_ARCH__ < 800
constexpr int FITTING_BLOCKS = (96 << 10) / SHARED_BYTES;
constexpr int BLOCKS = ENOUGH_BLOCKS < FITTING_BLOCKS ? ENOUGH_BLOCKS : FITTING_BLOCKS;
#else
constexpr int BLOCKS = ENOUGH_BLOCKS;
#endif

constexpr int VALUE_PITCH = PITCH + HALF_PRECISION; // of single values, whole words
// What a block keeps of a tile's samples until its threads make the products of neighboring pixels.
struct Samples {
  Difference differences[CHANNELS][TILE_Y][PITCH]; // with last bits; both: outside
  alignas(4) Single means[CHANNELS][TILE_Y][VALUE_PITCH];
  alignas(4) Single excesses[EXCESS ? CHANNELS : 1][EXCESS ? TILE_Y : 1][VALUE_PITCH];
};

#if HALF_PRECISION
DEVICE Difference marked(Pair value, u32 bits) { return (value & ~LAST_BITS) | bits; }
DEVICE u32 bits_of(Difference value) { return value & LAST_BITS; }
DEVICE Single kept(Pair value) { return (u16)value; }
#else
DEVICE Difference marked(Pair value, u32 bits) {
  return pair(as_float((as_bits(low(value)) & ~1u) | (bits & 1)), as_float((as_bits(high(value)) & ~1u) | bits >> 16));
}
DEVICE u32 bits_of(Difference value) { return (as_bits(low(value)) & 1) | (as_bits(high(value)) & 1) << 16; }
DEVICE Single kept(Pair value) { return low(value); }
#endif

// Where a thread takes samples in the tile: in the line of its first pixel, and STEP lines further on.
constexpr int LINE = BY_COLUMNS ? TILE_Y : TILE_X, STEP = THREADS / LINE;
static_assert(THREADS % LINE == 0, "a thread's pixels are complete lines apart");
static_assert(PIXELS == 4 * THREADS, "a thread makes four pixels");

#if HALF_PRECISION
DEVICE Pair neighbors(const Single *values) { return *(const u32 *)values; } // at an even column
#else
DEVICE Pair neighbors(const Single *values) { return pair(values[0], values[1]); }
#endif

// The rotation of four pixels as S1 and S2 turn by it. Loaded early: it comes from the map, which no launch makes.
struct Turn {
  Pair cosine, sine; // of twice the angle; without positions: the factor of both in `cosine`
};
DEVICE Turn load_turn(const TransformArguments &job, u32 tile) {
  const u8 *at = job.turns + (tile * THREADS + threadIdx.x) * DIFFERENCE_BYTES;
#if POSITIONS && PLANES == 2
  const uint2 both = load64(at);
  return Turn{pair(as_float(both.x), as_float(both.x)), pair(as_float(both.y), as_float(both.y))};
#elif POSITIONS && HALF_PRECISION
  const u32 both = load32(at);
  return Turn{half2_low_twice(both), half2_high_twice(both)};
#elif POSITIONS
  const u32 both = load32(at);
  return Turn{pair(half2_low(both), half2_low(both)), pair(half2_high(both), half2_high(both))};
#else
  return Turn{pair(job.turn, job.turn), splat(0)};
#endif
}

// S1 and S2 of two pixels, turned.
DEVICE void turn(const Turn &by, Pair &s1, Pair &s2) {
  const Pair before = s1;
  s1 = sub(mul(by.cosine, before), mul(by.sine, s2));
  s2 = fma(by.sine, before, mul(by.cosine, s2));
}

// Four pixels from column x of row r of the tile.
DEVICE void combine_samples(const Samples &s, int r, int x, const Turn &by, Combinations &of) {
#pragma unroll
  for (int c = 0; c < CHANNELS; c++)
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const Difference *values = &s.differences[c][r][x + 2 * k];
      of.s1[c][k] = lows(values[0], values[1]);
      of.s2[c][k] = highs(values[0], values[1]);
      of.mean[c][k] = neighbors(&s.means[c][r][x + 2 * k]);
      if (EXCESS) of.excess[c][k] = neighbors(&s.excesses[c][r][x + 2 * k]);
#if POSITIONS
      turn(by, of.s1[c][k], of.s2[c][k]);
#else
      of.s1[c][k] = mul(by.cosine, of.s1[c][k]);
      of.s2[c][k] = mul(by.cosine, of.s2[c][k]);
#endif
    }
}

// Makes an image of floats NaN where pixels are outside.
DEVICE void erase(void *image, const OutputPosition &at, u32 outside) {
  for (int k = 0; k < at.n; k++)
    for (int c = 0; c < (outside >> k & 1 ? CHANNELS : 0); c++)
      store32((float *)image + (at.index + k) * CHANNELS + c, as_bits(nan_value()));
}
DEVICE void erase_light(const FrameArguments &frame, const OutputPosition &at, u32 outside) {
  if (OUT_INTENSITY == 2) erase(frame.out[INTENSITY], at, outside);
#define ERASE_COMPONENT(NAME)                                                                                          \
  if (OUT_##NAME == 2) erase(frame.out[NAME], at, outside);
  LIGHT_COMPONENTS(ERASE_COMPONENT)
#pragma unroll
  for (int k = 0; k < 4; k++)
    if (angle_type(k) == 2) erase(frame.out[ANGLE_0 + k], at, outside);
}

// Every product of four pixels from column x of row r of the tile; (y, left): the first one in the output.
DEVICE void make_products(const FrameArguments &frame, const Samples &s, int r, int x, int y, int left, const Turn &by,
                          InvalidCount &count) {
  const OutputPosition at = output_position(frame, y, left);
  Combinations of;
  combine_samples(s, r, x, by, of);
  const Difference *marks = &s.differences[0][r][x];
  u32 invalid = 0, saturated = 0, dark = 0, outside = 0;
  if (bits_of(marks[0]) | bits_of(marks[1]) | bits_of(marks[2]) | bits_of(marks[3])) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
      saturated |= (bits_of(marks[k]) & 1) << k;
      dark |= (bits_of(marks[k]) >> 16) << k;
    }
    invalid = (saturated | dark) & ((1u << at.n) - 1);
    outside = saturated & dark & invalid;
    saturated &= invalid & ~outside;
    dark = WANT_DARK ? dark & invalid & ~outside : 0;
    invalid = saturated | dark | outside;
    count.saturated += __popc(saturated);
    count.dark += __popc(dark);
  }
  store_combinations(frame, at, y, of, invalid);
  if (outside) erase_light(frame, at, outside);
}
