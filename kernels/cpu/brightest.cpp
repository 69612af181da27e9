// The brightest pixels of superpixels, counted: by them an exposure is judged.
#include <algorithm>
#include <cstdint>

namespace {

enum Packing { BYTES, WORDS, STREAM, PACKED }; // PACKINGS in polar_pipeline/backends/cpu/library.py

typedef uint16_t __attribute__((aligned(1), may_alias)) Word; // at any address

// The larger one of the pixels x and x + 1 of a row; x is even.
template <Packing PACKING, int BITS> int32_t larger(const uint8_t *row, int64_t x) {
  if (PACKING == BYTES) return std::max(row[x], row[x + 1]);
  if (PACKING == WORDS) return std::max<int32_t>(((const Word *)row)[x], ((const Word *)row)[x + 1]);
  const bool is_whole = PACKING == PACKED || BITS == 12; // two pixels take three bytes
  const uint8_t *at = row + (is_whole ? (x >> 1) * 3 : x * BITS >> 3);
  const int32_t low = *(const Word *)at, high = at[2], mask = (1 << BITS) - 1;
  if (PACKING == PACKED) // high bits, both low bits, high bits
    return std::max((low & 0xFF) << (BITS - 8) | (low >> 8 & mask >> 8), high << (BITS - 8) | (low >> 12 & mask >> 8));
  const int32_t both = (low | high << 16) >> (is_whole ? 0 : 2 * (x & 2));
  return std::max(both & mask, both >> BITS & mask);
}

template <Packing PACKING, int BITS>
void count(const uint8_t *rows, int64_t step, int32_t full_scale, int32_t shift, const int32_t *place,
           uint32_t *histogram) {
  const int64_t x = place[0], width = place[2], height = place[3], down = 2 * place[4], right = 2 * place[5];
  const int32_t saturated = (full_scale >> shift) + 1;
  for (int64_t y = 0, is_odd = 0; y + 2 * is_odd + 2 <= height; y += down, is_odd ^= down > 2) {
    const uint8_t *a = rows + (place[1] + y + 2 * is_odd) * step, *b = a + step;
    const int64_t end = x + width - 2;
    for (int64_t at = x, gap = right + (right > 2 ? 2 : 0); at <= end; at += gap, gap = 2 * right - gap) {
      const int32_t peak = std::max(larger<PACKING, BITS>(a, at), larger<PACKING, BITS>(b, at));
      histogram[peak >= full_scale ? saturated : peak >> shift]++;
    }
  }
}

} // namespace

// Adds superpixels of a frame to a histogram by their brightest pixel >> `shift`; those with a saturated pixel to the
// bin behind all others. `place`: x, y, width and height of the region, x and y even; and every how many rows and
// columns of superpixels one counts. Of those that count, even and odd ones alternate, so that all colors do.
extern "C" __attribute__((visibility("default"))) void count_brightest(const uint8_t *rows, int64_t step,
                                                                       int32_t packing, int32_t bits,
                                                                       int32_t full_scale, int32_t shift,
                                                                       const int32_t *place, uint32_t *histogram) {
  const auto run = packing == BYTES    ? count<BYTES, 8>
                   : packing == WORDS  ? count<WORDS, 16>
                   : packing == STREAM ? (bits == 10 ? count<STREAM, 10> : count<STREAM, 12>)
                                       : (bits == 10 ? count<PACKED, 10> : count<PACKED, 12>);
  run(rows, step, full_scale, shift, place, histogram);
}
