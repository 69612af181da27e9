// `mono_half_calibrated`, first step: the pixels of four superpixels along x as an ideal sensor would have measured
// them, between 0 and 1. A pixel's numbers and what follows from them: `tile_correct.cuh`.
#ifndef POLAR_MONO_HALF_CORRECT_CUH
#define POLAR_MONO_HALF_CORRECT_CUH
#include "correction.cuh"
#include "mono_half_lines.cuh"

constexpr int OUT_WIDTH = WIDTH / 2, OUT_HEIGHT = HEIGHT / 2;

// Raw pixels of PIXELS superpixels, and what they are corrected by.
struct LoadedRow {
  Line line[2];
  u32 code[2][2 * PIXELS];
};
// The same, corrected: by row and column within a superpixel; pairs of neighbouring superpixels.
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
  u32 found = 0;
#pragma unroll
  for (int k = 0; k < PIXELS; k++) {
    const u32 upper = lanes_of(row.line[0], k), lower = lanes_of(row.line[1], k);
    const u32 most = max(max(upper & 0xffff, upper >> 16), max(lower & 0xffff, lower >> 16));
    found |= (u32)(most >= FULL_SCALE) << k;
  }
  return found;
}
DEVICE u32 saturated_superpixels(const LoadedRow &row) { // few rows have one
  const bool any = (bright_line(row.line[0]) | bright_line(row.line[1])) & BRIGHT;
  return any ? which_are_saturated(row) : 0;
}

constexpr bool IN_HALVES = HALF_PRECISION && RAW_FORMAT == RAW_U8;
#if HALF_PRECISION && RAW_FORMAT == RAW_U8
#include "mono_half_correct_halves.cuh"
#else
#include "mono_half_correct_floats.cuh"
#endif
#endif
