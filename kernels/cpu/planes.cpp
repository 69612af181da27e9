// From four angle images to every product: for what is demosaiced elsewhere, and luma.
#include "polarimetry.hpp"

namespace {

// Four images of some rows of the output.
struct Planes {
  const float *angles[4];   // 0, 45, 90, 135 degrees
  int64_t steps[4];         // floats from one row to the next
  const uint8_t *saturated; // (end - first, width), not 0 where a pixel is saturated; null if no pixel is
  int32_t first, end;       // their rows
};

} // namespace

// Computes the rows of four images, in one thread.
extern "C" void polarization_planes(const Planes *from, const Products *to, Count *count) {
  for (int y = from->first; y < from->end; y++) {
    const int64_t row = y - from->first;
    for (int64_t first = 0; first < to->width; first += PIECE) {
      const int n = (int)(to->width - first < PIECE ? to->width - first : PIECE);
      const float *angles[4];
      for (int k = 0; k < 4; k++) angles[k] = from->angles[k] + row * from->steps[k] + first;
      int32_t saturated[PIECE];
      if (from->saturated)
        for (int x = 0; x < n; x++) saturated[x] = from->saturated[row * to->width + first + x];
      polarimetry(*to, y * to->width + first, n, angles, from->saturated ? saturated : nullptr, *count);
    }
  }
}
