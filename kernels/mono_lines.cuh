// What `mono_half_bytes` reads: a thread holds 16 raw pixels of every line that it needs.
#ifndef POLAR_MONO_LINES_CUH
#define POLAR_MONO_LINES_CUH
#include "products.cuh"

constexpr int THREAD_PIXELS = 16; // raw pixels a thread along x

// One raw line of a thread: 16 bytes, and its neighbours on either side.
struct Line {
  u32 w[4], left, right;
};
DEVICE Line load_line(const u8 *p, const u8 *left, const u8 *right) {
  const uint4 w = load128(p);
  return Line{{w.x, w.y, w.z, w.w}, load8(left), load8(right)};
}

// The lines of a thread, y .. y + COUNT, and one more on either side: reflect-101. All loads come first. Inner lines
// are at constant offsets from the first one where the size is a literal.
template <int COUNT> DEVICE void load_lines(const FrameArguments &frame, int y, int x, Line (&lines)[COUNT + 2]) {
  const int width = width_of(frame), height = height_of(frame), step = step_of(frame);
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  const int to_left = x == 0 ? 1 : -1, to_right = x == width - THREAD_PIXELS ? THREAD_PIXELS - 2 : THREAD_PIXELS;
  const u8 *first = raw + (size_t)y * step + x;
  const u8 *first_left = first + to_left, *first_right = first + to_right;
#pragma unroll
  for (int k = 0; k < COUNT + 2; k++) {
    int at = (k - 1) * step;
    if (k == 0) at = y == 0 ? step : -step;
#ifdef WIDTH
    const bool may_end = k == COUNT + 1 || HEIGHT % COUNT != 0;
#else
    const bool may_end = true;
#endif
    if (k > 0 && may_end && y + k - 1 >= height) at = (height - 1 - ((height - 1 - (y + k - 1)) & 1) - y) * step;
    lines[k] = load_line(first + at, first_left + at, first_right + at);
  }
}
#endif
