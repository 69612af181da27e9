// The correction of bytes in pairs of half: of the same pixel of two neighbouring superpixels. Included by
// `mono_half_correct.cuh`.
//
// A byte is exact in half, and what the correction adds to it is small. That alone is computed, to the last sum: so the
// corrected value is rounded once.

// A byte becomes a subnormal half without arithmetic, of which this factor, the largest half, makes almost 1 of 255.
// What is missing is in the gain.
constexpr double BYTE_UNIT = 65504;
// Bits of a number of two pixels become those of halves between 1 and 2, to which `half_slope` and `half_base` belong:
// they make of them minus the black level, the gain less 1, e1 and e2.
template <int NUMBER> DEVICE Pair number_of(const FrameArguments &frame, u32 bits, u32 mask) {
  return fma(and_or(bits, mask, splat(1)), frame.half_slope[NUMBER], frame.half_base[NUMBER]);
}
// What black level and gain add to bytes; first, second: the codes of the two pixels.
DEVICE Pair balance(const FrameArguments &frame, Pair bytes, u32 first, u32 second) {
  const Pair black = number_of<0>(frame, lows(first, second), 0x00ff00ffu);
  const Pair gain = number_of<1>(frame, permute(first, second, 0x6521), 0x03ff03ffu);
  return fma(fma(bytes, splat(BYTE_UNIT), black), gain, black);
}

DEVICE void correct(const FrameArguments &frame, const LoadedRow &of, CorrectedRow &to) {
#pragma unroll
  for (int p = 0; p < PIXELS / 2; p++) {
    Pair bytes[4], change[4], z[4]; // by angle
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int r = k / 2, c = k % 2, a = angle_at(r, c);
      bytes[a] = permute(of.line[r].w[p], 0u, c ? 0x4341 : 0x4240);
      change[a] = balance(frame, bytes[a], of.code[r][4 * p + c], of.code[r][4 * p + 2 + c]);
      z[a] = fma(bytes[a], splat(BYTE_UNIT), change[a]);
    }
    const Pair s1 = sub(z[0], z[2]), s2 = sub(z[1], z[3]);
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const int r = k / 2, c = k % 2, a = angle_at(r, c);
      const u32 terms = highs(of.code[r][4 * p + c], of.code[r][4 * p + 2 + c]);
      const Pair e1 = number_of<2>(frame, terms, 0x01fc01fcu), e2 = number_of<3>(frame, terms >> 7, 0x01fc01fcu);
      to.at[r][c][p] = fma_saturate(bytes[a], splat(BYTE_UNIT), fma(e2, s2, fma(e1, s1, change[a])));
    }
  }
}
