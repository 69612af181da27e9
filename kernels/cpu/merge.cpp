// One frame of several exposures: every superpixel from the longest one in which none of its pixels is saturated, and
// from the last one where exposures show different light. `polar_pipeline/exposures.py` explains it.
#include "mosaic.hpp"
#include <algorithm>

namespace {

const int PIECE = 512; // raw columns at a time
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

// Adds the squares of the differences between an exposure and the next one, over their variances.
void add_differences(const Bracket &of, int exposure, int n, const float *__restrict own, const float *__restrict next,
                     const float *__restrict black, float *__restrict sums) {
  const float ratio = of.lights[exposure] / of.lights[exposure + 1], error = of.tolerance * of.tolerance;
  const float shot = of.shots[exposure], shot_next = ratio * ratio * of.shots[exposure + 1];
  const float floor = of.floors[exposure] + ratio * ratio * of.floors[exposure + 1];
  for (int x = 0; x < n; x++) {
    const float b = black[x], top = 1 - b, first = own[x] - b, second = ratio * (next[x] - b);
    const float known = own[x] < 1 ? first : second, light = known > 0 ? known : 0;
    const float difference = (first < top ? first : top) - (second < top ? second : top);
    const float variance = shot * (light + b) + shot_next * (light / ratio + b) + floor;
    sums[x] += difference * difference / (variance + error * light * light);
  }
}

// Finds the exposures of a row of superpixels, and where they show different light.
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
        add_differences(of, exposure, n, own, next, black, sums);
      }
      for (int x = 0; x < superpixels; x++) {
        exposures[x] = peak[2 * x] < 1 && peak[2 * x + 1] < 1 ? (uint8_t)exposure : exposures[x];
        differ[x] |= sums[2 * x] + sums[2 * x + 1] > of.limit;
      }
    }
  }
}

// Takes the last exposure in and around superpixels that differ, and stores a row of superpixels.
void store_row(const Bracket &of, int y, uint8_t *exposures, uint8_t *differ) {
  const int columns = (of.width + 1) / 2;
  const uint8_t *above = y ? differ - columns : differ, *below = 2 * y + 2 < of.height ? differ + columns : differ;
  for (int x = 0; x < columns; x++) {
    uint8_t any = 0;
    for (int at = x ? x - 1 : 0; at < std::min(x + 2, columns); at++) any |= above[at] | differ[at] | below[at];
    of.moved[(int64_t)y * columns + x] = any;
    exposures[x] = any ? (uint8_t)(of.count - 1) : exposures[x];
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

void merge_rows(Bracket &of, bool stores) {
  const int64_t columns = (of.width + 1) / 2;
  for (int y; (y = __atomic_fetch_add(&of.next, 1, __ATOMIC_RELAXED)) < (of.height + 1) / 2;)
    (stores ? store_row : compare_row)(of, y, of.exposures + y * columns, of.differ + y * columns);
}
