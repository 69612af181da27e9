// SSIM of `ssim.cu` with sums along y in registers and along x from shared memory.
//
// A block slides down a strip of columns, a column for each thread. Rows come in batches of BATCH between two barriers,
// alternately in two buffers of shared memory.
#pragma once

constexpr int BATCH = 4; // rows; also pixels of a thread along x
constexpr int QUADS = TILE_X / BATCH;
constexpr int PITCH = THREADS + 8;
constexpr int RADIUS = Window::RADIUS;
static_assert(TILE_X % BATCH == 0 && TILE_X + 2 * RADIUS <= THREADS && PIECE_X == BATCH,
              "a column and a quad for each thread");

struct Shared {
  union {
    float moment[2][4][BATCH][PITCH];
    float each[THREADS];
  };
  float sum[BATCH][QUADS];
};
static_assert(sizeof(Shared) <= SHARED_BYTES, "the launch has less shared memory");

constexpr int SAMPLE_BYTES = INPUT == INPUT_FIXED ? 2 : 4;
constexpr int ROW_BYTES = STRIDE * WIDTH * SAMPLE_BYTES; // from one row of the map to the next

// Integers are computed with as 0.5 + value / 65536 (`lane_as_float`).
DEVICE float value_of(u32 loaded) {
  return INPUT == INPUT_FIXED && STRIDE == 1 ? lane_as_float<0>(loaded) : as_float(loaded);
}
DEVICE u32 load_value(const u8 *p) { return INPUT == INPUT_FIXED ? load16(p) : load32(p); }
// a pixel as it lies in memory, or the mean of STRIDE x STRIDE pixels as float
DEVICE u32 load_pixel(const u8 *p) {
  if (STRIDE == 1) return load_value(p);
  u32 integers = 0;
  float floats = 0;
#pragma unroll(STRIDE > 2 ? 1 : STRIDE)
  for (int i = 0; i < STRIDE; i++)
#pragma unroll
    for (int j = 0; j < STRIDE; j++) {
      const u32 value = load_value(p + (i * WIDTH + j) * SAMPLE_BYTES);
      integers += value;
      floats += as_float(value);
    }
  constexpr float share = 1.0f / (STRIDE * STRIDE);
  return as_bits(INPUT == INPUT_FIXED ? fmaf((float)integers, share / 65536, 0.5f) : floats * share);
}

// A pixel of both images, kept as it was loaded, so that nothing waits for the load until it is compared. The sum is
// less P_CENTER; of integers it is exact.
struct Sample {
  u32 first, second;
  DEVICE float sum() const {
    return value_of(first) + (value_of(second) - (P_CENTER + (INPUT == INPUT_FIXED ? 1.0f : 0.0f)));
  }
  DEVICE float difference() const { return value_of(first) - value_of(second); }
};

// One column of both images, from the top downwards.
struct Column {
  const u8 *first, *second;
  DEVICE Column(const Comparison &task, int x, int y) {
    const int start = x * (STRIDE * SAMPLE_BYTES) + y * ROW_BYTES;
    first = task.first + blockIdx.z * task.first_stride + start;
    second = task.second + blockIdx.z * task.second_stride + start;
  }
  DEVICE Sample at(int rows) const {
    return Sample{load_pixel(first + rows * ROW_BYTES), load_pixel(second + rows * ROW_BYTES)};
  }
  DEVICE Sample mirrored_at(int y, int own) const { return at(mirrored<MAP_HEIGHT>(y) - own); }
  DEVICE void advance(int rows) {
    first += rows * ROW_BYTES;
    second += rows * ROW_BYTES;
  }
};

// The four moments of a column, along y.
struct Moments {
  Sliding<Window> p, q, pp, qq;
  DEVICE void clear() {
    p.clear();
    q.clear();
    pp.clear();
    qq.clear();
  }
  DEVICE void push(Sample sample, float (&out)[4]) {
    const float sum = sample.sum(), difference = sample.difference();
    out[0] = p.push(sum);
    out[1] = q.push(difference);
    out[2] = pp.push(sum * sum);
    out[3] = qq.push(difference * difference);
  }
};

// Rows of the map from y on, RADIUS below the column's position, which moves down.
DEVICE void load_batch(Column &column, int y, Sample (&rows)[BATCH]) {
  if (y + BATCH < MAP_HEIGHT) {
#pragma unroll
    for (int i = 0; i < BATCH; i++) rows[i] = column.at(RADIUS + i);
  } else {
#pragma unroll
    for (int i = 0; i < BATCH; i++) rows[i] = column.mirrored_at(y + i, y - RADIUS);
  }
  column.advance(BATCH);
}

