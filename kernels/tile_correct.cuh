// `tile`, first stage with a calibration: raw pixels into shared memory as an ideal sensor would have measured them.
//
// A pixel has four numbers: black level d, gain u, e1 and e2. From its raw value I follows z = (I - d) u; with S1 and S2
// from the z of its superpixel, it becomes z + e1 S1 + e2 S2.
#ifndef POLAR_TILE_CORRECT_CUH
#define POLAR_TILE_CORRECT_CUH
#include "tile_load.cuh"

#if CALIBRATED

// The numbers of a pixel from its 32 bits, of which d has the lowest 8, u 10, e1 and e2 7 each. The bits of a number
// become those of a float between 1 and 2, to which `slope` and `base` belong: no integer is converted.
constexpr u32 ONE = 0x3f800000;
DEVICE float number(const FrameArguments &frame, int k, u32 bits) {
  return fmaf(as_float(bits), frame.slope[k], frame.base[k]);
}
DEVICE float black_of(const FrameArguments &frame, u32 code) { return number(frame, 0, permute(code, ONE, 0x7604)); }
DEVICE float gain_of(const FrameArguments &frame, u32 code) { return number(frame, 1, (code & 0x3ff00) | ONE); }
DEVICE float e1_of(const FrameArguments &frame, u32 code) { return number(frame, 2, (code >> 2 & 0x7f0000) | ONE); }
DEVICE float e2_of(const FrameArguments &frame, u32 code) { return number(frame, 3, (code >> 9 & 0x7f0000) | ONE); }

// z of a raw number, in the units of the tile. scale: what the raw number is multiplied by
DEVICE float balanced(const FrameArguments &frame, u32 raw, u32 code, float scale) {
  if (EXCEEDS) raw = min(raw, (u32)frame.full_scale);
  const float value = as_float(raw | 0x4b000000) - 8388608.0f; // 2^23: the unit is the last bit
  return fmaf(value, scale, -FULL * black_of(frame, code)) * gain_of(frame, code);
}
// what an ideal pixel would have measured: from z, and the z of its superpixel by angle
DEVICE float ideal(const FrameArguments &frame, float z, u32 code, const float (&of)[4]) {
  return fmaf(e1_of(frame, code), of[0] - of[2], fmaf(e2_of(frame, code), of[1] - of[3], z));
}

// Four pixels of a row: what is loaded, and z.
struct LoadedQuad {
  u32 raw[4], code[4];
  float z[4];
};
DEVICE void load_quad(const FrameArguments &frame, const u8 *raw, int y, int x, LoadedQuad &quad) {
  const uint4 w = load128(frame.codes + (u32)(y * width_of(frame) + x));
  aligned_quad(raw_address(raw + (size_t)y * step_of(frame), x), quad.raw);
  quad.code[0] = w.x;
  quad.code[1] = w.y;
  quad.code[2] = w.z;
  quad.code[3] = w.w;
}
DEVICE void store_quad(const FrameArguments &frame, const LoadedQuad &quad, const float (&of)[2][4], Pair *p) {
  float v[4];
#pragma unroll
  for (int k = 0; k < 4; k++) v[k] = ideal(frame, quad.z[k], quad.code[k], of[k / 2]);
  *(Quad *)p = Quad{pair(v[0], v[1]), pair(v[2], v[3])};
}

// One pixel alone, with its superpixel completed by mirroring where the picture cuts it. (y, x): inside the picture.
DEVICE float ideal_pixel(const FrameArguments &frame, int y, int x, float scale, bool &any_saturated) {
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  const int first_y = ((y + frame.phase_y) & ~1) - frame.phase_y, first_x = ((x + frame.phase_x) & ~1) - frame.phase_x;
  float of[4];
#pragma unroll
  for (int k = 0; k < 4; k++) { // by parities of row and column
    const int i = k / 2, j = k % 2;
    const int my = reflect_mosaic(first_y + ((first_y ^ i) & 1), height_of(frame));
    const int mx = reflect_mosaic(first_x + ((first_x ^ j) & 1), width_of(frame));
    of[angle_at(i, j)] = balanced(frame, raw_pixel(raw + (size_t)my * step_of(frame), mx),
                                  load32(frame.codes + (u32)(my * width_of(frame) + mx)), scale);
  }
  const u32 own = raw_pixel(raw + (size_t)y * step_of(frame), x);
  const u32 code = load32(frame.codes + (u32)(y * width_of(frame) + x));
  any_saturated |= own >= (u32)frame.full_scale;
  return ideal(frame, balanced(frame, own, code, scale), code, of);
}

#if HALF_PRECISION
typedef u16 Single; // one of a pair
DEVICE Single single(float value) { return (Single)half2_pack(value, value); }
#else
typedef float Single;
DEVICE Single single(float value) { return value; }
#endif

// As `load_tile`; saturation is that of the raw pixels. A thread corrects two rows of four pixels, which hold two
// superpixels. Pixel by pixel at the picture's border; and everywhere where superpixels begin at odd columns, or rows
// are not aligned to words.
DEVICE bool load_tile(const FrameArguments &frame, int y0, int x0, Pair *tile) {
  const u8 *raw = frame.raw + blockIdx.z * frame.raw_stride;
  const int top = y0 - EDGE_Y, left = x0 - EDGE_X, width = width_of(frame), height = height_of(frame);
  const int start = -((top + frame.phase_y) & 1); // of the first superpixels, which can begin above the tile
  const u32 full_scale = frame.full_scale;
  const float scale = FULL / frame.full_scale;
  const bool is_aligned = !frame.phase_x && (((u64)raw | step_of(frame)) & (QUAD_BYTES - 1)) == 0 && width % 4 == 0;
  bool any = false;
  for (int i = threadIdx.x; i < (RAW_Y / 2 + 1) * QUADS; i += THREADS) {
    const int p = i / QUADS, q = i - p * QUADS, r = start + 2 * p, y = top + r, x = left + 4 * q;
    if (r >= RAW_Y) break;
    if (is_aligned && y >= 0 && y + 1 < height && x >= 0 && x + 4 <= width) {
      const int rows[2] = {r + frame.phase_y, r + 1 - frame.phase_y}; // the even one and the odd one of the picture
      LoadedQuad quad[2];
      float of[2][4];
#pragma unroll
      for (int k = 0; k < 2; k++) load_quad(frame, raw, top + rows[k], x, quad[k]);
#pragma unroll
      for (int k = 0; k < 8; k++) {
        LoadedQuad &own = quad[k / 4];
        own.z[k % 4] = balanced(frame, own.raw[k % 4], own.code[k % 4], scale);
        of[k / 2 % 2][angle_at(k / 4, k % 2)] = own.z[k % 4];
        any |= own.raw[k % 4] >= full_scale;
      }
#pragma unroll
      for (int k = 0; k < 2; k++)
        if ((u32)rows[k] < RAW_Y) store_quad(frame, quad[k], of, tile + 2 * (rows[k] * QUADS + q));
    } else {
#pragma unroll 1
      for (int k = 0; k < 8; k++) {
        const int row = r + k / 4, column = 4 * q + k % 4;
        if ((u32)row >= RAW_Y) continue;
        const int my = reflect_mosaic(top + row, height), mx = reflect_mosaic(left + column, width);
        ((Single *)(tile + row * RAW_P))[column] = single(ideal_pixel(frame, my, mx, scale, any));
      }
    }
  }
  return any;
}
#endif
#endif
