// `color_half` with its window of lines in shared memory: a block moves down a strip, with the next lines in flight.
#ifndef POLAR_COLOR_HALF_RING_CUH
#define POLAR_COLOR_HALF_RING_CUH
#include "color_half_products.cuh"

constexpr int STRIP = THREADS * SITES; // sites of a block along x
constexpr int PITCH = 2 * STRIP + 32;  // bytes of a line in the ring, with 16 more on either side
constexpr int FOURS = LINES / 4;

struct RingShared : Shared {
  alignas(16) u8 ring[LINES][PITCH];
};

// Angle images, and products if asked for.
DEVICE void make_products_in_ring(const FrameArguments &frame, RingShared &s) {
  const int warp = threadIdx.x / 32, width = out_width(frame);
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  InvalidCount count = {0, 0};
  const int strips = (width + STRIP - 1) / STRIP, strip = blockIdx.x % strips, strip_x = strip * STRIP;
  ThreadPosition at = thread_position(frame, blockIdx.x / strips * ROWS, strip_x + warp * 32 * SITES);
  const bool first = at.x == 0, last = at.x == width - SITES, idle = strip_x + warp * 32 * SITES >= width;
  // Lines come in fours: two of the lattice, both parities. The ring holds the offsets of fours: half the registers
  // that pointers would take.
  u8 *const lines = s.ring[0];
  auto fetch = [&](int line, u32 four) {
    constexpr int PIECES = PITCH / 16;
    for (int i = threadIdx.x; i < 4 * PIECES; i += THREADS) {
      const int k = i / PIECES, piece = i - k * PIECES, byte = 2 * strip_x - 16 + 16 * piece;
      if (byte >= 0 && byte < width_of(frame))
        async_copy16(
            lines + four + k * PITCH + 16 * piece,
            raw + (size_t)(2 * reflect(line + k / 2, (height_of(frame) - k % 2 + 1) >> 1) + k % 2) * step_of(frame) +
                byte);
    }
    async_commit();
  };
  u32 ring[FOURS];
#pragma unroll
  for (int k = 0; k < FOURS; k++) {
    ring[k] = 4 * k * PITCH;
    if (k + 1 < FOURS) fetch(at.y - 2 + 2 * k, ring[k]);
  }
#pragma unroll 1
  for (int step = 0; step < ROWS / 2; step++) {
    // Copies that this step does not read may be incomplete. After the barrier, all threads have finished the step
    // before, whose first four lines are overwritten next.
    async_wait<FOURS - 4>();
    sync_block();
    if (step + 1 < ROWS / 2)
      fetch(at.y - 2 + 2 * (FOURS - 1), ring[FOURS - 1]);
    else
      async_commit(); // an empty group, so that async_wait counts the same ones
    auto read = [&](int parity, int k) {
      const u8 *p = lines + ring[k / 2] + (k % 2 * 2 + parity) * PITCH + 16 + 2 * (at.x - strip_x);
      const uint2 w = *(const uint2 *)p;
      return Line{{*(const u32 *)(p - 4), w.x, w.y, *(const u32 *)(p + 8)}};
    };
    if (!idle)
      both_parities(frame, at, s.stage[warp], raw + (size_t)(2 * at.y) * step_of(frame) + 2 * at.x, first, last, read,
                    count);
    move_down(frame, at);
    const u32 used = ring[0];
#pragma unroll
    for (int k = 0; k + 1 < FOURS; k++) ring[k] = ring[k + 1];
    ring[FOURS - 1] = used;
  }
  count_invalid(frame, count);
  grid_dependency_wait_in_one_block();
}
#endif
