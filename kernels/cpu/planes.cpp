// From the angle images of three colours to every product.
#include "polarimetry.hpp"

namespace {

// Images of some rows of the output.
struct Planes {
  const float *angles[3][4]; // red, green, blue: 0, 45, 90, 135 degrees
  int64_t steps[3][4];       // floats from one row to the next
  const uint8_t *saturated;  // (end - first, width), not 0 where a pixel is saturated; null if no pixel is
  int32_t first, end;        // their rows
};

template <class Level>
void store_color_levels(Level *__restrict out, int n, const float *__restrict red, const float *__restrict green,
                        const float *__restrict blue) {
  const float top = top_level<Level>();
  for (int x = 0; x < n; x++) {
    out[3 * x] = nearest_level<Level>(top * red[x]);
    out[3 * x + 1] = nearest_level<Level>(top * green[x]);
    out[3 * x + 2] = nearest_level<Level>(top * blue[x]);
  }
}
// The pixels of three lines in [0, 1] into an RGB image.
void store_color(const Image &image, int64_t at, int n, const float *__restrict red, const float *__restrict green,
                 const float *__restrict blue) {
  if (!image.data) return;
  if (image.itemsize == 1) {
    store_color_levels((uint8_t *)image.data + 3 * at, n, red, green, blue);
  } else if (image.itemsize == 2) {
    store_color_levels((uint16_t *)image.data + 3 * at, n, red, green, blue);
  } else {
    float *__restrict out = (float *)image.data + 3 * at;
    for (int x = 0; x < n; x++) {
      out[3 * x] = red[x];
      out[3 * x + 1] = green[x];
      out[3 * x + 2] = blue[x];
    }
  }
}

void mean(const float *const angles[4], int n, float *__restrict out) {
  const float *__restrict i0 = angles[0], *__restrict i45 = angles[1], *__restrict i90 = angles[2],
                          *__restrict i135 = angles[3];
  for (int x = 0; x < n; x++) out[x] = mean_of(i0[x], i45[x], i90[x], i135[x]);
}

void find_luma(const float *__restrict red, const float *__restrict green, const float *__restrict blue, int n,
               float *__restrict out) {
  for (int x = 0; x < n; x++) out[x] = luma(red[x], green[x], blue[x]);
}

// The images in colour of a piece of a row.
void color_images(const Products &to, int64_t at, int n, const float *const angles[3][4]) {
  for (int k = 0; k < 4; k++) store_color(to.angles[k], at, n, angles[0][k], angles[1][k], angles[2][k]);
  Line lines[3];
  if (to.intensity.data) {
    for (int channel = 0; channel < 3; channel++) mean(angles[channel], n, lines[channel]);
    store_color(to.intensity, at, n, lines[0], lines[1], lines[2]);
  }
  for (int k = 0; k < COMPONENTS; k++) {
    if (!to.components[k].data) continue;
    for (int channel = 0; channel < 3; channel++) {
      Sums sums;
      sums_of_angles(angles[channel], n, sums);
      find_component(to, k, n, sums, lines[channel]);
    }
    store_color(to.components[k], at, n, lines[0], lines[1], lines[2]);
  }
}

} // namespace

// Computes the rows of the images, in one thread.
extern "C" void polarization_planes(const Planes *from, const Products *to, Count *count) {
  Products of_luma = *to;
  of_luma.intensity = Image();
  for (Image &angle : of_luma.angles) angle = Image();
  for (Image &component : of_luma.components) component = Image();
  for (int y = from->first; y < from->end; y++) {
    const int64_t row = y - from->first;
    for (int64_t first = 0; first < to->width; first += PIECE) {
      const int n = (int)(to->width - first < PIECE ? to->width - first : PIECE);
      const int64_t at = y * to->width + first;
      const float *angles[3][4];
      for (int channel = 0; channel < 3; channel++)
        for (int k = 0; k < 4; k++)
          angles[channel][k] = from->angles[channel][k] + row * from->steps[channel][k] + first;
      color_images(*to, at, n, angles);
      Line lumas[4];
      for (int k = 0; k < 4; k++) find_luma(angles[0][k], angles[1][k], angles[2][k], n, lumas[k]);
      const float *lines[4] = {lumas[0], lumas[1], lumas[2], lumas[3]};
      int32_t saturated[PIECE];
      if (from->saturated)
        for (int x = 0; x < n; x++) saturated[x] = from->saturated[row * to->width + first + x];
      polarimetry(of_luma, at, n, lines, from->saturated ? saturated : nullptr, *count, angles);
    }
  }
}
