// Mono, half resolution, co-sited bilinear, 8 bit in and out: intensity, DoLP and AoLP in integers, bound by memory.
// The fastest for these; `mono_half` does all others.
//
// A thread takes 8 superpixels along x and ROWS along y and loads all its lines first. Each of the four angles is moved
// to the superpixel's centre by the weights 9 3 / 3 1, as 3a + b down and then along, on pairs of 16-bit lanes: the two
// lanes of a word are neighbouring superpixels. Sums are 16 times a level, exact.
#include "mono_lines.cuh"

#ifndef THREADS
#define THREADS 128
#endif
#ifndef ROWS
#define ROWS 4 // rows of superpixels a thread
#endif
#ifndef BLOCKS
#define BLOCKS (RESIDENT / THREADS) // of a multiprocessor, for which registers must suffice
#endif
static_assert(!COLOR && HALF_RESOLUTION && CO_SITED && DEMOSAIC == METHOD_BILINEAR && RAW_FORMAT == RAW_U8 &&
                  HALF_PRECISION,
              "see supports() in specs.py");
static_assert(OUT_INTENSITY < 2 && OUT_DOLP < 2 && OUT_AOLP < 2 && !WANT_ANGLES && !OUT_STOKES && !OUT_PREVIEW,
              "uint8 intensity, dolp and aolp only");
static_assert(OUT_SUMS % 3 == 0 && OUT_S0 % 3 == 0, "what SSIM compares as 16-bit integers only");

// The even and odd columns of a line, each as four words of two 16-bit lanes.
struct Columns {
  u32 even[4], odd[4], left, right;
};
DEVICE Columns columns(const Line &line) {
  Columns c;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    c.even[k] = line.w[k] & 0x00ff00ffu;
    c.odd[k] = permute(line.w[k], 0u, 0x4341);
  }
  c.left = line.left;
  c.right = line.right;
  return c;
}

// One lane. s1, s2: 16 levels each, plus 8192; sum: 16 levels of all four angles.
template <int HIGH> DEVICE Polar polar_of(u32 s1, u32 s2, u32 sum) {
  return polar(fmaf(lane_as_float<HIGH>(s1), 2.0f, -1.25f), fmaf(lane_as_float<HIGH>(s2), 2.0f, -1.25f),
               lane_as_float<HIGH>(sum) - 0.49999997f); // not quite 0 where all is black
}
// bit 15 of a lane: S1 is negative; s1: as above
DEVICE u32 signs_of(u32 s1) { return ~(s1 << 2); }

// Sums of ANGLES angles as SSIM reads them: of full scale SSIM_FULL, exact.
template <int ANGLES> DEVICE void store_sums(u8 *p, u32 a, u32 b, u32 c, u32 d) {
  constexpr u32 units = (u32)SSIM_FULL / (ANGLES * 16 * 255);
  static_assert(units * (ANGLES * 16 * 255) == SSIM_FULL, "a whole number of units a sixteenth of a level");
  store128(p, a * units, b * units, c * units, d * units);
}

// A byte of ones for every lane whose lowest bit is clear.
DEVICE u32 keep_bytes(u32 invalid_first, u32 invalid_second) {
  return ~((permute(invalid_first, invalid_second, 0x6420) & 0x01010101u) * 255u);
}

// What to add to a word of sums (below 2^14) so that bit 15 of a lane is clear where the pixel is dark.
DEVICE u32 dark_bias(const FrameArguments &frame) {
  return 0x80008000u - min((u32)ceilf(frame.min_intensity * (32 * 255.0f)), 0x7fffu) * 0x10001u;
}

// Counts invalid superpixels of a row; valid: a byte of ones for each of the others. upper, lower: their raw lines.
DEVICE void find_invalid(const Line &upper, const Line &lower, const u32 (&sum)[4], u32 bias, InvalidCount &count,
                         u32 (&valid)[2]) {
  u32 invalid[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const u32 one = 0x00010001u, full = all_255(upper.w[k]) | all_255(lower.w[k]);
    const u32 saturated_lanes = (full >> 7 | full >> 15) & one;
    const u32 dark_lanes = WANT_DARK ? ~(sum[k] + bias) >> 15 & one & ~saturated_lanes : 0;
    count.saturated += __popc(saturated_lanes);
    count.dark += __popc(dark_lanes);
    invalid[k] = saturated_lanes | dark_lanes;
  }
  valid[0] = keep_bytes(invalid[0], invalid[1]);
  valid[1] = keep_bytes(invalid[2], invalid[3]);
}

// 3a + b down, then along: with the right neighbour for even columns and the left one for odd ones.
DEVICE void even_columns(const Columns &own, const Columns &other, u32 (&out)[4]) {
  u32 v[5];
#pragma unroll
  for (int k = 0; k < 4; k++) v[k] = 3u * own.even[k] + other.even[k];
  v[4] = 3u * own.right + other.right;
#pragma unroll
  for (int k = 0; k < 4; k++) out[k] = 3u * v[k] + permute(v[k], v[k + 1], 0x5432);
}
DEVICE void odd_columns(const Columns &own, const Columns &other, u32 (&out)[4]) {
  u32 v[4];
#pragma unroll
  for (int k = 0; k < 4; k++) v[k] = 3u * own.odd[k] + other.odd[k];
  out[0] = 3u * v[0] + permute(3u * own.left + other.left, v[0], 0x5410);
#pragma unroll
  for (int k = 1; k < 4; k++) out[k] = 3u * v[k] + permute(v[k - 1], v[k], 0x5432);
}

