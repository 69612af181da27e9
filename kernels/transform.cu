// From the planes of the Stokes image to the products of another geometry: scaled, rotated, cut and rectified.
//
// An output pixel is the mean of SCALE x SCALE samples of S0/2, S1, S2 and, where products need it, of `excess`. A
// sample is a pixel of the planes, or lies between four (`transform.cuh`). A block makes a tile of the output. Its
// threads first take the samples of neighbouring pixels, so that a warp reads few lines of memory, and keep them in
// shared memory; then each makes the products of four pixels along x (`products.cuh`). S1 and S2 turn there.
#include "transform.cuh"

#define BLOCKS ((RESIDENT + THREADS - 1) / THREADS) // of a multiprocessor

struct Shared {
  Difference differences[CHANNELS][TILE_Y][PITCH]; // with last bits; both: outside
#if HALF_PRECISION
  alignas(4) u16 means[CHANNELS][TILE_Y][PITCH + 1];
  alignas(4) u16 excesses[EXCESS ? CHANNELS : 1][EXCESS ? TILE_Y : 1][PITCH + 1];
#else
  float means[CHANNELS][TILE_Y][PITCH];
  float excesses[EXCESS ? CHANNELS : 1][EXCESS ? TILE_Y : 1][PITCH];
#endif
};
static_assert(sizeof(Shared) <= SHARED_BYTES, "the schedule reserves too little shared memory");

#if HALF_PRECISION
DEVICE Difference marked(Pair value, u32 bits) { return (value & ~LAST_BITS) | bits; }
DEVICE u32 bits_of(Difference value) { return value & LAST_BITS; }
DEVICE u16 kept(Pair value) { return (u16)value; }
#else
DEVICE Difference marked(Pair value, u32 bits) {
  return pair(as_float((as_bits(low(value)) & ~1u) | (bits & 1)), as_float((as_bits(high(value)) & ~1u) | bits >> 16));
}
DEVICE u32 bits_of(Difference value) { return (as_bits(low(value)) & 1) | (as_bits(high(value)) & 1) << 16; }
DEVICE float kept(Pair value) { return low(value); }
#endif

