// The correction of every format in float. Included by `mono_half_correct.cuh`.

// z of a raw number; a gain is for values from 0 to 1, where that of `tile` is for those from 0 to 255/32.
constexpr float GAIN_UNIT = 32 / 255.0f;
DEVICE float balanced(const FrameArguments &frame, float number, u32 code) {
  const float bright = number + fmaf(black_bits(frame, code), frame.slope[0], frame.base[0]);
  return bright * fmaf(gain_bits(frame, code), frame.slope[1] * GAIN_UNIT, frame.base[1] * GAIN_UNIT);
}

DEVICE void correct(const FrameArguments &frame, const LoadedRow &of, CorrectedRow &to) {
#pragma unroll
  for (int p = 0; p < PIXELS / 2; p++) {
    float found[2][2][2]; // by row, column and superpixel
#pragma unroll
    for (int h = 0; h < 2; h++) {
      const int first = 4 * p + 2 * h;
      float z[4]; // by angle
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const Lanes lanes = {lanes_of(of.line[k / 2], 2 * p + h)};
        const u32 bits = k % 2 ? offset_bits<1>(lanes) : offset_bits<0>(lanes);
        z[angle_at(k / 2, k % 2)] = balanced(frame, as_float(bits) - OFFSET, of.code[k / 2][first + k % 2]);
      }
      const float s1 = z[0] - z[2], s2 = z[1] - z[3], a = frame.slope[2] * s1, b = frame.slope[3] * s2,
                  c = fmaf(frame.base[2], s1, frame.base[3] * s2);
#pragma unroll
      for (int k = 0; k < 4; k++) {
        const u32 code = of.code[k / 2][first + k % 2];
        const float rest = fmaf(e2_bits(frame, code), b, z[angle_at(k / 2, k % 2)] + c);
        found[k / 2][k % 2][h] = saturate(fmaf(e1_bits(frame, code), a, rest));
      }
    }
#pragma unroll
    for (int k = 0; k < 4; k++) to.at[k / 2][k % 2][p] = pair(found[k / 2][k % 2][0], found[k / 2][k % 2][1]);
  }
}
