// `mono_adaptive`, last stage: products of two columns of both halves of a tile, whose angles are in registers.
#ifndef POLAR_MONO_ADAPTIVE_PRODUCTS_CUH
#define POLAR_MONO_ADAPTIVE_PRODUCTS_CUH
#include "mono_adaptive_layout.cuh"

// Where four pixels go that `store_products` makes: pixels 0 and 2 are neighbours in the upper half, 1 and 3 in the
// lower one. `is_even`: rows have an even number of pixels, so that both neighbours are inside, and aligned.
struct HalvesPosition {
  size_t frame; // first pixel of the frame, the same in all threads
  u32 pixel;    // from there on
  bool has_lower, is_even, has_right;
  int lower; // pixels from the upper half's to the lower one's
  DEVICE u32 inside() const {
    const u32 column = has_lower ? 3 : 1;
    return has_right ? column * 5 : column;
  }
};
// row: of a half; (y, x): the upper half's first pixel in the picture
DEVICE HalvesPosition halves_position(const FrameArguments &frame, int y, int x) {
  const int width = out_width(frame), height = out_height(frame);
  return HalvesPosition{(size_t)blockIdx.z * (height * width),
                        (u32)(y * width + x),
                        y + HALF_Y < height,
                        width % 2 == 0,
                        x + 1 < width,
                        HALF_Y * width};
}
// byte k of some words
template <int WORDS> DEVICE u32 byte_of(const u32 (&w)[WORDS], int k) { return w[k / 4] >> (8 * (k % 4)); }
template <int VALUES> DEVICE void store_bytes(void *base, const HalvesPosition &at, const u32 (&w)[VALUES / 4]) {
  constexpr int EACH = VALUES / 4; // bytes of a pixel
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (half && !at.has_lower) break;
    u8 *p = (u8 *)base + at.frame * EACH + at.pixel * EACH + half * at.lower * EACH;
#pragma unroll
    for (int k = 0; k < 2 * EACH; k += 2) {
      const int a = k < EACH ? half * EACH + k : (half + 1) * EACH + k,
                b = k + 1 < EACH ? half * EACH + k + 1 : (half + 1) * EACH + k + 1; // bytes of `w`
      if (at.is_even) {
        store16(p + k, permute(w[a / 4], w[b / 4], a % 4 | (4 + b % 4) << 4));
      } else {
        if (k < EACH || at.has_right) store8(p + k, byte_of(w, a));
        if (k + 1 < EACH || at.has_right) store8(p + k + 1, byte_of(w, b));
      }
    }
  }
}
template <int VALUES> DEVICE void store_floats(void *base, const HalvesPosition &at, const float (&v)[VALUES]) {
  constexpr int EACH = VALUES / 4;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (half && !at.has_lower) break;
    float *p = (float *)base + at.frame * EACH + at.pixel * EACH + half * at.lower * EACH;
#pragma unroll
    for (int k = 0; k < 2 * EACH; k += 2) {
      const u32 a = as_bits(v[k < EACH ? half * EACH + k : (half + 1) * EACH + k]),
                b = as_bits(v[k + 1 < EACH ? half * EACH + k + 1 : (half + 1) * EACH + k + 1]);
      if (at.is_even) {
        store64(p + k, a, b);
      } else {
        if (k < EACH || at.has_right) store32(p + k, a);
        if (k + 1 < EACH || at.has_right) store32(p + k + 1, b);
      }
    }
  }
}
template <int TYPE> DEVICE void store_values(void *base, const HalvesPosition &at, const float (&v)[4]) {
  if (TYPE == 2) return store_floats<4>(base, at, v);
#pragma unroll
  for (int half = 0; half < 2; half++) {
    if (half && !at.has_lower) break;
    u8 *p = (u8 *)base + at.frame * 2 + at.pixel * 2 + half * at.lower * 2;
    const u32 both = compared_pair(v[half], v[half + 2]);
    if (at.is_even) {
      store32(p, both);
    } else {
      store16(p, both);
      if (at.has_right) store16(p + 2, both >> 16);
    }
  }
}

// saturation behind the same four pixels; (row, x): of the upper half and of the tile, x even
DEVICE u32 saturated_in_halves(const Saturation &saturated, int row, int x) {
  u32 found = 0;
#pragma unroll
  for (int half = 0; half < 2; half++) {
    const u32 two = saturated_outputs(saturated, row + half * HALF_Y, x / 4) >> (x & 2);
    found |= ((two & 1) | (two & 2) << 1) << half;
  }
  return found;
}
#endif
