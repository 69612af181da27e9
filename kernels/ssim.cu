// Structural similarity of two images (Wang et al., 2004): map, means of blocks of the map, and mean of all, in one
// launch.
//
// Four moments suffice, since variances are needed as a sum only. Samples may be half; moments are float, since a
// variance is the small difference of two of them.
//
// Two ways, WINDOW: a strip of columns slides down in registers, and along x in shared memory; or tensor cores, a warp
// to 16 columns. The former can also start from the mosaic, of which it makes both images itself: they are never
// stored. Sums go over pieces of the map, which the last block of a frame adds up: always in the same order.
#include "convolution.cuh"

struct Comparison {
  const u8 *first;  // (frames, HEIGHT, WIDTH) as INPUT, in [0, 1]; or the mosaic, (frames, 2 HEIGHT, 2 WIDTH) of uint8
  const u8 *second; // as the first; not read beside a mosaic
  u64 first_stride; // bytes from one frame to the next
  u64 second_stride;
  void *map;     // (frames, MAP_HEIGHT, MAP_WIDTH) as OUT_MAP
  float *pieces; // (frames, PIECES_Y, PIECES_X), scratch
  u32 *done;     // (frames), 0 before and after
  float *blocks; // (frames, BLOCKS_Y, BLOCKS_X): mean of blocks of BLOCK x BLOCK pixels of the map
  float *mean;   // (frames)
};

// ---- what the kernel is compiled for (polar_pipeline/cuda/ssim.py makes these defines, and those of the window)
#ifndef WIDTH
#define WIDTH 1224  // pixels of an image along x
#define HEIGHT 1024 // and along y
#endif
#ifndef STRIDE
#define STRIDE 1 // images are averaged over STRIDE x STRIDE pixels; what is left over right and below is dropped
#endif
#define INPUT_HALF 0
#define INPUT_FLOAT 1
#define INPUT_MOSAIC                                                                                                   \
  2 // mono, 8 bit of full scale 255: compared are the sums of either two orthogonal angles, moved to the superpixel's
    // centre
#ifndef INPUT
#define INPUT INPUT_HALF
#endif
#ifndef OUT_MAP
#define OUT_MAP 2 // 0 not wanted, 1 uint8 display encoding, 2 float32
#endif
#define MAP_BYTES (OUT_MAP == 2 ? 4 : 1)
#define WINDOW_REGISTERS 0
#define WINDOW_TENSOR 1
#ifndef WINDOW
#define WINDOW WINDOW_REGISTERS
#endif
#ifndef THREADS
#define THREADS 320
#endif
#ifndef TILE_X
#define TILE_X 308 // pixels of the map along x of a block (registers), a multiple of 4
#endif
#ifndef ROWS
#define ROWS 128 // and along y: 16, 32, or a multiple of SSIM_BLOCK
#endif

constexpr int MAP_WIDTH = WIDTH / STRIDE, MAP_HEIGHT = HEIGHT / STRIDE;
constexpr int BLOCK = SSIM_BLOCK, BLOCKS_X = (MAP_WIDTH + BLOCK - 1) / BLOCK,
              BLOCKS_Y = (MAP_HEIGHT + BLOCK - 1) / BLOCK;
// What is summed before the last block: this many pixels of the map.
constexpr int PIECE_X = WINDOW == WINDOW_TENSOR ? 16 : 4, PIECE_Y = ROWS < BLOCK ? ROWS : BLOCK;
constexpr int PIECES_X = (MAP_WIDTH + PIECE_X - 1) / PIECE_X, PIECES_Y = (MAP_HEIGHT + PIECE_Y - 1) / PIECE_Y;
static_assert(BLOCK % PIECE_X == 0 && BLOCK % PIECE_Y == 0 && ROWS % PIECE_Y == 0,
              "blocks and strips hold whole pieces");

struct Window {
  static constexpr int RADIUS = SSIM_RADIUS;
  static CONSTANT float at(int distance) {
    constexpr float taps[] = {SSIM_TAPS}; // from the centre outwards
    return taps[distance < 0 ? -distance : distance];
  }
  static CONSTANT u32 half_at(int distance) {
    constexpr u32 taps[] = {SSIM_HALF_TAPS};
    return taps[distance < 0 ? -distance : distance];
  }
};
static_assert(Window::RADIUS >= 1 && Window::RADIUS <= 7, "windows of 3 to 15 taps");

DEVICE u32 map_byte(float s) {
  return as_bits(fmaf(saturate(s), 255.0f, 8388608.0f)) & 255;
} // 2^23: the unit is the last bit

