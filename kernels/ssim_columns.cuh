// One column of the two images that `ssim_registers.cuh` compares: read as stored, or computed from the mosaic.
//
// `Loaded` is what a row of a column takes from memory, as it was loaded: nothing waits for the load until `take`.
// `Sample` is what is compared. `Column` is asked for rows from the top downwards.
#ifndef POLAR_SSIM_COLUMNS_CUH
#define POLAR_SSIM_COLUMNS_CUH

#if INPUT == INPUT_MOSAIC
static_assert(STRIDE == 1 && WIDTH % 8 == 0 && HEIGHT >= 16, "words of four pixels; mirrored once");

// Rows 2y - 1 and 2y of the mosaic, between the rows of superpixels y - 1 and y. Two words hold a thread's four
// columns.
struct Loaded {
  u32 odd[2], even[2];
};

// What these two rows of the mosaic contribute to the row of superpixels above, and to the one below. Here and in the
// sample, a 16-bit lane for each pair of orthogonal angles.
struct Contribution {
  u32 above, below;
};

struct Sample {
  u32 lanes; // sums of two angles, in sixteenths of a level
  DEVICE float sum() const { return lane_as_float<0>(lanes) + lane_as_float<1>(lanes) - 1.0f; }
  DEVICE float difference() const { return lane_as_float<0>(lanes) - lane_as_float<1>(lanes); }
};

// 3a + b along a row, with the right neighbour for even columns and the left one for odd ones.
DEVICE u32 weighted_along_row(const u32 (&words)[2], u32 order) {
  const u32 bytes = permute(words[0], words[1], order);
  return 3u * (bytes & 0x00ff00ffu) + permute(bytes, 0u, 0x4341);
}

struct Column {
  const u8 *address;
  u32 order; // selects the bytes of both words: a and b of the low lane, then of the high one
  Contribution previous;

  // (x, y): its position in the map; it begins RADIUS rows above
  DEVICE Column(const Comparison &task, int x, int y) {
    const int begin = max(0, min((2 * x - 1) & ~3, 2 * WIDTH - 8)), own = 2 * x - begin;
    const int left = x == 0 ? own + 1 : own - 1, right = x == WIDTH - 1 ? own : own + 2; // reflect-101
    order = own | right << 4 | (own + 1) << 8 | left << 12;
    address = task.first + blockIdx.z * task.first_stride + (u32)(4 * WIDTH * y + begin);
    previous = contribution(mirrored_at(y - RADIUS - 1, y));
  }
  DEVICE Loaded load(int odd, int even) const {
    const u8 *p = address + odd * (2 * WIDTH), *q = address + even * (2 * WIDTH);
    return Loaded{{load32(p), load32(p + 4)}, {load32(q), load32(q + 4)}};
  }
  // what is below the row of the map that lies `rows` below the column's position
  DEVICE Loaded at(int rows) const { return load(2 * rows + 1, 2 * rows + 2); }
  // the same for any row y, also beyond the border, where the column's position is at row `own`
  DEVICE Loaded mirrored_at(int y, int own) const {
    const int down = abs(y + 1), row = 2 * min(down, 2 * HEIGHT - down);
    return load(abs(row - 1) - 2 * own, min(row, 2 * HEIGHT - 2) - 2 * own);
  }
  DEVICE void advance(int rows) { address += rows * (4 * WIDTH); }
  DEVICE Contribution contribution(const Loaded &loaded) const {
    // orthogonal angles are diagonal neighbours: an odd row has the pairs of an even one in the opposite order
    const u32 odd = permute(weighted_along_row(loaded.odd, order), 0u, 0x1032);
    const u32 even = weighted_along_row(loaded.even, order);
    return Contribution{3u * odd + even, 3u * even + odd};
  }
  // row y of the map; beyond the border, rows are traversed in the opposite direction
  DEVICE Sample take(const Loaded &loaded, int y) {
    const Contribution next = contribution(loaded);
    const u32 lanes = y >= 0 && y < HEIGHT ? previous.below + next.above : previous.above + next.below;
    previous = next;
    return Sample{lanes};
  }
};

#else // stored images
constexpr int SAMPLE_BYTES = INPUT == INPUT_FIXED ? 2 : 4;
constexpr int ROW_BYTES = STRIDE * WIDTH * SAMPLE_BYTES; // from one row of the map to the next

// Integers are computed with as 0.5 + value / 65536 (`lane_as_float`).
DEVICE float value_of(u32 loaded) {
  return INPUT == INPUT_FIXED && STRIDE == 1 ? lane_as_float<0>(loaded) : as_float(loaded);
}
DEVICE u32 load_value(const u8 *p) { return INPUT == INPUT_FIXED ? load16(p) : load32(p); }
// a pixel as it lies in memory, or the mean of STRIDE x STRIDE pixels as float
DEVICE u32 load_pixel(const u8 *p) {
#if STRIDE == 1
  return load_value(p);
#else
  u32 integers = 0;
  float floats = 0;
#if STRIDE > 2
#pragma unroll 1
#else
#pragma unroll
#endif
  for (int i = 0; i < STRIDE; i++)
#pragma unroll
    for (int j = 0; j < STRIDE; j++) {
      const u32 value = load_value(p + (i * WIDTH + j) * SAMPLE_BYTES);
      integers += value;
      floats += as_float(value);
    }
  constexpr float share = 1.0f / (STRIDE * STRIDE);
  return as_bits(INPUT == INPUT_FIXED ? fmaf((float)integers, share / 65536, 0.5f) : floats * share);
#endif
}

struct Sample {
  u32 first, second;
  DEVICE float sum() const { return value_of(first) + value_of(second) - (INPUT == INPUT_FIXED ? 1.0f : 0.0f); }
  DEVICE float difference() const { return value_of(first) - value_of(second); }
};
typedef Sample Loaded;

struct Column {
  const u8 *first, *second;
  DEVICE Column(const Comparison &task, int x, int y) {
    const int start = x * (STRIDE * SAMPLE_BYTES) + y * ROW_BYTES;
    first = task.first + blockIdx.z * task.first_stride + start;
    second = task.second + blockIdx.z * task.second_stride + start;
  }
  DEVICE Loaded at(int rows) const {
    return Loaded{load_pixel(first + rows * ROW_BYTES), load_pixel(second + rows * ROW_BYTES)};
  }
  DEVICE Loaded mirrored_at(int y, int own) const { return at(mirrored<MAP_HEIGHT>(y) - own); }
  DEVICE void advance(int rows) {
    first += rows * ROW_BYTES;
    second += rows * ROW_BYTES;
  }
  DEVICE Sample take(const Loaded &loaded, int) const { return loaded; }
};
#endif
#endif
