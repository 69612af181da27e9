// From a mono mosaic to every product, with every method; and the corrected mosaic.
#include "demosaic.hpp"
#include "correct.hpp"
#include "methods.hpp"
#include "polarimetry.hpp"

namespace {

// Rows of a tile to products.
template <class Raw> struct ToProducts {
  const RawLines<Raw> &raw;
  const Products &to;
  const Tile &tile;
  Count &count;
  Halves halves;

  void row(int y, const Angles &full) {
    const bool half = raw.frame.half != 0;
    const int n = half ? tile.columns / 2 : tile.columns;
    const Angles *angles = half ? halves.add(y, n, full) : &full;
    if (!angles) return;
    int32_t saturated[PIECE];
    const bool any = find_saturated(raw, tile.top + y, tile.left, n, saturated);
    const float *lines[4];
    for (int k = 0; k < 4; k++) lines[k] = angles->lines[k][0];
    const int64_t at = (int64_t)(tile.top + y) / (half ? 2 : 1) * to.width + tile.left / (half ? 2 : 1);
    polarimetry(to, at, n, lines, any ? saturated : nullptr, count);
  }
};

template <class Raw, class Source> void frame_tiles(Mosaic &frame, const Products &to, Count &count) {
  const RawLines<Raw> raw(frame);
  Source from(frame);
  with_method<true>(frame.method, [&](auto chosen) {
    take_tiles(frame, [&](const Tile &tile) {
      typename decltype(chosen)::Type method;
      ToProducts<Raw> rows = {raw, to, tile, count, {}};
      demosaic(method, from, frame.place, tile, rows);
    });
  });
}

template <class Raw> void products_of(Mosaic &frame, const Products &to, Count &count) {
  if (frame.codes)
    frame_tiles<Raw, CorrectedLines<Raw>>(frame, to, count);
  else
    frame_tiles<Raw, const RawLines<Raw>>(frame, to, count);
}

// Rows of superpixels that a thread takes at a time in `correct_frame`.
const int BAND = 16;

template <class Raw> void correct_bands(Mosaic &frame, float *out) {
  CorrectedLines<Raw> from(frame, 1.0f);
  for (;;) {
    const int first = __atomic_fetch_add(&frame.next, 2 * BAND, __ATOMIC_RELAXED);
    if (first >= frame.height) return;
    for (int left = 0; left < frame.width; left += COLUMNS)
      for (int y = first; y < frame.height && y < first + 2 * BAND; y++)
        from.load(y, left, frame.width - left < COLUMNS ? frame.width - left : COLUMNS,
                  out + (int64_t)y * frame.width + left);
  }
}

} // namespace

void demosaiced(Mosaic &from, const Products &to, Count &count) {
  (from.is_wide ? products_of<uint16_t> : products_of<uint8_t>)(from, to, count);
}

void correct_frame(Mosaic &from, float *out) {
  (from.is_wide ? correct_bands<uint16_t> : correct_bands<uint8_t>)(from, out);
}
