// Mono, half resolution: every format and width, every product but colors by maps; angles co-sited (bilinear), or each
// at its own site. 1.9 times as fast as `tile` on an H200: intensity, angles, DoLP and AoLP in bytes 4.6 instead of 8.5
// us.
//
// A thread takes PIXELS superpixels along x and ROWS along y and loads all its lines first. The two numbers of a
// superpixel on a line are the lanes of a word (`mono_half_lines.cuh`). Each of the four angles is moved to the
// superpixel's center by the weights 9 3 / 3 1, as 3a + b down and then along, which is exact in integers. Sums and
// differences of the angles are exact too; products are floats, and pairs of half where they become bytes
// (`mono_half_products.cuh`), whatever the precision.
//
// Where a width is no multiple of a thread's, the last thread of a row ends with the row: it computes some superpixels
// that the thread before it also has, and both store the same.
#undef HALF_PRECISION
#define HALF_PRECISION 1 // what pairs are here
#include "mono_half_products.cuh"

// ROWS: of superpixels of a thread. BLOCKS: of a multiprocessor, with 96 registers a thread.
constexpr int BLOCKS = 640 / THREADS;
static_assert(!COLOR && HALF_RESOLUTION && !CALIBRATED && (!CO_SITED || DEMOSAIC == METHOD_BILINEAR),
              "see KERNELS in polar_pipeline/backends/cuda/polarization.py");

// Interleaved pixels of a warp on a row, on their way from lanes to contiguous pieces.
constexpr int STAGE_BYTES = 32 * PIXELS * (OUT_STOKES ? 12 : OUT_PREVIEW ? 3 : 0);
struct Shared {
  u8 stage[THREADS / 32][STAGE_BYTES ? STAGE_BYTES : 1];
};
static_assert(STAGE_BYTES == 0 || sizeof(Shared) <= SHARED_BYTES, "the schedule reserves too little shared memory");

// The superpixels of a line, moved to their centers: 3a + b toward the other line, then along.
DEVICE void co_site(const Line &own, const Line &other, Site (&out)[PIXELS]) {
  Site down[PIXELS + 2]; // and the neighbors
#pragma unroll
  for (int k = 0; k < PIXELS; k++) down[k + 1] = three_to_one(site_of(own, k), site_of(other, k));
  set_odd(down[0], 3u * own.left + other.left);
  set_even(down[PIXELS + 1], 3u * own.right + other.right);
#pragma unroll
  for (int k = 0; k < PIXELS; k++) out[k] = three_to_one(down[k + 1], beside(down[k], down[k + 2]));
}

// Where a thread works: its first superpixel, and the first one along x that no other thread counts.
struct Place {
  int y, x, begin;
};
DEVICE Place place_of(u32 id) {
  constexpr int ACROSS = (OUT_WIDTH + PIXELS - 1) / PIXELS;
  const int strip = id / ACROSS, begin = (id - strip * ACROSS) * PIXELS;
  return Place{strip * ROWS, min(begin, OUT_WIDTH - PIXELS), begin};
}

// Read again: a number; the largest one of a superpixel; the sum of its angles.
DEVICE u32 number_again(const FrameArguments &frame, int y, int x) {
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  const u32 number = number_at(raw + (size_t)reflect(y, HEIGHT) * ROW_BYTES, reflect(x, WIDTH));
  return EXCEEDS ? min(number, (u32)FULL_SCALE) : number;
}
DEVICE u32 most_again(const FrameArguments &frame, int y, int x) {
  u32 most = 0;
#pragma unroll
  for (int k = 0; k < 4; k++) most = max(most, number_again(frame, 2 * y + k / 2, 2 * x + k % 2));
  return most;
}
DEVICE u32 sum_again(const FrameArguments &frame, int y, int x) {
  u32 sum = 0;
#pragma unroll
  for (int i = -REACH_Y; i < 2 + REACH_Y; i++)
#pragma unroll
    for (int j = -REACH_Y; j < 2 + REACH_Y; j++) { // 1 3 3 1 down and along
      const u32 weight = CO_SITED ? (i == 0 || i == 1 ? 3 : 1) * (j == 0 || j == 1 ? 3 : 1) : 1;
      sum += weight * number_again(frame, 2 * y + i, 2 * x + j);
    }
  return sum;
}

