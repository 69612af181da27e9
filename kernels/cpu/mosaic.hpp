// A raw mosaic.
#pragma once
#include "frame.hpp"

namespace {

// How the angles that a pixel lacks are interpolated, in the order of `DEMOSAICS` in
// `polar_pipeline/backends/cpu/arguments.py`; `with_method` has their code.
enum Method { OWN_SITE, BILINEAR, GRADIENT, ADAPTIVE };

// Two raw pixels side by side, at any address; the first one is the low half (little endian).
template <class Raw> struct Pair;
template <> struct Pair<uint8_t> {
  typedef uint16_t __attribute__((aligned(1), may_alias)) Word;
  typedef uint16_t Sum;
};
template <> struct Pair<uint16_t> {
  typedef uint32_t __attribute__((aligned(2), may_alias)) Word;
  typedef uint32_t Sum;
};

// Superpixels in a row, those that the border cuts included.
inline int superpixel_columns(const Mosaic &frame) { return (frame.width + frame.phase[1] + 1) >> 1; }

// Index `at`, or where it is beyond the border the nearest one inside whose pixel has the same polarizer, and with a
// color lattice the same color; at most 2 beyond.
inline int inside(int at, int size, bool is_color) {
  const int period = is_color ? 4 : 2;
  return at < 0 ? at + period : at < size ? at : at - period;
}

// Index `at` mirrored about the first and the last one, which keeps the parity; at most `size - 1` beyond either.
inline int mirrored(int at, int size) {
  at = at < 0 ? -at : at;
  return at < size ? at : 2 * (size - 1) - at;
}

} // namespace
