// Denoised planes of the Stokes image, or the products of them: the option `denoise`, which
// `polar_pipeline/backends/reference/denoising.py` defines and explains. S0/2 takes the place of S0 here.
//
// A block makes a tile of TILE_X x TILE_Y pixels, stage by stage. What a stage leaves in shared memory reaches beyond
// the tile by as much as later stages look around:
//   sum_rows   sums over seven rows of S0/2, S1, S2, and of the products of S0/2 with each
//   fit_lines  over seven columns of these; so the straight lines from S0/2 to S1 and S2 around every pixel
//   sum_fits   sums over seven rows of lines
//   explain    over seven columns of these; so what S0 explains of S1 and S2, and the rest: in registers, for `finish`
//   finish     from the energy of the rest and from S0/2, each of 5 x 5 pixels, to the denoised pixel and its products
#include "denoise.cuh"

// What a block keeps between stages; `near` once the lines of all colors are used.
union Shared {
  float lines[MOMENTS][FIT_ROWS][PITCH];
  struct {
    float energy[REST_ROWS][NEAR_PITCH], light[CHANNELS][REST_ROWS][NEAR_PITCH]; // `light`: S0/2 less `level`
  } near;
};
static_assert(sizeof(Shared) <= SHARED_BYTES, "the schedule reserves too little shared memory");

// What a thread keeps of four pixels: what S0 explains of S1 and S2 of each color; and of luma what it leaves over, and
// the slopes, which only noise needs.
struct Rest {
  float explained[CHANNELS][2][4], luma[2][4], slopes[2][4];
};
// The weight of a color in luma.
DEVICE float luma_share(int c) { return !COLOR ? 1 : c == 1 ? LUMA_GREEN : LUMA_RED; }

// The sums over seven rows around the rows of fits, of `QUANTITIES` of the moments of a color: all, or S0/2 alone.
template <int QUANTITIES> DEVICE void sum_rows(const Tile &tile, int c, float (*lines)[FIT_ROWS][PITCH]) {
  static_assert(FIT_ROWS % RUN == 0, "complete runs");
  for (int item = threadIdx.x; item < COLUMNS * (FIT_ROWS / RUN); item += THREADS) {
    const int x = item % COLUMNS, first = item / COLUMNS * RUN;
    float values[3][RUN + 6];
    u32 at[RUN + 6];
    tile.find(first - HALO, x - HALO, WIDTH, at);
#pragma unroll
    for (int k = 0; k < RUN + 6; k++) {
      values[0][k] = tile.mean(c, at[k]);
      if (QUANTITIES == 1) continue;
      const Pair both = difference_of(tile.difference(c, at[k]));
      values[1][k] = low(both);
      values[2][k] = high(both);
    }
#pragma unroll
    for (int q = 0; q < QUANTITIES; q++) {
      float terms[RUN + 6], sums[RUN];
#pragma unroll
      for (int k = 0; k < RUN + 6; k++) terms[k] = q < 3 ? values[q % 3][k] : values[0][k] * values[q % 3][k];
      sums_of_7(terms, sums);
#pragma unroll
      for (int k = 0; k < RUN; k++) lines[q][first + k][x] = sums[k];
    }
  }
}

// Threads that fit lines have six pixels of a row each. A warp has all rows of the same columns: so its threads read
// different banks.
constexpr int FIT_RUN = 6;
static_assert(FIT_ROWS <= 32 && FIT_COLUMNS / FIT_RUN * 32 <= THREADS && FIT_COLUMNS % FIT_RUN == 0, "each fits once");
DEVICE int fit_row() { return threadIdx.x % 32; }
DEVICE int fit_column() { return threadIdx.x / 32 * FIT_RUN; }
DEVICE bool fits_lines() { return fit_row() < FIT_ROWS && fit_column() < FIT_COLUMNS; }
DEVICE void sum_columns(const float (&line)[FIT_ROWS][PITCH], float (&sums)[FIT_RUN]) {
  const float *from = &line[fit_row()][fit_column()];
  float values[FIT_RUN + 6];
#pragma unroll
  for (int k = 0; k < FIT_RUN + 6; k++) values[k] = from[k];
  sums_of_7(values, sums);
}

