// The correction of denoised planes by a network: `demosaic` "learned", which
// `polar_pipeline/backends/reference/learned.py` defines and explains.
//
// A stage computes an image of superpixels from the image before it, row after row. Channels are innermost: the values
// of neighboring channels fill a vector, and each value of the image before it multiplies a vector of weights.
#include "lines.hpp"
#include <algorithm>

namespace {

// Channels of the network's input, of its images at full resolution and at the others, and of its output.
const int INPUTS = 29, FINE = 16, COARSE = 32, OUTPUTS = 16;
const int REACH = LEARNED_REACH, BATCH = 64; // superpixels whose inputs lie in the first-level cache
static_assert(REACH < 8, "the smallest frame has eight rows of superpixels, which are mirrored once");

#ifdef __AVX__
const int LANES = 8;
#else
const int LANES = 4;
#endif
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));
typedef float Quad __attribute__((vector_size(16), aligned(4), may_alias)); // of a pixel: I0 + I90, I45 + I135, S1, S2

// Applies a layer to PIXELS superpixels from `x` on, for two vectors of outputs from `o` on. `from` is the first value
// that the first superpixel of the row reads, `step` the distance of rows.
template <int IN, int OUT, int SIZE, int STRIDE, int PIXELS, class Put>
inline void convolve_block(const float *from, int64_t step, const float *weights, int x, int o, const Put put) {
  Vector sums[PIXELS][2];
  for (int pixel = 0; pixel < PIXELS; pixel++)
    for (int k = 0; k < 2; k++) sums[pixel][k] = *(const Vector *)(weights + o + k * LANES);
  const float *weight = weights + OUT + o;
  for (int row = 0; row < SIZE; row++)
    for (int column = 0; column < SIZE; column++)
      for (int i = 0; i < IN; i++, weight += OUT) {
        const float *value = from + row * step + (STRIDE * x + column) * IN + i;
        const Vector first = *(const Vector *)weight, second = *(const Vector *)(weight + LANES);
#pragma GCC unroll 8
        for (int pixel = 0; pixel < PIXELS; pixel++) {
          sums[pixel][0] += value[pixel * STRIDE * IN] * first;
          sums[pixel][1] += value[pixel * STRIDE * IN] * second;
        }
      }
  for (int pixel = 0; pixel < PIXELS; pixel++)
    for (int k = 0; k < 2; k++) put(x + pixel, o + k * LANES, sums[pixel][k]);
}

// Applies a layer to `n` superpixels of a row. `weights`: OUT biases, then (SIZE, SIZE, IN, OUT).
// `put(x, o, values)` takes a vector of outputs of superpixel `x`, from output `o` on.
template <int IN, int OUT, int SIZE, int STRIDE, class Put>
void convolve(const float *from, int64_t step, const float *weights, int n, const Put put) {
  const int pixels = 6; // twelve sums, two vectors of weights and a value fit the registers
  for (int o = 0; o < OUT; o += 2 * LANES) {
    int x = 0;
    for (; x + pixels <= n; x += pixels) convolve_block<IN, OUT, SIZE, STRIDE, pixels>(from, step, weights, x, o, put);
    for (; x < n; x++) convolve_block<IN, OUT, SIZE, STRIDE, 1>(from, step, weights, x, o, put);
  }
}

inline Vector rectified(Vector values) { return values > 0 ? values : Vector{}; }

// Returns a function that stores the outputs of a layer in a row of an image; negative outputs become 0.
template <int CHANNELS> auto into(float *row) {
  return [=](int x, int o, Vector values) { *(Vector *)(row + CHANNELS * x + o) = rectified(values); };
}

// Converts a pixel of the linear planes to what the network sees: S0, S1, S2 and (I0 + I90 - I45 - I135)/2.
inline Quad seen(Quad linear, float sign) {
  return Quad{0.5f * (linear[0] + linear[1]), linear[2], sign * linear[3], 0.5f * (linear[0] - linear[1])};
}

// Channels of both images of a level: 0 has the full resolution of superpixels, each next one half of it.
constexpr int channels(int level) { return level ? COARSE : FINE; }

