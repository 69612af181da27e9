// From the mosaic to the products of a rectified image in one launch: mono, 8 bit, half resolution, co-sited bilinear,
// in pairs of half. `transform` does all other geometries, from planes that another launch stores.
//
// A block makes a tile of the output. The samples of a tile lie in a window of the Stokes image, which the block
// computes first, from raw pixels into shared memory, eight superpixels a thread. Then each thread takes samples
// between four superpixels; the rest is as in `transform`.
//
// Bytes are used as the subnormal halves that they are, so that an angle at the centre of a superpixel is 16 units a
// level.
#include "transform_products.cuh"

// WINDOW_X, WINDOW_Y: superpixels of a window; COLUMN_BITS: at least 6, for its columns and one more; BLOCKS: of a
// multiprocessor.
static_assert(!COLOR && HALF_PRECISION && RAW_FORMAT == RAW_U8 && PLANES == 3 && POSITIONS && SCALE == 1 && !EXCESS,
              "see not_in_one_launch() in rectified_work.py");
static_assert(SOURCE_WIDTH % 8 == 0 && WINDOW_X % 8 == 0, "a thread makes eight superpixels");
static_assert(WINDOW_X < 1 << COLUMN_BITS && WINDOW_Y <= 4096 >> COLUMN_BITS, "positions have too few bits");
static_assert(WINDOW_Y >= 2, "samples outside the picture take two rows");

constexpr int UNIT = 8; // superpixels of a thread
constexpr int UNITS_X = WINDOW_X / UNIT, ROWS_OF_WARP = 32 / UNITS_X;
constexpr u32 SIGNS = 0x80008000u; // of a pair
static_assert(UNITS_X <= 32, "the units of a row are lanes of one warp");
// Superpixels from one row to the next: an odd number of 16-byte words, so that lanes in eight rows store to different
// banks, and at least two more than the window has, which stand for samples outside the picture.
constexpr int WINDOW_PITCH = (WINDOW_X + 13) / 16 * 16 + 2;

// S1 and S2 of a superpixel; S0/2, and why it is invalid: sums of the flags of neighbours by their weights are 0 if and
// only if all that have a weight are valid.
typedef uint2 Cell;
constexpr u32 SATURATED = 0x3c00, DARK = 0x3800, BEYOND = 0x4000; // flags, as halves: 1, 0.5 and 2
constexpr u32 SATURATED_BIT = 0x0400, OUTSIDE_BIT = 0x4000;       // that only these have

struct Shared {
  alignas(16) Cell window[WINDOW_Y][WINDOW_PITCH];
  Samples samples;
};
static_assert(sizeof(Shared) <= SHARED_BYTES, "the schedule reserves too little shared memory");

// The even and odd columns of 16 raw pixels as bytes in the lanes of four words each.
struct Columns16 {
  Pair even[4], odd[4];
};
DEVICE Columns16 columns_of(const uint4 &line) {
  const u32 w[4] = {line.x, line.y, line.z, line.w};
  Columns16 c;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    c.even[k] = w[k] & 0x00ff00ffu;
    c.odd[k] = permute(w[k], 0u, 0x4341);
  }
  return c;
}

// Moves an angle to the centres: 3a + b down, then along, with the right neighbour for even columns and the left one
// for odd ones, which other lanes have. Beyond the picture its own last column: reflect-101.
DEVICE void centre_even(const Pair (&own)[4], const Pair (&other)[4], bool is_last, Pair (&out)[4]) {
  Pair v[5];
#pragma unroll
  for (int k = 0; k < 4; k++) v[k] = fma(own[k], splat(3), other[k]);
  v[4] = shuffle_down(v[0], ROWS_OF_WARP);
  if (is_last) v[4] = v[3] >> 16;
#pragma unroll
  for (int k = 0; k < 4; k++) out[k] = fma(v[k], splat(3), straddle(v[k], v[k + 1]));
}
DEVICE void centre_odd(const Pair (&own)[4], const Pair (&other)[4], bool is_first, Pair (&out)[4]) {
  Pair v[5];
#pragma unroll
  for (int k = 0; k < 4; k++) v[k + 1] = fma(own[k], splat(3), other[k]);
  v[0] = shuffle_up(v[4], ROWS_OF_WARP);
  if (is_first) v[0] = v[1] << 16;
#pragma unroll
  for (int k = 0; k < 4; k++) out[k] = fma(v[k + 1], splat(3), straddle(v[k], v[k + 1]));
}

