// `mono_half_calibrated`, first step: the pixels of four superpixels along x as an ideal sensor would have measured
// them, between 0 and 1. A pixel's numbers and what follows from them: `tile_correct.cuh`.
#pragma once
#include "correction.cuh"
#include "mono_half_lines.cuh"

constexpr int OUT_WIDTH = WIDTH / 2, OUT_HEIGHT = HEIGHT / 2;

// Raw pixels of PIXELS superpixels, and what they are corrected by.
struct LoadedRow {
  Line line[2];
  u32 code[2][2 * PIXELS];
};
// The same, corrected: by row and column within a superpixel; pairs of neighboring superpixels.
struct CorrectedRow {
  Pair at[2][2][PIXELS / 2];
};

// Row y of superpixels from the raw column x on; beyond the picture its outermost row, whose pixels are those that
// reflection puts there.
DEVICE void load_row(const FrameArguments &frame, int y, int x, LoadedRow &row) {
  const u32 first = 2 * nearest_index(y, OUT_HEIGHT);
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride + bytes_of(x) + first * ROW_BYTES;
  const u32 *codes = frame.codes + (first * WIDTH + x);
#pragma unroll
  for (int r = 0; r < 2; r++) {
    load_words(raw + r * ROW_BYTES, row.line[r].w);
    load_pieces<16, 8 * PIXELS>(codes + r * WIDTH, row.code[r]);
  }
}

// Superpixels with a saturated pixel, a bit for each; of raw numbers none of which is above full scale.
DEVICE u32 which_are_saturated(const LoadedRow &row) {
  u32 saturated = 0;
#pragma unroll
  for (int k = 0; k < PIXELS; k++) {
    const u32 upper = lanes_of(row.line[0], k), lower = lanes_of(row.line[1], k);
    const u32 most = max(max(upper & 0xffff, upper >> 16), max(lower & 0xffff, lower >> 16));
    saturated |= (u32)(most >= FULL_SCALE) << k;
  }
  return saturated;
}
DEVICE u32 saturated_superpixels(const LoadedRow &row) { // few rows have one
  const bool any = (bright_line(row.line[0]) | bright_line(row.line[1])) & BRIGHT;
  return any ? which_are_saturated(row) : 0;
}

constexpr bool IN_HALVES = HALF_PRECISION && RAW_FORMAT == RAW_U8;
#if HALF_PRECISION && RAW_FORMAT == RAW_U8
// The correction of bytes in pairs of half: of the same pixel of two neighboring superpixels.
//
// A byte is exact in half, and what the correction adds to it is small. That alone is computed, to the last sum: so the
// corrected value is rounded once.

// A byte becomes a subnormal half without arithmetic, of which this factor, the largest half, makes almost 1 of 255.
// What is missing is in the gain.
constexpr double BYTE_UNIT = 65504;
// Bits of a number of two pixels become those of halves between 1 and 2, to which `half_slope` and `half_base` belong:
// they make of them minus the black level, the gain less 1, and both terms.
template <int NUMBER> DEVICE Pair number_of(const FrameArguments &frame, u32 bits, u32 mask) {
  return fma(and_or(bits, mask, splat(1)), frame.half_slope[NUMBER], frame.half_base[NUMBER]);
}
// What black level and gain add to bytes; first, second: the codes of the two pixels.
DEVICE Pair balance(const FrameArguments &frame, Pair bytes, u32 first, u32 second) {
  const Pair black = number_of<0>(frame, lows(first, second), 0x00ff00ffu);
  const Pair gain = number_of<1>(frame, permute(first, second, 0x6521), 0x03ff03ffu);
  return fma(fma(bytes, splat(BYTE_UNIT), black), gain, black);
}

DEVICE void correct(const FrameArguments &frame, const LoadedRow &of, CorrectedRow &to) {
#pragma unroll
  for (int p = 0; p < PIXELS / 2; p++) {
    Pair bytes[4], change[4], z[4]; // by angle
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int r = k / 2, c = k % 2, a = angle_at(r, c);
      bytes[a] = permute(of.line[r].w[p], 0u, c ? 0x4341 : 0x4240);
      change[a] = balance(frame, bytes[a], of.code[r][4 * p + c], of.code[r][4 * p + 2 + c]);
      z[a] = fma(bytes[a], splat(BYTE_UNIT), change[a]);
    }
    const Pair s1 = sub(z[0], z[2]), s2 = sub(z[1], z[3]);
    const Pair difference[4] = {s1, s2, negate(s1), negate(s2)}; // by angle; the other one is that of the next angle
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int r = k / 2, c = k % 2, a = angle_at(r, c);
      const u32 terms = highs(of.code[r][4 * p + c], of.code[r][4 * p + 2 + c]);
      const Pair own = number_of<2>(frame, terms, 0x01fc01fcu), other = number_of<3>(frame, terms >> 7, 0x01fc01fcu);
      const Pair added = fma(other, difference[(a + 1) % 4], fma(own, difference[a], change[a]));
      to.at[r][c][p] = fma_saturate(bytes[a], splat(BYTE_UNIT), added);
    }
  }
}
#else
// The correction of every format in float.
DEVICE void correct(const FrameArguments &frame, const LoadedRow &of, CorrectedRow &to) {
#pragma unroll
  for (int p = 0; p < PIXELS / 2; p++) {
    float pixel[2][2][2]; // by row, column and superpixel
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int first = 4 * p + 2 * h;
      float z[4]; // by angle
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const Lanes lanes = {lanes_of(of.line[k / 2], 2 * p + h)};
        const u32 bits = k % 2 ? offset_bits<1>(lanes) : offset_bits<0>(lanes);
        z[angle_at(k / 2, k % 2)] = balanced(frame, as_float(bits) - OFFSET, of.code[k / 2][first + k % 2]);
      }
      const Diagonals diagonals = diagonals_of(z);
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const int a = angle_at(k / 2, k % 2);
        pixel[k / 2][k % 2][h] = saturate(corrected(frame, z[a], of.code[k / 2][first + k % 2], a, diagonals));
      }
    }
#pragma unroll
    for (int k = 0; k < 4; k++) to.at[k / 2][k % 2][p] = pair(pixel[k / 2][k % 2][0], pixel[k / 2][k % 2][1]);
  }
}
#endif