// The arguments of a stage, and the functions that compute one row of superpixels of each stage.
struct Stage {
  const Learned &of;
  const Denoising &planes;
  const float *weights; // of the stage's layer

  int rows(int level) const { return of.rows >> level; }
  int columns(int level) const { return of.columns >> level; }

  // Floats from one row of an image to the next.
  int64_t step(int level) const { return (int64_t)(columns(level) + 2) * channels(level); }
  // Values of a superpixel of an image of a level.
  float *image(int level, int k, int y, int x = 0) const {
    return of.images[level][k] + (y + 1) * step(level) + (x + 1) * channels(level);
  }

  // Index of a superpixel's pixel in the planes, whose border is mirrored.
  int64_t pixel(int y, int x, int k) const {
    const int row = mirrored(2 * y + k / 2 - of.top, (int)planes.height);
    return row * planes.width + mirrored(2 * x + k % 2 - of.left, (int)planes.width);
  }

  float variance(float s0) const { return variance_of(0.5f * s0, planes.shot, planes.floor); }

  // Finds the means of denoised superpixels.
  void average(int y) const {
    Quad *means = (Quad *)of.means + (int64_t)y * of.columns;
    for (int x = 0; x < of.columns; x++) {
      means[x] = Quad{};
      for (int k = 0; k < 4; k++) means[x] += 0.25f * seen(((const Quad *)planes.denoised)[pixel(y, x, k)], of.sign);
    }
  }

  // Finds the input of the network for `n` superpixels from column `first` on.
  void find_input(int y, int first, int n, float *input) const {
    const Quad *means = (const Quad *)of.means;
    Quad sums[BATCH + 2 * REACH]; // of columns
    for (int x = 0; x < n + 2 * REACH; x++) {
      const int column = mirrored(first + x - REACH, of.columns);
      sums[x] = Quad{};
      for (int k = -REACH; k <= REACH; k++) sums[x] += means[(int64_t)mirrored(y + k, of.rows) * of.columns + column];
    }
    for (int x = 0; x < n; x++, input += INPUTS) {
      Quad around = {};
      for (int k = 0; k <= 2 * REACH; k++) around += sums[x + k];
      around *= 1.0f / ((2 * REACH + 1) * (2 * REACH + 1));
      const float s0 = means[(int64_t)y * of.columns + first + x][0], inverse = 1 / root(variance(s0));
      for (int k = 0; k < 4; k++) {
        const int64_t at = pixel(y, first + x, k);
        const Quad before = (seen(((const Quad *)planes.linear)[at], of.sign) - around) * inverse;
        const Quad after = (seen(((const Quad *)planes.denoised)[at], of.sign) - around) * inverse;
        for (int part = 0; part < 4; part++) {
          input[8 * part + k] = 0.25f * clipped(before[part], -LEARNED_CLIP, LEARNED_CLIP);
          if (part < 3) input[8 * part + 4 + k] = 0.25f * clipped(after[part], -LEARNED_CLIP, LEARNED_CLIP);
        }
      }
      input[INPUTS - 1] = clipped(s0 * inverse / 16, 0, 16);
    }
  }

  // The first layer: from the planes to the first image.
  void enter(int y) const {
    float input[BATCH * INPUTS];
    for (int first = 0; first < of.columns; first += BATCH) {
      const int n = std::min(BATCH, of.columns - first);
      find_input(y, first, n, input);
      convolve<INPUTS, FINE, 1, 1>(input, 0, weights, n, into<FINE>(image(0, 0, y, first)));
    }
  }

  // From one image of a level to the other.
  template <int LEVEL, int FROM> void encode(int y) const {
    const int count = channels(LEVEL);
    const float *from = image(LEVEL, FROM, y - 1, -1);
    convolve<count, count, 3, 1>(from, step(LEVEL), weights, columns(LEVEL), into<count>(image(LEVEL, 1 - FROM, y)));
  }

