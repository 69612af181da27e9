// A frame that is computed, with all that it is computed from and into: the argument of `compute_frame`.
// `polar_pipeline/backends/cpu/arguments.py` has the same structures field by field.
#pragma once
#include "../formulas.h"
#include <cstdint>

// Pixels that are invalid.
struct Count {
  int64_t saturated, dark;
};

// A raw mosaic.
struct Mosaic {
  const void *raw; // uint8, or uint16 if `is_wide`
  int64_t step;    // bytes from one row to the next
  int32_t is_wide;
  int32_t height, width;     // raw pixels
  int32_t method;            // Method
  int32_t half;              // the output has a pixel for each superpixel
  int32_t place[4];          // 2 row + column in the tile of 0, 45, 90, 135 degrees
  int32_t full_scale;        // of a saturated pixel; larger numbers mean this one
  int32_t next;              // first row, or tile, of the output that no thread has taken
  int32_t is_color;          // its superpixels have colors
  int32_t phase[2];          // added to a row and a column, it makes those even that superpixels begin with
  const uint32_t *codes;     // (height, width) parameters by which pixels are corrected; null: they are ideal
  float lowest[4], steps[4]; // what the codes mean
  const void *words;         // instead of the codes, for 8-bit frames at half resolution: `WordBlock`s; null: none
};

// What a mosaic of colors needs beside that.
struct Color {
  int32_t debayer;         // Debayer
  int32_t source[3][4][4]; // Source of each channel by row and column of the frame, modulo 4
  float *corrected;        // (height, width): memory for the corrected frame; null: pixels are ideal
};

const int EXPOSURES = 16; // most that a frame is merged from

// The noise of a frame; intensities are in units of the angles.
struct Noise {
  // (period, period, channels, 4, 6): from the variance of raw pixels to the covariances of S1, S2 and S0, by row and
  // column of the output, color and polarizer of the raw pixels, and element: 11, 12, 22, 10, 20, 00
  const float *gains;
  int32_t period, channels;
  float shot, floor;     // variance of a raw pixel: over its intensity, and in the dark
  float method[4];       // what gains leave out (`NOISE_LINEAR` in polar_pipeline/polarimetry/coefficients.py)
  int32_t debiases;      // whether DoLP is bias-corrected
  float max_aolp_sigma;  // in rad; beyond it AoLP is invalid
  const float *left[4];  // of the pixels whose products are made, what denoising did to it (`NoiseLeft`); null: nothing
  NoiseOfMeans means;    // of the denoising
  const float *stated;   // (height, width, 4): `Learned::noise`; null: `gains` and `left` tell
  float stated_gains[2]; // from the variance of a raw pixel to those of S0 and of S1 and S2 by ADR
  // of merged frames, whose `floor` is the least one: (rows, columns), the exposure of each superpixel; null: others
  const uint8_t *exposures;
  // (period, period, channels, 4, 3, 3): which share of the gains comes from the superpixels around, by place as
  // `gains`
  const float *shares;
  int32_t rows, columns, is_half;
  float shots[EXPOSURES], floors[EXPOSURES]; // variance of a raw pixel, by exposure
};

// Where a product is stored; null data: it is not asked for.
struct Image {
  void *data;       // (height, width[, 3]) without gaps
  int64_t itemsize; // bytes of an element: 4 of float32, 1 or 2 of a level (uint8, uint16)
};

struct Products {
  Image angles[4];              // 0, 45, 90, 135 degrees
  Image components[COMPONENTS]; // of the light, by `enum Component`
  Image values[VALUES];         // of the polarization, by `enum Value`
  Image intensity, stokes, aolp, preview, aolp_color, dolp_color;
  void *first;        // what SSIM compares, (height, width) float32: (I0 + I90)/2, or S0/2 if `second` is null
  void *second;       // (I45 + I135)/2
  int64_t is_uint16;  // whether these two are uint16 instead: I0 + I90 and I45 + I135 in units of the angles
  int64_t width;      // output pixels of a row
  float scale;        // what one unit of an angle's intensity is of full scale
  float min_total;    // smallest sum of the four angles, in such units, that has a polarization; 0: no product needs it
  const Noise *noise; // null: no product depends on it
  float polarizer[2]; // by what POLARIZER multiplies S1 and S2: cosine and sine of its angle, doubled
  float fading[2];    // gray level that colors of AoLP fade to, and the least share of color; else DoLP is the share
  const uint8_t *maps[2]; // (256, 3) RGB: of AoLP in 256ths of pi, and of DoLP in 255ths
  float *linear;  // (channels, height, width, 4): I0 + I90, I45 + I135, S1, S2 in units of the angles; null: not wanted
  uint8_t *flags; // (height, width), with `linear`: SATURATED, DARK or 0
};

// From the linear planes of a frame to another geometry.
struct Transform {
  const float *linear;    // (channels, source_height, source_width, 4): I0 + I90, I45 + I135, S1, S2
  const uint8_t *flags;   // (source_height, source_width): SATURATED, DARK or 0; null: no pixel is invalid
  uint8_t *rows;          // with `flags`, of each row: not 0 where one of its pixels is invalid
  const float *positions; // (scale * height, scale * width, 2): column and row of the samples; null: squares of pixels
  const float *turns;     // (height, width, 2): cosine and sine of twice the rotation; null: `turn` and 0
  int64_t source_height, source_width;
  int64_t origin, right, down; // squares: the first pixel of the first one; steps to those of the next column and row
  int32_t channels, scale, height, width;
  float turn;
  int32_t next; // row that no thread has taken
};

