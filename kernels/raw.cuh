// Raw pixels: their addresses, how their bits are packed, the reflection of the picture beyond its border, and copies
// into shared memory.
#pragma once
#include "pair.cuh"

// reflect-101: -1 is 1. Keeps the parity of a 2x2 tile. Clamped where i is further out than the picture is wide: such
// pixels are never used.
DEVICE int reflect(int i, int size) {
  i = i < 0 ? -i : i >= size ? 2 * (size - 1) - i : i;
  return max(0, min(i, size - 1));
}
// reflect-101 on each lattice of stride 2: -1 is 3, -2 is 2. Keeps the phase of a 4x4 color tile.
DEVICE int lattice_reflect(int i, int size) {
  int phase = i & 1, count = (size - phase + 1) >> 1;
  return 2 * reflect((i - phase) >> 1, count) + phase;
}
DEVICE int reflect_mosaic(int i, int size) { return COLOR ? lattice_reflect(i, size) : reflect(i, size); }

// The largest power of two up to 16 that divides both.
CONSTANT int alignment_of(int a, int b) { return (16 | a | b) & -(16 | a | b); }
// Loads words in pieces of PIECE bytes, as far as memory is aligned; of a last half word its own two bytes.
template <int PIECE, int BYTES, int WORDS> DEVICE void load_pieces(const void *from, u32 (&w)[WORDS]) {
  const u8 *p = (const u8 *)from;
#pragma unroll
  for (int k = 0; k < BYTES; k += PIECE) {
    u32 *word = &w[k / 4];
    if (PIECE == 16) {
      const uint4 v = load128(p + k);
      word[0] = v.x, word[1] = v.y, word[2] = v.z, word[3] = v.w;
    }
    if (PIECE == 8) {
      const uint2 v = load64(p + k);
      word[0] = v.x, word[1] = v.y;
    }
    if (PIECE == 4) word[0] = load32(p + k);
    if (PIECE == 2) word[0] = k % 4 ? word[0] | load16(p + k) << 16 : load16(p + k);
  }
}

// the number at one pixel; row: first byte of its raw row
DEVICE u32 raw_pixel(const u8 *row, int x) {
  if (RAW_FORMAT == RAW_U8) return load8(row + x);
  if (RAW_FORMAT == RAW_U16) return load8(row + 2 * x) | load8(row + 2 * x + 1) << 8;
  const u8 *p = row + (x >> 1) * 3;
  const u32 middle = load8(p + 1);
  if (RAW_FORMAT == RAW_12P) return x & 1 ? middle >> 4 | load8(p + 2) << 4 : load8(p) | (middle & 15) << 8;
  return x & 1 ? load8(p + 2) << 4 | middle >> 4 : load8(p) << 4 | (middle & 15);
}

// What the address of four pixels must be a multiple of, so that they can be loaded as words.
constexpr int QUAD_BYTES = RAW_FORMAT == RAW_U8 ? 4 : RAW_FORMAT == RAW_U16 ? 8 : 2;

// first byte of the pixel at x, which is even, of a row
DEVICE const u8 *raw_address(const u8 *row, int x) {
  return row + (RAW_FORMAT == RAW_U8 ? x : RAW_FORMAT == RAW_U16 ? 2 * x : (x >> 1) * 3);
}