// The flags of eight superpixels, of which some are invalid. upper, lower: their raw pixels; sum: of their angles.
DEVICE void find_invalid(const u32 (&upper)[4], const u32 (&lower)[4], const Pair (&sum)[4], Pair darkest,
                         u32 (&flags)[4]) {
  constexpr u32 one = 0x00010001u;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const u32 full = all_255(upper[k]) | all_255(lower[k]), is_saturated = (full >> 7 | full >> 15) & one;
    const u32 is_dark = WANT_DARK ? sub(sum[k], darkest) >> 15 & one & ~is_saturated : 0;
    flags[k] = is_saturated * SATURATED | is_dark * DARK;
  }
}

// Eight superpixels from column x of row y of the Stokes image. darkest: sums below are dark. Every lane must call it.
DEVICE void make_cells(const u8 *raw, int y, int x, Pair darkest, bool is_kept, Cell *to) {
  constexpr int STEP_RAW = 2 * SOURCE_WIDTH;
  const u8 *p = raw + (u32)(2 * y) * STEP_RAW + 2 * x;
  const uint4 lines[4] = {load128(p + (y == 0 ? STEP_RAW : -STEP_RAW)), load128(p), load128(p + STEP_RAW),
                          load128(p + (y == SOURCE_HEIGHT - 1 ? 0 : 2 * STEP_RAW))};
  const bool is_first = x == 0, is_last = x == SOURCE_WIDTH - UNIT;
  Pair a[4][4]; // [angle][word]
  const Columns16 even = columns_of(lines[1]), odd = columns_of(lines[2]);
  {
    const Columns16 next = columns_of(lines[3]);
    centre_even(even.even, next.even, is_last, a[angle_at(0, 0)]);
    centre_odd(even.odd, next.odd, is_first, a[angle_at(0, 1)]);
  }
  {
    const Columns16 previous = columns_of(lines[0]);
    centre_even(odd.even, previous.even, is_last, a[angle_at(1, 0)]);
    centre_odd(odd.odd, previous.odd, is_first, a[angle_at(1, 1)]);
  }
  const u32 upper[4] = {lines[1].x, lines[1].y, lines[1].z, lines[1].w},
            lower[4] = {lines[2].x, lines[2].y, lines[2].z, lines[2].w};
  u32 saturated = 0, flags[4] = {0, 0, 0, 0};
  Pair sum[4], lowest = splat(1);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    sum[k] = add(add(a[0][k], a[2][k]), add(a[1][k], a[3][k]));
    saturated |= has_255(upper[k]) | has_255(lower[k]);
    if (WANT_DARK) lowest = minimum(lowest, sum[k]);
  }
  if ((saturated & BYTES_255) || (WANT_DARK && (sub(lowest, darkest) & SIGNS)))
    find_invalid(upper, lower, sum, darkest, flags);
  if (!is_kept) return;
  constexpr Pair difference_unit = splat(LEVEL / 16 / SUBNORMAL_UNIT), mean_unit = splat(LEVEL / 64 / SUBNORMAL_UNIT);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const Pair s1 = mul(sub(a[0][k], a[2][k]), difference_unit), s2 = mul(sub(a[1][k], a[3][k]), difference_unit),
               mean = mul(sum[k], mean_unit);
    *(uint4 *)(to + 2 * k) = make_uint4(lows(s1, s2), lows(mean, flags[k]), highs(s1, s2), highs(mean, flags[k]));
  }
}

// The part of the Stokes image that begins at column left of row top. No sample needs its first and last column, whose
// neighbours no lane has, nor what lies beyond the picture.
DEVICE void make_window(const FrameArguments &frame, int top, int left, Shared &s) {
  // sums are exact below 2048, and so is this limit
  const float limit = fminf(ceilf(frame.min_intensity * (32 * 255.0f)), 2048.0f) * (float)SUBNORMAL_UNIT;
  const Pair darkest = pair(limit, limit);
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  const int lane = threadIdx.x % 32, unit = lane / ROWS_OF_WARP, c = min(unit, UNITS_X - 1) * UNIT;
  for (int first = threadIdx.x / 32 * ROWS_OF_WARP; first < WINDOW_Y; first += THREADS / 32 * ROWS_OF_WARP) {
    const int r = first + lane % ROWS_OF_WARP;
    make_cells(raw, min(top + r, SOURCE_HEIGHT - 1), min(left + c, SOURCE_WIDTH - UNIT), darkest,
               unit < UNITS_X && r < WINDOW_Y, &s.window[min(r, WINDOW_Y - 1)][c]);
  }
  if (threadIdx.x < 4)
    s.window[threadIdx.x / 2][WINDOW_X + threadIdx.x % 2] = make_uint2(0, threadIdx.x ? 0 : BEYOND << 16);
}

