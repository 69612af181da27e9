// `mono_full`: lines of the raw mosaic in, of which a thread holds 16 pixels, and rows of outputs out.
#pragma once
#include "raw.cuh"
#include "products.cuh"

constexpr int THREAD_PIXELS = 16; // of a thread along x

// One raw line of a thread: 16 bytes, and the REACH pixels on either side: those to the left in the low half of `ends`.
struct Line {
  u32 w[4], ends;
};
// first, last: in its row; beyond the border, pixels are reflected
DEVICE Line load_line(const u8 *p, bool first, bool last) {
  const uint4 w = load128(p);
  u32 left, right;
  if (REACH == 1) {
    left = load8(p + (first ? 1 : -1));
    right = load8(p + (last ? THREAD_PIXELS - 2 : THREAD_PIXELS));
  } else {
    left = load16(first ? p : p - 2);
    right = load16(last ? p : p + THREAD_PIXELS);
    if (first) left = permute(w.x, 0u, 0x4412);
    if (last) right = permute(w.w, 0u, 0x4412);
  }
  return Line{{w.x, w.y, w.z, w.w}, permute(left, right, 0x5410)};
}

// The lines of a thread, y .. y + COUNT, and REACH more on either side: reflect-101. All loads come first. Inner lines
// are at constant offsets from the first one where the size is a literal.
template <int COUNT>
DEVICE void load_lines(const FrameArguments &frame, int y, int x, Line (&lines)[COUNT + 2 * REACH]) {
  const int width = width_of(frame), height = height_of(frame), step = step_of(frame);
  const u8 *own = frame.raw + blockIdx.z * frame.raw_stride + (size_t)y * step + x;
#ifdef WIDTH
  constexpr bool EVEN = HEIGHT % COUNT == 0;
#else
  constexpr bool EVEN = false;
#endif
#pragma unroll
  for (int k = 0; k < COUNT + 2 * REACH; k++) {
    int at = k - REACH;
    if (at < 0) at = y == 0 ? -at : at;
    if (at >= (EVEN ? COUNT : 1)) at = reflect(y + at, height) - y;
    lines[k] = load_line(own + at * step, x == 0, x == width - THREAD_PIXELS);
  }
}

// The even and odd columns of a line, two a word, and the neighbors outside (in the high lane to the left, in the low
// one to the right), as subnormal halves.
struct Columns {
  Pair even[4], odd[4], even_left, odd_left, even_right, odd_right;
};
DEVICE Columns columns(const Line &line) {
  Columns c;
#pragma unroll
  for (int k = 0; k < 4; k++) {
    c.even[k] = permute(line.w[k], 0u, 0x4240);
    c.odd[k] = permute(line.w[k], 0u, 0x4341);
  }
  c.even_left = permute(line.ends, 0u, 0x4044);
  c.odd_left = permute(line.ends, 0u, REACH == 1 ? 0x4044 : 0x4144);
  c.even_right = permute(line.ends, 0u, 0x4442);
  c.odd_right = permute(line.ends, 0u, 0x4443);
  return c;
}

// Bit 7 of every byte that is 255 in rows first .. last within the picture, read again: threads seldom find a saturated
// sample, and the others must not spend registers on it. full[1..4]: the thread's pixels; full[0] and full[5]: the
// words on either side.
DEVICE void saturated_bytes(const FrameArguments &frame, int first, int last, int x, u32 (&full)[6]) {
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride + x;
  const int width = width_of(frame);
  for (int k = 0; k < 6; k++) full[k] = 0;
  for (int row = max(first, 0); row <= min(last, height_of(frame) - 1); row++) {
    const u8 *p = raw + (size_t)row * step_of(frame);
#pragma unroll
    for (int k = 0; k < 6; k++)
      if ((k > 0 || x > 0) && (k < 5 || x + THREAD_PIXELS < width)) full[k] |= all_255(load32(p + 4 * (k - 1)));
  }
}

// ---- a row of the preview of a warp, staged in shared memory: threads that store 48 bytes each leave sectors half
// full

constexpr u32 NOWHERE = 0xffffffffu;
typedef u32 StagedColors[32 * 12]; // of a lane's 16 pixels, twelve words
// index: of the lane's first pixel, or NOWHERE
DEVICE void store_colors_staged(u8 *image, const StagedColors &stage, int lane, u32 index) {
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const int unit = 32 * i + lane, owner = unit / 3;
    const u32 from = shuffle(index, owner);
    if (from != NOWHERE) store_staged_piece<16>(image + 3 * (size_t)from + (unit - 3 * owner) * 16, &stage[4 * unit]);
  }
}
