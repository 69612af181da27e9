// Which pixels of a tile are saturated, for kernels whose blocks compute tiles of TILE_X x TILE_Y raw pixels: found in
// the few blocks that have one, by reading the raw pixels once more.
#pragma once
#include "products.cuh"
#include "raw.cuh"

// four bits for four pixels, with a border of one pixel (along x: of four)
constexpr int SATURATED_Y = TILE_Y + 2, SATURATED_QUADS = TILE_X / 4 + 2;
typedef u8 Saturation[SATURATED_Y][SATURATED_QUADS];

// (y0, x0): the tile's first pixel
DEVICE void find_saturated(const FrameArguments &frame, int y0, int x0, Saturation &saturated) {
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
#if RAW_FORMAT == RAW_U8
  const int width = width_of(frame), height = height_of(frame), step = step_of(frame);
  if (is_in_words(frame, raw, false)) {
    auto load = [=](int i) {
      const int r = i / SATURATED_QUADS, y = y0 - 1 + r, x = x0 - 4 + 4 * (i - r * SATURATED_QUADS);
      return (u32)y < (u32)height && (u32)x < (u32)width ? load32(raw + (size_t)y * step + x) : 0;
    };
    copy_items<SATURATED_Y * SATURATED_QUADS, THREADS>(load, [&](int i, u32 w) {
      (&saturated[0][0])[i] = (u8)((all_255(w) >> 7) * 0x01020408u >> 24); // bit 0 of byte k becomes bit k
    });
    return;
  }
#endif
  for (int i = threadIdx.x; i < SATURATED_Y * SATURATED_QUADS; i += THREADS) {
    const int r = i / SATURATED_QUADS, q = i - r * SATURATED_QUADS, y = y0 - 1 + r, x = x0 - 4 + 4 * q;
    u32 bits = 0;
    for (int k = 0; k < 4; k++)
      if (y >= 0 && y < height_of(frame) && x + k >= 0 && x + k < width_of(frame))
        bits |= (u32)(raw_pixel(raw + (size_t)y * step_of(frame), x + k) >= (u32)frame.full_scale) << k;
    saturated[r][q] = bits;
  }
}

// saturation behind four outputs: full resolution looks at 3x3 pixels, half at the superpixel. (y, q): row and quad
DEVICE u32 saturated_outputs(const Saturation &saturated, int y, int q) {
#if HALF_RESOLUTION
  u32 found = 0;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const u32 bits = saturated[y + 1][q + 1 + k] | saturated[y + 2][q + 1 + k];
    found |= (u32)((bits & 3) != 0) << (2 * k) | (u32)((bits & 12) != 0) << (2 * k + 1);
  }
  return found;
#else
  u32 bits = 0;
#pragma unroll
  for (int k = 0; k < 3; k++)
    bits |= (saturated[y + k][q] >> 3) | saturated[y + k][q + 1] << 1 | (saturated[y + k][q + 2] & 1) << 5;
  return (bits | bits >> 1 | bits >> 2) & 15;
#endif
}