// A position: column and row in the window in COLUMN_BITS and what is left of 12 bits, each above 1024ths.
DEVICE Place place_in_window(u32 position) {
  const u32 column = position >> 10 & ((1u << COLUMN_BITS) - 1), row = position >> (20 + COLUMN_BITS);
  return place_between(row * WINDOW_PITCH + column, and_or(position, 0x3ff, position >> (COLUMN_BITS - 6) & 0x3ff0000));
}

// The sample at a place. Returns its S0/2, and in the upper half the mean of the flags.
DEVICE u32 take(Shared &s, const Place &place, int r, int x) {
  const Cell *cell = &s.window[0][0] + place.at;
  const Cell a = cell[0], b = cell[1], c = cell[WINDOW_PITCH], d = cell[WINDOW_PITCH + 1];
  const Pair difference = between(between(a.x, b.x, place.u), between(c.x, d.x, place.u), place.v),
             rest = between(between(a.y, b.y, place.u), between(c.y, d.y, place.u), place.v);
  s.samples.differences[0][r][x] = marked(difference, 0);
  s.samples.means[0][r][x] = kept(rest);
  return rest;
}

// Marks a pixel of which a sample is invalid. Few warps come here.
DEVICE void mark(Shared &s, const Place &place, int r, int x) {
  const Cell *cell = &s.window[0][0] + place.at;
  const bool has_right = place.parts & 0xffff, has_below = place.parts >> 16;
  u32 found = cell[0].y;
  if (has_right) found |= cell[1].y;
  if (has_below) found |= cell[WINDOW_PITCH].y;
  if (has_right && has_below) found |= cell[WINDOW_PITCH + 1].y;
  found >>= 16;
  const u32 bits = found & OUTSIDE_BIT     ? LAST_BITS
                   : found & SATURATED_BIT ? 1
                                           : 0x10000u; // saturated pixels are not dark
  s.samples.differences[0][r][x] = marked(s.samples.differences[0][r][x], bits);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) mono_rectified(const TransformArguments job) {
  SHARED_MEMORY(memory);
  Shared &s = *(Shared *)memory;
  launch_dependents();
  constexpr u32 ACROSS = (WIDTH + TILE_X - 1) / TILE_X;
  constexpr int COUNT = 4 * QUADS; // pixels of a thread
  const u32 tile = blockIdx.x, x = threadIdx.x % TILE_X, r = threadIdx.x / TILE_X;
  const u32 origin = load32(job.origins + tile);
  make_window(job.frame, origin >> 16, origin & 0xffff, s);
  const u32 *positions = job.positions + tile * (COUNT * THREADS) + threadIdx.x;
  u32 position[COUNT];
#pragma unroll
  for (int k = 0; k < COUNT; k++) position[k] = load32(positions + k * THREADS);
  sync_block();
  u32 rest[COUNT], any = 0;
#pragma unroll
  for (int k = 0; k < COUNT; k++) {
    rest[k] = take(s, place_in_window(position[k]), r + k * STEP, x);
    any |= rest[k];
  }
  if (any >> 16) {
#pragma unroll
    for (int k = 0; k < COUNT; k++)
      if (rest[k] >> 16) mark(s, place_in_window(position[k]), r + k * STEP, x);
  }
  Turn by[QUADS];
#pragma unroll
  for (int k = 0; k < QUADS; k++) by[k] = load_turn(job, tile * QUADS + k);
  sync_block();
#pragma unroll
  for (int k = 0; k < QUADS; k++)
    make_products_of_tile(job.frame, s.samples, tile / ACROSS * TILE_Y, tile % ACROSS * TILE_X, k, by[k]);
  if (OUT_SUMS || OUT_S0)
    grid_dependency_wait_in_one_block(); // SSIM follows, and starts earlier on free resources
  else
    grid_dependency_wait();
}
