// From the four intensities of output pixels to every product that depends on one output pixel.
//
// Plain loops over short pieces of rows, all of whose values stay in the first-level cache, for the compiler to
// vectorize; a product that is not asked for is neither computed nor stored.
#pragma once
#include "noise.hpp"

namespace {

// Why a pixel is invalid: its flags.
const uint8_t SATURATED = 1, DARK = 2, OUTSIDE = 4;

// Below every S0 that counts, in units of the angles: keeps quotients finite.
inline float smallest_s0(const Products &to) { return 1e-9f / to.scale; }

// ----------------------------------------------------------------------------------------------------------
// polarimetry

// The highest level of a type.
template <class Level> constexpr float top_level() { return (float)(Level)-1; }
// The nearest level. Light can be less than 0 where geometry turned the Stokes vector of noise: limited as an integer,
// since of two comparisons of floats GCC makes much more.
template <class Level> inline Level nearest_level(float value) {
  const int32_t bits = (int32_t)rounded(smaller(value, top_level<Level>()));
  return (Level)(bits > 0x4b000000 ? bits : 0x4b000000); // 0, rounded: as a literal, since GCC does not evaluate it
}

template <class Level> void store_levels(Level *__restrict out, int n, const float *__restrict line, float scale) {
  const float levels = top_level<Level>() * scale;
  for (int x = 0; x < n; x++) out[x] = nearest_level<Level>(line[x] * levels);
}
// `scale` times a line into one channel of an image of full scale 1.
void store(const Image &image, int64_t at, int n, const float *__restrict line, float scale) {
  if (!image.data) return;
  if (image.itemsize == 1) {
    store_levels((uint8_t *)image.data + at, n, line, scale);
  } else if (image.itemsize == 2) {
    store_levels((uint16_t *)image.data + at, n, line, scale);
  } else {
    float *__restrict out = (float *)image.data + at;
    for (int x = 0; x < n; x++) out[x] = line[x] * scale;
  }
}

template <class Level>
void mask_levels(Level *__restrict out, int n, const int32_t *__restrict invalid, InvalidLevel level) {
  const Level masked = level == HIGHEST ? (Level)-1 : 0;
  for (int x = 0; x < n; x++) out[x] = invalid[x] ? masked : out[x];
}
// Sets invalid pixels to NaN, or of levels to 0, or the highest.
void mask(const Image &image, int64_t at, int n, int channels, const int32_t *__restrict invalid,
          InvalidLevel level = LOWEST) {
  if (!image.data) return;
  if (image.itemsize == 1) {
    mask_levels((uint8_t *)image.data + at, n, invalid, level);
  } else if (image.itemsize == 2) {
    mask_levels((uint16_t *)image.data + at, n, invalid, level);
  } else {
    float *__restrict out = (float *)image.data + at * channels;
    for (int x = 0; x < n; x++)
      for (int k = 0; k < channels; k++) out[channels * x + k] = invalid[x] ? NAN : out[channels * x + k];
  }
}

template <class Level> void store_turn_levels(Level *__restrict out, int n, const float *__restrict turn) {
  for (int x = 0; x < n; x++) out[x] = (Level)rounded((top_level<Level>() + 1) * turn[x]);
}
// AoLP/pi as AoLP: in levels it wraps.
void store_turns(const Image &image, int64_t at, int n, const float *__restrict turn) {
  if (image.itemsize == 1)
    store_turn_levels((uint8_t *)image.data + at, n, turn);
  else if (image.itemsize == 2)
    store_turn_levels((uint16_t *)image.data + at, n, turn);
  else
    store(image, at, n, turn, PI);
}

// Hue `turn`, saturation `degree`, value `total` as RGB.
void preview(uint8_t *__restrict out, int n, const float *__restrict total, const float *__restrict degree,
             const float *__restrict turn, float levels) {
  uint8_t red[PIECE], green[PIECE], blue[PIECE];
  for (int x = 0; x < n; x++) {
    const float value = smaller(total[x] * levels, 255.0f), hue = 6 * turn[x];
    red[x] = (uint8_t)preview_level<0>(hue, degree[x], value);
    green[x] = (uint8_t)preview_level<1>(hue, degree[x], value);
    blue[x] = (uint8_t)preview_level<2>(hue, degree[x], value);
  }
  for (int x = 0; x < n; x++) {
    out[3 * x] = red[x];
    out[3 * x + 1] = green[x];
    out[3 * x + 2] = blue[x];
  }
}

// Makes pixels of an image of colors black.
void blacken(const Image &image, int64_t at, int n, const int32_t *__restrict where) {
  if (!image.data) return;
  uint8_t *__restrict out = (uint8_t *)image.data + 3 * at;
  for (int x = 0; x < n; x++)
    for (int k = 0; k < 3; k++) out[3 * x + k] = where[x] ? 0 : out[3 * x + k];
}

// AoLP and DoLP in color, from AoLP/pi and DoLP.
void color_products(const Products &to, int64_t at, int n, const float *__restrict turn,
                    const float *__restrict degree) {
  Line place;
  if (to.aolp_color.data) {
    uint8_t *__restrict out = (uint8_t *)to.aolp_color.data + 3 * at;
    for (int x = 0; x < n; x++) place[x] = place_of_aolp(turn[x]);
    for (int x = 0; x < n; x++)
      for (int k = 0; k < 3; k++)
        out[3 * x + k] = (uint8_t)faded_level(to.maps[0][3 * color_index(place[x]) + k], degree[x], to.fading);
  }
  if (to.dolp_color.data) {
    uint8_t *__restrict out = (uint8_t *)to.dolp_color.data + 3 * at;
    for (int x = 0; x < n; x++) place[x] = place_of_dolp(degree[x]);
    for (int x = 0; x < n; x++)
      for (int k = 0; k < 3; k++) out[3 * x + k] = to.maps[1][3 * color_index(place[x]) + k];
  }
}

// Stores what SSIM compares.
void store_pair(const Products &to, int64_t at, int n, const float *__restrict straight,
                const float *__restrict diagonal) {
  if (to.is_uint16) {
    uint16_t *__restrict first = (uint16_t *)to.first + at, *__restrict second = (uint16_t *)to.second + at;
    for (int x = 0; x < n; x++) {
      first[x] = (uint16_t)(int32_t)straight[x];
      second[x] = (uint16_t)(int32_t)diagonal[x];
    }
  } else if (to.second) {
    float *__restrict first = (float *)to.first + at, *__restrict second = (float *)to.second + at;
    for (int x = 0; x < n; x++) {
      first[x] = straight[x] * (0.5f * to.scale);
      second[x] = diagonal[x] * (0.5f * to.scale);
    }
  } else if (to.first) {
    float *__restrict first = (float *)to.first + at;
    for (int x = 0; x < n; x++) first[x] = (straight[x] + diagonal[x]) * (0.25f * to.scale);
  }
}

// Counts saturated and dark pixels, and says whether there are any; only then `invalid` is filled.
bool find_invalid(const float *__restrict total, const int32_t *saturated, float min_total, int n,
                  int32_t *__restrict invalid, Count &count) {
  int dark = 0;
  for (int x = 0; x < n; x++) dark += total[x] < min_total;
  if (!dark && !saturated) return false;
  int saturated_count = 0;
  dark = 0;
  for (int x = 0; x < n; x++) {
    const int32_t is_saturated = saturated ? saturated[x] != 0 : 0, is_dark = total[x] < min_total;
    invalid[x] = is_saturated | is_dark;
    saturated_count += is_saturated;
    dark += is_dark & ~is_saturated;
  }
  count.saturated += saturated_count;
  count.dark += dark;
  return true;
}

// Sums and differences of the four angles.
struct Sums {
  Line straight, diagonal, total, s1, s2; // total: 2 S0
};

// Stores what geometry.cpp interpolates.
void store_linear(float *__restrict out, int n, const Sums &sums) {
  const float *__restrict straight = sums.straight, *__restrict diagonal = sums.diagonal;
  const float *__restrict s1 = sums.s1, *__restrict s2 = sums.s2;
  for (int x = 0; x < n; x++) {
    out[4 * x] = straight[x];
    out[4 * x + 1] = diagonal[x];
    out[4 * x + 2] = s1[x];
    out[4 * x + 3] = s2[x];
  }
}
// Loads all but `total` of what `store_linear` has stored.
void load_linear(const float *__restrict from, int n, Sums &sums) {
  float *__restrict straight = sums.straight, *__restrict diagonal = sums.diagonal;
  float *__restrict s1 = sums.s1, *__restrict s2 = sums.s2;
  for (int x = 0; x < n; x++) {
    straight[x] = from[4 * x];
    diagonal[x] = from[4 * x + 1];
    s1[x] = from[4 * x + 2];
    s2[x] = from[4 * x + 3];
  }
}

// Stores why pixels are invalid; `invalid` is null if none is.
void store_flags(const Products &to, int64_t at, int n, const int32_t *saturated, const int32_t *invalid) {
  uint8_t *__restrict out = to.flags + at;
  for (int x = 0; x < n; x++) out[x] = 0;
  if (!invalid) return;
  for (int x = 0; x < n; x++) out[x] = (uint8_t)(invalid[x] ? (saturated && saturated[x] ? SATURATED : DARK) : 0);
}

// Finds the standard deviations of `n` pixels, takes the bias from DoLP if that is asked for, and says whether there
// are pixels whose AoLP is not certain enough; only then `uncertain` is filled. Not inlined: most calls need none of
// it.
__attribute__((noinline)) bool find_noise(const Products &to, int64_t at, int n, const float *const (*colors)[4],
                                          const float *total, const float *s1, const float *s2, float *degree,
                                          Deviations &deviations, int32_t *__restrict uncertain) {
  const Noise &noise = *to.noise;
  Covariances covariances;
  if (noise.stated)
    find_stated(noise, at, n, total, covariances);
  else
    find_covariances(noise, at / to.width, at % to.width, n, colors, covariances);
  if (noise.left[0]) leave_noise(noise, n, covariances);
  find_deviations(noise, covariances, n, total, s1, s2, degree, smallest_s0(to), deviations);
  if (noise.debiases) debias(n, deviations.component, degree);
  int any = 0;
  for (int x = 0; x < n; x++) {
    uncertain[x] = deviations.aolp[x] > noise.max_aolp_sigma;
    any += uncertain[x];
  }
  return any != 0;
}

// Sums of pixels 0 .. n, whose angles `angle(k, x)` says: 0, 45, 90, 135 degrees. HAS_PAIR: else `straight` and
// `diagonal` are not wanted.
template <bool HAS_PAIR, class Angle> inline void find_sums(int n, const Angle angle, Sums &sums) {
  float *__restrict straight = sums.straight, *__restrict diagonal = sums.diagonal, *__restrict total = sums.total;
  float *__restrict s1 = sums.s1, *__restrict s2 = sums.s2;
  for (int x = 0; x < n; x++) {
    const float i0 = angle(0, x), i45 = angle(1, x), i90 = angle(2, x), i135 = angle(3, x);
    if (HAS_PAIR) {
      straight[x] = i0 + i90;
      diagonal[x] = i45 + i135;
    }
    total[x] = sum_of(i0, i45, i90, i135);
    s1[x] = s1_of(i0, i90);
    s2[x] = s2_of(i45, i135);
  }
}

// Sums of `n` pixels from their four intensities.
void sums_of_angles(const float *const angles[4], int n, Sums &sums) {
  const float *__restrict i0 = angles[0], *__restrict i45 = angles[1], *__restrict i90 = angles[2],
                          *__restrict i135 = angles[3];
  find_sums<true>(n, [=](int k, int x) { return k < 2 ? (k ? i45[x] : i0[x]) : (k > 2 ? i135[x] : i90[x]); }, sums);
}

// The four intensities of `n` pixels from their sums and differences.
void angles_of_sums(int n, const float *__restrict straight, const float *__restrict diagonal,
                    const float *__restrict s1, const float *__restrict s2, float *const to[4]) {
  float *__restrict i0 = to[0], *__restrict i45 = to[1], *__restrict i90 = to[2], *__restrict i135 = to[3];
  for (int x = 0; x < n; x++) {
    i0[x] = 0.5f * (straight[x] + s1[x]);
    i45[x] = 0.5f * (diagonal[x] + s2[x]);
    i90[x] = 0.5f * (straight[x] - s1[x]);
    i135[x] = 0.5f * (diagonal[x] - s2[x]);
  }
}

// A component of the light of `n` pixels.
template <int COMPONENT> void components(const float (&polarizer)[2], int n, const Sums &sums, float *__restrict out) {
  const float *__restrict total = sums.total, *__restrict s1 = sums.s1, *__restrict s2 = sums.s2;
  for (int x = 0; x < n; x++) out[x] = component<COMPONENT>(0.25f * total[x], s1[x], s2[x], polarizer);
}
void find_component(const Products &to, int component, int n, const Sums &sums, float *out) {
#define COMPONENT_LOOP(NAME) components<NAME>,
  static void (*const loops[])(const float(&)[2], int, const Sums &, float *) = {LIGHT_COMPONENTS(COMPONENT_LOOP)};
  loops[component](to.polarizer, n, sums, out);
}

// The values of the polarization of `n` pixels, without regard to which are invalid.
struct Polarizations {
  const Sums &sums;
  const float *degree;
  const Deviations &deviations;
  float scale; // `Products::scale`
};
template <int VALUE> void values(const Polarizations &of, int n, float *__restrict out) {
  const float *__restrict total = of.sums.total, *__restrict s1 = of.sums.s1, *__restrict s2 = of.sums.s2;
  const float *__restrict degree = of.degree, *__restrict dolp_sigma = of.deviations.dolp,
                          *__restrict aolp_sigma = of.deviations.aolp, *__restrict ratio = of.deviations.ratio;
  const float scale = of.scale;
  for (int x = 0; x < n; x++)
    out[x] = polarization_value<VALUE>({0.5f * scale * total[x],
                                        scale * s1[x],
                                        scale * s2[x],
                                        degree[x],
                                        {0.0f, dolp_sigma[x], aolp_sigma[x], ratio[x]}});
}
// A row of the products that are such values.
struct ValueProduct {
  void (*find)(const Polarizations &, int, float *);
  Unit unit;
  InvalidLevel invalid;