// of a warp's lanes, in lane 0
DEVICE float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) value += as_float(shuffle_down(as_bits(value), lanes));
  return value;
}

// The last block of a frame to come here adds up the pieces. Every thread must come here. shared: a float for each.
DEVICE void add_up(const Comparison &task, float *shared) {
  const int frame = blockIdx.z;
  if (!last_of_blocks(&task.done[frame], gridDim.x)) return;
  const float *pieces = task.pieces + (size_t)frame * (PIECES_X * PIECES_Y);
  float all = 0;
  constexpr int DOWN = BLOCK / PIECE_Y, ALONG = BLOCK / PIECE_X;
#pragma unroll
  for (int i = threadIdx.x; i < BLOCKS_X * BLOCKS_Y; i += THREADS) {
    const int y = i / BLOCKS_X, x = i - y * BLOCKS_X;
    float piece[DOWN][ALONG], sum = 0; // all loads before the first use: nobody else works any more
#pragma unroll
    for (int r = 0; r < DOWN; r++)
#pragma unroll
      for (int c = 0; c < ALONG; c++) {
        const bool is_inside = y * DOWN + r < PIECES_Y && x * ALONG + c < PIECES_X;
        piece[r][c] = is_inside ? load_fresh(pieces + (y * DOWN + r) * PIECES_X + x * ALONG + c) : 0.0f;
      }
#pragma unroll
    for (int r = 0; r < DOWN; r++)
#pragma unroll
      for (int c = 0; c < ALONG; c++) sum += piece[r][c];
    const int pixels = min(BLOCK, MAP_HEIGHT - y * BLOCK) * min(BLOCK, MAP_WIDTH - x * BLOCK);
    store32(task.blocks + (size_t)frame * (BLOCKS_X * BLOCKS_Y) + i, as_bits(sum / (float)pixels));
    all += sum;
  }
  shared[threadIdx.x] = all;
  sync_block();
  if (threadIdx.x >= 32) return;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < THREADS / 32; k++) sum += shared[32 * k + threadIdx.x];
  sum = warp_sum(sum);
  if (threadIdx.x == 0) store32(task.mean + frame, as_bits(sum / ((float)MAP_WIDTH * MAP_HEIGHT)));
}

#if WINDOW == WINDOW_REGISTERS
// ---- along y in registers, rows in shared memory, along x: BATCH rows between two barriers, in turn in two buffers

constexpr int BATCH = 4; // rows; also pixels of a thread along x
constexpr int QUADS = TILE_X / BATCH;
constexpr int PITCH = THREADS + 8;
constexpr int RADIUS = Window::RADIUS;
static_assert(TILE_X % BATCH == 0 && TILE_X + 2 * RADIUS <= THREADS && PIECE_X == BATCH,
              "a column and a quad for a thread");

struct Shared {
  union {
    float moment[2][4][BATCH][PITCH];
    float each[THREADS];
  };
  float sum[BATCH][QUADS];
};
static_assert(sizeof(Shared) <= SHARED_BYTES, "the launch has less shared memory");

// What the images have for a full scale; variances and C1, C2 go with its square.
constexpr float ONE = INPUT == INPUT_MOSAIC ? 2 * 16 * 255 / 65536.0f : 1.0f;

// Similarity from the means of p = x + y, q = x - y and their squares, whose roundings touch numerator and denominator
// alike: with v, u their variances, 2 xy is (p^2 - q^2) / 2 and x^2 + y^2 is (p^2 + q^2) / 2.
DEVICE float similarity(float p, float q, float pp, float qq) {
  const float v = fmaf(-p, p, pp) + 2 * SSIM_C2 * ONE * ONE, u = fmaf(-q, q, qq),
              light = fmaf(p, p, 2 * SSIM_C1 * ONE * ONE);
  return fmaf(-q, q, light) * (v - u) * fast_rcp(fmaf(q, q, light) * (v + u));
}

// A column of both images. `Loaded` is what a row takes from memory, as it lies there: it may still be under way when
// nobody has looked at it. `Sample` is what is compared. Rows are asked for from the top downwards.
#if INPUT == INPUT_MOSAIC
static_assert(STRIDE == 1 && WIDTH % 8 == 0 && HEIGHT >= 16, "words of four pixels; mirrored once");

