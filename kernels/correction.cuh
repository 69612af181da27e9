// The numbers of a calibration for one pixel: how they are packed.
#pragma once
#include "frame.cuh"

// A pixel's 32 bits hold d in the lowest 8, u in 10, e1 and e2 in 7 each. The bits of a number become those of a float
// between 1 and 2, to which `slope` and `base` belong: no integer is converted.
DEVICE float black_bits(const FrameArguments &frame, u32 code) { return as_float(permute(code, frame.one, 0x7604)); }
DEVICE float gain_bits(const FrameArguments &frame, u32 code) { return as_float(and_or(code, 0x3ff00u, frame.one)); }
DEVICE float e1_bits(const FrameArguments &frame, u32 code) {
  return as_float(and_or(code >> 2, 0x7f0000u, frame.one));
}
DEVICE float e2_bits(const FrameArguments &frame, u32 code) {
  return as_float(and_or(code >> 9, 0x7f0000u, frame.one));
}

// z of a raw number; unit: of gains, which are for values from 0 to FULL of `tile`.
DEVICE float balanced(const FrameArguments &frame, float number, u32 code, float unit = 1) {
  const float bright = number + fmaf(black_bits(frame, code), frame.slope[0], frame.base[0]);
  return bright * fmaf(gain_bits(frame, code), frame.slope[1] * unit, frame.base[1] * unit);
}
// e1 S1 + e2 S2 of the pixels of a superpixel: a e1_bits + b e2_bits + c
struct Terms {
  float a, b, c;
};
DEVICE Terms terms_of(const FrameArguments &frame, const float (&z)[4]) { // z by angle
  const float s1 = z[0] - z[2], s2 = z[1] - z[3];
  return Terms{frame.slope[2] * s1, frame.slope[3] * s2, fmaf(frame.base[2], s1, frame.base[3] * s2)};
}
// what an ideal pixel would have measured, not yet limited
DEVICE float corrected(const FrameArguments &frame, float z, u32 code, const Terms &of) {
  return fmaf(e1_bits(frame, code), of.a, fmaf(e2_bits(frame, code), of.b, z + of.c));
}
