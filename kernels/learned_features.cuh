// From the planes to `fine`: what the network sees of each superpixel, and the layers `enter` and `encode_0`.
//   find_own     the means of superpixels, with everything around that the next stage looks at
//   sum_columns, sum_rows  the means of what is around superpixels
//   enter        of every superpixel of the tile and its surroundings
#pragma once
#include "learned.cuh"

enum { QUANTITIES = 4 };           // S0/2, S1, S2, and `excess`
constexpr int BOX = LEARNED_REACH; // superpixels on each side
constexpr int OWN_ROWS = ROWS + 2 * BOX, OWN_COLUMNS = COLUMNS + 2 * BOX, OWN_PITCH = OWN_COLUMNS + 1;
constexpr float SHARE = 1.0f / ((2 * BOX + 1) * (2 * BOX + 1));

struct Shared {
  float around[QUANTITIES][ROWS][COLUMNS];
  float scratch[WARPS][SCRATCH_BYTES / 4];
  union {
    float own[QUANTITIES][OWN_ROWS][OWN_PITCH];
    alignas(32) u16 image[AROUND * pitch_of(FINE)];
  };
};
static_assert(sizeof(Shared) <= SHARED_BYTES, "the schedule reserves too little shared memory");

// The four quantities of a pixel.
struct Quantities {
  float of[QUANTITIES];
};
DEVICE Quantities quantities_at(const u8 *differences, const u8 *means, const u8 *excesses, u32 pixel) {
  const Pair both = difference_of(load_difference(differences + (size_t)pixel * DIFFERENCE_BYTES, 0));
  return Quantities{{pixel_of(means, pixel), low(both), high(both), excesses ? pixel_of(excesses, pixel) : 0}};
}

DEVICE void find_own(const LearnedArguments &job, const Tile &tile, Shared &s) {
  for (int item = threadIdx.x; item < OWN_ROWS * OWN_COLUMNS; item += THREADS) {
    const int r = item / OWN_COLUMNS, c = item % OWN_COLUMNS;
    const int y = mirrored(tile.top - 1 - BOX + r, GRID_HEIGHT), x = mirrored(tile.left - 1 - BOX + c, GRID_WIDTH);
    Quantities v[4];
#pragma unroll
    for (int k = 0; k < 4; k++)
      v[k] = quantities_at(job.denoised_differences, job.denoised_means, job.excesses, pixel_of_superpixel(y, x, k));
#pragma unroll
    for (int q = 0; q < QUANTITIES; q++)
      s.own[q][r][c] = 0.25f * ((v[0].of[q] + v[1].of[q]) + (v[2].of[q] + v[3].of[q]));
  }
}

// The sums over nine rows, in their place.
DEVICE void sum_columns(Shared &s) {
  static_assert(QUANTITIES * OWN_COLUMNS <= THREADS, "each sums a column");
  const int q = threadIdx.x / OWN_COLUMNS, c = threadIdx.x % OWN_COLUMNS;
  if (q >= QUANTITIES) return;
  float v[2 * BOX + 1];
#pragma unroll
  for (int k = 0; k < 2 * BOX; k++) v[k] = s.own[q][k][c];
#pragma unroll
  for (int r = 0; r < ROWS; r++) {
    v[(r + 2 * BOX) % (2 * BOX + 1)] = s.own[q][r + 2 * BOX][c];
    float sum = v[0];
#pragma unroll
    for (int k = 1; k <= 2 * BOX; k++) sum += v[k];
    s.own[q][r][c] = sum;
  }
}
DEVICE void sum_rows(Shared &s) {
  for (int item = threadIdx.x; item < QUANTITIES * AROUND; item += THREADS) {
    const int q = item / AROUND, r = item % AROUND / COLUMNS, c = item % COLUMNS;
    float sum = s.own[q][r][c];
#pragma unroll
    for (int k = 1; k <= 2 * BOX; k++) sum += s.own[q][r][c + k];
    s.around[q][r][c] = SHARE * sum;
  }
}

