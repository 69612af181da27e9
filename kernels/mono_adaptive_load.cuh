// `mono_adaptive`, first stage: raw pixels into shared memory.
#ifndef POLAR_MONO_ADAPTIVE_LOAD_CUH
#define POLAR_MONO_ADAPTIVE_LOAD_CUH
#include "mono_adaptive_layout.cuh"

constexpr int MOSAIC_QUADS = MOSAIC_X / 4; // a thread loads four pixels of a row of both halves

// two bytes of a word
template <int FIRST> DEVICE Pair levels(u32 word) {
  return pair_of_bytes<FIRST>(word, splat(LEVEL), splat(-1024 * LEVEL));
}

// The mosaic of any format, size and alignment, at the picture's border too; returns whether a pixel is saturated.
// (top, left): the pixel of the picture that comes first; inner: whether all are inside.
DEVICE bool load_any_halves(const FrameArguments &frame, int top, int left, bool inner, Pair *mosaic) {
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  const int width = width_of(frame), height = height_of(frame), step = step_of(frame);
  const u32 full_scale = frame.full_scale;
  const float scale = FULL / frame.full_scale;
  struct Rows {
    Numbers upper, lower;
  };
  bool any = false;
  auto store = [&](int i, Rows n) {
    any |= n.upper.reach(full_scale) || n.lower.reach(full_scale);
    if (EXCEEDS) {
      n.upper.limit(full_scale);
      n.lower.limit(full_scale);
    }
    FourWords words;
#pragma unroll
    for (int k = 0; k < 4; k++) words.v[k] = pair((float)n.upper.v[k] * scale, (float)n.lower.v[k] * scale);
    *(FourWords *)(mosaic + 4 * i) = words;
  };
  const u8 *first = raw_address(raw + (size_t)top * step, left);
  if (RAW_FORMAT != RAW_U8 && inner && (((u64)first | step) & (QUAD_BYTES - 1)) == 0) {
    auto load = [=](int i) {
      const int r = i / MOSAIC_QUADS;
      const u8 *p = raw_address(first + (u32)(r * step), 4 * (i - r * MOSAIC_QUADS));
      return Rows{aligned_quad(p), aligned_quad(p + HALF_Y * step)};
    };
    copy_items<MOSAIC_Y * MOSAIC_QUADS, THREADS, 4>(load, store);
    return any;
  }
  for (int i = threadIdx.x; i < MOSAIC_Y * MOSAIC_QUADS; i += THREADS) {
    const int r = i / MOSAIC_QUADS, x = left + 4 * (i - r * MOSAIC_QUADS);
    auto numbers = [=](int y) { return raw_quad(raw + (size_t)reflect(y, height) * step, x, width); };
    store(i, Rows{numbers(top + r), numbers(top + r + HALF_Y)});
  }
  return any;
}

// The same; bytes in rows of whole words are loaded as words.
DEVICE bool load_halves(const FrameArguments &frame, int top, int left, Pair *mosaic) {
  const int width = width_of(frame), height = height_of(frame);
  const bool inner = top >= 0 && left >= 0 && top + MOSAIC_Y + HALF_Y <= height && left + MOSAIC_X <= width;
#if RAW_FORMAT == RAW_U8
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  const int step = step_of(frame);
  if (is_in_words(frame, raw, inner)) {
    struct Rows {
      u32 upper, lower;
    };
    u32 saturated = 0;
    auto store = [&](int i, Rows w) {
      saturated |= has_255(w.upper) | has_255(w.lower);
      const u32 a = permute(w.upper, w.lower, 0x5140), b = permute(w.upper, w.lower, 0x7362);
      *(FourWords *)(mosaic + 4 * i) = FourWords{{levels<0>(a), levels<1>(a), levels<0>(b), levels<1>(b)}};
    };
    const u8 *first = raw + (size_t)top * step + left;
    auto load = [=](int i) {
      const int r = i / MOSAIC_QUADS;
      const u8 *p = first + (u32)(r * step + 4 * (i - r * MOSAIC_QUADS));
      return Rows{load32(p), load32(p + HALF_Y * step)};
    };
    auto load_reflected = [=](int i) {
      const int r = i / MOSAIC_QUADS;
      const QuadPlace at = quad_place(left + 4 * (i - r * MOSAIC_QUADS), width);
      return Rows{bytes_at(raw + (size_t)reflect(top + r, height) * step, at),
                  bytes_at(raw + (size_t)reflect(top + r + HALF_Y, height) * step, at)};
    };
    if (inner)
      copy_items<MOSAIC_Y * MOSAIC_QUADS, THREADS>(load, store);
    else
      copy_items<MOSAIC_Y * MOSAIC_QUADS, THREADS>(load_reflected, store);
    return saturated & BYTES_255;
  }
#endif
  return load_any_halves(frame, top, left, inner, mosaic);
}
#endif
