// What `transform` is compiled for, its argument, and the samples that it takes of the planes.
#pragma once
#include "planes.cuh"

// WIDTH and HEIGHT: of the outputs; SCALE: samples along each side of an output pixel; POSITIONS 1: they lie where
// `positions` says, and S1 and S2 turn by `turns`; 0: they are pixels; BY_COLUMNS 1: neighboring columns of the output
// lie in neighboring rows of the planes.

// polar_pipeline/backends/cuda/geometry.py has the same.
struct TransformArguments {
  FrameArguments frame;  // `out`, `counts`, `polarizer` and `fading` are read
  const u8 *differences; // (frames, colors, SOURCE_HEIGHT, SOURCE_WIDTH, 2), see `planes.cuh`
  const u8 *means;       // (frames, colors, SOURCE_HEIGHT, SOURCE_WIDTH)
  const u8 *excesses;    // likewise; with EXCESS only
  const u32 *positions;  // of samples, in the order in which the threads of each tile read them: column and row in 16
                         // bits each, from the tile's origin; all bits set: outside the planes
  const u32 *origins;    // of tiles: index of a pixel of a plane
  const u8 *turns; // (tiles, threads, 2): cosine and sine of twice the rotation of a thread's four pixels, as PLANES
  int origin, right, down; // without positions: the first pixel of the first square; steps to those of the next column
                           // and row of the output
  int fraction;            // bits of a position below a pixel
  float turn;              // factor of S1 and S2 where there are no `turns`
};

constexpr u32 OUTSIDE = 0xffffffffu; // a position
constexpr bool EXCESS = OUT_SUMS || WANT_ANGLES;
constexpr int PIXELS = TILE_X * TILE_Y, PITCH = TILE_X + 1; // an odd number of words: columns lie in different banks

// Where a sample lies: the pixel to the left and above, and its place between that and its neighbors.
struct Place {
  u32 at;    // index of the pixel
  u32 parts; // of a pixel, in 1024ths, column and row in 16 bits each; 0: the neighbors have no weight
  Pair u, v; // column and row as fractions of a pixel, in [0, 1), in both lanes
};
DEVICE Place place_between(u32 at, u32 parts) {
  const u32 places = half2_sub(parts | 0x3c003c00u, 0x3c003c00u); // exact
#if HALF_PRECISION
  return Place{at, parts, half2_low_twice(places), half2_high_twice(places)};
#else
  return Place{at, parts, pair(half2_low(places), half2_low(places)), pair(half2_high(places), half2_high(places))};
#endif
}
DEVICE Place place_of(u32 position, u32 origin, int fraction) {
  const u32 below = ((1u << fraction) - 1) * 0x10001u;
  return place_between(origin + (position >> (16 + fraction)) * SOURCE_WIDTH + ((position & 0xffff) >> fraction),
                       (position & below) << (10 - fraction));
}

DEVICE Pair between(Pair first, Pair second, Pair share) { return fma(share, sub(second, first), first); }

// Samples of one plane. Neighbors without weight are read, too: behind the last plane there is space for them. any:
// collects the last bits of all four.
DEVICE Difference difference_at(const u8 *plane, const Place &place, u32 &any) {
  const u8 *p = plane + (size_t)place.at * DIFFERENCE_BYTES;
  const uint2 a = load_difference(p, 0), b = load_difference(p, 1), c = load_difference(p, SOURCE_WIDTH),
              d = load_difference(p, SOURCE_WIDTH + 1);
  any |= last_bits(a) | last_bits(b) | last_bits(c) | last_bits(d);
  return between(between(difference_of(a), difference_of(b), place.u),
                 between(difference_of(c), difference_of(d), place.u), place.v);
}
// the last bits of those that have a weight
DEVICE u32 last_bits_at(const u8 *plane, const Place &place) {
  const u8 *p = plane + (size_t)place.at * DIFFERENCE_BYTES;
  const bool has_right = place.parts & 0xffff, has_below = place.parts >> 16;
  u32 bits = last_bits(load_difference(p, 0));
  if (has_right) bits |= last_bits(load_difference(p, 1));
  if (has_below) bits |= last_bits(load_difference(p, SOURCE_WIDTH));
  if (has_right && has_below) bits |= last_bits(load_difference(p, SOURCE_WIDTH + 1));
  return bits;
}
DEVICE Pair value_at(const u8 *plane, const Place &place) { // in the low lane
  const u8 *p = plane + (size_t)place.at * VALUE_BYTES;
  const Pair row = between(row_of(p, 0), row_of(p, SOURCE_WIDTH), place.v);
  return between(row, highs(row, row), place.u);
}