// Rows 2y - 1 and 2y of the mosaic: what the rows of superpixels y - 1 and y share. Two words hold a thread's four
// columns.
struct Loaded {
  u32 odd[2], even[2];
};
// What both add to the row above, and to the one below. Here and in the sample, a 16-bit lane for either two orthogonal
// angles.
struct Seam {
  u32 above, below;
};
struct Sample {
  u32 lanes; // sums of two angles, 16 times a level
  DEVICE float sum() const { return lane_as_float<0>(lanes) + lane_as_float<1>(lanes) - 1.0f; }
  DEVICE float difference() const { return lane_as_float<0>(lanes) - lane_as_float<1>(lanes); }
};

// 3a + b along a row: even columns lean on the right neighbour, odd ones on the left.
DEVICE u32 along_row(const u32 (&words)[2], u32 order) {
  const u32 bytes = permute(words[0], words[1], order);
  return 3u * (bytes & 0x00ff00ffu) + permute(bytes, 0u, 0x4341);
}

struct Column {
  const u8 *place;
  u32 order; // bytes of both words: a and b of the low lane, then of the high one
  Seam former;

  // x, y: where it stands in the map; begins `RADIUS` above
  DEVICE Column(const Comparison &task, int x, int y) {
    const int begin = max(0, min((2 * x - 1) & ~3, 2 * WIDTH - 8)), own = 2 * x - begin;
    const int left = x == 0 ? own + 1 : own - 1, right = x == WIDTH - 1 ? own : own + 2; // reflect-101
    order = own | right << 4 | (own + 1) << 8 | left << 12;
    place = task.first + blockIdx.z * task.first_stride + (u32)(4 * WIDTH * y + begin);
    former = seam(mirrored_at(y - RADIUS - 1, y));
  }
  DEVICE Loaded load(int odd, int even) const {
    const u8 *p = place + odd * (2 * WIDTH), *q = place + even * (2 * WIDTH);
    return Loaded{{load32(p), load32(p + 4)}, {load32(q), load32(q + 4)}};
  }
  // below row y of the map: so far below where the column stands
  DEVICE Loaded at(int rows) const { return load(2 * rows + 1, 2 * rows + 2); }
  // the same for any y, while the column stands at row `own`
  DEVICE Loaded mirrored_at(int y, int own) const {
    const int down = abs(y + 1), row = 2 * min(down, 2 * HEIGHT - down);
    return load(abs(row - 1) - 2 * own, min(row, 2 * HEIGHT - 2) - 2 * own);
  }
  DEVICE void go_down(int rows) { place += rows * (4 * WIDTH); }
  DEVICE Seam seam(const Loaded &loaded) const {
    // orthogonal angles are diagonal neighbours: the pairs of an odd row are those of an even one, the other way round
    const u32 odd = permute(along_row(loaded.odd, order), 0u, 0x1032), even = along_row(loaded.even, order);
    return Seam{3u * odd + even, 3u * even + odd};
  }
  // row y of the map; mirrored rows come from the lower seam to the upper one
  DEVICE Sample take(const Loaded &loaded, int y) {
    const Seam next = seam(loaded);
    const u32 lanes = y >= 0 && y < HEIGHT ? former.below + next.above : former.above + next.below;
    former = next;
    return Sample{lanes};
  }
};
#else
#define SAMPLE_BYTES (INPUT == INPUT_HALF ? 2 : 4)
constexpr int ROW_BYTES = STRIDE * WIDTH * SAMPLE_BYTES; // from one row of the map to the next

DEVICE float value_of(u32 loaded) { return INPUT == INPUT_HALF && STRIDE == 1 ? half2_low(loaded) : as_float(loaded); }
DEVICE u32 load_value(const u8 *p) { return INPUT == INPUT_HALF ? load16(p) : load32(p); }
DEVICE u32 load_pixel(const u8 *p) {
#if STRIDE == 1
  return load_value(p);
#else
  float sum = 0;
#if STRIDE > 2
#pragma unroll 1
#else
#pragma unroll
#endif
  for (int i = 0; i < STRIDE; i++)
#pragma unroll
    for (int j = 0; j < STRIDE; j++) {
      const u32 value = load_value(p + (i * WIDTH + j) * SAMPLE_BYTES);
      sum += INPUT == INPUT_HALF ? half2_low(value) : as_float(value);
    }
  return as_bits(sum * (1.0f / (STRIDE * STRIDE)));
#endif
}

struct Sample {
  u32 first, second;
  DEVICE float sum() const { return value_of(first) + value_of(second); }
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
  DEVICE void go_down(int rows) {
    first += rows * ROW_BYTES;
    second += rows * ROW_BYTES;
  }
  DEVICE Sample take(const Loaded &loaded, int) const { return loaded; }
};
#endif

