// Products of 16 pixels x 16 channels and 16 x 16 weights, summed in float: what a warp computes on tensor cores.
//
// Lane 4 g + t gives, and gets, channels 4 t to 4 t + 3 of pixels g and g + 8. From sm_80 on, these are the elements
// that a lane has in its registers, with weights in a suitable order (`order_of_tile` in
// polar_pipeline/backends/cuda/learned.py). On sm_70 to sm_75 lanes exchange them in `scratch`, shared memory of the
// warp.
#pragma once
#include "cuda.cuh"

constexpr int MATRIX = 16; // rows and columns
// A tile of 16 x 16 weights has them twice: output by output, and then in the order of lanes.
constexpr int WEIGHTS_OF_LANES = 2 * MATRIX * MATRIX, WEIGHT_BYTES = 2 * WEIGHTS_OF_LANES;
constexpr int SCRATCH_BYTES = 4 * MATRIX * MATRIX; // of a warp
// Halves from pixel to pixel of an image in shared memory: with eight more, eight pixels lie in different banks.
CONSTANT int pitch_of(int channels) { return HAS_TENSOR ? channels + 8 : channels; }

// Channels 4 t to 4 t + 3 of a pixel.
typedef uint2 Halves;
struct Floats {
  float value[4];
};
DEVICE Halves halves_of(const Floats &v) {
  return make_uint2(half2_pack(v.value[0], v.value[1]), half2_pack(v.value[2], v.value[3]));
}
DEVICE Floats floats_of(const Halves &v) {
  return Floats{{half2_low(v.x), half2_high(v.x), half2_low(v.y), half2_high(v.y)}};
}
DEVICE int lane_pixel() { return threadIdx.x % 32 / 4; }  // g
DEVICE int lane_channel() { return threadIdx.x % 4 * 4; } // 4 t

#if HAS_TENSOR
typedef MatrixA Pixels;
struct Weights {
  MatrixB half[2];
};
struct Sums {
  MatrixC half[2];
};
DEVICE Pixels load_pixels(const u16 *first, int pitch) { return load_matrix(first, pitch); }
DEVICE Weights load_weights(const u8 *tile) {
  const uint4 v = load128(tile + WEIGHTS_OF_LANES + threadIdx.x % 32 * 16);
  return Weights{{{{v.x, v.y}}, {{v.z, v.w}}}};
}
DEVICE Pixels pixels_of(const Halves (&v)[2], float *) { return Pixels{{v[0].x, v[1].x, v[0].y, v[1].y}}; }
DEVICE void add_product(Sums &sums, const Pixels &pixels, const Weights &weights) {
#pragma unroll
  for (int k = 0; k < 2; k++) tensor_multiply_add(sums.half[k], pixels, weights.half[k]);
}
DEVICE void values_of(const Sums &sums, float *, Floats (&to)[2]) {
#pragma unroll
  for (int k = 0; k < 8; k++) to[k / 2 % 2].value[k / 4 * 2 + k % 2] = sums.half[k / 4].value[k % 4];
}
#else
typedef PackedMatrix Pixels;
typedef PackedMatrix Weights;
typedef PackedSum Sums;
DEVICE Pixels load_pixels(const u16 *first, int pitch) { return load_packed_rows(first, pitch); }
DEVICE Weights load_weights(const u8 *tile) { return load_packed_columns(tile); }
DEVICE Pixels pixels_of(const Halves (&v)[2], float *scratch) {
  u16 *rows = (u16 *)scratch + lane_pixel() * MATRIX + lane_channel();
  sync_warp();
#pragma unroll
  for (int k = 0; k < 2; k++) *(Halves *)(rows + 8 * k * MATRIX) = v[k];
  sync_warp();
  return load_packed_rows((u16 *)scratch, MATRIX);
}
DEVICE void add_product(Sums &sums, const Pixels &pixels, const Weights &weights) {
  packed_multiply_add(sums, pixels, weights);
}
DEVICE void values_of(const Sums &sums, float *scratch, Floats (&to)[2]) {
  sync_warp();
  store_packed(scratch, sums);
  sync_warp();
#pragma unroll
  for (int k = 0; k < 2; k++) {
    const float4 v = *(const float4 *)(scratch + (lane_pixel() + 8 * k) * MATRIX + lane_channel());
    to[k] = Floats{{v.x, v.y, v.z, v.w}};
  }
}
#endif