// Up to four pixels of a row of the map, of which `n` are inside.
DEVICE void store_map(u8 *out, int n, const float (&s)[BATCH]) {
  u32 v[BATCH];
#pragma unroll
  for (int k = 0; k < BATCH; k++) v[k] = OUT_MAP == 1 ? map_byte(s[k]) : OUT_MAP == 3 ? map_half(s[k]) : as_bits(s[k]);
  if (MAP_WIDTH % 4 == 0) {
    if (OUT_MAP == 1) store32(out, v[0] | v[1] << 8 | v[2] << 16 | v[3] << 24);
    if (OUT_MAP == 3) store64(out, v[0] | v[1] << 16, v[2] | v[3] << 16);
    if (OUT_MAP == 2) store128(out, v[0], v[1], v[2], v[3]);
    return;
  }
  for (int k = 0; k < BATCH && k < n; k++) {
    if (OUT_MAP == 1) store8(out + k, v[k]);
    if (OUT_MAP == 3) store16(out + 2 * k, v[k]);
    if (OUT_MAP == 2) store32(out + 4 * k, v[k]);
  }
}

// Launch bound: each of four schedulers has registers for five warps of 96 registers a thread, or for four of 128,
// which the partial sums of long windows take.
constexpr int RESIDENT_WARPS = RADIUS > 5 ? 16 : 20;
constexpr int RESIDENT_BLOCKS = THREADS / 32 > RESIDENT_WARPS ? 1 : RESIDENT_WARPS / (THREADS / 32);

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_BLOCKS) ssim(const Comparison task) {
  SHARED_MEMORY(memory);
  Shared &s = *(Shared *)memory;
  constexpr int STRIPS = (MAP_WIDTH + TILE_X - 1) / TILE_X;
  const int t = threadIdx.x, strip = blockIdx.x % STRIPS, x0 = strip * TILE_X;
  const int y0 = (int)(blockIdx.x / STRIPS) * ROWS, end = min(y0 + ROWS, MAP_HEIGHT);
  Column column(task, mirrored<MAP_WIDTH>(min(x0 + t, MAP_WIDTH + 2 * RADIUS - 1) - RADIUS), y0);
  Moments moments;
  moments.clear();
  {
    float unused[4];
    Sample above[2 * RADIUS];
#pragma unroll
    for (int k = 0; k < 2 * RADIUS; k++) above[k] = column.mirrored_at(y0 - RADIUS + k, y0);
#pragma unroll
    for (int k = 0; k < 2 * RADIUS; k++) moments.push(above[k], unused);
  }
  Sample next[BATCH];
  load_batch(column, y0 + RADIUS, next);
  // the thread's part along x: four pixels of a row of the batch
  const int row = t / QUADS, quad = t - row * QUADS, x = x0 + BATCH * quad;
  const bool takes_part = row < BATCH && x < MAP_WIDTH;
  const size_t frame_pixel = (size_t)blockIdx.z * (MAP_WIDTH * MAP_HEIGHT);
  u8 *out = (u8 *)task.map + (frame_pixel + (u32)((y0 + row) * MAP_WIDTH + x)) * MAP_BYTES;
  float *const down = &s.moment[0][0][0][t];
  const float *const across = &s.moment[0][0][min(row, BATCH - 1)][BATCH * quad];
  float sum = 0;
  int buffer = 0; // offset of the one in use
#pragma unroll 1
  for (int y = y0; y < end; y += BATCH) {
    Sample now[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++) now[i] = next[i];
    if (y + BATCH < end) load_batch(column, y + BATCH + RADIUS, next);
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      float moment[4];
      moments.push(now[i], moment);
#pragma unroll
      for (int m = 0; m < 4; m++) down[buffer + (m * BATCH + i) * PITCH] = moment[m];
    }
    sync_block();
    if (takes_part && y + row < end) {
      float moment[4][BATCH], similarities[BATCH];
#pragma unroll
      for (int m = 0; m < 4; m++) convolve<Window>(across + buffer + m * BATCH * PITCH, moment[m]);
#pragma unroll
      for (int i = 0; i < BATCH; i++) {
        similarities[i] = similarity(moment[0][i], moment[1][i], moment[2][i], moment[3][i]);
        if (MAP_WIDTH % BATCH == 0 || x + i < MAP_WIDTH) {
          const bool is_masked = MASKED && load8(task.mask + (u32)((y + row) * MAP_WIDTH + x + i));
          sum += summed(similarities[i], is_masked);
          similarities[i] = stored(similarities[i], is_masked);
        }
      }
      store_map(out, MAP_WIDTH - x, similarities);
    }
    out += BATCH * MAP_WIDTH * MAP_BYTES;
    buffer = 4 * BATCH * PITCH - buffer;
    if ((y + BATCH) % PIECE_Y == 0 || y + BATCH >= end) { // a piece is complete
      if (row < BATCH) s.sum[row][quad] = sum;
      sum = 0;
      sync_block();
      if (t < QUADS && x0 + BATCH * t < MAP_WIDTH) {
        float piece = 0;
#pragma unroll
        for (int i = 0; i < BATCH; i++) piece += s.sum[i][t];
        float *pieces = task.pieces + (blockIdx.z * PIECES_Y + y / PIECE_Y) * (size_t)PIECES_X;
        store32(pieces + x0 / BATCH + t, as_bits(piece));
      }
    }
  }
  reduce_pieces(task, s.each);
}
