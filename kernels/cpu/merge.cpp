// One frame of several exposures: every superpixel from the longest one in which none of its pixels is saturated, and
// from the last one where exposures show different light. `polar_pipeline/exposures.py` explains it.
//
// Each exposure is compared with the next one twice: superpixel by superpixel, and in sums over 3 x 3 superpixels, in
// which noise averages out. Errors that neighbors have in common do not: of exposure times, rounding and black level.
#include "mosaic.hpp"
#include <algorithm>

namespace {

const int PIECE = 512;      // raw columns at a time
const float RESOLUTION = 8; // of `deviations`: this many are a standard deviation
typedef float Line[PIECE];

// Columns `first` to `first + n` of a row, as shares of full scale: exactly 1 where a pixel is saturated.
void find_light(const Bracket &of, int exposure, int y, int first, int n, float *__restrict light) {
  const char *row = (const char *)of.raw[exposure] + y * of.steps[exposure];
  const float full = (float)of.full_scale;
  for (int x = 0; x < n; x++) {
    const int32_t number = of.is_wide ? ((const uint16_t *)row)[first + x] : ((const uint8_t *)row)[first + x];
    light[x] = (float)(number < of.full_scale ? number : of.full_scale) / full;
  }
}

void find_black(const Bracket &of, int y, int first, int n, float *__restrict black) {
  const uint32_t *codes = of.codes ? of.codes + (int64_t)y * of.width + first : nullptr;
  for (int x = 0; x < n; x++) black[x] = of.black + (codes ? of.black_step * (float)(int32_t)(codes[x] & 255) : 0);
}

// Deviations of the raw row `y` of an exposure; -2 and the row behind the last superpixel hold zeros.
int8_t *deviations_of(const Bracket &of, int exposure, int y) {
  const int64_t rows = (of.height + 1) / 2 * 2 + 4, columns = (of.width + 1) / 2 * 2 + 4;
  return of.deviations + (exposure * rows + y + 2) * columns + 2;
}

// Compares pixels of an exposure with the next one. Adds the squares of the differences over their variances to `sums`.
// Stores `deviations`, scaled so that a sum over nine superpixels has the variance 9 RESOLUTION^2 if nothing moved.
void compare_exposures(const Bracket &of, int exposure, int n, const float *__restrict own,
                       const float *__restrict next, const float *__restrict black, float *__restrict sums,
                       int8_t *__restrict deviations) {
  const float ratio = of.lights[exposure] / of.lights[exposure + 1], relative = of.tolerance * of.tolerance;
  const float offset = of.offset * of.offset * (1 + ratio * ratio);
  const float shot = of.shots[exposure], shot_next = ratio * ratio * of.shots[exposure + 1];
  const float floor = of.floors[exposure] + ratio * ratio * of.floors[exposure + 1];
  for (int x = 0; x < n; x++) {
    const float b = black[x], top = 1 - b, first = own[x] - b, second = ratio * (next[x] - b);
    const bool is_saturated = own[x] >= 1; // at least `top`
    const float expected = is_saturated && second > top ? top : second;
    const float difference = first - expected;
    const float known = is_saturated ? second : first, light = known > 0 ? known : 0;
    const float noise = shot * (light + b) + shot_next * (light / ratio + b) + floor;
    const float common = relative * light * light;
    sums[x] += difference * difference / (noise + common);
    const float deviation = RESOLUTION * difference / root(noise + 9 * (common + offset)) + 128.5f;
    const float lowest = deviation > 1 ? deviation : 1;
    deviations[x] = (int8_t)((int32_t)(lowest < 255 ? lowest : 255) - 128);
  }
}

// Sets deviations to 0 where `mask` is 0.
void keep_where(int n, const uint8_t *__restrict mask, int8_t *__restrict deviations) {
  for (int x = 0; x < n; x++) deviations[x] = mask[x] ? deviations[x] : 0;
}

// Finds the exposures of a row of superpixels, and which superpixels show different light.
void compare_row(const Bracket &of, int y, uint8_t *exposures, uint8_t *differ) {
  const int last = of.count - 1;
  for (int first = 0; first < of.width; first += PIECE, exposures += PIECE / 2, differ += PIECE / 2) {
    const int n = std::min(PIECE, of.width - first), superpixels = (n + 1) / 2;
    Line own, next, black;
    std::fill_n(exposures, superpixels, (uint8_t)last);
    std::fill_n(differ, superpixels, (uint8_t)0);
    for (int exposure = last - 1; exposure >= 0; exposure--) {
      Line peak = {}, sums = {};
      for (int row = 2 * y; row < std::min(2 * y + 2, of.height); row++) {
        find_light(of, exposure, row, first, n, own);
        find_light(of, exposure + 1, row, first, n, next);
        find_black(of, row, first, n, black);
        for (int x = 0; x < n; x++) peak[x] = own[x] > peak[x] ? own[x] : peak[x];
        compare_exposures(of, exposure, n, own, next, black, sums, deviations_of(of, exposure, row) + first);
      }
      uint8_t is_equal[PIECE]; // for each raw column
      for (int x = 0; x < superpixels; x++) {
        exposures[x] = peak[2 * x] < 1 && peak[2 * x + 1] < 1 ? (uint8_t)exposure : exposures[x];
        is_equal[2 * x] = is_equal[2 * x + 1] = sums[2 * x] + sums[2 * x + 1] <= of.limit;
        differ[x] |= !is_equal[2 * x];
      }
      // sums around a superpixel that differs are of its neighbors alone, which may be at rest
      for (int row = 2 * y; row < std::min(2 * y + 2, of.height); row++)
        keep_where(n, is_equal, deviations_of(of, exposure, row) + first);
    }
  }
}

// Adds the squares of the sums of nine deviations around each pixel, of the neighboring superpixels.
void add_squares(const Bracket &of, int exposure, int row, int first, int n, int32_t *__restrict squares) {
  const int8_t *__restrict above = deviations_of(of, exposure, row - 2) + first - 2;
  const int8_t *__restrict own = deviations_of(of, exposure, row) + first - 2;
  const int8_t *__restrict below = deviations_of(of, exposure, row + 2) + first - 2;
  int16_t columns[PIECE + 4];
  for (int x = 0; x < n + 4; x++) columns[x] = (int16_t)(above[x] + own[x] + below[x]);
  for (int x = 0; x < n; x++) {
    const int32_t sum = columns[x] + columns[x + 2] + columns[x + 4];
    squares[x] += sum * sum;
  }
}

// Finds the superpixels of a row around which 3 x 3 show different light in their sum.
void compare_neighbors(const Bracket &of, int y, uint8_t *, uint8_t *differ) {
  const int32_t limit = (int32_t)(9 * RESOLUTION * RESOLUTION * of.limit);
  for (int first = 0; first < of.width; first += PIECE, differ += PIECE / 2) {
    const int n = std::min(PIECE, (of.width + 1) / 2 * 2 - first);
    for (int exposure = 0; exposure < of.count - 1; exposure++) {
      int32_t squares[PIECE] = {};
      for (int row = 2 * y; row < 2 * y + 2; row++) add_squares(of, exposure, row, first, n, squares);
      for (int x = 0; x < n / 2; x++) differ[x] |= squares[2 * x] + squares[2 * x + 1] > limit;
    }
  }
}

// Marks `n` superpixels of which one of the nine around differs, and takes the last exposure for them. `any_differs`
// begins one superpixel before them.
void mark(int n, const uint8_t *__restrict any_differs, uint8_t last, uint8_t *__restrict moved,
          uint8_t *__restrict exposures) {
  for (int x = 0; x < n; x++) {
    moved[x] = any_differs[x] | any_differs[x + 1] | any_differs[x + 2];
    exposures[x] = moved[x] ? last : exposures[x];
  }
}

// Marks the superpixels of a row in and around superpixels that differ, and stores their pixels.
void store_row(const Bracket &of, int y, uint8_t *exposures, uint8_t *differ) {
  const int columns = (of.width + 1) / 2;
  const uint8_t *above = y ? differ - columns : differ, *below = 2 * y + 2 < of.height ? differ + columns : differ;
  for (int first = 0; first < columns; first += PIECE) {
    const int n = std::min(PIECE, columns - first);
    uint8_t any_differs[PIECE + 2] = {}; // in this row, the one above, and the one below
    for (int x = std::max(first - 1, 0); x < std::min(first + n + 1, columns); x++)
      any_differs[x - first + 1] = above[x] | differ[x] | below[x];
    mark(n, any_differs, (uint8_t)(of.count - 1), of.moved + (int64_t)y * columns + first, exposures + first);
  }
  for (int row = 2 * y; row < std::min(2 * y + 2, of.height); row++)
    for (int first = 0; first < of.width; first += PIECE) {
      const int n = std::min(PIECE, of.width - first);
      uint16_t *__restrict to = of.mosaic + (int64_t)row * of.width + first;
      Line light, black, chosen, numbers;
      find_black(of, row, first, n, black);
      for (int x = 0; x < n; x++) chosen[x] = exposures[(first + x) / 2];
      for (int exposure = 0; exposure < of.count; exposure++) {
        const float inverse = 1 / of.lights[exposure], kept = of.codes ? 1.0f : 0.0f;
        find_light(of, exposure, row, first, n, light);
        for (int x = 0; x < n; x++) {
          const float merged = kept * black[x] + inverse * (light[x] - black[x]);
          const float number = 65535 * (light[x] < 1 ? merged : 1.0f) + 0.5f;
          numbers[x] = chosen[x] == (float)exposure ? number : numbers[x];
        }
      }
      for (int x = 0; x < n; x++) to[x] = (uint16_t)(int32_t)(numbers[x] > 0 ? numbers[x] : 0);
    }
}

} // namespace

void merge_rows(Bracket &of, int stage) {
  static const decltype(&compare_row) stages[MERGE_STAGES] = {compare_row, compare_neighbors, store_row};
  const int64_t columns = (of.width + 1) / 2;
  for (int y; (y = __atomic_fetch_add(&of.next, 1, __ATOMIC_RELAXED)) < (of.height + 1) / 2;)
    stages[stage](of, y, of.exposures + y * columns, of.differ + y * columns);
}
