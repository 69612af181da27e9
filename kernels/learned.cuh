// What `learned` is compiled for, its argument, and what its parts have in common: layers of the network.
#pragma once
#include "matrix.cuh"
#include "planes.cuh"

// WIDTH and HEIGHT: of planes and outputs; TOP and LEFT: rows and columns of superpixels that begin before them (0 or
// 1); S2_SIGN; GRID_WIDTH and GRID_HEIGHT: superpixels, multiples of 4; LEARNED_...; and of every layer the index of
// its first tile of weights, and of its first bias. TILE_X and TILE_Y: outputs of a block, at the resolution of the
// part.
#define PART_FEATURES 0
#define PART_MIDDLE 1
#define PART_COARSE 2
#define PART_FINE 3
#define PART_CHANGE 4
#define PART_PRODUCTS 5
static_assert(!HALF_PRECISION && !COLOR && WIDTH == SOURCE_WIDTH && HEIGHT == SOURCE_HEIGHT, "planes of a mono mosaic");

// polar_pipeline/backends/cuda/learned.py has the same. Images of the network are halves, channels innermost.
struct LearnedArguments {
  FrameArguments frame;           // `out`, `counts`, `shot`, `dark`, and what products need are read
  const u8 *differences;          // (frames, HEIGHT, WIDTH, 2), see `planes.cuh`
  const u8 *means;                // (frames, HEIGHT, WIDTH)
  const u8 *excesses;             // (frames, HEIGHT, WIDTH)
  const u8 *denoised_differences; // as these
  const u8 *denoised_means;       //
  const u8 *weights;              // tiles of WEIGHT_BYTES
  const u8 *biases;               // floats
  u8 *fine;                       // (frames, GRID_HEIGHT, GRID_WIDTH, 16)
  u8 *middle;                     // (frames, GRID_HEIGHT / 2, GRID_WIDTH / 2, 32)
  u8 *merged;                     // as `middle`
  u8 *change;                     // (frames, HEIGHT, WIDTH, 4): what is added to S0/2, S1, S2; and nothing
  u8 *noise;                      // (frames, GRID_HEIGHT, GRID_WIDTH, 4): `StatedNoise`
  float light_gain;               // from the variance of raw pixels to that of S0 by ADR
  float polarization_gain;        // to that of S1 and S2
};

constexpr int WARPS = THREADS / 32;
constexpr int BLOCKS = HAS_TENSOR ? 3 : 2; // of a multiprocessor, for which registers must suffice
constexpr int FINE = 16, COARSER = 32;     // channels at full resolution, and of both others
constexpr int MIDDLE_WIDTH = GRID_WIDTH / 2, MIDDLE_HEIGHT = GRID_HEIGHT / 2;
constexpr u32 HIGHEST_HALVES = 0x7bff7bffu;
DEVICE int warp_index() { return threadIdx.x / 32; }

// The tile of a block. Images in shared memory are one pixel larger on each side.
struct Tile {
  int top, left;
};
constexpr int ROWS = TILE_Y + 2, COLUMNS = TILE_X + 2, AROUND = ROWS * COLUMNS;
DEVICE Tile tile_of_block(int width) {
  const int across = (width + TILE_X - 1) / TILE_X;
  return Tile{(int)blockIdx.x / across * TILE_Y, (int)blockIdx.x % across * TILE_X};
}
// Where pixel number `pixel` of the tile with its surroundings lies in an image.
struct Place {
  int y, x;
  bool is_inside; // the image; beyond it, all is 0
};
DEVICE Place place_of(const Tile &tile, int pixel, int height, int width) {
  const int y = tile.top - 1 + pixel / COLUMNS, x = tile.left - 1 + pixel % COLUMNS;
  return Place{y, x, (u32)y < (u32)height && (u32)x < (u32)width};
}

// The index of pixel k of a superpixel in planes and outputs, mirrored about their first and last rows and columns.
DEVICE u32 pixel_of_superpixel(int y, int x, int k) {
  const int row = mirrored(2 * y - TOP + k / 2, HEIGHT), column = mirrored(2 * x - LEFT + k % 2, WIDTH);
  return (blockIdx.z * HEIGHT + row) * WIDTH + column;
}
// The mean of the values of four lanes, 4 g to 4 g + 3.
DEVICE float mean_of_superpixel(float value) {
#pragma unroll
  for (int k = 1; k < 4; k *= 2) value += as_float(shuffle(as_bits(value), threadIdx.x % 32 ^ k));
  return 0.25f * value;
}

