// The second pass on a CPU: structural similarity (Wang et al., 2004) of two images, and sums of its blocks.
//
// Works on the sum p and the difference q of the images: four moments suffice, and the small difference loses the
// least. Tiles of 64 rows, whose sliding window of lines stays in the first-level cache: down the columns first, then
// along the line.
#include "frame.hpp"
#include <cmath>
#include <cstring>

namespace {

const int BLOCK = SSIM_BLOCK; // side of the blocks that are summed
const int PIECE = 3 * BLOCK;  // columns of a tile
const int AHEAD = 4;          // rows that are fetched before they are needed
const int VECTOR = 16;        // floats: lines are computed in complete vectors, of the widest that exist
const int LINE =
    PIECE + 2 * VECTOR; // floats of a line: a tile's columns, the window's on both sides, up to complete vectors

typedef float Line[LINE];

// The index of the pixel at `at`, at any distance beyond the border: mirrored, the first and the last one repeated.
inline int mirrored(int at, int size) {
  const int period = 2 * size;
  at = (at % period + period) % period;
  return at < size ? at : period - 1 - at;
}

inline int round_up_to_vectors(int n) { return (n + VECTOR - 1) / VECTOR * VECTOR; }

// p and q of one row of the (averaged) images, columns first .. first + n, then 0 up to a complete vector.
template <class Value>
void load_row(const Value *image_a, const Value *image_b, const Similarity &of, int y, int first, int n,
              float *__restrict p, float *__restrict q) {
  for (int x = n; x < round_up_to_vectors(n); x++) p[x] = q[x] = 0;
  const int64_t at = ((int64_t)y * of.step + first) * of.stride;
  const Value *__restrict a = image_a + at, *__restrict b = image_b + at;
  if (of.stride == 1) {
    // The processor does not prefetch short pieces of rows by itself.
    const int64_t soon = y + AHEAD < of.height ? (int64_t)AHEAD * of.step : 0;
    for (int x = 0; x < n; x += 64 / (int)sizeof(Value)) {
      __builtin_prefetch(a + soon + x);
      __builtin_prefetch(b + soon + x);
    }
    for (int x = 0; x < n; x++) {
      p[x] = (float)(a[x] + b[x]) * of.scale;
      q[x] = (float)(a[x] - b[x]) * of.scale;
    }
    return;
  }
  const float share = of.scale / (float)(of.stride * of.stride);
  for (int x = 0; x < n; x++) {
    float sum = 0, difference = 0;
    for (int row = 0; row < of.stride; row++)
      for (int column = 0; column < of.stride; column++) {
        const int64_t place = (int64_t)row * of.step + x * of.stride + column;
        sum += (float)(a[place] + b[place]);
        difference += (float)(a[place] - b[place]);
      }
    p[x] = sum * share;
    q[x] = difference * share;
  }
}

// Down the columns: means over 2 R + 1 lines of `p`, and of their squares.
template <int R>
void columns(const float *taps, const float *__restrict p, int n, float *__restrict mean, float *__restrict square) {
  for (int x = 0; x < n; x++) {
    const float center = p[R * LINE + x];
    float sum = taps[0] * center, squares = taps[0] * (center * center);
#pragma GCC unroll 8
    for (int k = 1; k <= R; k++) {
      const float above = p[(R - k) * LINE + x], below = p[(R + k) * LINE + x];
      sum += taps[k] * (above + below);
      squares += taps[k] * (above * above + below * below);
    }
    mean[x] = sum;
    square[x] = squares;
  }
}

template <int R> inline float along(const float *taps, const float *line) {
  float sum = taps[0] * line[R];
#pragma GCC unroll 8
  for (int k = 1; k <= R; k++) sum += taps[k] * (line[R - k] + line[R + k]);
  return sum;
}

// Along the line: the similarity from the four moments.
template <int R>
void line(const float *taps, const float *__restrict a, const float *__restrict b, const float *__restrict v,
          const float *__restrict u, int n, float *__restrict out) {
  const float c1 = 2 * SSIM_C1, c2 = 2 * SSIM_C2;
  for (int x = 0; x < n; x++) {
    const float pm = along<R>(taps, a + x), qm = along<R>(taps, b + x);
    const float pp = pm * pm, qq = qm * qm;
    const float pv = along<R>(taps, v + x) - pp, qv = along<R>(taps, u + x) - qq;
    // Numerator and denominator, both times 4.
    out[x] = ((pp - qq + c1) * (pv - qv + c2)) / ((pp + qq + c1) * (pv + qv + c2));
  }
}

// Similarities as levels: negative ones and NaN become 0.
template <class Level> void store_levels(Level *__restrict out, int n, const float *__restrict from) {
  const float top = (float)(Level)-1;
  for (int x = 0; x < n; x++) {
    const float clipped = from[x] > 0 ? (from[x] < 1 ? from[x] : 1.0f) : 0.0f;
    out[x] = (Level)(int)(top * clipped + 0.5f);
  }
}

// Makes the similarity of a line NaN where a pixel that it is of lies outside; the others are added to `sum` and
// counted.
void add_inside(const Similarity &of, int y, int left, int n, float *line, float *sum, int32_t *pixels) {
  for (int x = 0; x < n; x++) {
    const uint8_t *from = of.outside + ((int64_t)y * of.step + left + x) * of.stride;
    bool is_outside = false;
    for (int row = 0; row < of.stride; row++)
      for (int column = 0; column < of.stride; column++) is_outside |= from[(int64_t)row * of.step + column] != 0;
    if (is_outside)
      line[x] = NAN;
    else
      sum[x] += line[x];
    pixels[x] += !is_outside;
  }
}

template <int R> void tile(const Similarity &of, int top, int left) {
  const int rows = of.height - top < BLOCK ? of.height - top : BLOCK,
            n = of.width - left < PIECE ? of.width - left : PIECE;
  const int first = left < R ? 0 : left - R, end = left + n + R < of.width ? left + n + R : of.width;
  const int skipped = first - (left - R), lines = n + 2 * R; // columns beyond the border; of a line
  float taps[R + 1];
  for (int k = 0; k <= R; k++) taps[k] = of.taps[k];
  alignas(4 * VECTOR) float p[(BLOCK + 2 * R) * LINE], q[(BLOCK + 2 * R) * LINE];
  alignas(4 * VECTOR) Line moments[4], result, sum;
  const auto load = [&](int y) {
    const int row = mirrored(top - R + y, of.height);
    if (of.is_uint16)
      load_row((const uint16_t *)of.first, (const uint16_t *)of.second, of, row, first, end - first, p + y * LINE,
               q + y * LINE);
    else
      load_row((const float *)of.first, (const float *)of.second, of, row, first, end - first, p + y * LINE,
               q + y * LINE);
  };
  for (int y = 0; y < 2 * R; y++) load(y);
  std::memset(sum, 0, sizeof sum);
  int32_t pixels[PIECE];
  for (int x = 0; x < PIECE; x++) pixels[x] = of.outside ? 0 : rows;
  for (int y = 0; y < rows; y++) {
    load(y + 2 * R);
    columns<R>(taps, p + y * LINE, round_up_to_vectors(end - first), moments[0] + skipped, moments[2] + skipped);
    columns<R>(taps, q + y * LINE, round_up_to_vectors(end - first), moments[1] + skipped, moments[3] + skipped);
    for (int k = 0; k < lines; k++) {
      if (k == skipped) k += end - first;
      if (k >= lines) break;
      const int from = mirrored(left - R + k, of.width) - (left - R);
      for (int m = 0; m < 4; m++) moments[m][k] = moments[m][from];
    }
    const int64_t at = (int64_t)(top + y) * of.width + left;
    float *to = of.map.data && of.map.itemsize == 4 ? (float *)of.map.data + at : result;
    line<R>(taps, moments[0], moments[1], moments[2], moments[3], n, to);
    if (of.outside)
      add_inside(of, top + y, left, n, to, sum, pixels);
    else
      for (int x = 0; x < n; x++) sum[x] += to[x];
    if (of.map.data && of.map.itemsize == 1) store_levels((uint8_t *)of.map.data + at, n, to);
    if (of.map.data && of.map.itemsize == 2) store_levels((uint16_t *)of.map.data + at, n, to);
  }
  const int64_t block = (int64_t)(top / BLOCK) * ((of.width + BLOCK - 1) / BLOCK) + left / BLOCK;
  for (int x = 0; x < n; x += BLOCK) {
    double total = 0, count = 0;
    for (int k = x; k < n && k < x + BLOCK; k++) {
      total += sum[k];
      count += pixels[k];
    }
    of.sums[block + x / BLOCK] = total;
    of.pixels[block + x / BLOCK] = count;
  }
}

} // namespace

void similarity(Similarity &of) {
  typedef void (*Tile)(const Similarity &, int, int);
  static const Tile tiles[] = {tile<1>, tile<2>, tile<3>, tile<4>, tile<5>, tile<6>, tile<7>};
  const int across = (of.width + PIECE - 1) / PIECE, down = (of.height + BLOCK - 1) / BLOCK;
  for (;;) {
    const int taken = __atomic_fetch_add(&of.next, 1, __ATOMIC_RELAXED);
    if (taken >= across * down) return;
    tiles[of.radius - 1](of, taken / across * BLOCK, taken % across * PIECE);
  }
}
