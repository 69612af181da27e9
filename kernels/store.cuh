// How threads store values of neighboring pixels: their element type, and the pieces of memory that they are stored
// in.
#pragma once
#include "pair.cuh"

// Element types of outputs: 1 uint8, 2 float32, 3 uint16 (`frame.cuh`).
CONSTANT int element_bytes(int type) { return type == 2 ? 4 : type == 3 ? 2 : 1; }
CONSTANT int value_bytes(int type) { return type == 2 ? 4 : 2; } // of all but bytes

// Stores words in pieces of PIECE bytes, as far as memory is aligned.
template <int PIECE, int WORDS> DEVICE void store_words(void *to, const u32 (&w)[WORDS]) {
  u8 *p = (u8 *)to;
#pragma unroll
  for (int k = 0; k < 4 * WORDS; k += PIECE) {
    const u32 *word = &w[k / 4];
    if (PIECE == 16) store128(p + k, word[0], word[1], word[2], word[3]);
    if (PIECE == 8) store64(p + k, word[0], word[1]);
    if (PIECE == 4) store32(p + k, word[0]);
    if (PIECE == 2) store16(p + k, word[0] >> 8 * (k % 4));
    if (PIECE == 1) store8(p + k, word[0] >> 8 * (k % 4));
  }
}

// Stores a piece of what a warp has staged in shared memory.
template <int PIECE> DEVICE void store_staged_piece(void *to, const void *staged) {
  if (PIECE == 16) {
    const uint4 v = *(const uint4 *)staged;
    store128(to, v.x, v.y, v.z, v.w);
  } else if (PIECE == 8) {
    const uint2 v = *(const uint2 *)staged;
    store64(to, v.x, v.y);
  } else if (PIECE == 4) {
    store32(to, *(const u32 *)staged);
  } else if (PIECE == 2) {
    store16(to, *(const u16 *)staged);
  } else {
    store8(to, *(const u8 *)staged);
  }
}

// ---- elements as words, the first ones in the lowest bits

template <int N> DEVICE void words_of_floats(const float (&v)[N], u32 (&w)[N]) {
#pragma unroll
  for (int k = 0; k < N; k++) w[k] = as_bits(v[k]);
}
DEVICE u32 low_halves(u32 first, u32 second) { return permute(first, second, 0x5410); }
// Two values times a scale as 16-bit integers.
DEVICE u32 integer_pair(float first, float second, float scale) {
  return low_halves(rounded(first, scale), rounded(second, scale));
}
// Two values as levels: 65535 is 1; limited.
DEVICE u32 level_pair(float first, float second) { return integer_pair(saturate(first), saturate(second), 65535.0f); }
// Values from 0 to 1 as floats (2), or limited as levels (3).
template <int TYPE, int N, int WORDS> DEVICE void words_of(const float (&v)[N], u32 (&w)[WORDS]) {
  static_assert(WORDS * 4 == N * value_bytes(TYPE), "as many words as the values have");
#pragma unroll
  for (int k = 0; k < WORDS; k++) w[k] = TYPE == 2 ? as_bits(v[k]) : level_pair(v[2 * k % N], v[(2 * k + 1) % N]);
}
// What is added to four pixels of an integer image for SSIM before they are rounded down: a byte for each from pixel
// (y, x) on, in 256ths of a unit. It depends on the place only.
DEVICE u32 dither_at(int y, int x) {
  return permute(SSIM_DITHER_0, SSIM_DITHER_2, (x & 1 ? 0x0101 : 0x1010) + 0x2222 * (y & 3));
}
// A value from 0 to 1 as an integer of full scale SSIM_FULL, in bytes 1 and 2: at 32768, bit 8 of a float is the unit.
DEVICE u32 dithered(float value, u32 dither, int pixel) {
  return as_bits(fmaf(value, SSIM_FULL, as_float(permute(dither, 0x47000000u, 0x7440 + pixel))));
}
// Values from 0 to 1 as SSIM reads them: floats (2), or dithered 16-bit integers. If all were rounded alike, a flat
// dark image would be off by up to half a unit, and the similarity by 0.002. Dithered, the mean over a window is off by
// a quarter at most. Whole numbers of units stay exact.
template <int TYPE, int N, int WORDS> DEVICE void words_compared(const float (&v)[N], u32 dither, u32 (&w)[WORDS]) {
  static_assert(WORDS * 4 == N * value_bytes(TYPE), "as many words as the values have");
#pragma unroll
  for (int k = 0; k < WORDS; k++) {
    const int a = 2 * k, b = 2 * k + 1;
    w[k] = TYPE == 2 ? as_bits(v[k])
                     : permute(dithered(v[a % N], dither, a % 4), dithered(v[b % N], dither, b % 4), 0x6521);
  }
}
// The lowest byte of each of four words, as one word.
DEVICE u32 low_bytes(u32 a, u32 b, u32 c, u32 d) {
  return permute(permute(a, b, 0x0040), permute(c, d, 0x0040), 0x5410);
}

// Stores what an invalid pixel has in an image of CHANNELS values a pixel: NaN, or in levels 0.
template <int TYPE, int CHANNELS = 1> DEVICE void store_missing(void *image, size_t pixel) {
#pragma unroll
  for (int c = 0; c < (TYPE ? CHANNELS : 0); c++) {
    const size_t at = pixel * CHANNELS + c;
    if (TYPE == 1) store8((u8 *)image + at, 0);
    if (TYPE == 2) store32((float *)image + at, as_bits(nan_value()));
    if (TYPE == 3) store16((u16 *)image + at, 0);
  }
}

// Red, green and blue bytes of four pixels, interleaved.
DEVICE void interleave(u32 r, u32 g, u32 b, u32 (&w)[3]) {
  u32 rg01 = permute(r, g, 0x5140), rg23 = permute(r, g, 0x7362); // r0 g0 r1 g1, r2 g2 r3 g3
  w[0] = permute(rg01, b, 0x2410);
  w[1] = permute(permute(rg01, b, 0x0053), rg23, 0x5410);
  w[2] = permute(rg23, b, 0x7326);
}
// The same from two pixels a word, in the lowest bytes of its halves; PAIRS: 1 or 2 of them.
template <int PAIRS> DEVICE void interleave_pairs(const u32 *r, const u32 *g, const u32 *b, u32 *w) {
  const u32 first = permute(r[0], g[0], 0x6240), rest = permute(first, b[0], 0x0063); // r0 g0 r1 g1; g1 b1
  w[0] = permute(first, b[0], 0x2410);
  w[1] = rest;
  if (PAIRS < 2) return;
  const u32 second = permute(r[PAIRS - 1], g[PAIRS - 1], 0x6240);
  w[1] = permute(rest, second, 0x5410);
  w[PAIRS] = permute(second, b[PAIRS - 1], 0x6324);
}
