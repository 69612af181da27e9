// SSIM of `ssim.cu` on tensor cores: a warp slides down TILE_X columns by 8 rows at a time. Rows are fetched into a
// ring in shared memory ahead of their use.
#pragma once

constexpr int BLOCKS = TILE_X / 16, WORDS = 2 * BLOCKS + 2; // of 16 columns; that a lane reads of an image's row
// of a multiprocessor, at least: as many as can have 168 registers, and 128
constexpr int RESIDENT_THREADS = BLOCKS == 1 ? 512 : 384;
constexpr int STAGES = 3; // of the ring
// Bytes of an image's row in the ring, with 8 columns more on either side; of the row of both images, and 32 more, with
// which lanes read from different banks; and of eight rows.
constexpr int IMAGE_BYTES = 16 * WORDS, ROW_BYTES = 2 * IMAGE_BYTES + 32, STAGE_BYTES = 8 * ROW_BYTES;
static_assert(HAS_TENSOR && INPUT == INPUT_FIXED && STRIDE == 1 && WIDTH % 8 == 0, "integers in words of eight");
static_assert(THREADS / 32 * STAGES * STAGE_BYTES <= SHARED_BYTES, "the launch has less shared memory");

__constant__ HalfTaps<Window> HALF_TAPS = HalfTaps<Window>();

// Moments of p, q and their squares: TILE_X columns x 8 rows a warp.
struct Tile {
  MatrixC moment[4][BLOCKS];
};

// The bytes of two 16-bit lanes as halves: 1024 more than the upper ones, and 4 more than the lower ones over 256. They
// stand behind the exponents 0x64 and 0x44 of these numbers, which are in a register: constants would be loaded again
// before each use.
struct Bytes {
  u32 high, low;
};
DEVICE Bytes bytes_of(u32 lanes, u32 exponents) {
  return Bytes{permute(lanes, exponents, 0x5351), permute(lanes, exponents, 0x4240)};
}

// The rows that are being added up, of a warp.
struct Strip {
  const Bands<BLOCKS> bands;
  const u32 exponents; // 0x6444
  Tile above, same;    // the rows above those that are added next, and the rows at their place

  // Adds a moment of eight rows, which is high + low.
  DEVICE void add(int m, const u32 (&high)[WORDS], const u32 (&low)[WORDS], Tile &complete) {
    MatrixC mean[BLOCKS] = {};
    convolve_x(bands, low, mean);
    convolve_x(bands, high, mean);
#pragma unroll
    for (int b = 0; b < BLOCKS; b++)
      complete.moment[m][b] =
          convolve_y(bands, mean[b], above.moment[m][b], same.moment[m][b], m == 2 ? V_OFFSET : 0.0f);
  }

  // Adds eight rows of a value as moment m, and of its square as moment m + 2. The value is the sum of two numbers in
  // half precision, high + low, and so is the square: high^2, rounded, and `rest`. With one number for each, the
  // rounding error, which is correlated with the value, would bias the variance.
  DEVICE void add_powers(int m, const u32 (&high)[WORDS], const u32 (&low)[WORDS], Tile &complete) {
    u32 square[WORDS], rest[WORDS];
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
      square[k] = half2_mul(high[k], high[k]);
      rest[k] = half2_fma(low[k], half2_fma(high[k], 0x40004000u, low[k]), // low (2 high + low)
                          half2_fma(high[k], high[k], half2_neg(square[k])));
    }
    add(m, high, low, complete);
    add(m + 2, square, rest, complete);
  }

  // Adds eight rows of both images; returns the tile above, which they complete. Of p less P_CENTER, `high` is the
  // upper byte. Of q it is q itself, rounded: images of different levels have squares of up to 128^2, of which `rest`
  // would otherwise be as large as 128, and lack 1/16.
  DEVICE Tile add_rows(const u32 (&x)[WORDS], const u32 (&y)[WORDS]) {
    Tile complete;
    u32 high[WORDS], low[WORDS];
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
      const Bytes sum = bytes_of(x[k] + y[k], exponents); // lanes up to 2 SSIM_FULL do not carry
      high[k] = half2_sub(sum.high, 0x64806480u);         // 1024 + 128
      low[k] = half2_sub(sum.low, 0x44804480u);           // 4 + 1/2
    }
    add_powers(0, high, low, complete);