// Finds and counts invalid superpixels, and replaces what was stored of them, for all threads of the warp that have
// detected some: the lanes share those of a few threads at a time. Few warps come here, and the others must
// not spend registers on it; but a launch of one frame lasts until the slowest of them is done. has_bright, has_low:
// whether the thread has saturated ones, dark or black ones; darkest: the smallest sum that is not dark.
DEVICE void replace_invalid(const FrameArguments &frame, u32 id, bool has_bright, bool has_low, u32 darkest,
                            InvalidCount &count) {
  constexpr int SHARE = PIXELS * ROWS, AT_A_TIME = SHARE < 32 ? 32 / SHARE : 1; // superpixels of a thread; threads
  const int lane = threadIdx.x % 32;
  sync_warp(); // after what other lanes have stored
  const u32 low_lanes = lanes_with(has_low);
  u32 lanes = low_lanes | lanes_with(has_bright);
#pragma unroll 1
  while (lanes) {
    u32 rest = lanes; // bits of the threads from the one on that this lane handles; 0 if there are fewer threads
#pragma unroll
    for (int i = 0; i < AT_A_TIME; i++) {
      lanes &= lanes - 1;
      if ((i + 1) * SHARE <= lane) rest = lanes;
    }
    if (!rest) break;
    const int owner = __popc(~rest & (rest - 1)); // the lowest bit
    const Place place = place_of(id - lane + owner);
#pragma unroll 1
    for (int k = lane % SHARE; k < SHARE; k += 32) {
      const int y = place.y + k / PIXELS, x = place.x + k % PIXELS;
      if (y >= OUT_HEIGHT) break;
      const bool is_saturated = most_again(frame, y, x) >= FULL_SCALE, is_counted = x >= place.begin;
      u32 sum = max(darkest, 1u); // where it does not matter: neither dark nor black
      if (is_saturated ? OUT_PREVIEW : WANT_DARK && low_lanes >> owner & 1) sum = sum_again(frame, y, x);
      const bool is_dark = !is_saturated && WANT_DARK && sum < darkest;
      if (is_saturated || is_dark || (WANT_DARK && sum == 0))
        store_unpolarized(frame, (size_t)blockIdx.z * (OUT_WIDTH * OUT_HEIGHT) + y * OUT_WIDTH + x,
                          !is_saturated && !is_dark, sum, is_saturated);
      count.saturated += is_saturated && is_counted;
      count.dark += is_dark && is_counted;
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) mono_half(const FrameArguments frame) {
  SHARED_MEMORY(memory);
  launch_dependents();
  const u32 id = block_of_frame(frame, blockIdx.x) * THREADS + threadIdx.x;
  const Place place = place_of(id);
  u8 *stage = memory + threadIdx.x / 32 * STAGE_BYTES;
  Line lines[2 * ROWS + 2 * REACH_Y];
  load_lines(frame, place.y < OUT_HEIGHT ? 2 * place.y : 0, 2 * place.x, lines);
  if (EXCEEDS) limit_lines(lines);
  const u32 darkest = (u32)ceilf(frame.min_intensity * (2 * WHITE)); // as a sum
  const u32 rare = sum_bits_of(max(darkest, 1u));                    // sums below are dark or black
  const u32 index = place.y * OUT_WIDTH + place.x;
  const size_t at = (size_t)blockIdx.z * (OUT_WIDTH * OUT_HEIGHT) + index;
  u32 bright = 0, lowest = ~0u;
#pragma unroll
  for (int i = 0; i < ROWS; i++) {
    const Line &upper = lines[2 * i + REACH_Y], &lower = lines[2 * i + 1 + REACH_Y];
    Site even_row[PIXELS], odd_row[PIXELS];
    if (CO_SITED) {
      co_site(upper, lines[2 * i + 3 * REACH_Y], even_row);
      co_site(lower, lines[2 * i], odd_row);
    } else {
#pragma unroll
      for (int k = 0; k < PIXELS; k++) {
        even_row[k] = site_of(upper, k);
        odd_row[k] = site_of(lower, k);
      }
    }
    Superpixel superpixels[PIXELS];
#pragma unroll
    for (int k = 0; k < PIXELS; k++) superpixels[k] = superpixel(even_row[k], odd_row[k]);
    const bool inside = place.y + (OUT_HEIGHT % ROWS ? i : 0) < OUT_HEIGHT;
    if (WANT_ANGLES && inside) {
      store_angle_image<0>(frame, superpixels, at + i * OUT_WIDTH);
      store_angle_image<1>(frame, superpixels, at + i * OUT_WIDTH);
      store_angle_image<2>(frame, superpixels, at + i * OUT_WIDTH);
      store_angle_image<3>(frame, superpixels, at + i * OUT_WIDTH);
    }
    RowProducts row;
#pragma unroll
    for (int j = 0; j < PIXELS / 2; j++) make_pair(frame, superpixels, j, row, lowest);
    bright |= bright_line(upper) | bright_line(lower);
    // the last thread of a row may begin anywhere
    if (inside) store_row(frame, row, at + i * OUT_WIDTH, dither_at(place.y + i, OUT_WIDTH % PIXELS ? place.x : 0));
    store_staged_row(frame, row, stage, index + i * OUT_WIDTH);
  }
  InvalidCount count = {0, 0};
  const bool has_bright = bright & BRIGHT, has_low = WANT_DARK && lowest < rare;
  if (any_in_warp(has_bright || has_low)) replace_invalid(frame, id, has_bright, has_low, darkest, count);
  count_invalid(frame, count);
}