// The variances by noise of S0/2 of each color around the pixels of a thread: by the mean of all colors, as methods mix
// them.
DEVICE void find_noise_of_colors(const DenoiseArguments &job, const Tile &tile, Shared &s,
                                 float (&noise)[CHANNELS][FIT_RUN]) {
#pragma unroll
  for (int c = 0; c < CHANNELS; c++) sum_rows<1>(tile, c, s.lines + c);
  sync_block();
  if (fits_lines()) {
    float sums[CHANNELS][FIT_RUN];
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) sum_columns(s.lines[c], sums[c]);
#pragma unroll
    for (int k = 0; k < FIT_RUN; k++) {
      float variances[CHANNELS];
#pragma unroll
      for (int c = 0; c < CHANNELS; c++)
        variances[c] = raw_variance(job.frame, tile.level[c] + SHARE_OF_49 * sums[c][k]);
#pragma unroll
      for (int c = 0; c < CHANNELS; c++) noise[c][k] = weighted(job.light_gains[c], variances);
    }
  }
  sync_block();
}

// The straight lines of a color around every pixel, in the first four of `lines`.
DEVICE void fit_lines(const DenoiseArguments &job, const Tile &tile, Shared &s, const float (&of_color)[FIT_RUN]) {
  float fits[FITS][FIT_RUN];
  if (fits_lines()) {
    float moments[MOMENTS][FIT_RUN];
#pragma unroll
    for (int q = 0; q < MOMENTS; q++) sum_columns(s.lines[q], moments[q]);
#pragma unroll
    for (int k = 0; k < FIT_RUN; k++) {
      const float m0 = SHARE_OF_49 * moments[0][k], m1 = SHARE_OF_49 * moments[1][k], m2 = SHARE_OF_49 * moments[2][k];
      const float noise = COLOR ? of_color[k] : job.light_gains[0][0] * raw_variance(job.frame, tile.level[0] + m0);
      const float signal = fmaxf(fmaf(SHARE_OF_49, moments[3][k], -m0 * m0) - noise, 0);
      const float inverse = fast_rcp(signal + noise);
      const float a1 = fmaf(SHARE_OF_49, moments[4][k], -m0 * m1) * inverse,
                  a2 = fmaf(SHARE_OF_49, moments[5][k], -m0 * m2) * inverse;
      fits[0][k] = a1;
      fits[1][k] = fmaf(-a1, m0, m1);
      fits[2][k] = a2;
      fits[3][k] = fmaf(-a2, m0, m2);
    }
  }
  sync_block(); // the sums are used
  if (fits_lines())
#pragma unroll
    for (int q = 0; q < FITS; q++)
#pragma unroll
      for (int k = 0; k < FIT_RUN; k++) s.lines[q][fit_row()][FIT_COLUMN + fit_column() + k] = fits[q][k];
  sync_block();
}

// The sums over seven rows of the lines, in their place.
DEVICE void sum_fits(Shared &s) {
  static_assert(REST_ROWS % RUN == 0 && FIT_COLUMNS * (REST_ROWS / RUN) <= THREADS, "each sums lines once");
  const int x = FIT_COLUMN + threadIdx.x % FIT_COLUMNS, first = threadIdx.x / FIT_COLUMNS * RUN;
  float sums[FITS][RUN];
  if (first < REST_ROWS)
#pragma unroll
    for (int q = 0; q < FITS; q++) {
      float values[RUN + 6];
#pragma unroll
      for (int k = 0; k < RUN + 6; k++) values[k] = s.lines[q][first + k][x];
      sums_of_7(values, sums[q]);
    }
  sync_block();
  if (first < REST_ROWS)
#pragma unroll
    for (int q = 0; q < FITS; q++)
#pragma unroll
      for (int k = 0; k < RUN; k++) s.lines[q][first + k][x] = sums[q][k];
  sync_block();
}

