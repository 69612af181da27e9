// `color_half`: lines of the raw mosaic in, lines of RGB images of two angles out. The bytes of both images are staged
// in shared memory, for a warp to store them in contiguous pieces.
#ifndef POLAR_COLOR_HALF_LINES_CUH
#define POLAR_COLOR_HALF_LINES_CUH
#include "products.cuh"
#include "raw.cuh"
#include "malvar.cuh"

constexpr int SITES = 4;                // of a thread along x
constexpr int SEGMENT = 32 * 3 * SITES; // bytes of a warp's row of an RGB image
constexpr int WARPS = THREADS / 32;

typedef u32 Stage[2][2][SEGMENT / 4]; // two rows of two RGB images of a warp: [image][row][word]
struct Shared {
  alignas(8) Stage stage[WARPS];
};

// Samples here are bytes as subnormal halves.
struct ByteScale {
  static constexpr double PER_SAMPLE = 1.0 / 255 / SUBNORMAL_UNIT;
};

typedef Pair Sites[8];      // sites -2 .. 5 of a line around four
typedef Pair Colours[4][3]; // [site][red, green, blue]

struct Line {
  u32 w[4];
}; // sites -2 -1, 0 1, 2 3, 4 5

DEVICE Line load_line(const u8 *p, bool first, bool last) {
  const uint2 w = load64(p);
  return Line{{first ? 0u : load32(p - 4), w.x, w.y, last ? 0u : load32(p + 8)}};
}
// v: sites -2 .. 5; beyond the border the lattice is reflected: sites -2 -1 are 2 1
DEVICE void unpack(Line line, bool first, bool last, Sites &v) {
  if (first) line.w[0] = permute(line.w[1], line.w[2], 0x3254);
  if (last) line.w[3] = permute(line.w[1], line.w[2], 0x3254);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    v[2 * k] = subnormal_bytes<0>(line.w[k]);
    v[2 * k + 1] = subnormal_bytes<1>(line.w[k]);
  }
}

// the bytes of both angles' images
template <int LINE> DEVICE void pack(const Colours &v, u32 (&low_image)[3], u32 (&high_image)[3]) {
#pragma unroll
  for (int k = 0; k < 3; k++) {
    u32 m[4];
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const int n = 4 * k + j;
      m[j] = is_sample(0, LINE, n / 3, n % 3) ? v[n / 3][n % 3]
                                              : fma(v[n / 3][n % 3], splat(255), splat(1024)); // low bytes
    }
    const u32 ab = permute(m[0], m[1], 0x6240), cd = permute(m[2], m[3], 0x6240);
    low_image[k] = permute(ab, cd, 0x5410);
    high_image[k] = permute(ab, cd, 0x7632);
  }
}

// Where a lane's three pieces of 8 bytes of two staged rows go, in any RGB image.
struct Pieces {
  u32 to[3];
  bool inside[3];
};
DEVICE void store_staged(const u32 *stage, int lane, u8 *image, const Pieces &p) {
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const uint2 w = *(const uint2 *)(stage + 2 * (lane + 32 * i));
    u8 *to = image + p.to[i];
    if (p.inside[i]) store64(to, w.x, w.y);
  }
}
DEVICE void stage_row(u32 *stage, int lane, const u32 (&w)[3]) {
#pragma unroll
  for (int k = 0; k < 3; k++) stage[3 * lane + k] = w[k];
}

// Where a thread works.
struct ThreadPosition {
  int lane, y, x; // first output row; first site
  int rows;       // output rows of the picture
  bool inside;    // whether the thread's sites are in the picture
  u32 pixel;      // the warp's first pixel in its frame's images
  Pieces pieces;  // of the warp's two rows
};
// whether row r of the thread is in the picture; always, where a height known at compile time is a multiple of ROWS
#ifdef WIDTH
constexpr bool EVEN_OUT = HEIGHT / 2 % ROWS == 0;
#else
constexpr bool EVEN_OUT = false;
#endif
DEVICE bool has_row(const ThreadPosition &at, int r) { return EVEN_OUT || at.y + r < at.rows; }