  // From the second image of the level before to the first image of a level.
  template <int LEVEL> void halve(int y) const {
    const float *from = image(LEVEL - 1, 1, 2 * y);
    float *to = image(LEVEL, 0, y);
    convolve<channels(LEVEL - 1), COARSE, 2, 2>(from, step(LEVEL - 1), weights, columns(LEVEL), into<COARSE>(to));
  }

  // Adds to the second image of a level, of which a superpixel of the next level covers two rows and columns.
  template <int LEVEL, int FROM> void add_doubled(int y) const {
    const int count = channels(LEVEL);
    const auto put = [=](int x, int o, Vector values) {
      const int k = o / count;
      Vector *sum = (Vector *)(image(LEVEL, 1, 2 * y + k / 2, 2 * x + k % 2) + o % count);
      *sum = rectified(*sum + values);
    };
    convolve<COARSE, 4 * count, 1, 1>(image(LEVEL + 1, FROM, y), 0, weights, columns(LEVEL + 1), put);
  }

  // The last layer, whose outputs change the planes: by less than the noise, and not where the noise is invisible. It
  // also states the noise of the result.
  void leave(int y) const {
    float outputs[BATCH * OUTPUTS];
    for (int first = 0; first < of.columns; first += BATCH) {
      const int n = std::min(BATCH, of.columns - first);
      const auto put = [&](int x, int o, Vector values) { *(Vector *)(outputs + OUTPUTS * x + o) = values; };
      convolve<FINE, OUTPUTS, 1, 1>(image(0, 0, y, first), 0, weights, n, put);
      for (int k = 0; k < OUTPUTS * n; k++) outputs[k] = hyperbolic_tangent(outputs[k] * (1 / LEARNED_LIMIT));
      for (int x = 0; x < n; x++) change(y, first + x, outputs + OUTPUTS * x);
    }
  }

  // Changes the four pixels of a superpixel. `shares`: in [-1, 1], four each of S0, S1 and S2, of the limit; and four
  // that state the noise.
  void change(int y, int x, const float *shares) const {
    const float s0 = of.means[4 * ((int64_t)y * of.columns + x)], noise = variance(s0);
    const float weight = visible(planes.polarization_gains[0] * noise, s0, LEARNED_FADE_LOW, LEARNED_FADE_HIGH);
    const float most = LEARNED_LIMIT * root(noise) * weight;
    for (int k = 0; k < 4; k++) {
      const int row = 2 * y + k / 2 - of.top, column = 2 * x + k % 2 - of.left;
      if (row < 0 || row >= planes.height || column < 0 || column >= planes.width) continue;
      const int64_t at = row * planes.width + column;
      ((Quad *)planes.denoised)[at] += most * Quad{shares[k], shares[k], shares[4 + k], of.sign * shares[8 + k]};
      if (of.noise) ((Quad *)of.noise)[at] = Quad{1 + shares[12], 1 + shares[13], shares[14], of.sign * shares[15]};
    }
  }
};

// The stages in their order, and the level whose rows threads take: the one that a stage writes, or the one that
// `add_doubled` reads.
const struct {
  void (Stage::*compute)(int y) const;
  int level;
} STAGES[1 + LEARNED_LAYERS] = {
    {&Stage::average, 0},      {&Stage::enter, 0},
    {&Stage::encode<0, 0>, 0}, {&Stage::halve<1>, 1},
    {&Stage::encode<1, 0>, 1}, {&Stage::halve<2>, 2},
    {&Stage::encode<2, 0>, 2}, {&Stage::add_doubled<1, 1>, 2},
    {&Stage::encode<1, 1>, 1}, {&Stage::add_doubled<0, 0>, 1},
    {&Stage::encode<0, 1>, 0}, {&Stage::leave, 0},
};

} // namespace

void learned(Learned &of, const Denoising &planes, int stage) {
  const Stage at = {of, planes, stage ? of.weights[stage - 1] : nullptr};
  for (;;) {
    const int y = __atomic_fetch_add(&of.next, 1, __ATOMIC_RELAXED);
    if (y >= at.rows(STAGES[stage].level)) return;
    (at.*STAGES[stage].compute)(y);
  }
}