struct Moments {
  Sliding<Window> p, q, pp, qq;
  DEVICE void push(Sample sample, float (&out)[4]) {
    const float sum = sample.sum(), difference = sample.difference();
    out[0] = p.push(sum);
    out[1] = q.push(difference);
    out[2] = pp.push(sum * sum);
    out[3] = qq.push(difference * difference);
  }
};

// up to four pixels of a row of the map, of which `n` are inside
DEVICE void store_map(u8 *out, int n, const float (&s)[BATCH]) {
#if OUT_MAP == 1
  u32 bytes[BATCH];
#pragma unroll
  for (int k = 0; k < BATCH; k++) bytes[k] = map_byte(s[k]);
  if (MAP_WIDTH % 4 == 0)
    store32(out, bytes[0] | bytes[1] << 8 | bytes[2] << 16 | bytes[3] << 24);
  else
    for (int k = 0; k < BATCH; k++)
      if (k < n) store8(out + k, bytes[k]);
#elif OUT_MAP == 2
  if (MAP_WIDTH % 4 == 0)
    store128(out, as_bits(s[0]), as_bits(s[1]), as_bits(s[2]), as_bits(s[3]));
  else
    for (int k = 0; k < BATCH; k++)
      if (k < n) store32(out + 4 * k, as_bits(s[k]));
#endif
}

// Blocks that registers must leave room for: each of four schedulers has room for five warps of 96 registers a thread,
// or for four of 128, which the partial sums of long windows take.
constexpr int RESIDENT_WARPS = RADIUS > 5 ? 16 : 20;
constexpr int RESIDENT_BLOCKS = THREADS / 32 > RESIDENT_WARPS ? 1 : RESIDENT_WARPS / (THREADS / 32);

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT_BLOCKS) ssim(const Comparison task) {
  SHARED_MEMORY(memory);
  let_next_begin();
  wait_for_former();
  Shared &s = *(Shared *)memory;
  constexpr int STRIPS = (MAP_WIDTH + TILE_X - 1) / TILE_X;
  const int t = threadIdx.x, strip = blockIdx.x % STRIPS, x0 = strip * TILE_X, y0 = (int)(blockIdx.x / STRIPS) * ROWS;
  const int end = min(y0 + ROWS, MAP_HEIGHT);
  Column column(task, mirrored<MAP_WIDTH>(min(x0 + t, MAP_WIDTH + 2 * RADIUS - 1) - RADIUS), y0);
  Moments moments;
  moments.p.clear();
  moments.q.clear();
  moments.pp.clear();
  moments.qq.clear();
  {
    float unused[4];
    Loaded above[2 * RADIUS];
#pragma unroll
    for (int k = 0; k < 2 * RADIUS; k++) above[k] = column.mirrored_at(y0 - RADIUS + k, y0);
#pragma unroll
    for (int k = 0; k < 2 * RADIUS; k++) moments.push(column.take(above[k], y0 - RADIUS + k), unused);
  }
  Loaded next[BATCH];
  auto load_next = [&](int y) { // rows of the map from y on, RADIUS below where the column stands
    if (y + BATCH < MAP_HEIGHT) {
#pragma unroll
      for (int i = 0; i < BATCH; i++) next[i] = column.at(RADIUS + i);
    } else {
#pragma unroll
      for (int i = 0; i < BATCH; i++) next[i] = column.mirrored_at(y + i, y - RADIUS);
    }
    column.go_down(BATCH);
  };
  load_next(y0 + RADIUS);
  // the thread's part along x: four pixels of a row of the batch
  const int row = t / QUADS, quad = t - row * QUADS, x = x0 + BATCH * quad;
  const bool takes_part = row < BATCH && x < MAP_WIDTH;
  u8 *out =
      (u8 *)task.map + ((size_t)blockIdx.z * (MAP_WIDTH * MAP_HEIGHT) + (u32)((y0 + row) * MAP_WIDTH + x)) * MAP_BYTES;
  float *const down = &s.moment[0][0][0][t];
  const float *const across = &s.moment[0][0][min(row, BATCH - 1)][BATCH * quad];
  float sum = 0;
  int turn = 0;
#pragma unroll 1
  for (int y = y0; y < end; y += BATCH) {
    Sample now[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; i++) now[i] = column.take(next[i], y + RADIUS + i);
    if (y + BATCH < end) load_next(y + BATCH + RADIUS);
#pragma unroll
    for (int i = 0; i < BATCH; i++) {
      float moment[4];
      moments.push(now[i], moment);
#pragma unroll
      for (int m = 0; m < 4; m++) down[turn + (m * BATCH + i) * PITCH] = moment[m];
    }
    sync_block();
    if (takes_part && y + row < end) {
      float moment[4][BATCH], found[BATCH];
#pragma unroll
      for (int m = 0; m < 4; m++) convolve<Window>(across + turn + m * BATCH * PITCH, moment[m]);
#pragma unroll
      for (int i = 0; i < BATCH; i++) {
        found[i] = similarity(moment[0][i], moment[1][i], moment[2][i], moment[3][i]);
        if (MAP_WIDTH % BATCH == 0 || x + i < MAP_WIDTH) sum += found[i];
      }
      store_map(out, MAP_WIDTH - x, found);
    }
    out += BATCH * MAP_WIDTH * MAP_BYTES;
    turn = 4 * BATCH * PITCH - turn;
    if ((y + BATCH) % PIECE_Y == 0 || y + BATCH >= end) { // a piece is complete
      if (row < BATCH) s.sum[row][quad] = sum;
      sum = 0;
      sync_block();
      if (t < QUADS && x0 + BATCH * t < MAP_WIDTH) {
        float piece = 0;
#pragma unroll
        for (int i = 0; i < BATCH; i++) piece += s.sum[i][t];
        store32(task.pieces + (blockIdx.z * PIECES_Y + y / PIECE_Y) * (size_t)PIECES_X + x0 / BATCH + t,
                as_bits(piece));
      }
    }
  }
  add_up(task, s.each);
}

