// One column of the two images that `ssim_registers.cuh` compares. A `Sample` is kept as it was loaded, so that nothing
// waits for the load until it is compared.
#ifndef POLAR_SSIM_COLUMNS_CUH
#define POLAR_SSIM_COLUMNS_CUH

constexpr int SAMPLE_BYTES = INPUT == INPUT_FIXED ? 2 : 4;
constexpr int ROW_BYTES = STRIDE * WIDTH * SAMPLE_BYTES; // from one row of the map to the next

// Integers are computed with as 0.5 + value / 65536 (`lane_as_float`).
DEVICE float value_of(u32 loaded) {
  return INPUT == INPUT_FIXED && STRIDE == 1 ? lane_as_float<0>(loaded) : as_float(loaded);
}
DEVICE u32 load_value(const u8 *p) { return INPUT == INPUT_FIXED ? load16(p) : load32(p); }
// a pixel as it lies in memory, or the mean of STRIDE x STRIDE pixels as float
DEVICE u32 load_pixel(const u8 *p) {
#if STRIDE == 1
  return load_value(p);
#else
  u32 integers = 0;
  float floats = 0;
#if STRIDE > 2
#pragma unroll 1
#else
#pragma unroll
#endif
  for (int i = 0; i < STRIDE; i++)
#pragma unroll
    for (int j = 0; j < STRIDE; j++) {
      const u32 value = load_value(p + (i * WIDTH + j) * SAMPLE_BYTES);
      integers += value;
      floats += as_float(value);
    }
  constexpr float share = 1.0f / (STRIDE * STRIDE);
  return as_bits(INPUT == INPUT_FIXED ? fmaf((float)integers, share / 65536, 0.5f) : floats * share);
#endif
}

struct Sample {
  u32 first, second;
  DEVICE float sum() const { return value_of(first) + value_of(second) - (INPUT == INPUT_FIXED ? 1.0f : 0.0f); }
  DEVICE float difference() const { return value_of(first) - value_of(second); }
};

struct Column {
  const u8 *first, *second;
  DEVICE Column(const Comparison &task, int x, int y) {
    const int start = x * (STRIDE * SAMPLE_BYTES) + y * ROW_BYTES;
    first = task.first + blockIdx.z * task.first_stride + start;
    second = task.second + blockIdx.z * task.second_stride + start;
  }
  DEVICE Sample at(int rows) const {
    return Sample{load_pixel(first + rows * ROW_BYTES), load_pixel(second + rows * ROW_BYTES)};
  }
  DEVICE Sample mirrored_at(int y, int own) const { return at(mirrored<MAP_HEIGHT>(y) - own); }
  DEVICE void advance(int rows) {
    first += rows * ROW_BYTES;
    second += rows * ROW_BYTES;
  }
};
#endif
