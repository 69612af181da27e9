// The argument of every kernel but `ssim`, and the definitions that it is compiled with, with their defaults.
#pragma once
#include "cuda.cuh"

// The outputs, in the order of `OUTPUTS` in polar_pipeline/backends/cuda/pixels.py, which defines their names in
// capitals as OUTPUT_NAMES, and for each of them OUT_<NAME>: 0 not wanted, 1 uint8 display encoding, 2 float32, 3
// uint16: the same with 65535 for 255. SUMS are (I0 + I90)/2 and (I45 + I135)/2 of the luma, S0 is S0/2 of the luma:
// what SSIM compares, as uint16 with a full scale of SSIM_FULL. DIFFERENCES, MEANS and EXCESSES are S1 and S2, S0/2,
// and (I0 + I90 - I45 - I135)/4 of each color, in planes of their own: what `transform` interpolates; 3 is float16 for
// them.
#ifndef OUTPUT_NAMES
#error "OUTPUT_NAMES and OUT_<NAME> are missing: work.output_defines() makes them"
#endif
enum Output { OUTPUT_NAMES, OUTPUTS };

struct FrameArguments {
  const u8 *raw;       // (frames, height, step) bytes of RAW_FORMAT
  u32 *counts;         // (frames, 2): saturated, dark output pixels; added to
  void *out[OUTPUTS];  // (frames, out_height, out_width[, channels]); SUMS is (frames, 2, out_height, out_width)
  u64 raw_stride;      // bytes from one frame to the next
  int width, height;   // raw pixels
  int step;            // bytes from one raw row to the next
  int full_scale;      // raw number of a saturated pixel; larger ones mean this one
  int first_block;     // of the strip that this launch makes; read with IN_STRIPS only
  float min_intensity; // smallest S0 (full scale 2) that has a polarization
  // ---- read with CALIBRATED only (`tile_correct.cuh`); polar_pipeline/backends/cuda/polarization.py fills them
  int phase_y, phase_x;    // superpixels begin where y + phase_y and x + phase_x are even
  const u32 *codes;        // (height, width): the four numbers by which a pixel is corrected; the same for all frames
  float slope[4], base[4]; // what they mean: minus the black level in raw numbers, the gain to shares, both terms
  u32 one;                 // the bits of 1.0f: a literal would cost an instruction wherever it meets another one
  // ---- read with NOISE only (`products.cuh`)
  float shot, dark;     // variance of a raw pixel, as a share of full scale: over its intensity, and in the dark
  float max_aolp_sigma; // in rad, read with LIMITS_AOLP: beyond it AoLP is invalid
  // ---- read by `mono_half_calibrated` where it corrects in halves: as `slope` and `base`, in its units, twice in a
  // word
  u32 half_slope[4], half_base[4];
  // ---- read with OUT_POLARIZER only
  float polarizer[2]; // by what the polarizer multiplies S1 and S2: cosine and sine of its angle, doubled
  // ---- read with OUT_AOLP_COLOR only
  float fading[2]; // gray level that colors fade to, and the least share of color; else DoLP is the share
};

