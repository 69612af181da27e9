// SSIM of `ssim.cu` on tensor cores: a warp slides down 16 columns by 8 rows at a time. Rows are fetched into a ring in
// shared memory ahead of their use.
#ifndef POLAR_SSIM_TENSOR_CUH
#define POLAR_SSIM_TENSOR_CUH

constexpr int STAGES = 3;         // of the ring; as many as there are tiles in use
constexpr int STAGE_BYTES = 1024; // of two images, 16 of each a lane
static_assert(HAS_TENSOR && INPUT == INPUT_FIXED && STRIDE == 1 && WIDTH % 8 == 0, "integers in words of eight");
static_assert(THREADS / 32 * STAGES * STAGE_BYTES <= SHARED_BYTES, "the launch has less shared memory");

__constant__ HalfTaps<Window> HALF_TAPS = HalfTaps<Window>();

// Moments of p, q and their squares: 16 columns x 8 rows a warp.
typedef MatrixC Tile[4];

// Two 16-bit lanes over 256, as exact halves: their upper bytes less HIGH, and their lower bytes over 256 less LOW.
struct Bytes {
  u32 high, low;
};
template <int HIGH, int LOW> DEVICE Bytes bytes_of(u32 lanes) {
  constexpr u32 high = 0x6400 + HIGH, low = 0x4400 + 256 * LOW; // 1024 + HIGH and 4 + LOW as halves
  // an upper byte behind the exponent of 1024, a lower one behind that of 4
  return Bytes{half2_sub(permute(lanes, 0x64646464u, 0x4341), high << 16 | high),
               half2_sub(permute(lanes, 0x44444444u, 0x4240), low << 16 | low)};
}

// Adds eight rows of both images. They complete the tile above, add to the one at their place, and start the one below.
// p = high + low is represented by two halves, as a rounded one would enter the variance v by its error's covariance
// with p. So are the squares: high^2 and q^2, rounded, and what is missing to p^2 and q^2.
DEVICE void add_rows(const Bands &bands, uint4 first, uint4 second, Tile &above, Tile &same, Tile &below) {
  const u32 x[4] = {first.x, first.y, first.z, first.w}, y[4] = {second.x, second.y, second.z, second.w};
  u32 p[4], p_rest[4], q[4], pp[4], pp_rest[4], qq[4], qq_rest[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const Bytes sum = bytes_of<0, 0>(x[k] + y[k]); // lanes up to 2 SSIM_FULL do not carry
    const Bytes difference = bytes_of<128, 0>(x[k] - y[k] + 0x80008000u);
    p[k] = sum.high;
    p_rest[k] = sum.low;
    q[k] = half2_add(difference.high, difference.low);
    pp[k] = half2_mul(p[k], p[k]);
    qq[k] = half2_mul(q[k], q[k]);
    pp_rest[k] = half2_fma(p[k], p[k], half2_neg(pp[k]));
    pp_rest[k] = half2_fma(p_rest[k], half2_fma(p[k], 0x40004000u, p_rest[k]), pp_rest[k]); // low (2 high + low)
    qq_rest[k] = half2_fma(q[k], q[k], half2_neg(qq[k]));
  }
  Tile mean = {};
  convolve_x(bands, p_rest, mean[0]);
  convolve_x(bands, p, mean[0]);
  convolve_x(bands, q, mean[1]);
  convolve_x(bands, pp_rest, mean[2]);
  convolve_x(bands, pp, mean[2]);
  convolve_x(bands, qq_rest, mean[3]);
  convolve_x(bands, qq, mean[3]);
#pragma unroll
  for (int m = 0; m < 4; m++) convolve_y(bands, mean[m], above[m], same[m], below[m]);
}

// What a lane reads: eight columns of every eighth row of both images, through its own part of the ring.
struct RowReader {
  const u8 *first, *second;
  u8 *ring;
  int column, next_row; // row of the next fetch

  DEVICE void fetch(int stage, bool is_wanted) {
    if (is_wanted) {
      const u32 offset = (u32)(mirrored<MAP_HEIGHT>(next_row) * WIDTH + column) * 2;
      async_copy16(ring + stage * STAGE_BYTES, first + offset);
      async_copy16(ring + stage * STAGE_BYTES + STAGE_BYTES / 2, second + offset);
    }
    next_row += 8;
    async_commit();
  }
};

// Where a lane stores: two columns of two rows of each tile.
struct MapWriter {
  u8 *out;
  int row; // of the map, the lane's first one
  bool is_inside;
  float sum;      // of the piece
  const u8 *mask; // as `out`; with MASKED only