// What SSIM compares, of eight superpixels from output pixel `at` on. a: [angle][word]; plane: pixels of an image.
DEVICE void store_compared(const FrameArguments &frame, const u32 (&a)[4][4], const u32 (&sum)[4], size_t at,
                           size_t plane) {
  if (OUT_S0) store_sums<4>((u8 *)frame.out[S0] + 2 * at, sum[0], sum[1], sum[2], sum[3]);
#pragma unroll
  for (int k = 0; k < (OUT_SUMS ? 2 : 0); k++) { // of orthogonal angles; two planes a frame
    u8 *to = (u8 *)frame.out[SUMS] + 2 * (blockIdx.z * plane + k * plane + at);
    store_sums<2>(to, a[k][0] + a[k + 2][0], a[k][1] + a[k + 2][1], a[k][2] + a[k + 2][2], a[k][3] + a[k + 2][3]);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) mono_half_bytes(const FrameArguments frame) {
  launch_dependents();
  const int width = out_width(frame), height = out_height(frame), across = width_of(frame) / THREAD_PIXELS;
  const u32 id = blockIdx.x * THREADS + threadIdx.x, strip = id / across;
  const int y0 = strip * ROWS, x = (id - strip * across) * THREAD_PIXELS;
  Line lines[2 * ROWS + 2];
  load_lines<2 * ROWS>(frame, y0 < height ? 2 * y0 : 0, x, lines);
  const u32 bias = dark_bias(frame);
  InvalidCount count = {0, 0};
  Columns c[4] = {columns(lines[0]), columns(lines[1]), {}, {}};  // odd row above, even row, odd row, even row below
  const size_t plane = height * width, base = blockIdx.z * plane; // of an image, and of this frame's
  u32 index = y0 * width + (x >> 1);
#pragma unroll
  for (int i = 0; i < ROWS; i++, index += width) {
    c[2] = columns(lines[2 * i + 2]);
    c[3] = columns(lines[2 * i + 3]);
    u32 a[4][4], sum[4], saturated = 0, light = ~0u, valid[2] = {~0u, ~0u}; // a: [angle][word]
    even_columns(c[1], c[3], a[angle_at(0, 0)]);
    odd_columns(c[1], c[3], a[angle_at(0, 1)]);
    even_columns(c[2], c[0], a[angle_at(1, 0)]);
    odd_columns(c[2], c[0], a[angle_at(1, 1)]);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      sum[k] = a[0][k] + a[1][k] + a[2][k] + a[3][k];
      saturated |= has_255(lines[2 * i + 1].w[k]) | has_255(lines[2 * i + 2].w[k]);
      light &= sum[k] + bias;
    }
    const bool inside = y0 + i < height;
    if (((saturated & BYTES_255) || (WANT_DARK && (light & 0x80008000u) != 0x80008000u)) &&
        inside) { // rare: find out where
      find_invalid(lines[2 * i + 1], lines[2 * i + 2], sum, bias, count, valid);
    }
    c[0] = c[2];
    c[1] = c[3];
    u32 mean[4], degree[4], turns[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const u32 s1 = a[0][k] - a[2][k] + 0x20002000u, s2 = a[1][k] - a[3][k] + 0x20002000u;
      const Polar l = polar_of<0>(s1, s2, sum[k]), h = polar_of<1>(s1, s2, sum[k]);
      mean[k] = sum[k] * 4u + 0x00800080u; // 256 levels, and a half to round
      if (OUT_DOLP) degree[k] = fma(pair(l.degree, h.degree), splat(255), splat(1024));
      if (OUT_AOLP) turns[k] = turns_256(pair(l.tangent, h.tangent), signs_of(s1));
    }
    if (!inside) break;
    if (OUT_INTENSITY)
      store64((u8 *)frame.out[INTENSITY] + base + index, permute(mean[0], mean[1], 0x7531),
              permute(mean[2], mean[3], 0x7531));
    if (OUT_DOLP)
      store64((u8 *)frame.out[DOLP] + base + index, permute(degree[0], degree[1], 0x6420) & valid[0],
              permute(degree[2], degree[3], 0x6420) & valid[1]);
    if (OUT_AOLP)
      store64((u8 *)frame.out[AOLP] + base + index, permute(turns[0], turns[1], 0x6420) & valid[0],
              permute(turns[2], turns[3], 0x6420) & valid[1]);
    store_compared(frame, a, sum, base + index, plane);
  }
  count_invalid(frame, count);
  if (OUT_SUMS || OUT_S0)
    grid_dependency_wait_in_one_block(); // SSIM follows, and starts earlier on free resources
  else
    grid_dependency_wait();
}