// What the network sees of a lane's pixel of a superpixel: the first eight channels of `enter`, and the others. A lane
// 4 g + t has pixel t. Every lane must call it.
DEVICE void find_features(const LearnedArguments &job, const Shared &s, const Place &at, int number, Halves &first,
                          Halves &second) {
  const int r = number / COLUMNS, c = number % COLUMNS, t = threadIdx.x % 4;
  const u32 pixel = pixel_of_superpixel(mirrored(at.y, GRID_HEIGHT), mirrored(at.x, GRID_WIDTH), t);
  const Quantities before = quantities_at(job.differences, job.means, job.excesses, pixel),
                   after = quantities_at(job.denoised_differences, job.denoised_means, nullptr, pixel);
  const float own = mean_of_superpixel(after.of[0]);
  const float inverse = fast_rcp(root(raw_variance(job.frame, own)));
  const auto contrast = [&](int q, float value, float scale) {
    const float ratio = fminf(fmaxf((value - s.around[q][r][c]) * (scale * inverse), -LEARNED_CLIP), LEARNED_CLIP);
    return 0.25f * ratio;
  };
  const float level = fminf(own * inverse * (2.0f / 16), 16); // never negative, or it limits at 0
  first = halves_of(Floats{{contrast(0, before.of[0], 2), contrast(0, after.of[0], 2), contrast(1, before.of[1], 1),
                            contrast(1, after.of[1], 1)}});
  second = halves_of(Floats{{contrast(2, before.of[2], S2_SIGN), contrast(2, after.of[2], S2_SIGN),
                             contrast(3, before.of[3], 2), t ? 0 : fmaxf(level, 0)}});
}

DEVICE void enter(const LearnedArguments &job, const Tile &tile, Shared &s) {
  float *scratch = s.scratch[warp_index()];
  const Weights weights[2] = {weights_at(job, ENTER_TILES), weights_at(job, ENTER_TILES + 1)};
  const Floats bias = biases_at(job, ENTER_BIASES);
#pragma unroll 1
  for (int first = warp_index() * MATRIX; first < AROUND; first += THREADS / 2) {
    Halves inputs[2][2];
    bool is_inside[2];
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const int number = min(first + lane_pixel() + 8 * k, AROUND - 1);
      const Place at = place_of(tile, number, GRID_HEIGHT, GRID_WIDTH);
      is_inside[k] = at.is_inside;
      find_features(job, s, at, number, inputs[0][k], inputs[1][k]);
    }
    Sums sums = {};
#pragma unroll
    for (int step = 0; step < 2; step++) add_product(sums, pixels_of(inputs[step], scratch), weights[step]);
    Floats v[2];
    values_of(sums, scratch, v);
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const int number = first + lane_pixel() + 8 * k;
      const Halves value = is_inside[k] ? rectified(sum_of(v[k], bias)) : make_uint2(0, 0);
      if (number < AROUND) *(Halves *)(s.image + number * pitch_of(FINE) + lane_channel()) = value;
    }
  }
}

DEVICE void run_part(const LearnedArguments &job, u8 *memory) {
  Shared &s = *(Shared *)memory;
  const Tile tile = tile_of_block(GRID_WIDTH);
  find_own(job, tile, s);
  sync_block();
  sum_columns(s);
  sync_block();
  sum_rows(s);
  sync_block();
  enter(job, tile, s);
  sync_block();
  int at[OF_WARP];
  find_outputs(at);
  Sums sums[OF_WARP][1] = {};
  convolve<FINE>(job, ENCODE_0_TILES, s.image, at, sums);
#pragma unroll
  for (int m = 0; m < OF_WARP; m++) {
    Halves v[1][2];
    rectify(job, ENCODE_0_BIASES, sums[m], s.scratch[warp_index()], v);
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const int y = tile.top + output_row(m), x = tile.left + output_column(m) + lane_pixel() + 8 * k;
      if (y < GRID_HEIGHT && x < GRID_WIDTH)
        store64(pixel_in(job.fine, FINE, y, x, GRID_WIDTH, GRID_HEIGHT, lane_channel()), v[0][k].x, v[0][k].y);
    }
  }
}