#else
// ---- tensor cores: a warp takes 16 columns down by 8 rows at a time; rows on their way wait in shared memory

#define STAGES 3         // as many as tiles that take turns
#define STAGE_BYTES 1024 // of two images, 16 a lane
static_assert(HAS_TENSOR && INPUT == INPUT_HALF && STRIDE == 1 && WIDTH % 8 == 0, "pairs of half in words of eight");
static_assert(THREADS / 32 * STAGES * STAGE_BYTES <= SHARED_BYTES, "the launch has less shared memory");

__constant__ HalfTaps<Window> HALF_TAPS = HalfTaps<Window>();

// Similarity from the means of x, y, x^2 + y^2 and xy: sums of two samples would not fit a half.
DEVICE float similarity(float x, float y, float squares, float product) {
  const float means = fmaf(x, y, SSIM_C1 / 2),
              light = fmaf(x, x, fmaf(y, y, SSIM_C1)); // the C1 / 2 and C1 go again below
  const float covariance = fmaf(4, product - means, 2 * (SSIM_C1 + SSIM_C2)),
              variances = squares - light + (SSIM_C1 + SSIM_C2);
  return means * covariance * fast_rcp(light * variances); // 2 (x y + C1/2) (2 cov + C2) / ...
}

// of x, y, x^2 + y^2, xy: 16 columns x 8 rows a warp
typedef float Tile[4][4];

// A step: eight rows enter. They complete the tile above, add to the one at their place, and begin the one below.
// Products of halves are two halves: rounded, and what is lost by that.
DEVICE void enter(const Bands &bands, uint4 first, uint4 second, Tile &above, Tile &own, Tile &below) {
  const u32 x[4] = {first.x, first.y, first.z, first.w}, y[4] = {second.x, second.y, second.z, second.w};
  u32 xx[4], yy[4], xy[4], lost_squares[4], lost_product[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    xx[k] = half2_mul(x[k], x[k]);
    yy[k] = half2_mul(y[k], y[k]);
    xy[k] = half2_mul(x[k], y[k]);
    lost_squares[k] = half2_add(half2_fma(x[k], x[k], half2_neg(xx[k])), half2_fma(y[k], y[k], half2_neg(yy[k])));
    lost_product[k] = half2_fma(x[k], y[k], half2_neg(xy[k]));
  }
  float mean[4][4] = {};
  along_x(bands, x, mean[0]);
  along_x(bands, y, mean[1]);
  along_x(bands, lost_squares, mean[2]);
  along_x(bands, xx, mean[2]);
  along_x(bands, yy, mean[2]);
  along_x(bands, lost_product, mean[3]);
  along_x(bands, xy, mean[3]);
#pragma unroll
  for (int m = 0; m < 4; m++) along_y(bands, mean[m], above[m], own[m], below[m]);
}

