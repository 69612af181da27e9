// Separable convolution with a short symmetric window, in float: sliding sums in registers, lines in shared memory, or
// banded matrices on tensor cores. What is beyond the border is mirrored, the border's own pixel included.
//
// `Taps` is a type with RADIUS (at most 7), `at(distance)`, and `half_at(distance)`: the bits of the same as halves, of
// which the window sums to exactly 1.
#pragma once
#include "cuda.cuh"

// The index within a line of SIZE that k stands for: mirrored repeatedly; on lines of 16 and more once, which suffices
// up to 15 beyond either end.
template <int SIZE> DEVICE int mirrored(int k) {
  if (SIZE < 16) {
    const int phase = (k % (2 * SIZE) + 2 * SIZE) % (2 * SIZE);
    return phase < SIZE ? phase : 2 * SIZE - 1 - phase;
  }
  const int right = k < 0 ? -1 - k : k;
  return right < SIZE ? right : 2 * SIZE - 1 - right;
}

// A window that slides along a line. Partial sums move on by one tap with every value, at no cost: as the destination
// of the multiply-add.
template <typename Taps> struct Sliding {
  float sum[2 * Taps::RADIUS];
  DEVICE void clear() {
#pragma unroll
    for (int k = 0; k < 2 * Taps::RADIUS; k++) sum[k] = 0;
  }
  // adds the next value; returns the convolution RADIUS values before it
  DEVICE float push(float value) {
    const float done = fmaf(Taps::at(Taps::RADIUS), value, sum[0]);
#pragma unroll
    for (int k = 1; k < 2 * Taps::RADIUS; k++) sum[k - 1] = fmaf(Taps::at(Taps::RADIUS - k), value, sum[k]);
    sum[2 * Taps::RADIUS - 1] = Taps::at(Taps::RADIUS) * value;
    return done;
  }
};

// N neighboring values of a convolved line. line: RADIUS values before the first of them, aligned to 16 bytes.
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
// On tensor cores a convolution is a product with a banded matrix of taps. A warp computes N blocks of 16 columns from
// the N + 1 blocks around them (the first begins 8 columns to the left), 8 rows at a time:
//     along x   (16 columns x 32 columns of taps) times (32 columns x 8 rows of pixels)
//     along y   (16 columns x 8 rows of the above) times (8 rows x 8 rows of taps), for the rows above, at and below
//     them
// The result of the first product is laid out as the second one needs its operand. Lane = 4 g + t holds the columns 4t
// to 4t+3 of row g of each block of pixels, in the order in which they lie in memory, and columns 2g and 2g+1 of rows
// 2t and 2t+1 of each block of the result: (2g, 2t), (2g, 2t+1), (2g+1, 2t), (2g+1, 2t+1).

// taps in half by distance; distances beyond the radius have 0
template <typename Taps> struct HalfTaps {
  u16 at[18];
  CONSTANT HalfTaps() : at() {
    for (int k = 0; k <= Taps::RADIUS; k++) at[k] = (u16)Taps::half_at(k);
  }
};

// A lane's elements of the banded matrices.
template <int N> struct Bands {
  MatrixA along[N][2];        // each block of 16 columns of the result from the two blocks of pixels around it
  MatrixB above, same, below; // from eight rows to the result's eight rows above them, at the same place, below them
};

// The bands of a lane, whose warp's result begins at column x. Eight columns beyond an end of the line are mirrored
// ones, which lie in memory in reverse order: so do their taps. `zero` is 0, which the compiler must not know:
// otherwise it would keep equal words in one register, and the operands of a product must lie in consecutive registers.
template <typename Taps, int LINE_WIDTH, int N>
DEVICE Bands<N> make_bands(const HalfTaps<Taps> &taps, int x, int lane, int zero) {
  const int g = lane >> 2, t = lane & 3;
  // The taps at two neighboring distances come from the lane that holds them: from -16 on, where both are zero, to 15.
  const u32 held = (u32)taps.at[abs(lane - 16)] | (u32)taps.at[abs(lane - 15)] << 16;
  auto two_taps = [&](int distance) { return shuffle(held, max(-16, min(distance, 15)) + 16); };
  Bands<N> bands;
#pragma unroll
  for (int k = 0; k < 8 * N;
       k++) { // block of the result, block of pixels, word of the lane's four, column of the result
    const int block = k >> 3, eight = 16 * (k >> 2 & 1) - 8 + 8 * (t >> 1), within = 4 * (t & 1) + (k & 2);
    const int column = x + 16 * block + eight;
    const bool is_reversed = column < 0 || column >= LINE_WIDTH;
    const u32 pair = two_taps(eight + (is_reversed ? 6 - within : within) - 2 * g - (k & 1));
    bands.along[block][k >> 2 & 1].word[k & 3] = permute(pair, 0, is_reversed ? 0x1032 : 0x3210);
  }
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const int distance = 2 * t - g + k * zero;
    bands.above.word[k] = two_taps(distance + 8);
    bands.same.word[k] = two_taps(distance);
    bands.below.word[k] = two_taps(distance - 8);
  }
  return bands;
}

// Where eight columns lie, from a multiple of 8 on, or those that they mirror. LINE_WIDTH is a multiple of 8.
template <int LINE_WIDTH> DEVICE int column_of(int column) {
  return column < 0 ? -8 - column : column < LINE_WIDTH ? column : max(2 * LINE_WIDTH - 8 - column, 0);
}

// 8 rows of each block along x; added to `sum`
template <int N> DEVICE void convolve_x(const Bands<N> &bands, const u32 (&words)[2 * N + 2], MatrixC (&sum)[N]) {
#pragma unroll
  for (int k = 0; k < 2 * N; k++) {
    const int block = k % N, at = 2 * (block + k / N);
    tensor_multiply_add(sum[block], bands.along[block][k / N], MatrixB{{words[at], words[at + 1]}});
  }
}

// 16 columns of the same rows along y: completes the eight rows above, which it returns, adds to those at the same
// place, which are then the ones above, and begins the ones below with `start`. A half holds too few bits, so each
// value is the sum of two: matrix a has 8 rows of its low bits, and the same 8 rows of its high bits.
template <int N>
DEVICE MatrixC convolve_y(const Bands<N> &bands, const MatrixC &in, MatrixC &above, MatrixC &same, float start) {
  MatrixA rows;
  float high_bits[4];
#pragma unroll
  for (int k = 0; k < 4; k++)
    high_bits[k] = as_float(as_bits(in.value[k]) & 0xffffe000u); // the 11 bits that a half has
#pragma unroll
  for (int k = 0; k < 2; k++) {
    rows.word[k] = half2_pack(in.value[2 * k] - high_bits[2 * k], in.value[2 * k + 1] - high_bits[2 * k + 1]);
    rows.word[2 + k] = half2_pack(high_bits[2 * k], high_bits[2 * k + 1]);
  }
  MatrixC complete = above, next = same, below;
#pragma unroll
  for (int k = 0; k < 4; k++) below.value[k] = start;
  tensor_multiply_add(complete, rows, bands.above);
  tensor_multiply_add(below, rows, bands.below);
  tensor_multiply_add(next, rows, bands.same);
  above = next;
  same = below;
  return complete;
}
#endif // HAS_TENSOR
