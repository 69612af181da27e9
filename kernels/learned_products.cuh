// The denoised planes with `change` added, and their products: a thread makes four pixels of a row.
#pragma once
#include "learned.cuh"

DEVICE void run_part(const LearnedArguments &job, u8 *) {
  constexpr int PER_ROW = TILE_X / 4;
  static_assert(PER_ROW * TILE_Y == THREADS, "a thread has four pixels");
  const Tile tile = tile_of_block(WIDTH);
  const int y = tile.top + threadIdx.x / PER_ROW, x = tile.left + threadIdx.x % PER_ROW * 4;
  InvalidCount count = {0, 0};
  if (y < HEIGHT && x < WIDTH) {
    Combinations to;
    u32 saturated = 0, dark = 0;
    float mean[4], s1[4], s2[4], excess[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const u32 pixel = (blockIdx.z * HEIGHT + y) * WIDTH + min(x + k, WIDTH - 1);
      const uint2 both = load_difference(job.denoised_differences + (size_t)pixel * DIFFERENCE_BYTES, 0);
      const Floats change = floats_of(load64(job.change + (size_t)pixel * sizeof(Halves)));
      mean[k] = pixel_of(job.denoised_means, pixel) + change.value[0];
      s1[k] = low(difference_of(both)) + change.value[1];
      s2[k] = high(difference_of(both)) + change.value[2];
      excess[k] = OUT_EXCESSES || WANT_ANGLES ? pixel_of(job.excesses, pixel) : 0;
      saturated |= (last_bits(both) & 1) << k;
      dark |= (last_bits(both) >> 16 & 1) << k;
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
      to.mean[0][k] = pair(mean[2 * k], mean[2 * k + 1]);
      to.s1[0][k] = pair(s1[2 * k], s1[2 * k + 1]);
      to.s2[0][k] = pair(s2[2 * k], s2[2 * k + 1]);
      to.excess[0][k] = pair(excess[2 * k], excess[2 * k + 1]);
    }
    const auto state = [&](int k, float light, Covariance &v) {
      const int superpixel_x = (min(x + k, WIDTH - 1) + LEFT) / 2;
      const Floats of =
          floats_of(load64(pixel_in(job.noise, 4, (y + TOP) / 2, superpixel_x, GRID_WIDTH, GRID_HEIGHT, 0)));
      v = covariance_of(StatedNoise{of.value[0], of.value[1], of.value[2], of.value[3]}, raw_variance(job.frame, light),
                        job.light_gain, job.polarization_gain);
    };
    store_planes_or_products(job.frame, output_position(job.frame, y, x), y, to, saturated, dark, state, count);
  }
  count_invalid(job.frame, count);
}
