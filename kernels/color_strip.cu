// Color, half resolution, co-sited or each angle at its own site: Malvar-He-Cutler on four Bayer lattices, to
// intensity, angles, Stokes vector, DoLP, AoLP and preview. 2.1 times as fast as `tile` on an H200: intensity, DoLP,
// AoLP and preview in bytes 7.9 instead of 16.6 us.
//
// The lanes of a warp stand side by side, each on TILE_X sites of the lattice, and move down ROWS rows, two at a time;
// the outermost lanes only give their neighbors what co-siting and debayering need, and the chunks of sites of all
// strips are numbered on. A site's two angles of a raw row are the lanes of a pair. Raw lines are kept, unpacked, in a
// ring in shared memory while the next ones are loaded.
//
// Co-siting is linear, and so it moves the sums over angles for intensity and S0, the images of angles only where these
// are stored, and of polarization the differences of luma: six values and two instead of twelve.
#include "products.cuh"

// ROWS: output rows of a strip, even. TILE_X: sites of a thread along x, 4 or 2. BLOCKS: of a multiprocessor, for which
// registers must suffice.
#if __CUDA_ARCH__ >= 900
constexpr int BLOCKS = 512 / THREADS;
#else
constexpr int BLOCKS = RESIDENT / THREADS;
#endif
static_assert(COLOR && HALF_RESOLUTION && DEBAYER == LATTICE_MHC && !CALIBRATED,
              "see KERNELS in polar_pipeline/backends/cuda/polarization.py");
static_assert(!CO_SITED || DEMOSAIC == METHOD_BILINEAR, "see KERNELS in polar_pipeline/backends/cuda/polarization.py");
static_assert(ROWS % 2 == 0 && (TILE_X == 4 || TILE_X == 2) && WIDTH % 8 == 0,
              "see KERNELS in polar_pipeline/backends/cuda/polarization.py");

#include "color_strip_products.cuh"

static_assert(sizeof(Shared) <= SHARED_BYTES, "the schedule reserves too little shared memory");

// Stores what a step has staged; step: rows that the strip has moved down.
DEVICE void store_stage(const Strip &strip, int step) {
  const size_t base = 3 * (size_t)blockIdx.z * (WIDTH_OUT * HEIGHT_OUT);
  auto store = [&](int place, int output) {
    store_staged(strip.shared.stage[place], (u8 *)strip.frame.out[output] + base, strip.at, step);
  };
#pragma unroll
  for (int a = 0; a < 4; a++)
    if (angle_type(a) == 1) store(a, ANGLE_0 + a);
  if (OUT_INTENSITY == 1) store(INTENSITY_STAGE, INTENSITY);
  if (OUT_PREVIEW) store(PREVIEW_STAGE, PREVIEW);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) color_strip(const FrameArguments frame) {
  SHARED_MEMORY(memory);
  const int warp = threadIdx.x / 32, first_chunk = (block_of_frame(frame, blockIdx.x) * WARPS + warp) * LANES;
  if (first_chunk >= CHUNKS * STRIPS) return; // all threads of the warp
  WarpShared &shared = ((Shared *)memory)->warp[warp];
  const LanePosition at = lane_position(first_chunk);
  Strip strip = {frame,
                 shared,
                 at,
                 frame.raw + blockIdx.z * frame.raw_stride,
                 scaling_of(frame),
                 {0, sizeof(Group), 2 * sizeof(Group)},
                 0};
  InvalidCount count = {0, 0};
  RawGroup group[3];
#pragma unroll
  for (int k = CO_SITED ? 0 : 1; k < 3; k++) strip.fetch<true>(k - 2, group[k]);
#pragma unroll
  for (int k = CO_SITED ? 0 : 1; k < 3; k++) strip.keep(group[k]);
  RawGroup ahead;
  strip.fetch<false>(1, ahead);
  sync_warp();
  Carried carried;
  if (CO_SITED) begin(strip, carried);
  sync_warp();
  strip.keep(ahead);
  sync_warp();
  size_t index = (size_t)blockIdx.z * (WIDTH_OUT * HEIGHT_OUT) + at.pixel;
#pragma unroll 1
  for (int step = 0; step < ROWS; step += 2, index += 2 * WIDTH_OUT) {
    if (step + 2 < ROWS) strip.fetch<false>(step / 2 + 2, ahead);
    u32 saturated = 0; // sites of the first row, and of the second
    if (strip.suspects & (CO_SITED ? 6 : 2))
      saturated = strip.saturated_sites<0>(at.y + step) | strip.saturated_sites<1>(at.y + step + 1) << SITES;
    RowValues values[2];
    if (CO_SITED)
      find_co_sited(strip, at.y + step, carried, values);
    else
      find_at_own_sites(strip, values);
    const bool upper = at.stores && has_row(at, step), lower = at.stores && has_row(at, step + 1);
    put_angles<0, 0>(strip, index, values[0].upper, upper);
    put_angles<1, 0>(strip, index, values[0].lower, upper);
    put_angles<0, 1>(strip, index + WIDTH_OUT, values[1].upper, lower);
    put_angles<1, 1>(strip, index + WIDTH_OUT, values[1].lower, lower);
    put_products<0>(strip, step, index, values[0], upper, saturated & ((1 << SITES) - 1), count);
    put_products<1>(strip, step, index + WIDTH_OUT, values[1], lower, saturated >> SITES, count);
    sync_warp();
    if (step + 2 < ROWS) strip.keep(ahead);
    store_stage(strip, step);
    sync_warp();
  }
  count_invalid(frame, count);
}
