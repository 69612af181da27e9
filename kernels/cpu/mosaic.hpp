// A raw mosaic.
#pragma once
#include <cstdint>

namespace {

// How the angles that a pixel lacks are found; the numbers are those of `METHODS` in `polar_pipeline/cpu/kernels.py`.
enum Method { OWN_SITE, BILINEAR, GRADIENT, ADAPTIVE };

struct Mosaic {
  const void *raw; // uint8, or uint16 if `is_wide`
  int64_t step;    // bytes from one row to the next
  int32_t is_wide;
  int32_t height, width;     // raw pixels
  int32_t method;            // Method
  int32_t half;              // the output has a pixel for each superpixel
  int32_t place[4];          // 2 row + column in the tile of 0, 45, 90, 135 degrees
  int32_t full_scale;        // of a saturated pixel; larger numbers mean this one
  int32_t next;              // first row, or tile, of the output that no thread has taken
  int32_t is_color;          // its superpixels have colours; then only `correct_frame` takes it
  int32_t phase[2];          // added to a row and a column, it makes those even that superpixels begin with
  const uint32_t *codes;     // (height, width) parameters by which pixels are corrected; null: they are ideal
  float lowest[4], steps[4]; // what the codes mean
  const void *words;         // instead of the codes, for 8-bit frames at half resolution: `WordBlock`s; null: none
};

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
// colour lattice the same colour; at most 2 beyond.
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
