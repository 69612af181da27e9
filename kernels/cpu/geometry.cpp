// From the linear planes of a frame to its products in another geometry: scaled, rotated, cut and rectified.
//
// An output pixel is the mean of `scale` x `scale` samples of (I0 + I90, I45 + I135, S1, S2), whose S1 and S2 are then
// turned. A sample is a pixel, or lies between four. `polar_pipeline/geometry/sampling.py` makes the maps.
#include "color.hpp"

namespace {

typedef float Quad __attribute__((vector_size(16))); // I0 + I90, I45 + I135, S1, S2

// Four lines of an output row, and why its pixels are invalid: 0 or some of SATURATED, DARK, OUTSIDE.
struct Samples {
  Line straight, diagonal, s1, s2;
  int32_t flags[PIECE];
  bool any;
};

inline void put(Samples &to, int x, Quad sum) {
  to.straight[x] = sum[0];
  to.diagonal[x] = sum[1];
  to.s1[x] = sum[2];
  to.s2[x] = sum[3];
}

// Means over squares of pixels. SCALE: as known to the compiler; 0: any.
template <int SCALE> void squares(const Transform &from, const Quad *linear, int y, int first, int n, Samples &to) {
  const int scale = SCALE ? SCALE : from.scale;
  const float share = 1.0f / (float)(scale * scale);
  const int64_t start = from.origin + y * from.down + first * from.right;
  for (int x = 0; x < n; x++) {
    const Quad *corner = linear + start + x * from.right;
    Quad sum = {0, 0, 0, 0};
    for (int j = 0; j < scale; j++)
      for (int i = 0; i < scale; i++) sum += corner[j * from.source_width + i];
    put(to, x, sum * share);
  }
  to.any = from.flags != nullptr;
  if (!to.any) return;
  for (int x = 0; x < n; x++) {
    const uint8_t *corner = from.flags + start + x * from.right;
    int32_t flags = 0;
    for (int j = 0; j < scale; j++)
      for (int i = 0; i < scale; i++) flags |= corner[j * from.source_width + i];
    to.flags[x] = flags;
  }
}

// Means of samples between pixels; pixels without weight are not read.
template <int SCALE, bool FLAGS>
void between(const Transform &from, const Quad *linear, int y, int first, int n, Samples &to) {
  const int scale = SCALE ? SCALE : from.scale;
  const float share = 1.0f / (float)(scale * scale);
  const int64_t width = from.source_width, row = 2 * (int64_t)scale * from.width;
  const float *start = from.positions + (int64_t)scale * y * row + 2 * (int64_t)scale * first;
  int32_t all = FLAGS;
  for (int x = 0; x < n; x++) {
    Quad sum = {0, 0, 0, 0};
    int32_t flags = 0;
    for (int j = 0; j < scale; j++)
      for (int i = 0; i < scale; i++) {
        const float *position = start + j * row + 2 * (scale * x + i);
        const int32_t left = (int32_t)position[0], top = (int32_t)position[1];
        if (position[0] < 0) {
          flags |= OUTSIDE;
          continue;
        }
        const float u = position[0] - (float)left, v = position[1] - (float)top;
        const int64_t a = top * width + left, b = a + (u > 0), c = v > 0 ? width : 0;
        const Quad upper = linear[a] + u * (linear[b] - linear[a]);
        const Quad lower = linear[a + c] + u * (linear[b + c] - linear[a + c]);
        sum += upper + v * (lower - upper);
        if (FLAGS && (from.rows[top] | from.rows[top + (v > 0)]))
          flags |= from.flags[a] | from.flags[b] | from.flags[a + c] | from.flags[b + c];
      }
    put(to, x, sum * share);
    to.flags[x] = flags;
    all |= flags;
  }
  to.any = all != 0;
}

// Turns S1 and S2.
void turn(const Transform &from, int y, int first, int n, Samples &to) {
  float *__restrict s1 = to.s1, *__restrict s2 = to.s2;
  if (!from.turns) {
    const float factor = from.turn;
    for (int x = 0; x < n; x++) {
      s1[x] *= factor;
      s2[x] *= factor;
    }
    return;
  }
  const float *__restrict turns = from.turns + 2 * ((int64_t)y * from.width + first);
  for (int x = 0; x < n; x++) {
    const float cosine = turns[2 * x], sine = turns[2 * x + 1], before = s1[x];
    s1[x] = cosine * before - sine * s2[x];
    s2[x] = sine * before + cosine * s2[x];
  }
}

// The four angles of a piece of a row, 0 where a sample is outside; `flags` say where pixels are invalid.
void angles_of(const Transform &from, int channel, int y, int first, int n, Samples &samples, float *const to[4]) {
  const Quad *linear = (const Quad *)from.linear + channel * from.source_height * from.source_width;
  if (!from.positions)
    (from.scale == 1 ? squares<1> : from.scale == 2 ? squares<2> : squares<0>)(from, linear, y, first, n, samples);
  else if (from.flags)
    (from.scale == 1 ? between<1, true> : between<0, true>)(from, linear, y, first, n, samples);
  else
    (from.scale == 1 ? between<1, false> : between<0, false>)(from, linear, y, first, n, samples);
  turn(from, y, first, n, samples);
  angles_of_sums(n, samples.straight, samples.diagonal, samples.s1, samples.s2, to);
  if (!samples.any) return;
  for (int k = 0; k < 4; k++)
    for (int x = 0; x < n; x++) to[k][x] = samples.flags[x] & OUTSIDE ? 0.0f : to[k][x];
}

void count_flags(const int32_t *flags, int n, Count &count) {
  int saturated = 0, dark = 0;
  for (int x = 0; x < n; x++) {
    const int is_inside = !(flags[x] & OUTSIDE), is_saturated = flags[x] & SATURATED;
    saturated += is_inside & is_saturated;
    dark += is_inside & !is_saturated & ((flags[x] & DARK) != 0);
  }
  count.saturated += saturated;
  count.dark += dark;
}

// Makes pixels NaN in a float image whose samples lie outside.
void erase(const Image &image, int64_t at, int n, int channels, const int32_t *flags) {
  if (!image.data || image.itemsize != 4) return;
  float *__restrict out = (float *)image.data + at * channels;
  for (int x = 0; x < n; x++)
    for (int k = 0; k < channels; k++) out[channels * x + k] = flags[x] & OUTSIDE ? NAN : out[channels * x + k];
}

// The images of light, which are valid elsewhere.
void erase_outside(const Products &to, int64_t at, int n, int channels, const int32_t *flags) {
  for (const Image &angle : to.angles) erase(angle, at, n, channels, flags);
  for (const Image &component : to.components) erase(component, at, n, channels, flags);
  erase(to.intensity, at, n, channels, flags);
}

// Rows that a thread takes at a time.
const int BAND = 16;

} // namespace

