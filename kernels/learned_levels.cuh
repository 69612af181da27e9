// The network at half and quarter resolution: the layers `down_1` and `encode_1` (PART_MIDDLE); `down_2`, `encode_2`
// and `up_1` (PART_COARSE); `decode_1` and `up_0` (PART_FINE).
#pragma once
#include "learned.cuh"

typedef SharedImage<COARSER> Shared;
static_assert(sizeof(Shared) <= SHARED_BYTES, "the schedule reserves too little shared memory");

// Fills the image with a layer of 2 x 2 pixels of `from`, which has INPUTS channels and twice the resolution.
template <int INPUTS>
DEVICE void halve(const LearnedArguments &job, u8 *from, int tiles, int bias, const Tile &tile, int height, int width,
                  Shared &s) {
  constexpr int STEPS = INPUTS / MATRIX;
#pragma unroll 1
  for (int first = warp_index() * MATRIX; first < AROUND; first += THREADS / 2) {
    Place at[2];
#pragma unroll
    for (int k = 0; k < 2; k++) at[k] = place_of(tile, min(first + lane_pixel() + 8 * k, AROUND - 1), height, width);
    Sums sums[2] = {};
#pragma unroll
    for (int step = 0; step < 4 * STEPS; step++) {
      const int tap = step / STEPS, channel = step % STEPS * MATRIX + lane_channel();
      Halves inputs[2];
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const int y = 2 * at[k].y + tap / 2, x = 2 * at[k].x + tap % 2;
        inputs[k] = make_uint2(0, 0);
        if (at[k].is_inside) inputs[k] = load64(pixel_in(from, INPUTS, y, x, 2 * width, 2 * height, channel));
      }
      const Pixels pixels = pixels_of(inputs, s.scratch[warp_index()]);
#pragma unroll
      for (int n = 0; n < 2; n++) add_product(sums[n], pixels, weights_at(job, tiles + 2 * step + n));
    }
    Halves v[2][2];
    rectify(job, bias, sums, s.scratch[warp_index()], v);
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const int number = first + lane_pixel() + 8 * k;
#pragma unroll
      for (int n = 0; n < 2; n++)
        if (number < AROUND)
          *(Halves *)(s.image + number * pitch_of(COARSER) + n * MATRIX + lane_channel()) =
              at[k].is_inside ? v[n][k] : make_uint2(0, 0);
    }
  }
}

// Adds a layer of one pixel, which has OUTPUTS channels for each of the four pixels of twice the resolution, to `skip`
// there, and stores it in `to`. y and x: of the lane's first pixel.
template <int OUTPUTS>
DEVICE void double_size(const LearnedArguments &job, const Halves (&v)[2][2], int tiles, int bias, int y, int x,
                        int height, int width, u8 *skip, u8 *to, float *scratch) {
  constexpr int N = 4 * OUTPUTS / MATRIX;
  const Pixels pixels[2] = {pixels_of(v[0], scratch), pixels_of(v[1], scratch)};
#pragma unroll 1
  for (int n = 0; n < N; n++) {
    Sums sums = {};
#pragma unroll
    for (int step = 0; step < 2; step++) add_product(sums, pixels[step], weights_at(job, tiles + step * N + n));
    Floats up[2];
    values_of(sums, scratch, up);
    const Floats offset = biases_at(job, bias + n * MATRIX);
    const int pixel = n * MATRIX / OUTPUTS, channel = n * MATRIX % OUTPUTS + lane_channel();
#pragma unroll
    for (int k = 0; k < 2; k++) {
      if (y >= height || x + 8 * k >= width) continue;
      const int at_y = 2 * y + pixel / 2, at_x = 2 * (x + 8 * k) + pixel % 2;
      const Floats before = floats_of(load_halves(pixel_in(skip, OUTPUTS, at_y, at_x, 2 * width, 2 * height, channel)));
      const Halves sum = rectified(sum_of(before, sum_of(up[k], offset)));
      store64(pixel_in(to, OUTPUTS, at_y, at_x, 2 * width, 2 * height, channel), sum.x, sum.y);
    }
  }
}

DEVICE void run_part(const LearnedArguments &job, u8 *memory) {
  Shared &s = *(Shared *)memory;
  float *scratch = s.scratch[warp_index()];
  constexpr bool IS_COARSE = PART == PART_COARSE;
  constexpr int PART_WIDTH = IS_COARSE ? MIDDLE_WIDTH / 2 : MIDDLE_WIDTH,
                PART_HEIGHT = IS_COARSE ? MIDDLE_HEIGHT / 2 : MIDDLE_HEIGHT;
  const Tile tile = tile_of_block(PART_WIDTH);
  if (PART == PART_MIDDLE) halve<FINE>(job, job.fine, DOWN_1_TILES, DOWN_1_BIASES, tile, PART_HEIGHT, PART_WIDTH, s);
  if (PART == PART_COARSE)
    halve<COARSER>(job, job.middle, DOWN_2_TILES, DOWN_2_BIASES, tile, PART_HEIGHT, PART_WIDTH, s);
  if (PART == PART_FINE) load_image<COARSER>(job.merged, tile, PART_HEIGHT, PART_WIDTH, s.image);
  sync_block();
  int at[OF_WARP];
  find_outputs(at);
  Sums sums[OF_WARP][2] = {};
  constexpr int TILES = PART == PART_MIDDLE ? ENCODE_1_TILES
                        : IS_COARSE         ? ENCODE_2_TILES
                                            : DECODE_1_TILES,
                BIASES = PART == PART_MIDDLE ? ENCODE_1_BIASES
                         : IS_COARSE         ? ENCODE_2_BIASES
                                             : DECODE_1_BIASES;
  convolve<COARSER>(job, TILES, s.image, at, sums);
#pragma unroll
  for (int m = 0; m < OF_WARP; m++) {
    Halves v[2][2];
    rectify(job, BIASES, sums[m], scratch, v);
    const int y = tile.top + output_row(m), x = tile.left + output_column(m) + lane_pixel();
    if (PART == PART_COARSE)
      double_size<COARSER>(job, v, UP_1_TILES, UP_1_BIASES, y, x, PART_HEIGHT, PART_WIDTH, job.middle, job.merged,
                           scratch);
    if (PART == PART_FINE)
      double_size<FINE>(job, v, UP_0_TILES, UP_0_BIASES, y, x, PART_HEIGHT, PART_WIDTH, job.fine, job.fine, scratch);
    if (PART != PART_MIDDLE) continue;
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int column = x + k % 2 * 8, channel = k / 2 * MATRIX + lane_channel();
      const Halves value = v[k / 2][k % 2];
      if (y < PART_HEIGHT && column < PART_WIDTH)
        store64(pixel_in(job.middle, COARSER, y, column, PART_WIDTH, PART_HEIGHT, channel), value.x, value.y);
    }
  }
}
