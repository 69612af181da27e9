// Every sensor, resolution, method, format and product in one launch. A block loads a tile of the mosaic with its halo
// into shared memory (`tile_load.cuh`; with a calibration `tile_correct.cuh`), completes the colors there
// (`tile_colors.cuh`), interpolates the missing angles (`tile_adaptive.cuh`, `tile_angles.cuh`), and stores the
// products (`products.cuh`).
//
// Values are pairs of neighboring pixels along x (`pair.cuh`). Tile and picture start at multiples of four pixels, so
// that the tile positions of both lanes, and the Bayer column of each pair, are known at compile time.
#include "tile_correct.cuh"
#include "tile_colors.cuh"
#include "tile_angles.cuh"

extern "C" __global__ void __launch_bounds__(BOUNDS) tile(const FrameArguments frame) {
  SHARED_MEMORY(memory);
  Shared &s = *(Shared *)memory;
  if (threadIdx.x < 2) s.counts[threadIdx.x] = 0;
  const int block_y = block_of_frame(frame, blockIdx.y);
  const int y0 = block_y * TILE_Y, x0 = blockIdx.x * TILE_X;
#if COLOR
  Pair *tile = &s.lattice.raw[0][0];
#else
  Pair *tile = &s.mosaic[0][0][0];
#endif
  const bool any_saturated = any_in_block(load_tile(frame, y0, x0, tile));
  if (any_saturated) {
    find_saturated(frame, y0, x0, s.saturated);
    sync_block();
  }
#if COLOR
  complete_colors(s, y0);
  sync_block();
  if (REACH > 0 &&
      (y0 == 0 || x0 == 0 || y0 + TILE_Y + REACH > height_of(frame) || x0 + TILE_X + REACH > width_of(frame))) {
    reflect_border(frame, s, y0, x0);
    sync_block();
  }
#endif
#if ADAPTIVE
  interpolate_adaptively(s);
#endif
  InvalidCount count = {0, 0};
  // a thread makes four outputs along x
  constexpr int STEP = HALF_RESOLUTION ? 2 : 1, UNITS_X = TILE_X / (4 * STEP), UNITS_Y = TILE_Y / STEP;
  constexpr int GROUP = ADAPTIVE ? GROUP_OF_QUADS : UNITS_X; // other methods wait for stores, best of complete lines
  const int width = out_width(frame), height = out_height(frame);
  for (int i = threadIdx.x; i < UNITS_X * UNITS_Y; i += THREADS) {
    const Item at = item<UNITS_Y, UNITS_X, GROUP>(i);
    const int r = at.line, u = at.column;
    const int y = block_y * UNITS_Y + r, x = (blockIdx.x * UNITS_X + u) * 4;
    if (y >= height || x >= width) continue;
    Angles angle;
    output_angles(s, r, u, angle);
    const u32 saturated = any_saturated ? saturated_outputs(s.saturated, STEP * r, STEP * u) : 0;
    store_products(frame, angle, saturated, y, x, count);
  }
  count_invalid_of_block(frame, count, s.counts);
}
