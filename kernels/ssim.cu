// Structural similarity of two images (Wang et al., 2004): map, means of blocks of the map, and mean of all, in one
// launch.
//
// Works on the sum p = x + y and the difference q = x - y of the images: four moments suffice, since only the sum of
// the two variances is needed, and what makes images differ, q, is small and loses the least in rounding. Moments are
// float, since a variance is the small difference of two of them.
//
// WINDOW chooses one of two implementations: `ssim_registers.cuh` slides down strips of columns, with sums along y in
// registers and along x from shared memory; `ssim_tensor.cuh` uses tensor cores. Both store sums of pieces of the map,
// which the last block of a frame adds up, always in the same order.
#include "convolution.cuh"

// The kernel's argument: `SSIM_ARGUMENT` of polar_pipeline/backends/cuda/ssim.py, field by field.
struct Comparison {
  const u8 *first;  // (frames, HEIGHT, WIDTH) as INPUT
  const u8 *second; // as the first
  u64 first_stride; // bytes from one frame to the next
  u64 second_stride;
  void *map;     // (frames, MAP_HEIGHT, MAP_WIDTH) as OUT_MAP
  float *pieces; // (frames, PIECES_Y, PIECES_X): sums of pieces of the map; scratch
  u32 *done;     // (frames): blocks that have stored their pieces; 0 before and after the launch
  float *blocks; // (frames, BLOCKS_Y, BLOCKS_X): mean of blocks of BLOCK x BLOCK pixels of the map
  float *mean;   // (frames)
  // ---- read with MASKED only
  const u8 *mask; // (MAP_HEIGHT, MAP_WIDTH), of all frames: not 0 where the map has no value, and no mean takes one
  const float *inside; // (BLOCKS_Y * BLOCKS_X + 1): pixels of each block that have one, and of the map
};

// ---- what the kernel is compiled for (polar_pipeline/backends/cuda/ssim.py makes these definitions, and those of
// the window): WIDTH and HEIGHT of an image; STRIDE: images are averaged over STRIDE x STRIDE pixels, incomplete ones
// at the right and below are dropped; MASKED; OUT_MAP: 0 not wanted, 1 uint8 display encoding, 2 float32, 3 uint16, the
// same with 65535 for 255. The schedule: THREADS; TILE_X: pixels of the map along x of a block (registers), a multiple
// of 4, or of a warp (tensor), 16 or 32; ROWS: along y, 16, 32, or a multiple of SSIM_BLOCK.
#define INPUT_FIXED 0 // INPUT: 16-bit integers of full scale SSIM_FULL
#define INPUT_FLOAT 1 // or floats in [0, 1]
#define WINDOW_REGISTERS 0
#define WINDOW_TENSOR 1

constexpr int MAP_BYTES = OUT_MAP == 2 ? 4 : OUT_MAP == 3 ? 2 : 1; // of a pixel
constexpr int MAP_WIDTH = WIDTH / STRIDE, MAP_HEIGHT = HEIGHT / STRIDE;
constexpr int BLOCK = SSIM_BLOCK;
constexpr int BLOCKS_X = (MAP_WIDTH + BLOCK - 1) / BLOCK, BLOCKS_Y = (MAP_HEIGHT + BLOCK - 1) / BLOCK;
// Pixels of a piece: what is summed before the last block adds up.
constexpr int PIECE_X = WINDOW == WINDOW_TENSOR ? TILE_X : 4, PIECE_Y = ROWS < BLOCK ? ROWS : BLOCK;
constexpr int PIECES_X = (MAP_WIDTH + PIECE_X - 1) / PIECE_X, PIECES_Y = (MAP_HEIGHT + PIECE_Y - 1) / PIECE_Y;
static_assert(BLOCK % PIECE_X == 0 && BLOCK % PIECE_Y == 0 && ROWS % PIECE_Y == 0,
              "blocks and strips consist of complete pieces");

// The taps of the Gaussian window, for `convolution.cuh`.
struct Window {
  static constexpr int RADIUS = SSIM_RADIUS;
  static CONSTANT float at(int distance) {
    constexpr float taps[] = {SSIM_TAPS}; // from the center outwards
    return taps[distance < 0 ? -distance : distance];
  }
  static CONSTANT u32 half_at(int distance) {
    constexpr u32 taps[] = {SSIM_HALF_TAPS};
    return taps[distance < 0 ? -distance : distance];
  }
};
static_assert(Window::RADIUS >= 1 && Window::RADIUS <= 7, "windows of 3 to 15 taps");

// Full scale of an image in the units in which its samples are computed with. Integers: of the registers' samples, the
// upper bits of a float's mantissa; on tensor cores, 256.
constexpr float FULL_SCALE = INPUT == INPUT_FLOAT      ? 1.0f
                             : WINDOW == WINDOW_TENSOR ? SSIM_FULL / 256
                                                       : SSIM_FULL / 65536.0f;

