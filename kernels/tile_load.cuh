// `tile`, first stage: raw pixels into shared memory.
#pragma once
#include "raw.cuh"
#include "tile_layout.cuh"

constexpr int QUADS = RAW_P / 2;

#if !CALIBRATED // else `tile_correct.cuh`
// Loads the raw pixels of the tile as values; returns whether any is saturated. (y0, x0): the tile's first pixel. Bytes
// in rows of whole words are loaded as words; else pixels beyond the picture's border one by one.
DEVICE bool load_tile(const FrameArguments &frame, int y0, int x0, Pair *tile) {
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  const int top = y0 - EDGE_Y, left = x0 - EDGE_X, step = step_of(frame), width = width_of(frame),
            height = height_of(frame);
  const u32 full_scale = frame.full_scale;
  const float scale = FULL / frame.full_scale;
  const bool inner = top >= 0 && left >= 0 && top + RAW_Y <= height && left + 4 * QUADS <= width;
#if RAW_FORMAT == RAW_U8
  if (is_in_words(frame, raw, inner)) {
    const Pair by = pair(scale, scale), offset = pair(-1024 * scale, -1024 * scale);
    u32 saturated = 0;
    auto store = [&](int i, u32 w) {
      saturated |= has_255(w);
      *(Quad *)(tile + 2 * i) = Quad{pair_of_bytes<0>(w, by, offset), pair_of_bytes<1>(w, by, offset)};
    };
    const u8 *first = raw + (size_t)top * step + left;
    auto load = [=](int i) {
      const int r = i / QUADS, q = i - r * QUADS;
      return load32(first + (u32)(r * step + 4 * q));
    };
    auto load_reflected = [=](int i) {
      const int r = i / QUADS, x = left + 4 * (i - r * QUADS);
      return bytes_at(raw + (size_t)reflect_mosaic(top + r, height) * step, quad_place(x, width));
    };
    if (inner)
      copy_items<RAW_Y * QUADS, THREADS>(load, store);
    else
      copy_items<RAW_Y * QUADS, THREADS>(load_reflected, store);
    return saturated & BYTES_255;
  }
#endif
  bool any = false;
  auto store = [&](int i, Numbers n) {
    any |= n.reach(full_scale);
    if (EXCEEDS) n.limit(full_scale);
    *(Quad *)(tile + 2 * i) =
        Quad{pair((float)n.v[0] * scale, (float)n.v[1] * scale), pair((float)n.v[2] * scale, (float)n.v[3] * scale)};
  };
  const u8 *first = raw_address(raw + (size_t)top * step, left);
  if (RAW_FORMAT != RAW_U8 && inner && (((u64)first | step) & (QUAD_BYTES - 1)) == 0) {
    auto load = [=](int i) {
      const int r = i / QUADS;
      return aligned_quad(raw_address(first + (u32)(r * step), 4 * (i - r * QUADS)));
    };
    copy_items<RAW_Y * QUADS, THREADS, 4>(load, store);
    return any;
  }
  for (int i = threadIdx.x; i < RAW_Y * QUADS; i += THREADS) {
    const int r = i / QUADS, x = left + 4 * (i - r * QUADS);
    const u8 *row = raw + (size_t)(inner ? top + r : reflect_mosaic(top + r, height)) * step;
    store(i, raw_quad(row, x, width));
  }
  return any;
}
#endif

// Finds saturated pixels, in the few blocks that have one, by reading the raw pixels once more. (y0, x0): the tile's
// first pixel
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
  u32 outputs = 0;
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const u32 bits = saturated[y + 1][q + 1 + k] | saturated[y + 2][q + 1 + k];
    outputs |= (u32)((bits & 3) != 0) << (2 * k) | (u32)((bits & 12) != 0) << (2 * k + 1);
  }
  return outputs;
#else
  u32 bits = 0;
#pragma unroll
  for (int k = 0; k < 3; k++)
    bits |= (saturated[y + k][q] >> 3) | saturated[y + k][q + 1] << 1 | (saturated[y + k][q + 2] & 1) << 5;
  return (bits | bits >> 1 | bits >> 2) & 15;
#endif
}
