// The numbers of a calibration for one pixel: how they are packed.
#ifndef POLAR_CORRECTION_CUH
#define POLAR_CORRECTION_CUH
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
#endif
