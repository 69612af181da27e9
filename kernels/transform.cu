// From the planes of the Stokes image to the products of another geometry: scaled, rotated, cut and rectified.
//
// An output pixel is the mean of SCALE x SCALE samples of S0/2, S1, S2 and, where products need it, of `excess`. A
// sample is a pixel of the planes, or lies between four (`transform.cuh`). A block makes a tile of the output. Its
// threads first take the samples of neighboring pixels, so that a warp reads few lines of memory, and keep them in
// shared memory; then each makes the products of four pixels along x (`products.cuh`). S1 and S2 turn there.
#include "transform_products.cuh"

static_assert(sizeof(Samples) <= SHARED_BYTES, "the schedule reserves too little shared memory");

// A tile of the output, and where its samples are counted from in the planes.
struct Tile {
  u32 top, left, origin;
};
// A pixel of a thread: its row and column in the tile, the positions of its samples, and where they are counted from,
// or where its square begins.
struct Target {
  u32 r, x;
  const u32 *positions;
  u32 at;
};
DEVICE Target target_of(const TransformArguments &job, const Tile &tile, int k) {
  const u32 along = threadIdx.x % LINE, across = threadIdx.x / LINE + k * STEP;
  const u32 r = BY_COLUMNS ? along : across, x = BY_COLUMNS ? across : along;
#if POSITIONS
  const u32 *positions = job.positions + (size_t)blockIdx.x * (SCALE * SCALE * 4 * THREADS) + threadIdx.x;
  return Target{r, x, positions + k * (SCALE * SCALE * THREADS), tile.origin};
#else
  const int y = (int)min(tile.top + r, HEIGHT - 1u), left = (int)min(tile.left + x, WIDTH - 1u); // beyond it: any pixel
  return Target{r, x, nullptr, tile.origin + (u32)(job.origin + left * job.right + y * job.down)};
#endif
}

// Takes the samples of a pixel and keeps their mean. any: collects bits that are set where one may be invalid.
DEVICE void take(const TransformArguments &job, Samples &s, const Target &to, u32 &any) {
#pragma unroll
  for (int c = 0; c < CHANNELS; c++) {
    Difference difference;
    Pair mean, excess = splat(0);
    u32 bits = 0;
#if POSITIONS && SCALE == 1
    const u32 position = load32(to.positions);
    const Place place = place_of(position == OUTSIDE ? 0 : position, to.at + c * PLANE, job.fraction);
    if (position == OUTSIDE) bits = LAST_BITS;
    difference = difference_at(job.differences, place, bits);
    mean = value_at(job.means, place);
    if (EXCESS) excess = value_at(job.excesses, place);
#else
    float s1 = 0, s2 = 0, sum = 0, rest = 0;
#pragma unroll 1
    for (int j = 0; j < SCALE; j++)
#pragma unroll 1
      for (int i = 0; i < SCALE; i++) {
#if POSITIONS
        const u32 position = load32(to.positions + (j * SCALE + i) * THREADS);
        const Place place = place_of(position == OUTSIDE ? 0 : position, to.at + c * PLANE, job.fraction);
        if (position == OUTSIDE) bits = LAST_BITS;
        const Difference sample = difference_at(job.differences, place, bits);
        sum += low(value_at(job.means, place));
        if (EXCESS) rest += low(value_at(job.excesses, place));
#else
        const u32 pixel = to.at + c * PLANE + j * SOURCE_WIDTH + i;
        const uint2 raw = load_difference(job.differences + (size_t)pixel * DIFFERENCE_BYTES, 0);
        const Difference sample = difference_of(raw);
        bits |= last_bits(raw);
        sum += pixel_of(job.means, pixel);
        if (EXCESS) rest += pixel_of(job.excesses, pixel);
#endif
        s1 += low(sample);
        s2 += high(sample);
      }
    constexpr float SHARE = 1.0f / (SCALE * SCALE);
    difference = pair(s1 * SHARE, s2 * SHARE);
    mean = pair(sum * SHARE, 0);
    excess = pair(rest * SHARE, 0);
#endif
    if (c == 0) any |= bits;
    s.differences[c][to.r][to.x] = marked(difference, 0);
    s.means[c][to.r][to.x] = kept(mean);
    if (EXCESS) s.excesses[c][to.r][to.x] = kept(excess);
  }
}

// Marks a pixel of which a sample is invalid. Few threads come here.
DEVICE void mark(const TransformArguments &job, Samples &s, const Target &to) {
  u32 bits = 0;
  bool is_outside = false;
#pragma unroll 1
  for (int k = 0; k < SCALE * SCALE; k++) {
#if POSITIONS
    const u32 position = load32(to.positions + k * THREADS);
    is_outside |= position == OUTSIDE;
    if (position != OUTSIDE) bits |= last_bits_at(job.differences, place_of(position, to.at, job.fraction));
#else
    const u32 pixel = to.at + k / SCALE * SOURCE_WIDTH + k % SCALE;
    bits |= last_bits(load_difference(job.differences + (size_t)pixel * DIFFERENCE_BYTES, 0));
#endif
  }
  bits &= bits & 1 ? 1 : LAST_BITS; // saturated pixels are not dark
  if (is_outside) bits = LAST_BITS;
#pragma unroll
  for (int c = 0; c < CHANNELS; c++) {
    const Pair none = splat(0);
    s.differences[c][to.r][to.x] = marked(is_outside ? none : s.differences[c][to.r][to.x], c ? 0 : bits);
    if (!is_outside) continue;
    s.means[c][to.r][to.x] = kept(none);
    if (EXCESS) s.excesses[c][to.r][to.x] = kept(none);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) transform(const TransformArguments job) {
  SHARED_MEMORY(memory);
  Samples &s = *(Samples *)memory;
  constexpr u32 ACROSS = (WIDTH + TILE_X - 1) / TILE_X;
  const u32 tile = blockIdx.x, top = tile / ACROSS * TILE_Y, left = tile % ACROSS * TILE_X;
  const Turn by = load_turn(job, tile);
  u32 origin = blockIdx.z * (CHANNELS * PLANE);
  if (POSITIONS) origin += load32(job.origins + tile);
  const Tile of = {top, left, origin};
  u32 any = 0;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const Target to = target_of(job, of, k);
    take(job, s, to, any);
  }
  if (any & LAST_BITS) {
#pragma unroll 1
    for (int k = 0; k < 4; k++) mark(job, s, target_of(job, of, k));
  }
  sync_block();
  InvalidCount count = {0, 0};
  const u32 r = threadIdx.x / (TILE_X / 4), x = threadIdx.x % (TILE_X / 4) * 4;
  if (top + r < HEIGHT && left + x < WIDTH) make_products(job.frame, s, r, x, top + r, left + x, by, count);
  count_invalid(job.frame, count);
}
