// `color_half` with its window of lines in registers: one kernel for products, whose threads have both row parities,
// and one for angle images alone, whose threads have one.
#ifndef POLAR_COLOR_HALF_REGISTERS_CUH
#define POLAR_COLOR_HALF_REGISTERS_CUH
#include "color_half_products.cuh"

// the raw row of a lattice line of a parity, reflected beyond the border
DEVICE int raw_row(const FrameArguments &frame, int line, int parity) {
  const int last = ((height_of(frame) - parity + 1) >> 1) - 1;
  return 2 * (line < 0 ? -line : line > last ? 2 * last - line : line) + parity;
}

// Products, and angle images if asked for. All loads come before the first use; the window of six lines of each parity
// moves down by two lines at a time, rotating by an index that is known at compile time.
DEVICE void make_products_in_registers(const FrameArguments &frame, Shared &s) {
  const int warp = threadIdx.x / 32, width = out_width(frame);
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  InvalidCount count = {0, 0};
  const int segments = (width + 32 * SITES - 1) / (32 * SITES), across = (segments + WARPS - 1) / WARPS;
  const int segment = (blockIdx.x % across) * WARPS + warp, strip = blockIdx.x / across;
  if (segment >= segments) return; // all threads of the warp
  ThreadPosition at = thread_position(frame, strip * ROWS, segment * 32 * SITES);
  const bool first = at.x == 0, last = at.x == width - SITES;
  const u8 *own = raw + 2 * at.x;
  auto load = [&](int parity, int line) {
    return load_line(own + (u32)(raw_row(frame, line, parity) * step_of(frame)), first, last);
  };
  Line window[2][6];
#pragma unroll
  for (int k = 0; k < 12; k++) window[k / 6][k % 6] = load(k / 6, at.y - 2 + k % 6);
#pragma unroll
  for (int step = 0; step < ROWS / 2; step++) {
    auto read = [&](int parity, int k) { return window[parity][(2 * step + k) % 6]; };
    both_parities(frame, at, s.stage[warp], own + (u32)(2 * at.y * step_of(frame)), first, last, read, count);
    if (step + 1 == ROWS / 2) break;
#pragma unroll
    for (int k = 0; k < 4; k++) window[k / 2][(2 * step + k % 2) % 6] = load(k / 2, at.y + 4 + k % 2);
    move_down(frame, at);
  }
  count_invalid(frame, count);
  grid_dependency_wait_in_one_block();
}

// Saturated sites of a line. A site with saturated samples in both row parities counts with parity 0. other: the line
// of the other parity.
DEVICE u32 count_saturated(const Line &line, const u8 *other, int parity) {
  u32 n = 0;
  if (has_saturated(line))
    for (int i = 0; i < SITES; i++) {
      const u32 site = line.w[1 + i / 2] >> (16 * (i % 2));
      const bool here = (site & 255) == 255 || (site >> 8 & 255) == 255;
      n += here && !(parity && (load8(other + 2 * i) == 255 || load8(other + 2 * i + 1) == 255));
    }
  return n;
}

// Angle images alone: even strips have row parity 0, odd ones parity 1. The window of six lines rotates by an index
// that is known at compile time: three steps of two lines bring it back.
DEVICE void make_angles_in_registers(const FrameArguments &frame, Shared &s) {
  const int warp = threadIdx.x / 32, width = out_width(frame), rows = out_height(frame);
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  InvalidCount count = {0, 0};
  const int segments = (width + 32 * SITES - 1) / (32 * SITES), across = (segments + WARPS - 1) / WARPS;
  const int segment = (blockIdx.x % across) * WARPS + warp, strip = blockIdx.x / across;
  if (segment >= segments) return; // all threads of the warp
  const int parity = strip % 2;
  ThreadPosition at = thread_position(frame, strip / 2 * ROWS, segment * 32 * SITES);
  const bool first = at.x == 0, last = at.x == width - SITES;
  const u8 *own = raw + 2 * at.x;
  auto read = [&](int line) {
    return load_line(own + (u32)(raw_row(frame, line, parity) * step_of(frame)), first, last);
  };
  // the same line of the other row parity
  auto other = [&](int line) { return raw + (size_t)(2 * line + 1 - parity) * step_of(frame) + 2 * at.x; };
  Sites window[6];
  {
    Line ahead[4];
#pragma unroll
    for (int k = 0; k < 4; k++) ahead[k] = read(at.y - 2 + k);
#pragma unroll
    for (int k = 0; k < 4; k++) unpack(ahead[k], first, last, window[k]);
    if (at.inside)
#pragma unroll
      for (int k = 2; k < 4; k++)
        if (at.y - 2 + k < rows) count.saturated += count_saturated(ahead[k], other(at.y - 2 + k), parity);
  }
  Line next[2] = {read(at.y + 2), read(at.y + 3)};
#pragma unroll
  for (int step = 0; step < ROWS / 2; step++) {
    auto line_at = [&](int k) -> Sites & { return window[(2 * step + k) % 6]; };
    unpack(next[0], first, last, line_at(4));
    unpack(next[1], first, last, line_at(5));
    if (step + 1 < ROWS / 2) {
      if (at.inside)
#pragma unroll
        for (int k = 0; k < 2; k++)
          if (at.y + 2 + k < rows) count.saturated += count_saturated(next[k], other(at.y + 2 + k), parity);
      next[0] = read(at.y + 4);
      next[1] = read(at.y + 5);
    }
    Colours even, odd;
    debayer<ByteScale, 0, 0>(line_at(0), line_at(1), line_at(2), line_at(3), line_at(4), even);
    debayer<ByteScale, 0, 1>(line_at(1), line_at(2), line_at(3), line_at(4), line_at(5), odd);
    if (parity)
      store_angles<1>(frame, at, s.stage[warp], even, odd);
    else
      store_angles<0>(frame, at, s.stage[warp], even, odd);
    move_down(frame, at);
  }
  count_invalid(frame, count);
  grid_dependency_wait_in_one_block();
}
#endif
