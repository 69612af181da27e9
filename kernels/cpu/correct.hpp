// What ideal pixels would have measured: `polar_pipeline/calibration/__init__.py` has the model.
#pragma once
#include "lines.hpp"

namespace {

// What the codes of pixels mean, as `polar_pipeline/calibration/quantization.py` has it; and `full`, what full scale
// becomes, by which gains are multiplied.
struct Correction {
  float black, gain, first, second; // lowest numbers: black level, gain, what corrects by S1 and by S2
  float black_step, gain_step, first_step, second_step;
  float share, full; // of full scale that one raw number is; what full scale becomes
  int32_t full_scale;
  // Pixels opposite each other have orthogonal polarizers, so that S1 and S2 are the differences of the two diagonals
  // of a superpixel, 00 - 11 and 01 - 10, in either order and with either sign: factors 1, -1 and 0.
  float s1[2], s2[2];

  Correction(const Mosaic &frame, float full)
      : black(frame.lowest[0]), gain(frame.lowest[1] * full), first(frame.lowest[2]), second(frame.lowest[3]),
        black_step(frame.steps[0]), gain_step(frame.steps[1] * full), first_step(frame.steps[2]),
        second_step(frame.steps[3]), share(1.0f / (float)frame.full_scale), full(full), full_scale(frame.full_scale),
        s1(), s2() {
    const int start = 2 * frame.phase[0] + frame.phase[1];
    const int zero = frame.place[0] ^ start, diagonal = frame.place[1] ^ start; // 2 row + column in a superpixel
    s1[zero == 1 || zero == 2] = zero < 2 ? 1.0f : -1.0f;
    s2[diagonal == 1 || diagonal == 2] = diagonal < 2 ? 1.0f : -1.0f;
  }

  // A raw number without black level, and of equal gain.
  template <class Raw> float normalised(Raw number, uint32_t code) const {
    const Raw full = (Raw)full_scale, limited = number < full ? number : full;
    return ((float)(int32_t)limited * share - (black + black_step * (float)(int32_t)(code & 255))) *
           (gain + gain_step * (float)(int32_t)(code >> 8 & 1023));
  }
  float corrected(float z, uint32_t code, float by_s1, float by_s2) const {
    const float e1 = first + first_step * (float)(int32_t)(code >> 18 & 127);
    const float e2 = second + second_step * (float)(int32_t)(code >> 25);
    return clipped(z + e1 * by_s1 + e2 * by_s2, 0.0f, full);
  }
};

// A row of superpixels: two raw rows and their codes, to even and odd columns of both rows.
template <class Raw>
void correct(const Raw *__restrict upper, const Raw *__restrict lower, const uint32_t *__restrict upper_codes,
             const uint32_t *__restrict lower_codes, int n, const Correction by, float *__restrict out00,
             float *__restrict out01, float *__restrict out10, float *__restrict out11) {
  for (int x = 0; x < n; x++) {
    const uint32_t c00 = upper_codes[2 * x], c01 = upper_codes[2 * x + 1];
    const uint32_t c10 = lower_codes[2 * x], c11 = lower_codes[2 * x + 1];
    const float z00 = by.normalised(upper[2 * x], c00), z01 = by.normalised(upper[2 * x + 1], c01);
    const float z10 = by.normalised(lower[2 * x], c10), z11 = by.normalised(lower[2 * x + 1], c11);
    const float falling = z00 - z11, rising = z01 - z10;
    const float s1 = by.s1[0] * falling + by.s1[1] * rising, s2 = by.s2[0] * falling + by.s2[1] * rising;
    out00[x] = by.corrected(z00, c00, s1, s2);
    out01[x] = by.corrected(z01, c01, s1, s2);
    out10[x] = by.corrected(z10, c10, s1, s2);
    out11[x] = by.corrected(z11, c11, s1, s2);
  }
}

// Rows of superpixels of a corrected frame, from 0 to `full`. Superpixels that the border cuts are completed by
// mirroring about its last pixel, or, with a colour lattice, about the last one of that colour.
template <class Raw> class CorrectedSuperpixels {
public:
  const Mosaic &frame;

  CorrectedSuperpixels(const Mosaic &frame, float full) : frame(frame), by(frame, full) {}

  // `count` superpixels of a row of them, from the superpixel `first` on, to a line for each place: 2 row + column.
  void get(int row, int first, int count, float *const to[4]) const {
    int rows[2];
    for (int k = 0; k < 2; k++) rows[k] = inside(2 * row - frame.phase[0] + k, frame.height);
    const int left = 2 * first - frame.phase[1], cut = left < 0, begin = left + 2 * cut;
    const int complete = left + 2 * count > frame.width ? count - 1 : count;
    correct_part(raw(rows[0]) + begin, raw(rows[1]) + begin, codes(rows[0]) + begin, codes(rows[1]) + begin,
                 complete - cut, to, cut);
    if (cut) get_cut(rows, left, to, 0);
    if (complete < count) get_cut(rows, left + 2 * complete, to, complete);
  }

private:
  const Correction by;

  // A row or column, one of which may lie beyond the border.
  int inside(int at, int size) const {
    const int period = frame.is_color ? 4 : 2;
    return at < 0 ? at + period : at < size ? at : at - period;
  }

  // The superpixel at a column, one of whose two columns lies beyond the border.
  void get_cut(const int rows[2], int left, float *const to[4], int at) const {
    Raw pixels[2][2];
    uint32_t of[2][2];
    for (int k = 0; k < 4; k++) {
      const int y = rows[k >> 1], x = inside(left + (k & 1), frame.width);
      pixels[k >> 1][k & 1] = raw(y)[x];
      of[k >> 1][k & 1] = codes(y)[x];
    }
    correct_part(pixels[0], pixels[1], of[0], of[1], 1, to, at);
  }

  void correct_part(const Raw *upper, const Raw *lower, const uint32_t *upper_codes, const uint32_t *lower_codes, int n,
                    float *const to[4], int at) const {
    correct(upper, lower, upper_codes, lower_codes, n, by, to[0] + at, to[1] + at, to[2] + at, to[3] + at);
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
