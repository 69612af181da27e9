// From a mosaic of colors to every product: tile by tile to red, green and blue, to their angles, to products.
#include "color.hpp"
#include "debayer.hpp"
#include "demosaic.hpp"
#include "methods.hpp"
#include <vector>

namespace {

// One color of a tile, and where its angles are stored.
struct Channel {
  PlaneLines from;
  int32_t method;       // Method
  bool half;            // store means over superpixels
  const int32_t *place; // 2 row + column in the tile of polarizers of 0, 45, 90, 135 degrees
  const float *edges;   // (height, width): ADR's switch
  float *angles[4];     // (height, width), or half of both, without gaps, in [0, 1]
};

struct ToAngles {
  const Channel &of;
  Halves halves;

  void row(int y, const Angles &full) {
    const int step = of.half ? 2 : 1, n = of.from.width / step;
    const Angles *angles = of.half ? halves.add(y, n, full) : &full;
    if (!angles) return;
    const int at = y / step * n;
    for (int k = 0; k < 4; k++) {
      const float *__restrict line = angles->lines[k][0];
      float *__restrict out = of.angles[k] + at;
      for (int x = 0; x < n; x++) out[x] = line[x] * (1.0f / 255);
    }
  }
};

// Only ADR can take a switch.
template <class Method> void give_switch(Method &, const Channel &) {}
void give_switch(Adaptive<false> &method, const Channel &of) { method.given = {of.edges, of.from.width}; }

void interpolated(const Channel &of) {
  with_method<false>(of.method, [&](auto chosen) {
    typename decltype(chosen)::Type method;
    give_switch(method, of);
    ToAngles rows = {of, {}};
    demosaic(method, of.from, of.place, Tile{0, 0, of.from.height, of.from.width}, rows);
  });
}

// Bilinear means over superpixels: 3/4 and 1/4 of the two nearest samples of an angle, along y and along x.
void superpixel_means(const Channel &of) {
  const int n = of.from.width / 2;
  for (int y = 0; y < of.from.height / 2; y++) {
    const float *upper = of.from.plane + 2 * y * of.from.step, *lower = upper + of.from.step;
    const float *near[2] = {upper, lower}, *far[2] = {lower + of.from.step, upper - of.from.step};
    OneLine rows[2];
    for (int row = 0; row < 2; row++) {
      const float *__restrict a = near[row], *__restrict b = far[row];
      float *__restrict sum = rows[row][0];
      for (int x = -2; x < 2 * n + 2; x++) sum[x] = 0.75f * a[x] + 0.25f * b[x];
    }
    for (int k = 0; k < 4; k++) {
      const int column = of.place[k] & 1, beyond = column ? -1 : 2;
      const float *__restrict sum = rows[of.place[k] >> 1][0];
      float *__restrict out = of.angles[k] + y * n;
      for (int x = 0; x < n; x++) out[x] = 0.75f * sum[2 * x + column] + 0.25f * sum[2 * x + beyond];
    }
  }
}

// Each angle at its own site.
void own_sites(const Channel &of) {
  const int n = of.from.width / 2;
  for (int y = 0; y < of.from.height / 2; y++)
    for (int k = 0; k < 4; k++) {
      const float *__restrict from = of.from.plane + (2 * y + (of.place[k] >> 1)) * of.from.step + (of.place[k] & 1);
      float *__restrict out = of.angles[k] + y * n;
      for (int x = 0; x < n; x++) out[x] = from[2 * x];
    }
}

void find_angles(const Channel &of) {
  if (of.method == OWN_SITE)
    own_sites(of);
  else if (of.method == BILINEAR && of.half)
    superpixel_means(of);
  else
    interpolated(of);
}

// ADR's switch of a tile.
void find_switch(const PlaneLines &luma, float *out) {
  const Tile tile = {0, 0, luma.height, luma.width};
  PolarizationSwitch method;
  load_tile(method, luma, tile, [&](int y) { method.edges.get_switch(y, luma.width, out + y * luma.width); });
}

// ------------------------------------------------------------------------------------------------ tiles of a frame

// Index `at`, or where it is beyond the border the one that it is mirrored to on the lattice of its parity: about the
// first and the last pixel there.
inline int mirrored_on_lattice(int at, int size) {
  const int phase = at & 1, last = (size - 1 - phase) >> 1, step = (at - phase) >> 1;
  return 2 * mirrored(step, last + 1) + phase;
}

// Columns left .. left + n of a row of the frame, both of which may lie beyond the border, as shares of `full`.
template <class Value>
void load_row(const Value *__restrict from, int width, int left, int n, float full, float *__restrict out) {
  const float scale = 1 / full;
  const auto share = [=](Value value) { return smaller((float)value, full) * scale; };
  const int begin = left < 0 ? -left : 0, end = left + n > width ? width - left : n;
  for (int x = begin; x < end; x++) out[x] = share(from[left + x]);
  for (int x = 0; x < begin; x++) out[x] = share(from[mirrored_on_lattice(left + x, width)]);
  for (int x = end; x < n; x++) out[x] = share(from[mirrored_on_lattice(left + x, width)]);
}

// The luma that the switch reads. Blue is added last, unlike in `luma`: the switch is so steep that recordings of
// earlier versions show the last bit of this sum.
void find_luma_of_switch(const float *__restrict red, const float *__restrict green, const float *__restrict blue,
                         int n, float *__restrict out) {
  for (int x = 0; x < n; x++) out[x] = fused(blue[x], LUMA_RED, fused(green[x], LUMA_GREEN, (float)LUMA_RED * red[x]));
}

// Images of a tile, which a thread computes one after the other.
template <class Raw> class ColorTile {
public:
  ColorTile(const Mosaic &frame, const Color &color, const Products &to)
      : frame(frame), color(color), to(to), raw(frame), halo(frame.method == ADAPTIVE   ? 4
                                                             : frame.method == OWN_SITE ? 0
                                                                                        : 2),
        halo_of_color(color.debayer == WEIGHTED ? 6
                      : color.debayer == MALVAR ? 4
                                                : 2),
        mosaic((ROWS + 2 * (halo + halo_of_color)) * (COLUMNS + 2 * (halo + halo_of_color))),
        images(4 * (ROWS + 2 * halo) * (COLUMNS + 2 * halo)), angles(12 * ROWS * COLUMNS), edges(ROWS * COLUMNS) {
    for (int channel = 0; channel < 3; channel++) // of an image that begins `halo` above and left of the tile
      for (int y = 0; y < 4; y++)
        for (int x = 0; x < 4; x++) source[channel][y][x] = color.source[channel][(y - halo) & 3][(x - halo) & 3];
  }

  void compute(const Tile &tile, Count &count) {
    load(tile);
    find_colors(tile);
    const int step = frame.half ? 2 : 1, rows = tile.rows / step, n = tile.columns / step;
    const int pitch = tile.columns + 2 * halo, size = (tile.rows + 2 * halo) * pitch;
    float *const start = images.data() + halo * (pitch + 1);
    if (frame.method == ADAPTIVE) {
      float *const luma_image = images.data() + 3 * size;
      find_luma_of_switch(images.data(), images.data() + size, images.data() + 2 * size, size, luma_image);
      find_switch({luma_image + halo * (pitch + 1), pitch, tile.rows, tile.columns}, edges.data());
    }
    float *planes[3][4];
    for (int channel = 0; channel < 3; channel++) {
      Channel of = {{start + channel * size, pitch, tile.rows, tile.columns},
                    frame.method,
                    frame.half != 0,
                    frame.place,
                    edges.data(),
                    {}};
      for (int k = 0; k < 4; k++) planes[channel][k] = of.angles[k] = angles.data() + (4 * channel + k) * rows * n;
      find_angles(of);
    }
    for (int y = 0; y < rows; y++) {
      int32_t saturated[PIECE];
      const bool any = find_saturated(raw, tile.top + step * y, tile.left, n, saturated);
      const float *lines[3][4];
      for (int channel = 0; channel < 3; channel++)
        for (int k = 0; k < 4; k++) lines[channel][k] = planes[channel][k] + y * n;
      const int64_t at = ((int64_t)tile.top / step + y) * to.width + tile.left / step;
      const int64_t plane = (int64_t)(frame.height / step) * to.width;
      color_polarimetry(to, at, n, lines, plane, any ? saturated : nullptr, count);
    }
  }

private:
  const Mosaic &frame;
  const Color &color;
  const Products &to;
  const RawLines<Raw> raw;
  const int halo, halo_of_color; // what the method on the mosaic of polarizers reads beyond a pixel; and the debayer
  int32_t source[3][4][4];
  std::vector<float> mosaic; // with both halos
  std::vector<float> images; // red, green, blue and luma, with the first halo
  std::vector<float> angles, edges;

  // The tile with both halos, as shares of full scale.
  void load(const Tile &tile) {
    const int all = halo + halo_of_color, n = tile.columns + 2 * all;
    for (int y = -all; y < tile.rows + all; y++) {
      const int row = mirrored_on_lattice(tile.top + y, frame.height);
      float *const out = mosaic.data() + (y + all) * n;
      if (color.corrected)
        load_row(color.corrected + (int64_t)row * frame.width, frame.width, tile.left - all, n, 1.0f, out);
      else
        load_row((const Raw *)((const char *)frame.raw + row * frame.step), frame.width, tile.left - all, n,
                 (float)frame.full_scale, out);
    }
  }

  // Red, green and blue with a halo, which beyond the frame is mirrored.
  void find_colors(const Tile &tile) {
    const int height = tile.rows + 2 * halo, width = tile.columns + 2 * halo, pitch = width + 2 * halo_of_color;
    Lattice of = {{mosaic.data() + halo_of_color * (pitch + 1), pitch, height, width}, color.debayer, {}, {}};
    std::memcpy(of.source, source, sizeof source);
    for (int channel = 0; channel < 3; channel++) of.channels[channel] = images.data() + channel * height * width;
    debayer(of);
    const int top = tile.top - halo, left = tile.left - halo;
    for (float *image : of.channels) {
      for (int y = 0; y < height; y++)
        if (top + y < 0 || top + y >= frame.height)
          std::memcpy(image + y * width, image + (mirrored(top + y, frame.height) - top) * width, 4 * width);
      for (int x = 0; x < width; x++)
        if (left + x < 0 || left + x >= frame.width)
          for (int y = 0; y < height; y++)
            image[y * width + x] = image[y * width + mirrored(left + x, frame.width) - left];
    }
  }
};

template <class Raw> void color_tiles(Mosaic &frame, const Color &color, const Products &to, Count &count) {
  ColorTile<Raw> images(frame, color, to);
  take_tiles(frame, [&](const Tile &tile) { images.compute(tile, count); });
}

} // namespace

void colors(Mosaic &from, const Color &color, const Products &to, Count &count) {
  (from.is_wide ? color_tiles<uint16_t> : color_tiles<uint8_t>)(from, color, to, count);
}