// ---- what the kernel is compiled for (polar_pipeline/backends/cuda/polarization.py makes these definitions)
#ifndef COLOR
#define COLOR 0 // 1: a Bayer lattice on each angle
#endif
#ifndef IN_STRIPS
#define IN_STRIPS 0 // 1: a launch can make a strip of the frame, from `first_block` on
#endif
#ifndef HALF_RESOLUTION
#define HALF_RESOLUTION 1
#endif
#ifndef CO_SITED
#define CO_SITED 1
#endif
#define RAW_U8 0       // one byte
#define RAW_U16 1      // two bytes, little endian
#define RAW_12P 2      // two pixels in three bytes, PFNC p: little-endian bit order
#define RAW_12PACKED 3 // two pixels in three bytes, GigE Vision: high bytes outside, low nibbles in the middle
#ifndef RAW_FORMAT
#define RAW_FORMAT RAW_U8
#endif
#ifndef EXCEEDS
#define EXCEEDS 0 // 1: the format holds numbers above full scale, which are taken for it as they are loaded
#endif
#ifndef CALIBRATED
#define CALIBRATED 0 // 1: pixels are corrected by `codes` as they are loaded
#endif
#ifndef NOISE
// 1: outputs depend on noise; with NOISE_PERIOD, NOISE_GAINS (`stokes_gains` of polar_pipeline/backends/noise, row by
// row), and NOISE_MOST, NOISE_LESS, NOISE_SHARE and NOISE_STEEP (`NOISE_LINEAR` of
// polar_pipeline/polarimetry/coefficients.py)
#define NOISE 0
#endif
#ifndef DEBIAS
#define DEBIAS 0 // 1: DoLP is bias-corrected
#endif
#ifndef LIMITS_AOLP
#define LIMITS_AOLP 0 // 1: AoLP is invalid beyond a standard deviation
#endif
#ifndef HALF_PRECISION
#define HALF_PRECISION 1 // 1: pairs of half, 0: pairs of float
#endif
// Index (0, 45, 90, 135 degrees: 0..3) of the polarizer at row r, column c of the 2x2 tile: ANGLE_AT_rc
#ifndef ANGLE_AT_00
#define ANGLE_AT_00 2
#define ANGLE_AT_01 1
#define ANGLE_AT_10 3
#define ANGLE_AT_11 0
#endif
// Row and column (0 or 1) of red on the Bayer lattice of tile position rc: RED_ROW_rc, RED_COLUMN_rc
#ifndef RED_ROW_00
#define RED_ROW_00 0
#define RED_ROW_01 0
#define RED_ROW_10 0
#define RED_ROW_11 0
#define RED_COLUMN_00 0
#define RED_COLUMN_01 0
#define RED_COLUMN_10 0
#define RED_COLUMN_11 0
#endif
CONSTANT int angle_at(int r, int c) { return r ? (c ? ANGLE_AT_11 : ANGLE_AT_10) : (c ? ANGLE_AT_01 : ANGLE_AT_00); }
CONSTANT int red_row(int r, int c) { return r ? (c ? RED_ROW_11 : RED_ROW_10) : (c ? RED_ROW_01 : RED_ROW_00); }
CONSTANT int red_column(int r, int c) {
  return r ? (c ? RED_COLUMN_11 : RED_COLUMN_10) : (c ? RED_COLUMN_01 : RED_COLUMN_00);
}

// Threads of a multiprocessor for which registers must suffice: 30 % of the most that can be resident, at most 96
// registers a thread on sm_72 and 128 on sm_87.
#if __CUDA_ARCH__ >= 800 && __CUDA_ARCH__ < 900
#define RESIDENT 512
#else
#define RESIDENT 640
#endif

// Kernels without a tile are compiled for one size, and rows without padding (WIDTH, HEIGHT): then lines are immediate
// offsets in the load instructions. Without these, any size.
#ifdef WIDTH
DEVICE constexpr int width_of(const FrameArguments &) { return WIDTH; }
DEVICE constexpr int height_of(const FrameArguments &) { return HEIGHT; }
DEVICE constexpr int step_of(const FrameArguments &frame) { return RAW_FORMAT == RAW_U8 ? WIDTH : frame.step; }
#else
DEVICE int width_of(const FrameArguments &frame) { return frame.width; }
DEVICE int height_of(const FrameArguments &frame) { return frame.height; }
DEVICE int step_of(const FrameArguments &frame) { return frame.step; }
#endif

// The number of a block among those of the whole frame, along the dimension in which they move down.
DEVICE u32 block_of_frame(const FrameArguments &frame, u32 block) {
  return IN_STRIPS ? frame.first_block + block : block;
}

// Pixels of the outputs along x and y.
DEVICE int out_width(const FrameArguments &frame) { return HALF_RESOLUTION ? width_of(frame) >> 1 : width_of(frame); }
DEVICE int out_height(const FrameArguments &frame) {
  return HALF_RESOLUTION ? height_of(frame) >> 1 : height_of(frame);
}
