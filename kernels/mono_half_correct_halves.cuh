// The correction of bytes in pairs of half: of the same pixel of two neighbouring superpixels. Included by
// `mono_half_correct.cuh`.

// Bits of a number of two pixels become those of halves between 1 and 2, to which `half_slope` and `half_base` belong.
template <int NUMBER> DEVICE Pair number_of(const FrameArguments &frame, u32 bits, u32 mask) {
  return fma(and_or(bits, mask, splat(1)), frame.half_slope[NUMBER], frame.half_base[NUMBER]);
}
// z of two raw bytes, as subnormal halves. BYTE_UNIT, the largest half, makes almost 1 of 255; what is missing is in
// the gain, of which `number_of` gives what it is above 1: it is small, and loses least in half.
constexpr double BYTE_UNIT = 65504;
DEVICE Pair balanced(const FrameArguments &frame, u32 bytes, u32 first, u32 second) {
  const Pair black = number_of<0>(frame, lows(first, second), 0x00ff00ffu);
  const Pair gain = number_of<1>(frame, permute(first, second, 0x6521), 0x03ff03ffu);
  const Pair bright = fma(bytes, splat(BYTE_UNIT), black);
  return fma(bright, gain, bright);
}

DEVICE void correct(const FrameArguments &frame, const LoadedRow &of, CorrectedRow &to) {
#pragma unroll
  for (int p = 0; p < PIXELS / 2; p++) {
    Pair z[4]; // by angle
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int r = k / 2, c = k % 2;
      z[angle_at(r, c)] = balanced(frame, permute(of.line[r].w[p], 0u, c ? 0x4341 : 0x4240), of.code[r][4 * p + c],
                                   of.code[r][4 * p + 2 + c]);
    }
    const Pair s1 = sub(z[0], z[2]), s2 = sub(z[1], z[3]);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int r = k / 2, c = k % 2;
      const u32 terms = highs(of.code[r][4 * p + c], of.code[r][4 * p + 2 + c]);
      const Pair e1 = number_of<2>(frame, terms, 0x01fc01fcu), e2 = number_of<3>(frame, terms >> 7, 0x01fc01fcu);
      to.at[r][c][p] = fma_saturate(e2, s2, fma(e1, s1, z[angle_at(r, c)]));
    }
  }
}
