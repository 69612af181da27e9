// The numbers of a calibration for one pixel: how they are packed.
#pragma once
#include "frame.cuh"

// A pixel's 32 bits hold d in the lowest 8, u in 10, the own and the other term in 7 each. The bits of a number become
// those of a float between 1 and 2, to which `slope` and `base` belong: no integer is converted.
DEVICE float black_bits(const FrameArguments &frame, u32 code) { return as_float(permute(code, frame.one, 0x7604)); }
DEVICE float gain_bits(const FrameArguments &frame, u32 code) { return as_float(and_or(code, 0x3ff00u, frame.one)); }
DEVICE float own_bits(const FrameArguments &frame, u32 code) {
  return as_float(and_or(code >> 2, 0x7f0000u, frame.one));
}
DEVICE float other_bits(const FrameArguments &frame, u32 code) {
  return as_float(and_or(code >> 9, 0x7f0000u, frame.one));
}

// z of a raw number, as a share of full scale.
DEVICE float balanced(const FrameArguments &frame, float number, u32 code) {
  const float bright = number + fmaf(black_bits(frame, code), frame.slope[0], frame.base[0]);
  return bright * fmaf(gain_bits(frame, code), frame.slope[1], frame.base[1]);
}
// What an ideal pixel would have measured, not yet limited. own, other: z[t] - z[t + 90] and z[t + 45] - z[t + 135] of
// its superpixel, for its nominal angle t.
DEVICE float corrected(const FrameArguments &frame, float z, u32 code, float own, float other) {
  const float by_other = fmaf(fmaf(other_bits(frame, code), frame.slope[3], frame.base[3]), other, z);
  // The own term from its parts: with a register for its base, 12-bit frames would spill on sm_72.
  return fmaf(own_bits(frame, code), frame.slope[2] * own, fmaf(frame.base[2], own, by_other));
}
// The differences S1, S2, -S1 and -S2: the own ones by angle, whose other ones are those of the next angle.
struct Diagonals {
  float by_angle[4];
};
DEVICE Diagonals diagonals_of(const float (&z)[4]) { // z by angle
  const float s1 = z[0] - z[2], s2 = z[1] - z[3];
  return Diagonals{{s1, s2, -s1, -s2}};
}
DEVICE float corrected(const FrameArguments &frame, float z, u32 code, int angle, const Diagonals &of) {
  return corrected(frame, z, code, of.by_angle[angle], of.by_angle[(angle + 1) % 4]);
}