extern "C" __global__ void __launch_bounds__(THREADS, 640 / THREADS) ssim(const Comparison task) {
  SHARED_MEMORY(memory);
  let_next_begin();
  constexpr int WARPS = THREADS / 32, ACROSS = (PIECES_X + WARPS - 1) / WARPS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane >> 2, t = lane & 3;
  const int x0 = 16 * ((int)(blockIdx.x % ACROSS) * WARPS + warp), y0 = (int)(blockIdx.x / ACROSS) * ROWS;
  if (x0 < MAP_WIDTH) {
    const Bands bands = make_bands<Window, WIDTH>(HALF_TAPS, x0, lane, threadIdx.y);
    wait_for_former();
    const int column = column_of<WIDTH>(x0, lane), tiles = (min(ROWS, MAP_HEIGHT - y0) + 7) / 8;
    const u8 *first = task.first + blockIdx.z * task.first_stride,
             *second = task.second + blockIdx.z * task.second_stride;
    u8 *const ring = memory + warp * (STAGES * STAGE_BYTES) + 16 * lane; // a lane reads what it fetched itself
    int coming = y0 - 8 + g;                                             // row of the next fetch
    auto fetch = [&](int stage, bool is_wanted) {
      if (is_wanted) {
        const u32 place = (u32)(mirrored<MAP_HEIGHT>(coming) * WIDTH + column) * 2;
        async_copy16(ring + stage * STAGE_BYTES, first + place);
        async_copy16(ring + stage * STAGE_BYTES + STAGE_BYTES / 2, second + place);
      }
      coming += 8;
      async_commit();
    };
#pragma unroll
    for (int k = 0; k < STAGES - 1; k++) fetch(k, true);
    const bool is_inside = WIDTH % 16 == 0 || x0 + 2 * g < MAP_WIDTH;
    int row = y0 + 2 * t; // of the map, the lane's first one
    u8 *out = (u8 *)task.map +
              ((size_t)blockIdx.z * (MAP_WIDTH * MAP_HEIGHT) + (u32)(row * MAP_WIDTH + x0 + 2 * g)) * MAP_BYTES;
    float *pieces = task.pieces + (blockIdx.z * PIECES_Y + y0 / PIECE_Y) * (size_t)PIECES_X + x0 / PIECE_X;
    float sum = 0;
    // step k takes the rows of tile k - 1, and completes tile k - 2
    auto step = [&](int k, int stage, Tile &above, Tile &own, Tile &below) {
      async_wait<STAGES - 2>();
      const uint4 x = *(const uint4 *)(ring + stage * STAGE_BYTES),
                  y = *(const uint4 *)(ring + stage * STAGE_BYTES + STAGE_BYTES / 2);
      fetch((stage + STAGES - 1) % STAGES, k + STAGES - 1 < tiles + 2);
      enter(bands, x, y, above, own, below);
      if (k < 2) return;
      float found[4]; // (column, row): (0, 0), (0, 1), (1, 0), (1, 1)
#pragma unroll
      for (int i = 0; i < 4; i++) found[i] = similarity(above[0][i], above[1][i], above[2][i], above[3][i]);
#pragma unroll
      for (int i = 0; i < 2; i++) {
        if (!is_inside || (MAP_HEIGHT % 8 && row + i >= MAP_HEIGHT)) continue;
        if (OUT_MAP == 1) store16(out + i * MAP_WIDTH, map_byte(found[i]) | map_byte(found[2 + i]) << 8);
        if (OUT_MAP == 2) store64(out + i * MAP_WIDTH * 4, as_bits(found[i]), as_bits(found[2 + i]));
        sum += found[i] + found[2 + i];
      }
      row += 8;
      out += 8 * MAP_WIDTH * MAP_BYTES;
      if ((k - 1) % (PIECE_Y / 8) == 0 || k == tiles + 1) { // a piece is complete
        sum = warp_sum(sum);
        if (lane == 0) store32(pieces, as_bits(sum));
        pieces += PIECES_X;
        sum = 0;
      }
    };
    Tile a = {}, b = {}, c = {};
#pragma unroll 1
    for (int k = 0; k < tiles + 2; k += 3) { // tiles take turns rather than move
      step(k, 0, a, b, c);
      if (k + 1 < tiles + 2) step(k + 1, 1, b, c, a);
      if (k + 2 < tiles + 2) step(k + 2, 2, c, a, b);
    }
  }
  sync_block();
  add_up(task, (float *)memory);
}
#endif