DEVICE size_t frame_pixels(const FrameArguments &frame) {
  return (size_t)blockIdx.z * (out_height(frame) * out_width(frame));
}

DEVICE ThreadPosition thread_position(const FrameArguments &frame, int y, int warp_x) {
  const int width = out_width(frame), lane = threadIdx.x % 32, bytes = min(SEGMENT, (width - warp_x) * 3);
  ThreadPosition at;
  at.lane = lane;
  at.y = y;
  at.x = min(warp_x + lane * SITES, width - SITES);
  at.rows = out_height(frame);
  at.inside = warp_x + lane * SITES < width;
  at.pixel = y * width + warp_x;
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const int j = lane + 32 * i, row = j >= SEGMENT / 8, byte = 8 * (j - row * (SEGMENT / 8));
    at.pieces.to[i] = 3 * (at.pixel + row * width) + byte;
    at.pieces.inside[i] = byte < bytes && has_row(at, row);
  }
  return at;
}
// two rows further down
DEVICE void move_down(const FrameArguments &frame, ThreadPosition &at) {
  const int width = out_width(frame);
  at.y += 2;
  at.pixel += 2 * width;
#pragma unroll
  for (int i = 0; i < 3; i++) {
    at.pieces.to[i] += 6 * width;
    if (!EVEN_OUT && !has_row(at, at.lane + 32 * i >= SEGMENT / 8)) at.pieces.inside[i] = false;
  }
}

// two lines of both angles of a row parity
template <int PARITY>
DEVICE void store_angles(const FrameArguments &frame, const ThreadPosition &at, Stage &stage, const Colours &even,
                         const Colours &odd) {
  constexpr int low_angle = angle_at(PARITY, 0), high_angle = angle_at(PARITY, 1);
  if (!angle_type(low_angle) && !angle_type(high_angle)) return;
  u32 l[3], h[3];
  pack<0>(even, l, h);
  stage_row(stage[0][0], at.lane, l);
  stage_row(stage[1][0], at.lane, h);
  pack<1>(odd, l, h);
  stage_row(stage[0][1], at.lane, l);
  stage_row(stage[1][1], at.lane, h);
  sync_warp();
  const size_t base = 3 * frame_pixels(frame);
  if (angle_type(low_angle)) store_staged(stage[0][0], at.lane, (u8 *)frame.out[ANGLE_0 + low_angle] + base, at.pieces);
  if (angle_type(high_angle))
    store_staged(stage[1][0], at.lane, (u8 *)frame.out[ANGLE_0 + high_angle] + base, at.pieces);
  sync_warp();
}

// A byte of ones for each of four sites that has a saturated sample. site: the first sample, read again: this is rare.
DEVICE u32 saturated_sites(const FrameArguments &frame, const u8 *site) {
  const uint2 upper = load64(site), lower = load64(site + step_of(frame));
  const u32 a = all_255(upper.x) | all_255(lower.x), b = all_255(upper.y) | all_255(lower.y); // two sites each
  return (permute(a | a << 8, b | b << 8, 0x7531) >> 7) * 255u;
}

DEVICE bool has_saturated(const Line &line) { return (has_255(line.w[1]) | has_255(line.w[2])) & BYTES_255; }

// two lines of one parity, from six
DEVICE void debayer_lines(const Line (&line)[6], bool first, bool last, Colours &even, Colours &odd) {
  Sites v[6];
#pragma unroll
  for (int k = 0; k < 6; k++) unpack(line[k], first, last, v[k]);
  debayer<ByteScale, 0, 0>(v[0], v[1], v[2], v[3], v[4], even);
  debayer<ByteScale, 0, 1>(v[1], v[2], v[3], v[4], v[5], odd);
}
#endif
