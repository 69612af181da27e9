// What ideal pixels would have measured: `polar_pipeline/calibration/__init__.py` has the model.
#pragma once
#include "lines.hpp"
#include <cstring>

namespace {

// The bits `mask` of `bits` as a share of the highest of them, doubled, plus 1: they become those of a float in [1, 2).
// One instruction where a processor has one for two logical operations; a conversion would need two more.
inline float fraction(uint32_t bits, uint32_t mask) {
  const uint32_t word = (bits & mask) | 0x3f800000;
  float number;
  std::memcpy(&number, &word, sizeof number);
  return number;
}

// What the codes of pixels mean, as `polar_pipeline/calibration/quantization.py` has it; and `full`, what full scale
// becomes, by which gains are multiplied. Steps are of the code itself for the black level, else of its `fraction`.
//
// Pixels opposite each other have orthogonal polarizers: a pixel's own term multiplies the difference along its
// diagonal of the superpixel, the other term the difference along the other diagonal, with the sign of
// `diagonal_scales` in `polar_pipeline/calibration/correction.py`.
struct Correction {
  float black, gain, own, other; // at code 0, or at the fraction 0
  float black_step, gain_step, own_step, other_step;
  float share;      // of full scale that one raw number is
  float zero, full; // what black and full scale become; a constant 0 becomes a mask instead of a maximum
  int32_t full_scale;

  Correction(const Mosaic &frame, float full)
      : black(frame.lowest[0]), black_step(frame.steps[0]), gain_step(frame.steps[1] * full * 32768),
        own_step(frame.steps[2] * 128), other_step(frame.steps[3] * 128), share(1.0f / (float)frame.full_scale),
        zero(0), full(full), full_scale(frame.full_scale) {
    // From the rounded steps, so that their rounding counts only for the bits, not for the 1.
    gain = (float)((double)frame.lowest[1] * full - gain_step);
    own = (float)((double)frame.lowest[2] - own_step);
    other = (float)((double)frame.lowest[3] - other_step);
  }