// Finds what S0 explains of S1 and S2 of a color in four pixels; the rest is added to that of luma.
DEVICE void explain(const Tile &tile, int c, const Place &at, const Shared &s, Rest &of) {
  float sums[FITS][4];
#pragma unroll
  for (int q = 0; q < FITS; q++) {
    float values[4 + 6];
#pragma unroll
    for (int k = 0; k < 4 + 6; k++) values[k] = s.lines[q][at.row][4 * at.run + k];
    sums_of_7(values, sums[q]);
  }
  u32 pixels[4];
  tile.find(at.row - LEE, 4 * (at.run - 1), 1, pixels);
  const float share = luma_share(c);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const float light = tile.mean(c, pixels[k]);
    const Pair both = difference_of(tile.difference(c, pixels[k]));
    of.explained[c][0][k] = SHARE_OF_49 * fmaf(sums[0][k], light, sums[1][k]);
    of.explained[c][1][k] = SHARE_OF_49 * fmaf(sums[2][k], light, sums[3][k]);
    of.luma[0][k] = fmaf(share, low(both) - of.explained[c][0][k], c ? of.luma[0][k] : 0);
    of.luma[1][k] = fmaf(share, high(both) - of.explained[c][1][k], c ? of.luma[1][k] : 0);
#pragma unroll
    for (int s = 0; s < 2; s++) // by S0, not S0/2
      of.slopes[s][k] = fmaf(0.5f * SHARE_OF_49 * share, sums[2 * s][k], c ? of.slopes[s][k] : 0);
  }
}

// Stores S0/2 of the pixels of a thread, and the energy of the rest.
DEVICE void store_near(const Tile &tile, const Place &at, const Rest &of, Shared &s) {
  u32 pixels[4];
  tile.find(at.row - LEE, 4 * (at.run - 1), 1, pixels);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    s.near.energy[at.row][4 * at.run + k] = fmaf(of.luma[0][k], of.luma[0][k], of.luma[1][k] * of.luma[1][k]);
#pragma unroll
    for (int c = 0; c < CHANNELS; c++) s.near.light[c][at.row][4 * at.run + k] = tile.mean(c, pixels[k]);
  }
}

// The mean and the variance of S0/2 in 5 x 5 pixels around each of four, of one color.
DEVICE void find_spread(const float (&light)[REST_ROWS][NEAR_PITCH], const Place &at, float (&mean)[4],
                        float (&spread)[4]) {
  float sums[8] = {}, squares[8] = {};
#pragma unroll
  for (int k = 0; k < 8; k++)
#pragma unroll
    for (int r = -LEE; r <= LEE; r++) {
      const float value = light[at.row + r][4 * at.run + k - LEE];
      sums[k] += value;
      squares[k] = fmaf(value, value, squares[k]);
    }
#pragma unroll
  for (int k = 0; k < 4; k++) {
    mean[k] = SHARE_OF_25 * sum_of_5(sums, k);
    spread[k] = fmaxf(fmaf(SHARE_OF_25, sum_of_5(squares, k), -mean[k] * mean[k]), TINY);
  }
}

// The energy of four pixels, smoothed.
DEVICE void smooth_energy(const float (&energy)[REST_ROWS][NEAR_PITCH], const Place &at, float (&to)[4]) {
  float lines[8];
#pragma unroll
  for (int k = 0; k < 8; k++) {
    const auto of = [&](int row) { return energy[at.row + row][4 * at.run + k - LEE]; };
    lines[k] = smooth(of(0), of(-1) + of(1), of(-2) + of(2));
  }
#pragma unroll
  for (int k = 0; k < 4; k++) to[k] = smooth(lines[k + 2], lines[k + 1] + lines[k + 3], lines[k] + lines[k + 4]);
}