// Similarity from the means of p, q and their squares, in units of which FULL_SCALE are full scale: with v, u their
// variances, 2 xy is (p^2 - q^2) / 2 and x^2 + y^2 is (p^2 + q^2) / 2. p is less P_CENTER, which leaves it as small as
// q: the last place of a square is that of the variance. On tensor cores, pp includes V_OFFSET.
constexpr float V_OFFSET = 2 * SSIM_C2 * FULL_SCALE * FULL_SCALE;
constexpr float P_CENTER = WINDOW == WINDOW_TENSOR ? 128.5f : INPUT == INPUT_FLOAT ? 1.0f : 0.5f;
DEVICE float similarity(float p, float q, float pp, float qq) {
  float v = fmaf(-p, p, pp);
  if (WINDOW != WINDOW_TENSOR) v += V_OFFSET;
  const float u = fmaf(-q, q, qq), mean = p + P_CENTER;
  const float luminance = fmaf(mean, mean, 2 * SSIM_C1 * FULL_SCALE * FULL_SCALE);
  return fmaf(-q, q, luminance) * (v - u) * fast_rcp(fmaf(q, q, luminance) * (v + u));
}

// A similarity as a level of uint8 or uint16. 2^23: the last bit of the float is the unit.
DEVICE u32 map_byte(float s) { return as_bits(fmaf(saturate(s), 255.0f, 8388608.0f)) & 255; }
DEVICE u32 map_half(float s) { return as_bits(fmaf(saturate(s), 65535.0f, 8388608.0f)) & 65535; }

// A similarity as it is stored, and what the sums take of it. is_masked: the map has no value there.
DEVICE float stored(float s, bool is_masked) { return is_masked ? nan_value() : s; }
DEVICE float summed(float s, bool is_masked) { return is_masked ? 0.0f : s; }

// The sum over a warp's lanes, in lane 0.
DEVICE float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) value += as_float(shuffle_down(as_bits(value), lanes));
  return value;
}

// In the last block of a frame to call it: adds up the pieces, and stores means of blocks and of the map. Every thread
// must call it. shared: a float for each thread.
DEVICE void reduce_pieces(const Comparison &task, float *shared) {
  const int frame = blockIdx.z;
  if (!is_last_block(&task.done[frame], gridDim.x)) return;
  const float *pieces = task.pieces + (size_t)frame * (PIECES_X * PIECES_Y);
  float all = 0;
  constexpr int DOWN = BLOCK / PIECE_Y, ALONG = BLOCK / PIECE_X;
#pragma unroll
  for (int i = threadIdx.x; i < BLOCKS_X * BLOCKS_Y; i += THREADS) {
    const int y = i / BLOCKS_X, x = i - y * BLOCKS_X;
    float piece[DOWN][ALONG], sum = 0; // all loads before the first use: no other block hides their latency
#pragma unroll
    for (int r = 0; r < DOWN; r++)
#pragma unroll
      for (int c = 0; c < ALONG; c++) {
        const bool is_inside = y * DOWN + r < PIECES_Y && x * ALONG + c < PIECES_X;
        piece[r][c] = is_inside ? load_bypassing_l1(pieces + (y * DOWN + r) * PIECES_X + x * ALONG + c) : 0.0f;
      }
#pragma unroll
    for (int r = 0; r < DOWN; r++)
#pragma unroll
      for (int c = 0; c < ALONG; c++) sum += piece[r][c];
    float pixels = (float)(min(BLOCK, MAP_HEIGHT - y * BLOCK) * min(BLOCK, MAP_WIDTH - x * BLOCK));
    if (MASKED) pixels = as_float(load32(task.inside + i));
    store32(task.blocks + (size_t)frame * (BLOCKS_X * BLOCKS_Y) + i, as_bits(sum / pixels));
    all += sum;
  }
  shared[threadIdx.x] = all;
  sync_block();
  if (threadIdx.x >= 32) return;
  float sum = 0;
#pragma unroll
  for (int k = 0; k < THREADS / 32; k++) sum += shared[32 * k + threadIdx.x];
  sum = warp_sum(sum);
  const float pixels = MASKED ? as_float(load32(task.inside + BLOCKS_X * BLOCKS_Y)) : (float)MAP_WIDTH * MAP_HEIGHT;
  if (threadIdx.x == 0) store32(task.mean + frame, as_bits(sum / pixels));
}

// Each of them has the entry point `ssim`.
#if WINDOW == WINDOW_REGISTERS
#include "ssim_registers.cuh"
#else
#include "ssim_tensor.cuh"
#endif