  // A raw number without the lowest black level, as a share of full scale.
  template <class Number> float light(Number number) const {
    const Number full = (Number)full_scale, limited = number < full ? number : full;
    return (float)(int32_t)limited * share - black;
  }
  // The same without its own black level, and of equal gain.
  float normalized(float light, uint32_t code) const {
    return (light - black_step * (float)(int32_t)(code & 255)) * (gain + gain_step * fraction(code, 0x3ff00));
  }
  // z corrected by the differences of the two diagonals.
  float corrected(float z, uint32_t code, float own_difference, float other_difference) const {
    const float own_term = own + own_step * fraction(code >> 2, 0x7f0000);
    const float other_term = other + other_step * fraction(code >> 9, 0x7f0000);
    return clipped(z + own_term * own_difference + other_term * other_difference, zero, full);
  }
};

const int PART = 256; // superpixels corrected at a time: four lines of floats, and twice as many bytes of codes
typedef float Part[PART];

// `Correction::light` of even and odd columns.
template <class Raw>
void lights(const Raw *raw, int n, const Correction by, float *__restrict even, float *__restrict odd) {
  typedef typename Pair<Raw>::Sum Number;
  const typename Pair<Raw>::Word *pairs = (const typename Pair<Raw>::Word *)raw;
  const int bits = 8 * sizeof(Raw);
  const Number low = (Number)((1ull << bits) - 1);
  for (int x = 0; x < n; x++) {
    const Number pair = pairs[x];
    even[x] = by.light((Number)(pair & low));
    odd[x] = by.light((Number)(pair >> bits));
  }
}

// The other numbers of a superpixel are in four lines by 2 row + column: `light`, and what is stored.
inline void correct_part(const Part light[4], const uint32_t *__restrict upper_codes,
                         const uint32_t *__restrict lower_codes, int n, const Correction by, float *__restrict out00,
                         float *__restrict out01, float *__restrict out10, float *__restrict out11) {
  const float *__restrict light00 = light[0], *__restrict light01 = light[1];
  const float *__restrict light10 = light[2], *__restrict light11 = light[3];
  for (int x = 0; x < n; x++) {
    const uint32_t c00 = upper_codes[2 * x], c01 = upper_codes[2 * x + 1];
    const uint32_t c10 = lower_codes[2 * x], c11 = lower_codes[2 * x + 1];
    const float z00 = by.normalized(light00[x], c00), z01 = by.normalized(light01[x], c01);
    const float z10 = by.normalized(light10[x], c10), z11 = by.normalized(light11[x], c11);
    const float falling = z00 - z11, rising = z01 - z10;
    out00[x] = by.corrected(z00, c00, falling, rising);
    out01[x] = by.corrected(z01, c01, rising, -falling);
    out10[x] = by.corrected(z10, c10, -rising, falling);
    out11[x] = by.corrected(z11, c11, -falling, -rising);
  }
}

// Has bytes loaded into the second-level cache that are needed later; they may lie anywhere.
inline void prefetch(const void *from, int bytes) {
  for (int k = 0; k < bytes; k += 64) __builtin_prefetch((const char *)from + k, 0, 2);
}

// A row of superpixels: two raw rows and their codes, to even and odd columns of both rows.
// `ahead`: codes that are needed later, as many of each of two rows; null: none.
template <class Raw>
void correct(const Raw *const raw[2], const uint32_t *const codes[2], const uint32_t *const ahead[2], int n,
             const Correction &by, float *const to[4]) {
  alignas(64) Part light[4];
  for (int x = 0; x < n; x += PART) {
    const int count = n - x < PART ? n - x : PART;
    for (int k = 0; k < 2; k++) {
      if (ahead[k]) prefetch(ahead[k] + 2 * x, 8 * count);
      lights(raw[k] + 2 * x, count, by, light[2 * k], light[2 * k + 1]);
    }
    correct_part(light, codes[0] + 2 * x, codes[1] + 2 * x, count, by, to[0] + x, to[1] + x, to[2] + x, to[3] + x);
  }
}

// Rows of superpixels of a corrected frame, from 0 to `full`. Superpixels that the border cuts are completed by
// mirroring about its last pixel, or, with a color lattice, about the last one of that color.
template <class Raw> class CorrectedSuperpixels {
public:
  typedef float Value;
  const Mosaic &frame;

  explicit CorrectedSuperpixels(const Mosaic &frame, float full = 255.0f) : frame(frame), by(frame, full) {}

  // All superpixels of a row of them.
  void get(int row, float *const to[4]) const { get(row, 0, superpixel_columns(frame), to); }

  // `count` superpixels of a row of them, from the superpixel `first` on, to a line for each place: 2 row + column.
  void get(int row, int first, int count, float *const to[4]) const {
    int rows[2];
    for (int k = 0; k < 2; k++) rows[k] = inside(2 * row - frame.phase[0] + k, frame.height, frame.is_color);
    const int left = 2 * first - frame.phase[1], cut = left < 0, begin = left + 2 * cut;
    const int complete = left + 2 * count > frame.width ? count - 1 : count;
    const Raw *const raws[2] = {raw(rows[0]) + begin, raw(rows[1]) + begin};
    const uint32_t *const of[2] = {codes(rows[0]) + begin, codes(rows[1]) + begin};
    const uint32_t *ahead[2];
    for (int k = 0; k < 2; k++)
      ahead[k] = rows[k] + AHEAD < frame.height ? of[k] + (int64_t)AHEAD * frame.width : nullptr;
    float *const lines[4] = {to[0] + cut, to[1] + cut, to[2] + cut, to[3] + cut};
    correct(raws, of, ahead, complete - cut, by, lines);
    if (cut) get_cut(rows, left, to, 0);
    if (complete < count) get_cut(rows, left + 2 * complete, to, complete);
  }

private:
  // Raw rows from those that are corrected to those whose codes are loaded: pages of codes are left often, and the
  // processor's own prefetching ends with each.
  static const int AHEAD = 4;
  const Correction by;

  // The superpixel at a column, one of whose two columns lies beyond the border.
  void get_cut(const int rows[2], int left, float *const to[4], int at) const {
    Raw pixels[2][2];
    uint32_t of[2][2];
    for (int k = 0; k < 4; k++) {
      const int y = rows[k >> 1], x = inside(left + (k & 1), frame.width, frame.is_color);
      pixels[k >> 1][k & 1] = raw(y)[x];
      of[k >> 1][k & 1] = codes(y)[x];
    }
    const Raw *const raws[2] = {pixels[0], pixels[1]};
    const uint32_t *const of_rows[2] = {of[0], of[1]}, *const none[2] = {nullptr, nullptr};
    float *const lines[4] = {to[0] + at, to[1] + at, to[2] + at, to[3] + at};
    correct(raws, of_rows, none, 1, by, lines);
  }

  const Raw *raw(int y) const { return (const Raw *)((const char *)frame.raw + y * frame.step); }
  const uint32_t *codes(int y) const { return frame.codes + (int64_t)y * frame.width; }
};

void interleave(const float *__restrict even, const float *__restrict odd, int n, float *__restrict out) {
  for (int x = 0; x < n; x++) {
    out[2 * x] = even[x];
    out[2 * x + 1] = odd[x];
  }
}

// Lines of a corrected frame, from 0 to `full`, in parts of at most a tile with its halo.
template <class Raw> class CorrectedLines {
public:
  explicit CorrectedLines(const Mosaic &frame, float full = 255.0f)
      : frame(frame), superpixels(frame, full), row(-1), first(0), count(0) {}

  // Columns left .. left + n of row `y`, both of which may lie beyond the border: then mirrored about its last pixel.
  void load(int y, int left, int n, float *__restrict out) {
    y = mirrored(y, frame.height);
    const int begin = left < 0 ? 0 : left, end = left + n > frame.width ? frame.width : left + n;
    correct(y, begin, end);
    const int below = (y + frame.phase[0]) & 1;
    interleave(parts[2 * below], parts[2 * below + 1], count, line);
    const float *__restrict from = line + frame.phase[1] - 2 * first;
    for (int x = begin; x < end; x++) out[x - left] = from[x];
    for (int x = left; x < begin; x++) out[x - left] = from[mirrored(x, frame.width)];
    for (int x = end; x < left + n; x++) out[x - left] = from[mirrored(x, frame.width)];
  }

private:
  static const int SUPERPIXELS = COLUMNS / 2 + MARGIN;
  const Mosaic &frame;
  const CorrectedSuperpixels<Raw> superpixels;
  int row, first, count; // of the superpixels in `parts`
  float parts[4][SUPERPIXELS];
  float line[2 * SUPERPIXELS];

  // Fills `parts` with the superpixels of row `y` that include columns begin .. end.
  void correct(int y, int begin, int end) {
    const int at = (y + frame.phase[0]) >> 1, start = (begin + frame.phase[1]) >> 1;
    const int n = ((end + frame.phase[1] + 1) >> 1) - start;
    if (row == at && first == start && count == n) return; // the other row of the same superpixels
    row = at;
    first = start;
    count = n;
    float *const to[4] = {parts[0], parts[1], parts[2], parts[3]};
    superpixels.get(row, first, count, to);
  }
};

} // namespace