  // What `store` multiplies by.
  float scale(const Image &image) const {
    const float highest = image.itemsize == 1 ? 255 : 65535;
    return image.itemsize == 4 ? 1.0f : levels_of(unit, highest) / highest;
  }
};
#define VALUE_PRODUCT(NAME, UNIT, INVALID) {values<NAME>, UNIT, INVALID},
const ValueProduct VALUE_PRODUCTS[] = {POLARIZATION_VALUES(VALUE_PRODUCT)};

void store_values(const Products &to, int64_t at, int n, const Polarizations &of) {
  for (int k = 0; k < VALUES; k++) {
    if (!to.values[k].data) continue;
    Line line;
    VALUE_PRODUCTS[k].find(of, n, line);
    store(to.values[k], at, n, line, VALUE_PRODUCTS[k].scale(to.values[k]));
  }
}

// Every product of `n` pixels but the angle images themselves.
//
// `at` is their index in the output; `saturated` says which of them are saturated (not 0), null if no pixel is.
// `colors`: the intensities that the noise of S1 and S2 depends on, of each color; null where no product needs them.
void products_of_sums(const Products &to, int64_t at, int n, const Sums &sums, const int32_t *saturated, Count &count,
                      const float *const (*colors)[4]) {
  const float *__restrict straight = sums.straight, *__restrict diagonal = sums.diagonal;
  const float *__restrict total = sums.total, *__restrict s1 = sums.s1, *__restrict s2 = sums.s2;
  store(to.intensity, at, n, total, 0.25f * to.scale);
  store_pair(to, at, n, straight, diagonal);
  for (int k = 0; k < COMPONENTS; k++) {
    if (!to.components[k].data) continue;
    Line component;
    find_component(to, k, n, sums, component);
    store(to.components[k], at, n, component, to.scale);
  }
  if (to.linear) store_linear(to.linear + 4 * at, n, sums);
  if (to.stokes.data) {
    float *__restrict out = (float *)to.stokes.data + 3 * at;
    for (int x = 0; x < n; x++) {
      out[3 * x] = total[x] * (0.5f * to.scale);
      out[3 * x + 1] = s1[x] * to.scale;
      out[3 * x + 2] = s2[x] * to.scale;
    }
  }
  Line degree, turn;
  int32_t uncertain[PIECE];
  bool any_uncertain = false;
  const bool has_colors = to.aolp_color.data || to.dolp_color.data;
  bool has_values = false;
  for (const Image &image : to.values) has_values |= image.data != nullptr;
  if (has_values || to.preview.data || has_colors || to.noise) {
    const float least = smallest_s0(to);
    for (int x = 0; x < n; x++) degree[x] = degree_of(polarized(s1[x], s2[x]), larger(0.5f * total[x], least));
    Deviations deviations;
    if (to.noise) any_uncertain = find_noise(to, at, n, colors, total, s1, s2, degree, deviations, uncertain);
    store_values(to, at, n, {sums, degree, deviations, to.scale});
  }
  if (to.aolp.data || to.preview.data || to.aolp_color.data)
    for (int x = 0; x < n; x++) turn[x] = half_direction(s1[x], s2[x]);
  if (to.aolp.data) store_turns(to.aolp, at, n, turn);
  if (has_colors) color_products(to, at, n, turn, degree);

  int32_t invalid[PIECE];
  const bool any = find_invalid(total, saturated, to.min_total, n, invalid, count);
  if (to.flags) store_flags(to, at, n, saturated, any ? invalid : nullptr);
  if (any) {
    mask(to.stokes, at, n, 3, invalid);
    for (int k = 0; k < VALUES; k++) mask(to.values[k], at, n, 1, invalid, VALUE_PRODUCTS[k].invalid);
    mask(to.aolp, at, n, 1, invalid);
    blacken(to.aolp_color, at, n, invalid);
    blacken(to.dolp_color, at, n, invalid);
  }
  if (any_uncertain) {
    mask(to.aolp, at, n, 1, uncertain);
    blacken(to.aolp_color, at, n, uncertain);
    for (int x = 0; x < n; x++) degree[x] = uncertain[x] ? 0.0f : degree[x];
  }
  if (to.preview.data) {
    if (any)
      for (int x = 0; x < n; x++) degree[x] = invalid[x] ? 0.0f : degree[x];
    preview((uint8_t *)to.preview.data + 3 * at, n, total, degree, turn, 255 * 0.25f * to.scale);
  }
}

// Every product of `n` pixels.
//
// `at` is their index in the output, `angles` their four intensities, `saturated` which of them are saturated (not 0);
// null if no pixel is. `colors`: the intensities of red, green and blue, whose luma the angles are; null: there are
// none.
void polarimetry(const Products &to, int64_t at, int n, const float *const angles[4], const int32_t *saturated,
                 Count &count, const float *const (*colors)[4] = nullptr) {
  for (int k = 0; k < 4; k++) store(to.angles[k], at, n, angles[k], to.scale);
  Sums sums;
  sums_of_angles(angles, n, sums);
  products_of_sums(to, at, n, sums, saturated, count, colors ? colors : (const float *const(*)[4])angles);
}

} // namespace