  DEVICE void store(const Tile &tile) {
    float found[4]; // (column, row): (0, 0), (0, 1), (1, 0), (1, 1)
#pragma unroll
    for (int i = 0; i < 4; i++)
      found[i] = similarity(tile[0].value[i], tile[1].value[i], tile[2].value[i], tile[3].value[i]);
#pragma unroll
    for (int i = 0; i < 2; i++) {
      if (!is_inside || (MAP_HEIGHT % 8 && row + i >= MAP_HEIGHT)) continue;
      const u32 masked = MASKED ? load16(mask + i * MAP_WIDTH) : 0;
      const float left = stored(found[i], masked & 255), right = stored(found[2 + i], masked >> 8);
      if (OUT_MAP == 1) store16(out + i * MAP_WIDTH, map_byte(left) | map_byte(right) << 8);
      if (OUT_MAP == 3) store32(out + i * MAP_WIDTH * 2, map_half(left) | map_half(right) << 16);
      if (OUT_MAP == 2) store64(out + i * MAP_WIDTH * 4, as_bits(left), as_bits(right));
      sum += summed(found[i], masked & 255) + summed(found[2 + i], masked >> 8);
    }
    row += 8;
    if (MASKED) mask += 8 * MAP_WIDTH;
    out += 8 * MAP_WIDTH * MAP_BYTES;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, 640 / THREADS) ssim(const Comparison task) {
  SHARED_MEMORY(memory);
  launch_dependents();
  constexpr int WARPS = THREADS / 32, ACROSS = (PIECES_X + WARPS - 1) / WARPS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane >> 2, t = lane & 3;
  const int x0 = 16 * ((int)(blockIdx.x % ACROSS) * WARPS + warp), y0 = (int)(blockIdx.x / ACROSS) * ROWS;
  if (x0 < MAP_WIDTH) {
    const Bands bands = make_bands<Window, WIDTH>(HALF_TAPS, x0, lane, threadIdx.y);
    grid_dependency_wait();
    const int column = column_of<WIDTH>(x0, lane), tiles = (min(ROWS, MAP_HEIGHT - y0) + 7) / 8;
    const u8 *first = task.first + blockIdx.z * task.first_stride;
    const u8 *second = task.second + blockIdx.z * task.second_stride;
    RowReader reader = {first, second, memory + warp * (STAGES * STAGE_BYTES) + 16 * lane, column, y0 - 8 + g};
#pragma unroll
    for (int k = 0; k < STAGES - 1; k++) reader.fetch(k, true);
    const bool is_inside = WIDTH % 16 == 0 || x0 + 2 * g < MAP_WIDTH;
    const int row = y0 + 2 * t;
    const size_t frame_pixel = (size_t)blockIdx.z * (MAP_WIDTH * MAP_HEIGHT);
    u8 *out = (u8 *)task.map + (frame_pixel + (u32)(row * MAP_WIDTH + x0 + 2 * g)) * MAP_BYTES;
    float *pieces = task.pieces + (blockIdx.z * PIECES_Y + y0 / PIECE_Y) * (size_t)PIECES_X + x0 / PIECE_X;
    MapWriter writer = {out, row, is_inside, 0, MASKED ? task.mask + (u32)(row * MAP_WIDTH + x0 + 2 * g) : nullptr};
    // step k adds the rows of tile k - 1, and completes tile k - 2
    auto step = [&](int k, int stage, Tile &above, Tile &same, Tile &below) {
      async_wait<STAGES - 2>();
      const uint4 x = *(const uint4 *)(reader.ring + stage * STAGE_BYTES);
      const uint4 y = *(const uint4 *)(reader.ring + stage * STAGE_BYTES + STAGE_BYTES / 2);
      reader.fetch((stage + STAGES - 1) % STAGES, k + STAGES - 1 < tiles + 2);
      add_rows(bands, x, y, above, same, below);
      if (k < 2) return;
      writer.store(above);
      if ((k - 1) % (PIECE_Y / 8) == 0 || k == tiles + 1) { // a piece is complete
        writer.sum = warp_sum(writer.sum);
        if (lane == 0) store32(pieces, as_bits(writer.sum));
        pieces += PIECES_X;
        writer.sum = 0;
      }
    };
    Tile a = {}, b = {}, c = {};
#pragma unroll 1
    for (int k = 0; k < tiles + 2; k += 3) { // the three tiles swap roles, and are not moved
      step(k, 0, a, b, c);
      if (k + 1 < tiles + 2) step(k + 1, 1, b, c, a);
      if (k + 2 < tiles + 2) step(k + 2, 2, c, a, b);
    }
  }
  sync_block();
  reduce_pieces(task, (float *)memory);
}
#endif