// The denoised pixels of a thread, and their products.
DEVICE void finish(const DenoiseArguments &job, const Tile &tile, const Place &at, const Rest &of, const Shared &s,
                   InvalidCount &count) {
  const int y = tile.top + at.row - LEE, x = tile.left + 4 * (at.run - 1);
  float means[CHANNELS][4], spreads[CHANNELS][4], variances[4][CHANNELS], energy[4], kept[4], kept_light[4], least[4];
#pragma unroll
  for (int c = 0; c < CHANNELS; c++) {
    find_spread(s.near.light[c], at, means[c], spreads[c]);
#pragma unroll
    for (int k = 0; k < 4; k++) variances[k][c] = raw_variance(job.frame, means[c][k] + tile.level[c]);
  }
  smooth_energy(s.near.energy, at, energy);
#pragma unroll
  for (int k = 0; k < 4; k++) {
    const float noise = weighted(job.polarization_gains, variances[k]); // of S1 and of S2 of luma
    kept[k] = fmaxf(fmaf(-job.strength * noise, fast_rcp(fmaxf(energy[k], TINY)), 1), 0);
    least[k] = 0;
    if (IS_AUTO) {
      const float own = means[0][k] + tile.level[0], blue = means[CHANNELS - 1][k] + tile.level[CHANNELS - 1];
      const float light = COLOR ? luma(own, means[CHANNELS / 2][k] + tile.level[CHANNELS / 2], blue) : own;
      least[k] = least_kept(noise, 2 * light);
      kept[k] = fmaf(1 - least[k], kept[k], least[k]);
    }
    kept_light[k] = 1;
  }
  Combinations to;
  u32 pixels[4];
  tile.find(at.row - LEE, 4 * (at.run - 1), 1, pixels);
  u32 saturated = 0, dark = 0;
#pragma unroll
  for (int c = 0; c < CHANNELS; c++) {
    float mean[4], s1[4], s2[4], excess[4];
#pragma unroll
    for (int k = 0; k < 4; k++) {
      const float noise = weighted(job.light_gains[c], variances[k]);
      const float removed = (1 - least[k]) * fminf(noise * fast_rcp(spreads[c][k]), 1);
      kept_light[k] = fmaf(-luma_share(c), removed, kept_light[k]);
      const float light = s.near.light[c][at.row][4 * at.run + k];
      mean[k] = fmaf(removed, means[c][k] - light, light) + tile.level[c];
      const uint2 both = tile.difference(c, pixels[k]);
      const float explained1 = of.explained[c][0][k], explained2 = of.explained[c][1][k];
      s1[k] = fmaf(kept[k], low(difference_of(both)) - explained1, explained1);
      s2[k] = fmaf(kept[k], high(difference_of(both)) - explained2, explained2);
      excess[k] = EXCESS ? pixel_of(job.excesses, tile.of_color(c, pixels[k])) : 0;
      if (c) continue;
      saturated |= (last_bits(both) & 1) << k;
      dark |= (last_bits(both) >> 16 & 1) << k;
    }
#pragma unroll
    for (int k = 0; k < 2; k++) {
      to.mean[c][k] = pair(mean[2 * k], mean[2 * k + 1]);
      to.s1[c][k] = pair(s1[2 * k], s1[2 * k + 1]);
      to.s2[c][k] = pair(s2[2 * k], s2[2 * k + 1]);
      to.excess[c][k] = pair(excess[2 * k], excess[2 * k + 1]);
    }
  }
  const OutputPosition position = output_position(job.frame, y, x);
  const auto leave = [&](int k, float, Covariance &v) {
    const float share = 1 - kept[k];
    v = covariance_left(v, NoiseLeft{kept[k], kept_light[k], share * of.slopes[0][k], share * of.slopes[1][k]},
                        job.means_noise);
  };
  store_planes_or_products(job.frame, position, y, to, saturated, dark, leave, count);
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) denoise(const DenoiseArguments job) {
  SHARED_MEMORY(memory);
  Shared &s = *(Shared *)memory;
  const Tile tile(job);
  const Place at = place_of_thread();
  float noise[CHANNELS][FIT_RUN];
  if (COLOR) find_noise_of_colors(job, tile, s, noise);
  Rest of;
#pragma unroll
  for (int c = 0; c < CHANNELS; c++) {
    sum_rows<MOMENTS>(tile, c, s.lines);
    sync_block();
    fit_lines(job, tile, s, noise[c]);
    sum_fits(s);
    if (at.is_near) explain(tile, c, at, s, of);
    sync_block();
  }
  if (at.is_near) store_near(tile, at, of, s);
  sync_block();
  InvalidCount count = {0, 0};
  if (at.is_inside && tile.top + at.row - LEE < HEIGHT && tile.left + 4 * (at.run - 1) < WIDTH)
    finish(job, tile, at, of, s, count);
  count_invalid(job.frame, count);
}
