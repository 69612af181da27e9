// From the four intensities of three colors to every product.
#pragma once
#include "polarimetry.hpp"

namespace {

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

// The images in color of `n` pixels.
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

// Every product of `n` pixels: the images in color, and the polarization of luma.
//
// `at` is their index in the output; `angles`: red, green, blue, and 0, 45, 90, 135 degrees; `saturated` says which of
// them are saturated (not 0), null if no pixel is; `plane`: pixels of a linear plane.
void color_polarimetry(const Products &to, int64_t at, int n, const float *const angles[3][4], int64_t plane,
                       const int32_t *saturated, Count &count) {
  color_images(to, at, n, angles);
  for (int channel = 0; channel < 3 && to.linear; channel++) {
    Sums sums;
    sums_of_angles(angles[channel], n, sums);
    store_linear(to.linear + 4 * (at + channel * plane), n, sums);
  }
  Products of_luma = to;
  of_luma.intensity = Image();
  of_luma.linear = nullptr;
  for (Image &angle : of_luma.angles) angle = Image();
  for (Image &component : of_luma.components) component = Image();
  Line lumas[4];
  for (int k = 0; k < 4; k++) find_luma(angles[0][k], angles[1][k], angles[2][k], n, lumas[k]);
  const float *lines[4] = {lumas[0], lumas[1], lumas[2], lumas[3]};
  polarimetry(of_luma, at, n, lines, saturated, count, angles);
}

} // namespace