// The address of a channel of a pixel of an image in global memory.
DEVICE u8 *pixel_in(u8 *image, int channels, int y, int x, int width, int height, int channel) {
  return image + (((size_t)blockIdx.z * height + y) * width + x) * (2 * channels) + 2 * channel;
}
DEVICE Halves load_halves(const u8 *p) { return *(const Halves *)p; } // of what the same launch may store
DEVICE Floats biases_at(const LearnedArguments &job, int first) {
  const uint4 v = load128(job.biases + 4 * (first + lane_channel()));
  return Floats{{as_float(v.x), as_float(v.y), as_float(v.z), as_float(v.w)}};
}
DEVICE Weights weights_at(const LearnedArguments &job, int tile) {
  return load_weights(job.weights + tile * WEIGHT_BYTES);
}
DEVICE Floats sum_of(const Floats &a, const Floats &b) {
  Floats to;
#pragma unroll
  for (int k = 0; k < 4; k++) to.value[k] = a.value[k] + b.value[k];
  return to;
}
DEVICE Halves rectified(const Floats &v) {
  const Halves to = halves_of(v);
  const auto within = [](u32 pair) { return half2_min(half2_max(pair, 0), HIGHEST_HALVES); };
  return make_uint2(within(to.x), within(to.y));
}

// What a block keeps in shared memory: an image of DEPTH channels, and what the lanes of each warp exchange.
template <int DEPTH> struct SharedImage {
  float scratch[WARPS][SCRATCH_BYTES / 4];
  alignas(32) u16 image[AROUND * pitch_of(DEPTH)];
};

// Fills an image in shared memory with the tile and its surroundings from one in global memory.
template <int DEPTH> DEVICE void load_image(u8 *from, const Tile &tile, int height, int width, u16 *to) {
  constexpr int PIECES = DEPTH / 8;
  for (int item = threadIdx.x; item < AROUND * PIECES; item += THREADS) {
    const int pixel = item / PIECES, piece = item % PIECES;
    const Place at = place_of(tile, pixel, height, width);
    uint4 v = {0, 0, 0, 0};
    if (at.is_inside) v = load128(pixel_in(from, DEPTH, at.y, at.x, width, height, 8 * piece));
    *(uint4 *)(to + pixel * pitch_of(DEPTH) + 8 * piece) = v;
  }
}

// Adds the products of a layer of 3 x 3 pixels for M times 16 outputs along x, which begin to read `image` at the
// pixels of the numbers `at`.
template <int DEPTH, int M, int N>
DEVICE void convolve(const LearnedArguments &job, int tiles, const u16 *image, const int (&at)[M], Sums (&sums)[M][N]) {
  constexpr int PITCH = pitch_of(DEPTH), STEPS = DEPTH / MATRIX;
#pragma unroll
  for (int tap = 0; tap < 9; tap++)
#pragma unroll
    for (int step = 0; step < STEPS; step++) {
      Weights weights[N];
#pragma unroll
      for (int n = 0; n < N; n++) weights[n] = weights_at(job, tiles + (tap * STEPS + step) * N + n);
#pragma unroll
      for (int m = 0; m < M; m++) {
        const u16 *first = image + (at[m] + tap / 3 * COLUMNS + tap % 3) * PITCH + step * MATRIX;
        const Pixels pixels = load_pixels(first, PITCH);
#pragma unroll
        for (int n = 0; n < N; n++) add_product(sums[m][n], pixels, weights[n]);
      }
    }
}
// Row and column in the tile of the m-th 16 outputs of a warp, which makes OF_WARP times 16; and for each of them the
// number in `image` of the first pixel that it reads.
constexpr int ALONG = TILE_X / MATRIX, OF_WARP = TILE_Y * ALONG / WARPS;
DEVICE int output_row(int m) { return (warp_index() * OF_WARP + m) / ALONG; }
DEVICE int output_column(int m) { return (warp_index() * OF_WARP + m) % ALONG * MATRIX; }
DEVICE void find_outputs(int (&at)[OF_WARP]) {
#pragma unroll
  for (int m = 0; m < OF_WARP; m++) at[m] = output_row(m) * COLUMNS + output_column(m);
}

// Adds biases to the sums of 16 pixels, sets negative values to 0, and rounds to half.
template <int N>
DEVICE void rectify(const LearnedArguments &job, int bias, const Sums (&sums)[N], float *scratch, Halves (&to)[N][2]) {
#pragma unroll
  for (int n = 0; n < N; n++) {
    Floats v[2];
    values_of(sums[n], scratch, v);
    const Floats offset = biases_at(job, bias + n * MATRIX);
#pragma unroll
    for (int k = 0; k < 2; k++) to[n][k] = rectified(sum_of(v[k], offset));
  }
}