#pragma unroll
    for (int k = 0; k < WORDS; k++) {
      const Bytes difference = bytes_of(x[k] - y[k] + 0x80008000u, exponents);
      const u32 whole = half2_sub(difference.high, 0x64846484u); // 1024 + 128 + 4
      high[k] = half2_add(whole, difference.low);
      low[k] = half2_sub(difference.low, half2_sub(high[k], whole)); // exact
    }
    add_powers(1, high, low, complete);
    return complete;
  }
};

// A row of a stage consists of pieces of eight columns, WORDS of each image. A lane fetches every fourth one of every
// eighth row, and reads the words of its four columns of each block of the same row.
struct RowReader {
  const u8 *source[BLOCKS + 1]; // of the lane's pieces, in the images' first row
  u8 *target, *words;           // in the stage of the next fetch, and of the next read
  int next_row;                 // of the next fetch
  int stage, step;              // of the next read; bytes from the stage before to it

  DEVICE RowReader(const u8 *first, const u8 *second, u8 *ring, int x, int y, int lane) {
    const int g = lane >> 2, t = lane & 3;
#pragma unroll
    for (int k = 0; k <= BLOCKS; k++) {
      const int piece = 4 * k + t;
      source[k] = (piece < WORDS ? first : second) + 2 * column_of<WIDTH>(x - 8 + 8 * (piece % WORDS));
    }
    target = ring + g * ROW_BYTES + 16 * t;
    words = ring + g * ROW_BYTES + 8 * t;
    next_row = y + g;
    stage = 0;
    step = -(STAGES - 1) * STAGE_BYTES;
#pragma unroll
    for (int k = 0; k < STAGES - 1; k++, target += STAGE_BYTES) fetch(true);
  }

  DEVICE void fetch(bool is_wanted) {
    const u32 offset = (u32)(mirrored<MAP_HEIGHT>(next_row) * (2 * WIDTH));
#pragma unroll
    for (int k = 0; k <= BLOCKS; k++)
      if (is_wanted) async_copy16(target + 64 * k, source[k] + offset);
    next_row += 8;
    async_commit();
  }

  // Reads the oldest stage, and fetches the one that was read before it.
  DEVICE void read(u32 (&first)[WORDS], u32 (&second)[WORDS], bool is_fetch_wanted) {
    async_wait<STAGES - 2>();
    sync_warp(); // lanes read what others have fetched, and no longer read the stage that is fetched
#pragma unroll
    for (int k = 0; k <= BLOCKS; k++) {
      const uint2 x = *(const uint2 *)(words + 32 * k), y = *(const uint2 *)(words + 32 * k + IMAGE_BYTES);
      first[2 * k] = x.x, first[2 * k + 1] = x.y;
      second[2 * k] = y.x, second[2 * k + 1] = y.y;
    }
    fetch(is_fetch_wanted);
    target += step;
    stage = stage == STAGES - 1 ? 0 : stage + 1;
    step = stage == 0 ? -(STAGES - 1) * STAGE_BYTES : STAGE_BYTES;
    words += step;
  }
};

// Where a lane stores: two columns of two rows of every block of each tile.
struct MapWriter {
  u8 *out;
  int row, column; // of the map, the lane's first ones
  float sum;       // of the piece
  const u8 *mask;  // as `out`; with MASKED only

