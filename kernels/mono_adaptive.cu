// Mono, full resolution, adaptive (docs/adaptive_demosaic.md), to every product. A block keeps a
// tile of the mosaic in shared memory (`mono_adaptive_layout.cuh`) and makes its planes there in passes: the mosaic
// (`mono_adaptive_load.cuh`), gradients and the switch (`mono_adaptive_edges.cuh`), total intensity and its
// detail (`mono_adaptive_detail.cuh`), the missing angles (`mono_adaptive_angles.cuh`), and the products
// (`products.cuh`).
//
// Threads go down runs of rows with their windows in registers. The bodies of these loops are short: unrolled runs do
// not fit the instruction cache.
#include "mono_adaptive_load.cuh"
#include "mono_adaptive_edges.cuh"
#include "mono_adaptive_detail.cuh"
#include "mono_adaptive_angles.cuh"

// Threads of a multiprocessor for which registers must suffice: from sm_90 on, 128 registers a thread.
#if __CUDA_ARCH__ >= 900
constexpr int ENOUGH_THREADS = 512;
#else
constexpr int ENOUGH_THREADS = RESIDENT;
#endif
#define BOUNDS THREADS, (ENOUGH_THREADS + THREADS - 1) / THREADS

// A pass over ROWS_OF_PASS rows: a thread takes a pair of columns on a run of them. Runs begin with warp SHIFT, since
// runs may differ by a row, and warps of one number share a scheduler.
template <int ROWS_OF_PASS, int SHIFT, typename Pass> DEVICE void for_each_run(Pass pass) {
  static_assert(RUNS * COLUMNS <= THREADS, "a thread for every pair of columns and run of rows");
  const int place = threadIdx.x / COLUMNS, column = threadIdx.x - place * COLUMNS;
  if (place < RUNS) {
    const int run = SHIFT && place == RUNS - 1 ? 0 : place + SHIFT;
    pass(run * ROWS_OF_PASS / RUNS, (run + 1) * ROWS_OF_PASS / RUNS, column);
  }
  sync_block();
}
DEVICE void interpolate(Shared &s) {
  for_each_run<PLANE_Y, 0>([&](int first, int last, int column) { find_gradients(s, first, last, column); });
  for_each_run<HALF_Y, 1>([&](int first, int last, int column) {
    if (column < TILE_X / 2) find_edges(s, first, last, 2 * column);
  });
  for_each_run<DETAIL_END, 0>([&](int first, int last, int column) { find_detail(s, first, last, column); });
  for_each_run<HALF_Y, 1>([&](int first, int last, int column) {
    if (column < TILE_X / 2) find_angles(s, first, last, 2 * column);
  });
}

CONSTANT int power_of_2(int n, int power = 1) { return power >= n ? power : power_of_2(n, 2 * power); }

// The products of the tile: four outputs along x a thread, in every other of both halves' rows that it comes to.
// ANY_SATURATED: whether the tile has a saturated pixel. Few have, and looking at each costs the others 2 %.
template <bool ANY_SATURATED>
DEVICE void store_tile(const FrameArguments &frame, const Shared &s, InvalidCount &count) {
  constexpr int QUADS = TILE_X / 4, ACROSS = power_of_2(QUADS), STEP = THREADS / ACROSS / 2 * 2;
  static_assert(STEP > 0, "threads for two rows of outputs");
  const int quad = threadIdx.x % ACROSS, first = threadIdx.x / ACROSS;
  const int y0 = blockIdx.y * TILE_Y, x = blockIdx.x * TILE_X + 4 * quad;
  if (quad >= QUADS || first >= min(STEP, HALF_Y) || x >= out_width(frame)) return;
  Places places(s, first, 4 * quad);
#pragma unroll 1
  for (int r = first; r < HALF_Y; r += STEP, places.advance(STEP)) {
    const FourAngles four = places.angles();
#pragma unroll 1
    for (int half = 0; half < 2; half++) {
      const int row = r + half * HALF_Y;
      if (y0 + row >= out_height(frame)) break;
      Angles angle;
      four.of_half(half, angle);
      store_products(frame, angle, ANY_SATURATED ? saturated_outputs(s.saturated, row, quad) : 0, y0 + row, x, count);
    }
  }
}

extern "C" __global__ void __launch_bounds__(BOUNDS) mono_adaptive(const FrameArguments frame) {
  SHARED_MEMORY(memory);
  Shared &s = *(Shared *)memory;
  launch_dependents();
  const int y0 = blockIdx.y * TILE_Y, x0 = blockIdx.x * TILE_X;
  if (threadIdx.x < 2) s.counts[threadIdx.x] = 0;
  clear_padding(s);
  const bool saturated = load_halves(frame, y0 - HALO, x0 - HALO, s.mosaic + PAD);
  const bool any_saturated = any_in_block(saturated);
  if (any_saturated) find_saturated(frame, y0, x0, s.saturated);
  if (threadIdx.x == 0) s.any_saturated = any_saturated;
  interpolate(s);
  InvalidCount count = {0, 0};
  if (s.any_saturated)
    store_tile<true>(frame, s, count);
  else
    store_tile<false>(frame, s, count);
  count_invalid_of_block(frame, count, s.counts);
  grid_dependency_wait_in_one_block();
}