// Where a thread's four pixels lie in the tile: the first one, and the step to the next.
constexpr int LINE = BY_COLUMNS ? TILE_Y : TILE_X, STEP = THREADS / LINE;
static_assert(THREADS % LINE == 0, "a thread's pixels are complete lines apart");

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
DEVICE void take(const TransformArguments &job, Shared &s, const Target &to, u32 &any) {
#pragma unroll
  for (int c = 0; c < CHANNELS; c++) {
    Difference difference;
    Pair mean, excess = splat(0);
    u32 bits = 0;
#if POSITIONS && SCALE == 1
    const u32 position = load32(to.positions);
    const Place place = place_of(position == OUTSIDE ? 0 : position, to.at + c * PLANE);
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
        const Place place = place_of(position == OUTSIDE ? 0 : position, to.at + c * PLANE);
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
DEVICE void mark(const TransformArguments &job, Shared &s, const Target &to) {
  u32 found = 0;
  bool is_outside = false;
#pragma unroll 1
  for (int k = 0; k < SCALE * SCALE; k++) {
#if POSITIONS
    const u32 position = load32(to.positions + k * THREADS);
    is_outside |= position == OUTSIDE;
    if (position != OUTSIDE) found |= last_bits_at(job.differences, place_of(position, to.at));
#else
    const u32 pixel = to.at + k / SCALE * SOURCE_WIDTH + k % SCALE;
    found |= last_bits(load_difference(job.differences + (size_t)pixel * DIFFERENCE_BYTES, 0));
#endif
  }
  found &= found & 1 ? 1 : LAST_BITS; // saturated pixels are not dark
  if (is_outside) found = LAST_BITS;
#pragma unroll
  for (int c = 0; c < CHANNELS; c++) {
    const Pair none = splat(0);
    s.differences[c][to.r][to.x] = marked(is_outside ? none : s.differences[c][to.r][to.x], c ? 0 : found);
    if (!is_outside) continue;
    s.means[c][to.r][to.x] = kept(none);
    if (EXCESS) s.excesses[c][to.r][to.x] = kept(none);
  }
}

#if HALF_PRECISION
DEVICE Pair neighbours(const u16 *values) { return *(const u32 *)values; } // at an even column
#else
DEVICE Pair neighbours(const float *values) { return pair(values[0], values[1]); }
#endif

// S1 and S2 of two pixels, turned by a cosine and a sine.
DEVICE void turn(Pair cosine, Pair sine, Pair &s1, Pair &s2) {
  const Pair before = s1;
  s1 = sub(mul(cosine, before), mul(sine, s2));
  s2 = fma(sine, before, mul(cosine, s2));
}

// Four pixels from column x of row r of the tile. turns: of these pixels.
DEVICE void combine_samples(const TransformArguments &job, const Shared &s, int r, int x, const u8 *turns,
                            Combinations &of) {
#if POSITIONS && PLANES == 2
  const uint2 both = load64(turns);
  const Pair cosine = pair(as_float(both.x), as_float(both.x)), sine = pair(as_float(both.y), as_float(both.y));
#elif POSITIONS && HALF_PRECISION
  const u32 both = load32(turns);
  const Pair cosine = half2_low_twice(both), sine = half2_high_twice(both);
#elif POSITIONS
  const u32 both = load32(turns);
  const Pair cosine = pair(half2_low(both), half2_low(both)), sine = pair(half2_high(both), half2_high(both));
#else
  const Pair factor = pair(job.turn, job.turn);
#endif
#pragma unroll
  for (int c = 0; c < CHANNELS; c++)
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const Difference *values = &s.differences[c][r][x + 2 * k];
      of.s1[c][k] = lows(values[0], values[1]);
      of.s2[c][k] = highs(values[0], values[1]);
      of.mean[c][k] = neighbours(&s.means[c][r][x + 2 * k]);
      if (EXCESS) of.excess[c][k] = neighbours(&s.excesses[c][r][x + 2 * k]);
#if POSITIONS
      turn(cosine, sine, of.s1[c][k], of.s2[c][k]);
#else
      of.s1[c][k] = mul(factor, of.s1[c][k]);
      of.s2[c][k] = mul(factor, of.s2[c][k]);
#endif
    }
}

// An intensity within what integers hold: turned by a lens, that behind a polarizer can lie beyond.
template <int TYPE> DEVICE Pair within(Pair intensity) { return TYPE == 2 ? intensity : clip(intensity); }

// The angle images of four pixels.
DEVICE void angles_of(const Combinations &of, Angles &angle) {
  const Pair half = splat(0.5);
#pragma unroll
  for (int c = 0; c < CHANNELS; c++)
#pragma unroll
    for (int k = 0; k < 2; k++) {
      const Pair straight = add(of.mean[c][k], of.excess[c][k]), diagonal = sub(of.mean[c][k], of.excess[c][k]);
      angle[c][0][k] = within<angle_type(0)>(fma(of.s1[c][k], half, straight));
      angle[c][1][k] = within<angle_type(1)>(fma(of.s2[c][k], half, diagonal));
      angle[c][2][k] = within<angle_type(2)>(sub(straight, mul(of.s1[c][k], half)));
      angle[c][3][k] = within<angle_type(3)>(sub(diagonal, mul(of.s2[c][k], half)));
    }
}

// Makes an image of floats NaN where pixels are outside.
DEVICE void erase(void *image, const OutputPosition &at, u32 outside) {
  for (int k = 0; k < at.n; k++)
    for (int c = 0; c < (outside >> k & 1 ? CHANNELS : 0); c++)
      store32((float *)image + (at.index + k) * CHANNELS + c, as_bits(nan_value()));
}
DEVICE void erase_light(const FrameArguments &frame, const OutputPosition &at, u32 outside) {
  if (OUT_INTENSITY == 2) erase(frame.out[INTENSITY], at, outside);
  if (OUT_UNPOLARIZED == 2) erase(frame.out[UNPOLARIZED], at, outside);
  if (OUT_POLARIZED == 2) erase(frame.out[POLARIZED], at, outside);
  if (OUT_POLARIZER == 2) erase(frame.out[POLARIZER], at, outside);
#pragma unroll
  for (int k = 0; k < 4; k++)
    if (angle_type(k) == 2) erase(frame.out[ANGLE_0 + k], at, outside);
}

// Every product of four pixels from column x of row r of the tile; (y, left): the first one in the output.
DEVICE void make_products(const TransformArguments &job, const Shared &s, int r, int x, int y, int left,
                          const u8 *turns, InvalidCount &count) {
  const FrameArguments &frame = job.frame;
  const OutputPosition at = output_position(frame, y, left);
  Combinations of;
  combine_samples(job, s, r, x, turns, of);
  const Difference *marks = &s.differences[0][r][x];
  u32 invalid = 0, saturated = 0, dark = 0, outside = 0;
  if (bits_of(marks[0]) | bits_of(marks[1]) | bits_of(marks[2]) | bits_of(marks[3])) {
#pragma unroll
    for (int k = 0; k < 4; k++) {
      saturated |= (bits_of(marks[k]) & 1) << k;
      dark |= (bits_of(marks[k]) >> 16) << k;
    }
    invalid = (saturated | dark) & ((1u << at.n) - 1);
    outside = saturated & dark & invalid;
    saturated &= invalid & ~outside;
    dark = WANT_DARK ? dark & invalid & ~outside : 0;
    invalid = saturated | dark | outside;
    count.saturated += __popc(saturated);
    count.dark += __popc(dark);
  }
  Angles angle = {};
  if (WANT_ANGLES) angles_of(of, angle);
  store_angle<0>(frame, at, angle);
  store_angle<1>(frame, at, angle);
  store_angle<2>(frame, at, angle);
  store_angle<3>(frame, at, angle);
  if (OUT_INTENSITY) store_image<OUT_INTENSITY>(frame.out[INTENSITY], at, of.mean);
  store_component<UNPOLARIZED, OUT_UNPOLARIZED>(frame, at, of);
  store_component<POLARIZED, OUT_POLARIZED>(frame, at, of);
  store_component<POLARIZER, OUT_POLARIZER>(frame, at, of);
  if (WANT_STOKES) {
    Polarization p = {{luma_of<0>(of.mean), luma_of<1>(of.mean)}, {}, {}, {}, {}, {}, {}};
    p.s1[0] = luma_of<0>(of.s1);
    p.s1[1] = luma_of<1>(of.s1);
    p.s2[0] = luma_of<0>(of.s2);
    p.s2[1] = luma_of<1>(of.s2);
    polarize(p, 0);
    if (OUT_S0) {
      float s0[4];
#pragma unroll
      for (int k = 0; k < 4; k++) s0[k] = p.s0f[k] * (1 / FULL);
      store_values<OUT_S0>(frame.out[S0], at, s0);
    }
    if (OUT_SUMS) {
      const Pair excess[2] = {luma_of<0>(of.excess), luma_of<1>(of.excess)};
      store_sums(frame, at, p.s0, excess);
    }
    store_polarization(frame, at, angle, y, p, invalid, valid_bytes(invalid));
  }
  if (outside) erase_light(frame, at, outside);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) transform(const TransformArguments job) {
  SHARED_MEMORY(memory);
  Shared &s = *(Shared *)memory;
  launch_dependents();
  constexpr u32 ACROSS = (WIDTH + TILE_X - 1) / TILE_X;
  const u32 tile = blockIdx.x, thread = threadIdx.x;
  const u32 top = tile / ACROSS * TILE_Y, left = tile % ACROSS * TILE_X;
  grid_dependency_wait(); // for the planes
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
  const u32 r = thread / (TILE_X / 4), x = thread % (TILE_X / 4) * 4;
  if (top + r < HEIGHT && left + x < WIDTH)
    make_products(job, s, r, x, top + r, left + x, job.turns + ((size_t)tile * THREADS + thread) * DIFFERENCE_BYTES,
                  count);
  count_invalid(job.frame, count);
}