  DEVICE void store(const Tile &tile, bool is_complete) {
#pragma unroll
    for (int b = 0; b < BLOCKS; b++) {
      const bool is_inside = is_complete && (MAP_WIDTH % TILE_X == 0 || column + 16 * b < MAP_WIDTH);
      float similarities[4]; // (column, row): (0, 0), (0, 1), (1, 0), (1, 1)
#pragma unroll
      for (int i = 0; i < 4; i++)
        similarities[i] = similarity(tile.moment[0][b].value[i], tile.moment[1][b].value[i], tile.moment[2][b].value[i],
                                     tile.moment[3][b].value[i]);
      float both[2];
#pragma unroll
      for (int i = 0; i < 2; i++) {
        const int at = i * MAP_WIDTH + 16 * b;
        const bool is_stored = is_inside && (MAP_HEIGHT % 8 == 0 || row + i < MAP_HEIGHT);
        const u32 masked = MASKED && is_stored ? load16(mask + at) : 0;
        const float left = stored(similarities[i], masked & 255), right = stored(similarities[2 + i], masked >> 8);
        if (OUT_MAP == 1 && is_stored) store16(out + at, map_byte(left) | map_byte(right) << 8);
        if (OUT_MAP == 3 && is_stored) store32(out + at * 2, map_half(left) | map_half(right) << 16);
        if (OUT_MAP == 2 && is_stored) store64(out + at * 4, as_bits(left), as_bits(right));
        both[i] = summed(similarities[i], masked & 255) + summed(similarities[2 + i], masked >> 8);
        if (MAP_HEIGHT % 8 && !is_stored) both[i] = 0;
      }
      sum += is_inside ? both[0] + both[1] : 0.0f; // without a branch, which all that leads to it would enter, too
    }
    row += 8;
    if (MASKED) mask += 8 * MAP_WIDTH;
    out += 8 * MAP_WIDTH * MAP_BYTES;
  }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_THREADS / THREADS) ssim(const Comparison task) {
  SHARED_MEMORY(memory);
  constexpr int WARPS = THREADS / 32, ACROSS = (PIECES_X + WARPS - 1) / WARPS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane >> 2, t = lane & 3;
  const int x0 = TILE_X * ((int)(blockIdx.x % ACROSS) * WARPS + warp), y0 = (int)(blockIdx.x / ACROSS) * ROWS;
  if (x0 < MAP_WIDTH) {
    Strip strip = {make_bands<Window, WIDTH, BLOCKS>(HALF_TAPS, x0, lane, threadIdx.y), 0x6444 + threadIdx.y};
    const int tiles = (min(ROWS, MAP_HEIGHT - y0) + 7) / 8;
    const u8 *first = task.first + blockIdx.z * task.first_stride;
    const u8 *second = task.second + blockIdx.z * task.second_stride;
    RowReader reader(first, second, memory + warp * (STAGES * STAGE_BYTES), x0, y0 - 8, lane);
    const int row = y0 - 16 + 2 * t, column = x0 + 2 * g; // of the map
    const long long at = (long long)row * MAP_WIDTH + column + (long long)blockIdx.z * (MAP_WIDTH * MAP_HEIGHT);
    MapWriter writer = {(u8 *)task.map + at * MAP_BYTES, row, column, 0,
                        MASKED ? task.mask + row * MAP_WIDTH + column : nullptr};
    float *pieces = task.pieces + (blockIdx.z * PIECES_Y + y0 / PIECE_Y) * (size_t)PIECES_X + x0 / PIECE_X;
    auto step = [&](int k) { // adds the rows of tile k - 1, and completes tile k - 2
      u32 x[WORDS], y[WORDS];
      reader.read(x, y, k + STAGES - 1 < tiles + 2);
      writer.store(strip.add_rows(x, y), k >= 2);
      // a piece is complete
      if ((k >= 2 && (k - 1) % (PIECE_Y / 8) == 0) || (MAP_HEIGHT % PIECE_Y && k == tiles + 1)) {
        writer.sum = warp_sum(writer.sum);
        if (lane == 0) store32(pieces, as_bits(writer.sum));
        pieces += PIECES_X;
        writer.sum = 0;
      }
    };
#pragma unroll 3 // tiles then swap roles instead of registers
    for (int k = 0; k < tiles + 2; k++) step(k);
  }
  sync_block();
  reduce_pieces(task, (float *)memory);
}
