// From `fine` to `change` and `noise`: the layers `decode_0` and `leave`. The change is limited by the noise, and
// nothing where that is too little to see.
#pragma once
#include "learned.cuh"

typedef SharedImage<FINE> Shared;
static_assert(sizeof(Shared) <= SHARED_BYTES, "the schedule reserves too little shared memory");

// Within -1 and 1.
DEVICE float limited(float answer) { return hyperbolic_tangent(answer * (1 / LEARNED_LIMIT)); }

// Stores a lane's answers for a superpixel: lane 4 g + t has the changes of pixel t, and number t of the noise. Every
// lane must call it.
DEVICE void store_answer(const LearnedArguments &job, const Place &at, const Floats &answer) {
  const int t = threadIdx.x % 4, y = 2 * at.y - TOP + t / 2, x = 2 * at.x - LEFT + t % 2;
  const float own = mean_of_superpixel(pixel_of(job.denoised_means, pixel_of_superpixel(at.y, at.x, t)));
  const float variance = raw_variance(job.frame, own);
  const float share = visible(job.polarization_gain * variance, 2 * own, LEARNED_FADE_LOW, LEARNED_FADE_HIGH);
  const float unit = LEARNED_LIMIT * root(variance) * share;
  const Halves change = halves_of(Floats{{limited(answer.value[0]) * (0.5f * unit), limited(answer.value[1]) * unit,
                                          limited(answer.value[2]) * (S2_SIGN * unit), 0}});
  if (at.is_inside && (u32)y < HEIGHT && (u32)x < WIDTH)
    store64(job.change + (((size_t)blockIdx.z * HEIGHT + y) * WIDTH + x) * sizeof(Halves), change.x, change.y);
  const float number = limited(answer.value[3]), noise = t < 2 ? 1 + number : t == 2 ? number : S2_SIGN * number;
  if (at.is_inside) store16(pixel_in(job.noise, 4, at.y, at.x, GRID_WIDTH, GRID_HEIGHT, t), half2_pack(noise, 0));
}

DEVICE void run_part(const LearnedArguments &job, u8 *memory) {
  Shared &s = *(Shared *)memory;
  float *scratch = s.scratch[warp_index()];
  const Tile tile = tile_of_block(GRID_WIDTH);
  load_image<FINE>(job.fine, tile, GRID_HEIGHT, GRID_WIDTH, s.image);
  sync_block();
  int at[OF_WARP];
  find_outputs(at);
  Sums sums[OF_WARP][1] = {};
  convolve<FINE>(job, DECODE_0_TILES, s.image, at, sums);
  const Weights leave = weights_at(job, LEAVE_TILES);
  const Floats bias = biases_at(job, LEAVE_BIASES);
#pragma unroll
  for (int m = 0; m < OF_WARP; m++) {
    Halves v[1][2];
    rectify(job, DECODE_0_BIASES, sums[m], scratch, v);
    Sums answers = {};
    add_product(answers, pixels_of(v[0], scratch), leave);
    Floats answer[2];
    values_of(answers, scratch, answer);
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const int y = tile.top + output_row(m), x = tile.left + output_column(m) + lane_pixel() + 8 * k;
      const bool is_inside = y < GRID_HEIGHT && x < GRID_WIDTH;
      store_answer(job, Place{min(y, GRID_HEIGHT - 1), min(x, GRID_WIDTH - 1), is_inside}, sum_of(answer[k], bias));
    }
  }
}