// The numbers at four pixels.
struct Numbers {
  u32 v[4];
  // whether one of them is saturated
  DEVICE bool reach(u32 full_scale) const {
    return v[0] >= full_scale || v[1] >= full_scale || v[2] >= full_scale || v[3] >= full_scale;
  }
  DEVICE void limit(u32 full_scale) {
#pragma unroll
    for (int k = 0; k < 4; k++) v[k] = min(v[k], full_scale);
  }
};
// at a multiple of QUAD_BYTES
DEVICE Numbers aligned_quad(const u8 *p) {
  if (RAW_FORMAT == RAW_U8) {
    const u32 w = load32(p);
    return Numbers{{w & 255, w >> 8 & 255, w >> 16 & 255, w >> 24}};
  }
  if (RAW_FORMAT == RAW_U16) {
    const uint2 w = load64(p);
    return Numbers{{w.x & 0xffff, w.x >> 16, w.y & 0xffff, w.y >> 16}};
  }
  const u32 a = load16(p), b = load16(p + 2), c = load16(p + 4);
  if (RAW_FORMAT == RAW_12P) return Numbers{{a & 0xfff, a >> 12 | (b & 0xff) << 4, b >> 8 | (c & 15) << 8, c >> 4}};
  return Numbers{{(a & 0xff) << 4 | (a >> 8 & 15), (b & 0xff) << 4 | a >> 12, b >> 8 << 4 | (c & 15),
                  c >> 8 << 4 | (c >> 4 & 15)}};
}

// x: a multiple of 4; pixels are reflected beyond the border of a picture of that width
DEVICE Numbers raw_quad(const u8 *row, int x, int width) {
  const u8 *p = raw_address(row, x);
  const bool inside = x >= 0 && x + 4 <= width;
  if (inside && ((u64)p & (QUAD_BYTES - 1)) == 0) return aligned_quad(p);
  Numbers n;
#pragma unroll
  for (int k = 0; k < 4; k++) n.v[k] = raw_pixel(row, inside ? x + k : reflect_mosaic(x + k, width));
  return n;
}

// Whether four pixels of 8 bit can be loaded as words, at multiples of four: by `quad_place`, unless `inner` says that
// none is beyond the border.
DEVICE bool is_in_words(const FrameArguments &frame, const u8 *raw, bool inner) {
  return frame.full_scale == 255 && (((u64)raw | step_of(frame)) & 3) == 0 &&
         (inner || (width_of(frame) % 4 == 0 && width_of(frame) >= 16));
}
// Where four pixels of 8 bit at x are in a row (`is_in_words`), as bytes of two words. x is a multiple of four; up to
// 12 pixels beyond the border, pixels are reflected, and any will do further out.
struct QuadPlace {
  int first, second;
  u32 selector;
};
DEVICE QuadPlace quad_place(int x, int width) {
  if (x >= 0 && x < width) return QuadPlace{x, x, 0x3210};
  const int first = max(0, min(x < 0 ? -4 - x : 2 * width - 8 - x, width - 8));
  return QuadPlace{first, first + 4, COLOR ? 0x3254u : x < 0 ? 0x1234u : 0x3456u};
}
DEVICE u32 bytes_at(const u8 *row, const QuadPlace &at) {
  return permute(load32(row + at.first), load32(row + at.second), at.selector);
}

// Items 0 .. COUNT - 1 by the BLOCK threads of a block: store(i, load(i)). A thread loads up to AT_ONCE items before it
// stores the first one, so that it waits for memory once for them. In the last turn, threads that are left over repeat
// their last item: a branch would let the compiler put the load behind it.
template <int COUNT, int BLOCK, int AT_ONCE = 8, typename Load, typename Store>
DEVICE void copy_items(Load load, Store store) {
  constexpr int TURNS = (COUNT + BLOCK - 1) / BLOCK;
  if (TURNS == 1 && threadIdx.x >= COUNT) return;
  auto item = [](int turn) {
    const int i = threadIdx.x + turn * BLOCK;
    return (turn + 1) * BLOCK <= COUNT || i < COUNT ? i : i - BLOCK;
  };
#pragma unroll
  for (int turn = 0; turn < TURNS; turn += AT_ONCE) {
    decltype(load(0)) loaded[AT_ONCE];
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
      if (turn + k < TURNS) loaded[k] = load(item(turn + k));
#pragma unroll
    for (int k = 0; k < AT_ONCE; k++)
      if (turn + k < TURNS) store(item(turn + k), loaded[k]);
  }
}