void find_invalid_rows(Transform &from) {
  const int64_t height = from.source_height, width = from.source_width;
  for (;;) {
    const int begin = __atomic_fetch_add(&from.next, BAND, __ATOMIC_RELAXED);
    if (begin >= height) return;
    for (int64_t y = begin; y < height && y < begin + BAND; y++) {
      uint8_t any = 0;
      for (int64_t x = 0; x < width; x++) any |= from.flags[y * width + x];
      from.rows[y] = any;
    }
  }
}

void transformed(Transform &from, const Products &to, Count &count) {
  Samples samples;
  Line lines[3][4];
  // where rows come from columns, the lines of memory of a square stay in the first-level cache
  const int piece = from.right * from.right == (int64_t)from.scale * from.scale ? PIECE : 64;
  for (;;) {
    const int begin = __atomic_fetch_add(&from.next, BAND, __ATOMIC_RELAXED);
    if (begin >= from.height) return;
    for (int first = 0; first < from.width; first += piece)
      for (int y = begin; y < from.height && y < begin + BAND; y++) {
        const int n = from.width - first < piece ? from.width - first : piece;
        const int64_t at = (int64_t)y * from.width + first;
        const float *angles[3][4];
        for (int channel = 0; channel < from.channels; channel++) {
          float *const out[4] = {lines[channel][0], lines[channel][1], lines[channel][2], lines[channel][3]};
          angles_of(from, channel, y, first, n, samples, out);
          for (int k = 0; k < 4; k++) angles[channel][k] = out[k];
        }
        const int32_t *flags = samples.any ? samples.flags : nullptr;
        Count of_products = Count(); // it takes all invalid pixels for saturated ones
        if (from.channels == 1)
          polarimetry(to, at, n, angles[0], flags, of_products);
        else
          color_polarimetry(to, at, n, angles, 0, flags, of_products);
        if (!flags) continue;
        erase_outside(to, at, n, from.channels, flags);
        count_flags(flags, n, count);
      }
  }
}