// Linear planes that are denoised; intensities are in units of the angles.
struct Denoising {
  const float *linear;  // (channels, height, width, 4): I0 + I90, I45 + I135, S1, S2
  float *denoised;      // the same, denoised, for a network or a geometry; null: products are made at once
  Products *products;   // to make at once
  const uint8_t *flags; // (height, width): SATURATED, DARK or 0; null: no pixel is invalid
  int64_t height, width;
  int32_t channels;
  float shot, floor;           // variance of a raw pixel: over its intensity, and in the dark
  float s0_gains[3][3];        // from the variances of raw pixels, by color, to that of S0 of each channel
  float polarization_gains[3]; // to those of S1 and S2 of luma
  float strength;              // noise that is expected, over these
  int32_t is_auto;             // whether all is kept where noise is too little to see
  int32_t next;                // first tile that no thread has taken
};

const int LEARNED_LAYERS = 11; // of the network, in the order of `LAYERS` in `polar_pipeline/backends/network.py`

// The correction of denoised planes by a network.
struct Learned {
  // Memory: (2 + rows, 2 + columns, channels) of two images of superpixels at full, half and quarter resolution, whose
  // outermost superpixels are 0; and (rows, columns, 4), means of superpixels.
  float *images[3][2], *means;
  const float *weights[LEARNED_LAYERS]; // of each layer: (outputs) biases, then (size, size, inputs, outputs)
  float *noise;                         // (height, width, 4): `StatedNoise`; null: not wanted
  int32_t rows, columns;                // superpixels, whole multiples of 4
  int32_t top, left;                    // rows and columns of pixels that superpixels begin before the frame
  float sign;                           // of S2
  int32_t next;                         // row that no thread has taken
};

// Exposures that are merged, the longest first.
struct Bracket {
  const void *raw[EXPOSURES];                // (height, width) uint8, or uint16 if `is_wide`
  int64_t steps[EXPOSURES];                  // bytes from one row to the next
  float lights[EXPOSURES];                   // exposure time times gain, over those of the last one
  float shots[EXPOSURES], floors[EXPOSURES]; // variance of a pixel: over its share of full scale, and in the dark
  const uint32_t *codes;                     // (height, width) of a calibration, whose black level stays; null: none
  uint16_t *mosaic;                          // (height, width), full scale 65535
  uint8_t *exposures, *moved, *differ;       // of each superpixel: its exposure, and where exposures show other light
  int8_t *deviations; // (count - 1, 2 rows + 4, 2 columns + 4), with zeros around: see `compare_exposures`
  int32_t count, is_wide, height, width, full_scale;
  int32_t next;            // row of superpixels that no thread has taken
  float black, black_step; // black level as a share of full scale; with `codes` the lowest one, and its step
  float tolerance, offset; // relative error of the exposures; error of a raw number as a share of full scale
  float limit;             // sum of four squares from which exposures differ
};

// Two images that are compared.
struct Similarity {
  const void *first, *second; // float32, or uint16 if `is_uint16`; in [0, 1] when multiplied by `scale`
  const uint8_t *outside;     // of their size: not 0 where they have no values; null: nowhere
  Image map;                  // (height, width)
  double *sums;               // (rows of blocks, columns of blocks)
  double *pixels;             // as many: summed pixels
  int32_t is_uint16;
  float scale;
  int32_t step;          // values from one row of the images to the next
  int32_t height, width; // of the map
  int32_t stride;        // the images are averaged over this many pixels each way
  int32_t radius;        // of the window, 1 to 7
  int32_t next;          // first tile that no thread has taken
  float taps[8];         // of the window: both pixels k away from its center
};

struct Frame {
  Mosaic mosaic;
  Color color;
  Products products;    // of the mosaic; with a geometry, or denoised, the linear planes
  int32_t has_geometry; // whether `transform` holds something
  int32_t is_denoised;  // whether `denoising` does
  int32_t is_learned;   // whether `learned` does
  int32_t is_compared;  // whether `similarity` does
  Denoising denoising;
  Learned learned;
  Transform transform;
  Products of_planes; // with a geometry, or denoised
  Products compared;  // with both: what SSIM compares, which is not denoised; without a geometry `products` has it
  Similarity similarity;
  Count invalid;     // results
  double seconds[3]; // of denoising, geometry and similarity
};

// The stages. Each computes what no other thread has taken, until all is taken: any number of threads may work on one
// frame at the same time. Each has a count of its own.

// Products of a mono mosaic at half resolution, each angle at its own site or bilinear; and by every other method.
void superpixels(Mosaic &from, const Products &to, Count &count);
void demosaiced(Mosaic &from, const Products &to, Count &count);
// What ideal pixels would have measured, (height, width) from 0 to 1.
void correct_frame(Mosaic &from, float *out);
// Products of a mosaic of colors.
void colors(Mosaic &from, const Color &color, const Products &to, Count &count);
// Denoised linear planes, or products of them.
void denoised(Denoising &of);
// Products of denoised linear planes.
void products_of_denoised(Denoising &of);
// Corrects denoised linear planes, one stage after another: the means of superpixels, then each layer.
void learned(Learned &of, const Denoising &planes, int stage);
// Fills `rows`; and products in another geometry.
void find_invalid_rows(Transform &from);
void transformed(Transform &from, const Products &to, Count &count);
// Merges exposures in stages, one after another, each of which fills arrays of the bracket for the next ones.
const int MERGE_STAGES = 3;
void merge_rows(Bracket &of, int stage);
// Similarity, and the sums of its blocks.
void similarity(Similarity &of);
