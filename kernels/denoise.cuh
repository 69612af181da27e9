// What `denoise` is compiled for, its argument, the places of its tile, and sums.
#pragma once
#include "planes.cuh"

// WIDTH and HEIGHT: of planes and outputs; IS_AUTO 1: pixels whose noise is too little to see stay as they are
// (`DENOISE_AUTO`). Computed in float: variances are small differences of large numbers.
static_assert(!HALF_PRECISION && WIDTH == SOURCE_WIDTH && HEIGHT == SOURCE_HEIGHT, "planes have the size of outputs");

// polar_pipeline/backends/cuda/denoising.py has the same. Variances are those of shares of full scale, as in `frame`.
struct DenoiseArguments {
  FrameArguments frame;        // `out`, `counts`, `shot`, `dark`, and what products need are read
  const u8 *differences;       // (frames, colors, HEIGHT, WIDTH, 2), see `planes.cuh`
  const u8 *means;             // (frames, colors, HEIGHT, WIDTH)
  const u8 *excesses;          // likewise; with EXCESS only
  float light_gains[3][3];     // from the variance of raw pixels of a color to that of S0/2 of a channel
  float polarization_gains[3]; // to that of S1 and S2 of luma
  float strength;              // times both of these, the energy of noise
  NoiseOfMeans means_noise;    // read with NOISE only
};

constexpr bool EXCESS = OUT_EXCESSES || WANT_ANGLES || NOISE;
constexpr int REACH = DENOISE_REACH, LEE = DENOISE_LEE; // pixels on each side of a window
static_assert(REACH == 3 && LEE == 2, "sums of seven and of five values");
enum { MOMENTS = 6, FITS = 4 };

// The tile and its surroundings: of the planes, of lines, and of the rest. Rows and columns of shared memory begin
// there.
constexpr int HALO = 2 * REACH + LEE, COLUMNS = TILE_X + 2 * HALO;
constexpr int FIT_ROWS = TILE_Y + 2 * (REACH + LEE), FIT_COLUMNS = TILE_X + 2 * (REACH + LEE);
constexpr int REST_ROWS = TILE_Y + 2 * LEE, REST_RUNS = TILE_X / 4 + 2; // four pixels each, one of them on each side
constexpr int PITCH = COLUMNS + 1, NEAR_PITCH = 4 * REST_RUNS + 1;      // odd: rows lie in different banks
constexpr int FIT_COLUMN = 2; // where lines begin in a row: then seven columns around a run begin at a run of their own
constexpr int RUN = 6;        // rows that a thread sums
constexpr float SHARE_OF_49 = 1.0f / 49, SHARE_OF_25 = 1.0f / 25, TINY = 1e-30f;

// The tile of a block.
struct Tile {
  const DenoiseArguments &job;
  int top, left;
  bool is_inner;         // whether everything that it reads lies in the image
  float level[CHANNELS]; // S0/2 of its middle; differences to it keep the digits of a variance

  DEVICE Tile(const DenoiseArguments &job) : job(job) {
    constexpr u32 ACROSS = (WIDTH + TILE_X - 1) / TILE_X;
    top = blockIdx.x / ACROSS * TILE_Y;
    left = blockIdx.x % ACROSS * TILE_X;
    is_inner = min(top, left) >= HALO && top + TILE_Y + HALO <= HEIGHT && left + TILE_X + HALO <= WIDTH;
    u32 middle[1];
    find(TILE_Y / 2, TILE_X / 2, 0, middle);
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) level[c] = pixel_of(job.means, of_color(c, middle[0]));
  }
  // Finds pixels from row y and column x of the tile on: to the right, or by whole rows (`step` WIDTH). Beyond the
  // image they are mirrored.
  template <int N> DEVICE void find(int y, int x, int step, u32 (&at)[N]) const {
    const int first = (top + y) * WIDTH + left + x;
#pragma unroll
    for (int k = 0; k < N; k++) at[k] = first + k * step;
    if (is_inner) return;
#pragma unroll
    for (int k = 0; k < N; k++)
      at[k] = mirrored(top + y + (step == 1 ? 0 : k), HEIGHT) * WIDTH + mirrored(left + x + (step == 1 ? k : 0), WIDTH);
  }
  DEVICE u32 of_color(int c, u32 pixel) const { return (blockIdx.z * CHANNELS + c) * PLANE + pixel; }
  DEVICE float mean(int c, u32 pixel) const { return pixel_of(job.means, of_color(c, pixel)) - level[c]; }
  DEVICE uint2 difference(int c, u32 pixel) const {
    return load_difference(job.differences + (size_t)of_color(c, pixel) * DIFFERENCE_BYTES, 0);
  }
};

// The variance of a sum, from those of raw pixels of each color.
DEVICE float weighted(const float (&gains)[3], const float (&variances)[CHANNELS]) {
  float sum = gains[0] * variances[0];
#pragma unroll
  for (int c = 1; c < CHANNELS; c++) sum = fmaf(gains[c], variances[c], sum);
  return sum;
}

// The place of a thread from `explain` on: four pixels of a row of the rest. Threads inside the tile are first, so that
// few warps have threads of both kinds.
struct Place {
  int row, run;
  bool is_near, is_inside;
};
DEVICE Place place_of_thread() {
  constexpr int ACROSS = TILE_X / 4, INSIDE = ACROSS * TILE_Y, BESIDE = 2 * TILE_Y,
                AROUND = BESIDE + 2 * LEE * REST_RUNS;
  static_assert(INSIDE + AROUND <= THREADS, "a thread has four pixels");
  const int t = threadIdx.x, k = t - INSIDE, j = k - BESIDE;
  if (t < INSIDE) return Place{LEE + t / ACROSS, 1 + t % ACROSS, true, true};
  if (k < BESIDE) return Place{LEE + k / 2, k % 2 * (REST_RUNS - 1), true, false};
  const int row = j / REST_RUNS;
  return Place{row < LEE ? row : row + TILE_Y, j % REST_RUNS, k < AROUND, false};
}

// Sums of seven neighbors each. What all of them contain is added once, then what some contain, from the inside out.
template <int N> DEVICE void sums_of_7(const float (&v)[N + 6], float (&to)[N]) {
  static_assert(N <= 7, "some value is in every sum");
  float before = v[N - 1], after = 0;
#pragma unroll
  for (int k = N; k < 7; k++) before += v[k];
  to[N - 1] = before;
#pragma unroll
  for (int k = N - 2; k >= 0; k--) to[k] = before += v[k];
#pragma unroll
  for (int k = 1; k < N; k++) to[k] += after += v[k + 6];
}
DEVICE float sum_of_5(const float (&v)[8], int k) { return ((v[k] + v[k + 1]) + (v[k + 2] + v[k + 3])) + v[k + 4]; }
