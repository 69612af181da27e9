// `correct.hpp` for 8-bit frames, in 16-bit integers: twice as many pixels at a time.
//
// A level is 64 units. What the correction adds to a raw number is computed in parts of a unit, as small as its range
// admits, so that it is rounded to a unit only once; `polar_pipeline/backends/cpu/correction_words.py` chooses them,
// and makes the words of pixels.
#pragma once
#include "correct.hpp"

namespace {

const int BLOCK = 128, UNITS = 64; // superpixels whose words lie together; of a level

// What the words of a block mean: with a code of 0, and steps.
struct Words {
  int16_t gain, gain_step, offset, offset_step, other, term_step; // a step for both terms; the own one has 0 at 0
  int16_t share;                                                  // a part of a unit, times 2^15
  int16_t zero, full; // what black and full scale become; constants become masks instead of a maximum and a minimum
  int16_t unused[23];
};

// The numbers of the superpixels of a block, by their places: 2 row + column.
struct WordBlock {
  int16_t gains[4][BLOCK]; // less 1; the low byte: the black level times the gain
  int16_t terms[4][BLOCK]; // the own one; the low byte: the other one
  Words meaning;
};

// a b / 2^15, rounded: one instruction on x86-64.
inline int16_t product(int16_t a, int16_t b) { return (int16_t)(((((int32_t)a * b) >> 14) + 1) >> 1); }

// A word's low byte, as a signed number, instead of the word.
inline int16_t low(int16_t word) { return (int16_t)((uint16_t)word << 8); }

// What a raw number's own black level and gain add to it, in parts of a unit, but for what all offsets share.
inline int16_t added(int16_t raw, int16_t word, const Words &by) {
  const int16_t gain = (int16_t)(by.gain + product(word, by.gain_step));
  return (int16_t)(product(raw, gain) - product(low(word), by.offset_step));
}

// The difference of two corrected pixels, in units.
inline int16_t difference(int16_t a, int16_t b, int16_t added_a, int16_t added_b, const Words &by) {
  return (int16_t)(a - b + product((int16_t)(added_a - added_b), by.share));
}

// What the codes of both terms add to a pixel, in parts of a unit; own, other: differences of diagonals, times the
// step.
inline int16_t turned(int16_t word, int16_t own, int16_t other) {
  return (int16_t)(product(word, own) + product(low(word), other));
}

// A corrected pixel, in units; added: in parts of a unit.
inline uint16_t corrected(int16_t raw, int16_t added, const Words &by) {
  int16_t value = (int16_t)(raw + product(added, by.share));
  value = value > by.zero ? value : by.zero;
  value = value < by.full ? value : by.full;
  return (uint16_t)value;
}

typedef int16_t Units[BLOCK];

// Even and odd columns of a row, in units.
inline void split(const uint8_t *raw, int n, int16_t *__restrict even, int16_t *__restrict odd) {
  const Pair<uint8_t>::Word *pairs = (const Pair<uint8_t>::Word *)raw;
  for (int x = 0; x < n; x++) {
    const uint16_t pair = pairs[x];
    even[x] = (int16_t)((pair & 255) * UNITS);
    odd[x] = (int16_t)((pair >> 8) * UNITS);
  }
}

// `n` superpixels, whose raw numbers are in lines by 2 row + column, to such lines. Not inlined: compilers would take
// products with constants, and with shifted numbers, apart.
__attribute__((noinline)) void correct_block(const Units raw[4], const WordBlock &block, int n,
                                             uint16_t *__restrict out00, uint16_t *__restrict out01,
                                             uint16_t *__restrict out10, uint16_t *__restrict out11) {
  const int16_t *__restrict raw00 = raw[0], *__restrict raw01 = raw[1];
  const int16_t *__restrict raw10 = raw[2], *__restrict raw11 = raw[3];
  const int16_t *__restrict gains = block.gains[0], *__restrict terms = block.terms[0];
  const Words by = block.meaning;
  for (int x = 0; x < n; x++) {
    const int16_t i00 = raw00[x], i01 = raw01[x], i10 = raw10[x], i11 = raw11[x];
    const int16_t a00 = added(i00, gains[x], by), a01 = added(i01, gains[BLOCK + x], by);
    const int16_t a10 = added(i10, gains[2 * BLOCK + x], by), a11 = added(i11, gains[3 * BLOCK + x], by);
    const int16_t falling = difference(i00, i11, a00, a11, by), rising = difference(i01, i10, a01, a10, by);
    const int16_t by_falling = product(falling, by.term_step), by_rising = product(rising, by.term_step);
    const int16_t minus_falling = (int16_t)-by_falling;
    const int16_t of_falling = product(falling, by.other), of_rising = product(rising, by.other);
    const int16_t b00 = (int16_t)(of_rising - by.offset), b11 = (int16_t)(of_rising + by.offset);
    const int16_t b10 = (int16_t)(of_falling - by.offset), b01 = (int16_t)(of_falling + by.offset);
    const int16_t t00 = turned(terms[x], by_falling, by_rising);
    const int16_t t01 = turned(terms[BLOCK + x], by_rising, minus_falling);
    const int16_t t10 = turned(terms[2 * BLOCK + x], by_rising, minus_falling);
    const int16_t t11 = turned(terms[3 * BLOCK + x], by_falling, by_rising);
    out00[x] = corrected(i00, (int16_t)(a00 + (b00 + t00)), by);
    out01[x] = corrected(i01, (int16_t)(a01 - (b01 - t01)), by);
    out10[x] = corrected(i10, (int16_t)(a10 + (b10 - t10)), by);
    out11[x] = corrected(i11, (int16_t)(a11 - (b11 + t11)), by);
  }
}

// Rows of superpixels of a corrected 8-bit frame, in units.
class CorrectedBytes {
public:
  typedef uint16_t Value;

  explicit CorrectedBytes(const Mosaic &frame)
      : frame(frame), count(superpixel_columns(frame)), blocks((count + BLOCK - 1) / BLOCK) {}

  // A row of superpixels to a line for each place: 2 row + column.
  void get(int row, uint16_t *const to[4]) const {
    const uint8_t *rows[2];
    for (int k = 0; k < 2; k++)
      rows[k] = (const uint8_t *)frame.raw + inside(2 * row - frame.phase[0] + k, frame.height, false) * frame.step;
    const WordBlock *block = (const WordBlock *)frame.words + (int64_t)row * blocks;
    for (int first = 0; first < count; first += BLOCK, block++) {
      const int left = 2 * first - frame.phase[1], n = count - first < BLOCK ? count - first : BLOCK;
      const uint8_t *from[2] = {rows[0] + left, rows[1] + left};
      uint8_t complete[2][2 * BLOCK];
      const bool is_cut = left < 0 || left + 2 * n > frame.width;
      for (int k = 0; k < 2 && is_cut; k++) {
        for (int x = 0; x < 2 * n; x++) complete[k][x] = rows[k][inside(left + x, frame.width, false)];
        from[k] = complete[k];
      }
      alignas(64) Units raw[4];
      for (int k = 0; k < 2; k++) split(from[k], n, raw[2 * k], raw[2 * k + 1]);
      prefetch(block + AHEAD, sizeof *block);
      correct_block(raw, *block, n, to[0] + first, to[1] + first, to[2] + first, to[3] + first);
    }
  }

private:
  static const int AHEAD = 4; // blocks from the one that is used to the one that is loaded
  const Mosaic &frame;
  const int count, blocks;
};

} // namespace
