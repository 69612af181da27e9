// Separable convolution with a short symmetric window, in float: sliding sums in registers, lines in shared memory, or
// banded matrices on tensor cores. What is beyond the border is mirrored, the border's own pixel included.
//
// `Taps` is a type with RADIUS (at most 7), `at(distance)`, and `half_at(distance)`: the bits of the same as halves, of
// which the window sums to exactly 1.
#ifndef POLAR_CONVOLUTION_CUH
#define POLAR_CONVOLUTION_CUH
#include "cuda.cuh"

// Place k of a line of SIZE, mirrored as often as it takes; on lines of 16 and more once, which reaches 15 beyond both
// ends.
template <int SIZE> DEVICE int mirrored(int k) {
  if (SIZE < 16) {
    const int turn = (k % (2 * SIZE) + 2 * SIZE) % (2 * SIZE);
    return turn < SIZE ? turn : 2 * SIZE - 1 - turn;
  }
  const int right = k < 0 ? -1 - k : k;
  return right < SIZE ? right : 2 * SIZE - 1 - right;
}

// A window that slides along a line: every value moves the partial sums on by one tap, at no cost.
template <typename Taps> struct Sliding {
  float sum[2 * Taps::RADIUS];
  DEVICE void clear() {
#pragma unroll
    for (int k = 0; k < 2 * Taps::RADIUS; k++) sum[k] = 0;
  }
  // takes the next value; gives the convolution RADIUS values before it
  DEVICE float push(float value) {
    const float done = fmaf(Taps::at(Taps::RADIUS), value, sum[0]);
#pragma unroll
    for (int k = 1; k < 2 * Taps::RADIUS; k++) sum[k - 1] = fmaf(Taps::at(Taps::RADIUS - k), value, sum[k]);
    sum[2 * Taps::RADIUS - 1] = Taps::at(Taps::RADIUS) * value;
    return done;
  }
};

// N neighbours of a convolved line. line: RADIUS before the first of them, at an address for four values.
template <typename Taps, int N> DEVICE void convolve(const float *line, float (&out)[N]) {
  constexpr int SPAN = N + 2 * Taps::RADIUS;
  float value[SPAN];
#pragma unroll
  for (int k = 0; k + 4 <= SPAN; k += 4) {
    const float4 four = *(const float4 *)(line + k);
    value[k] = four.x;
    value[k + 1] = four.y;
    value[k + 2] = four.z;
    value[k + 3] = four.w;
  }
  if (SPAN % 4) {
    const float2 two = *(const float2 *)(line + SPAN / 4 * 4);
    value[SPAN / 4 * 4] = two.x;
    value[SPAN - 1] = two.y;
  }
#pragma unroll
  for (int i = 0; i < N; i++) {
    out[i] = Taps::at(Taps::RADIUS) * value[i];
#pragma unroll
    for (int k = 1; k <= 2 * Taps::RADIUS; k++) out[i] = fmaf(Taps::at(k - Taps::RADIUS), value[i + k], out[i]);
  }
}

#if HAS_TENSOR
// On tensor cores a convolution is a product with a band of taps. A warp makes 16 columns from the 32 around them, 8
// rows at a time:
//     along x   (16 columns x 32 columns of taps) times (32 columns x 8 rows of pixels)
//     along y   (16 columns x 8 rows of the above) times (8 rows x 8 rows of taps), for the rows above, at and below
//     them
// The first product comes out as the second one takes it in. Lane = 4 g + t holds, of the picture, the eight columns 8t
// .. 8t+7 of row g, as they lie in memory (which the order of columns in the taps makes up for); of the result, columns
// 2g and 2g+1 of rows 2t and 2t+1: (2g, 2t), (2g, 2t+1), (2g+1, 2t), (2g+1, 2t+1).

// taps in half by distance; far ones are zero
template <typename Taps> struct HalfTaps {
  u16 at[18];
  CONSTANT HalfTaps() : at() {
    for (int k = 0; k <= Taps::RADIUS; k++) at[k] = (u16)Taps::half_at(k);
  }
};

struct Bands {
  u32 along[2][4];                // halves of the 32 columns
  u32 last[2], same[2], first[2]; // for the result's eight rows above, at and below
};

// The bands of a lane, whose result begins at column x. Eight columns beyond an end of the line are those mirrored, and
// lie in memory the other way round: so do their taps. `again` is 0, which the compiler must not know: equal registers
// would not lie side by side.
template <typename Taps, int WIDTH_> DEVICE Bands make_bands(const HalfTaps<Taps> &taps, int x, int lane, int again) {
  const int g = lane >> 2, t = lane & 3, column = x - 8 + 8 * t;
  const bool reversed = column < 0 || column >= WIDTH_;
  // The taps at two neighbouring distances come from the lane that holds them: from -16 on, where both are zero, to 15.
  const u32 held = (u32)taps.at[abs(lane - 16)] | (u32)taps.at[abs(lane - 15)] << 16;
  auto two = [&](int distance) { return shuffle(held, max(-16, min(distance, 15)) + 16); };
  Bands bands;
#pragma unroll
  for (int k = 0; k < 8; k++) { // words of eight columns; both columns of the result
    const int word = k >> 1, at = reversed ? 6 - 2 * word : 2 * word;
    const u32 pair = two(8 * t - 8 + at - 2 * g - (k & 1));
    bands.along[word >> 1][(word & 1) * 2 + (k & 1)] = permute(pair, 0, reversed ? 0x1032 : 0x3210);
  }
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const int far = 2 * t - g + k * again;
    bands.last[k] = two(far + 8);
    bands.same[k] = two(far);
    bands.first[k] = two(far - 8);
  }
  return bands;
}
// Where the eight columns of a lane lie. WIDTH_ is a multiple of 8.
template <int WIDTH_> DEVICE int column_of(int x, int lane) {
  const int column = x - 8 + 8 * (lane & 3);
  return column < 0 ? -8 - column : column < WIDTH_ ? column : max(2 * WIDTH_ - 8 - column, 0);
}

// 16 columns x 8 rows along x; added to `out`
DEVICE void along_x(const Bands &bands, const u32 (&words)[4], float (&out)[4]) {
  tensor_add(out, bands.along[0], words[0], words[1]);
  tensor_add(out, bands.along[1], words[2], words[3]);
}
// Those along y: what they add to the eight rows above, which are then complete, to their own, and as the first to
// those below. Halves hold too little, so each value is two: 8 rows of its last bits, and the same 8 rows of its first
// ones.
DEVICE void along_y(const Bands &bands, const float (&in)[4], float (&above)[4], float (&own)[4], float (&below)[4]) {
  u32 rows[4];
  float first[4];
#pragma unroll
  for (int k = 0; k < 4; k++) first[k] = as_float(as_bits(in[k]) & 0xffffe000u); // the 11 bits that a half has
#pragma unroll
  for (int k = 0; k < 2; k++) {
    rows[k] = half2_pack(in[2 * k] - first[2 * k], in[2 * k + 1] - first[2 * k + 1]);
    rows[2 + k] = half2_pack(first[2 * k], first[2 * k + 1]);
  }
  tensor_add(above, rows, bands.last[0], bands.last[1]);
  tensor_add(own, rows, bands.same[0], bands.same[1]);
#pragma unroll
  for (int k = 0; k < 4; k++) below[k] = 0;
  tensor_add(below, rows, bands.first[0], bands.first[1]);
}
#endif // HAS_TENSOR
#endif
