// `tile`, first stage with a calibration: raw pixels into shared memory as an ideal sensor would have measured them.
//
// A pixel has four numbers: black level d, gain u, its own and its other term. From its raw value I follows
// z = (I - d) u; with the z of its superpixel, it becomes z + own (z[t] - z[t + 90]) + other (z[t + 45] - z[t + 135])
// for its nominal angle t, limited to the range of values.
#pragma once
#include "correction.cuh"
#include "tile_load.cuh"

#if CALIBRATED

DEVICE float raw_number(const FrameArguments &frame, u32 raw) {
  if (EXCEEDS) raw = min(raw, (u32)frame.full_scale);
  return as_float(raw | 0x4b000000) - 8388608.0f; // 2^23: the unit is the last bit
}

// a share of full scale as a value, limited to full scale
DEVICE float limited(float share) { return saturate(share) * FULL; }

// Four raw pixels of a row, as words, and what they are corrected by.
struct LoadedQuad {
#if RAW_FORMAT == RAW_U8
  u32 raw;
#else
  Numbers raw;
#endif
  u32 code[4];
};
// raw: their first byte, at a multiple of QUAD_BYTES; codes: theirs, at a multiple of 16 bytes
DEVICE void load_quad(const u8 *raw, const u32 *codes, LoadedQuad &quad) {
  load_pieces<16, 16>(codes, quad.code);
#if RAW_FORMAT == RAW_U8
  quad.raw = load32(raw);
#else
  quad.raw = aligned_quad(raw);
#endif
}
// The z of the four; returns whether one is saturated.
DEVICE bool balance_quad(const FrameArguments &frame, const LoadedQuad &quad, float (&z)[4]) {
#if RAW_FORMAT == RAW_U8 && !EXCEEDS
#pragma unroll
  for (int k = 0; k < 4; k++) // 2^15 + byte
    z[k] = balanced(frame, as_float(permute(quad.raw, 0x47000000u, 0x7404 + 16 * k)) - 32768.0f, quad.code[k]);
  return has_255(quad.raw) & BYTES_255;
#else
  bool any = false;
#pragma unroll
  for (int k = 0; k < 4; k++) {
#if RAW_FORMAT == RAW_U8
    const u32 number = quad.raw >> 8 * k & 255;
#else
    const u32 number = quad.raw.v[k];
#endif
    z[k] = balanced(frame, raw_number(frame, number), quad.code[k]);
    any |= number >= (u32)frame.full_scale;
  }
  return any;
#endif
}
// row: 0 or 1, its parity
DEVICE void store_quad(const FrameArguments &frame, const LoadedQuad &quad, const float (&z)[4], int row,
                       const Diagonals (&of)[2], Pair *p) {
  float v[4];
#pragma unroll
  for (int k = 0; k < 4; k++) v[k] = limited(corrected(frame, z[k], quad.code[k], angle_at(row, k % 2), of[k / 2]));
  *(Quad *)p = Quad{pair(v[0], v[1]), pair(v[2], v[3])};
}

// One pixel alone, with its superpixel completed by mirroring where the picture cuts it. (y, x): inside the picture.
DEVICE float ideal_pixel(const FrameArguments &frame, int y, int x, bool &any_saturated) {
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  const int down = (y + frame.phase_y) & 1 ? -1 : 1, right = (x + frame.phase_x) & 1 ? -1 : 1; // to its neighbors
  float z[4];                                                                                  // itself first
  u32 code[4];
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const int my = reflect_mosaic(k / 2 ? y + down : y, height_of(frame));
    const int mx = reflect_mosaic(k % 2 ? x + right : x, width_of(frame));
    const u32 number = raw_pixel(raw + (size_t)my * step_of(frame), mx);
    code[k] = load32(frame.codes + (u32)(my * width_of(frame) + mx));
    z[k] = balanced(frame, raw_number(frame, number), code[k]);
    if (k == 0) any_saturated |= number >= (u32)frame.full_scale;
  }
  const bool rises = ((angle_at(0, 1) - angle_at(0, 0)) & 3) == 1; // by 45 degrees to the right at even pixels
  const float other = z[1] - z[2];
  return limited(corrected(frame, z[0], code[0], z[0] - z[3], rises == ((x ^ y) & 1) ? -other : other));
}

// As `load_tile`; saturation is that of the raw pixels. A thread corrects two rows of four pixels, which hold two
// superpixels. Pixel by pixel at the picture's border; and everywhere where superpixels begin at odd columns, or rows
// are not aligned to words.
DEVICE bool load_tile(const FrameArguments &frame, int y0, int x0, Pair *tile) {
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  const int top = y0 - EDGE_Y, left = x0 - EDGE_X, step = step_of(frame), width = width_of(frame),
            height = height_of(frame);
  const int start = -((top + frame.phase_y) & 1); // of the first superpixels, which can begin above the tile
  const bool is_aligned = !frame.phase_x && (((u64)raw | step) & (QUAD_BYTES - 1)) == 0 && width % 4 == 0;
  bool any = false;
  for (int i = threadIdx.x; i < (RAW_Y / 2 + 1) * QUADS; i += THREADS) {
    const int p = i / QUADS, q = i - p * QUADS, r = start + 2 * p, y = top + r, x = left + 4 * q;
    if (r >= RAW_Y) break;
    if (is_aligned && y >= 0 && y + 1 < height && x >= 0 && x + 4 <= width) {
      LoadedQuad quad[2]; // of the picture's even row, and of its odd one
      float z[2][4], by_angle[2][4];
      const int rows[2] = {r + frame.phase_y, r + 1 - frame.phase_y};
#pragma unroll
      for (int k = 0; k < 2; k++) {
        const int line = top + rows[k];
        load_quad(raw_address(raw, x) + (u32)(line * step), frame.codes + (u32)(line * width + x), quad[k]);
      }
#pragma unroll
      for (int k = 0; k < 2; k++) any |= balance_quad(frame, quad[k], z[k]);
#pragma unroll
      for (int k = 0; k < 8; k++) by_angle[k / 2 % 2][angle_at(k / 4, k % 2)] = z[k / 4][k % 4];
      const Diagonals of[2] = {diagonals_of(by_angle[0]), diagonals_of(by_angle[1])};
#pragma unroll
      for (int k = 0; k < 2; k++)
        if ((u32)rows[k] < RAW_Y) store_quad(frame, quad[k], z[k], k, of, tile + 2 * (rows[k] * QUADS + q));
    } else {
#pragma unroll 1
      for (int k = 0; k < 8; k++) {
        const int row = r + k / 4, column = 4 * q + k % 4;
        if ((u32)row >= RAW_Y) continue;
        const int my = reflect_mosaic(top + row, height), mx = reflect_mosaic(left + column, width);
        ((Single *)(tile + row * RAW_P))[column] = single(ideal_pixel(frame, my, mx, any));
      }
    }
  }
  return any;
}
#endif
